"""Runs a fine-tuning command in a process that kills itself at a given moment.

Usage: python killed.py SETTINGS_JSON MOMENT COUNT, where MOMENT is a key of `MOMENTS`,
or "never".
"""

import json
import os
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[3]))

import tensorflow as tf

from albert_tf.storage import folders
from albert_tf.training import callbacks as best
from albert_tf.training import evaluation
from albert_tf.training import seeds as trials
from albert_tf.training.finetune_settings import FinetuneSettings
from albert_tf.training.tensorflow import checkpoints, step

MOMENTS = {
    "step": (step.TrainStep, "train"),
    "checkpoint": (checkpoints.TrainingCheckpoints, "save"),
    "evaluation": (evaluation.Evaluator, "metrics"),
    "best weights": (best.KeepWeights, "save"),
    "model": (folders.FolderWriter, "write_manifest"),
    "upload": (tf.io.gfile, "copy"),
}


def die_at(moment: str, count: int) -> None:
    """Kills this process the `count`-th time a function has done its work."""
    owner, name = MOMENTS[moment]
    function, calls = getattr(owner, name), []

    def wrapped(*args, **kwargs):
        result = function(*args, **kwargs)
        calls.append(1)
        if len(calls) == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, wrapped)


if __name__ == "__main__":
    if sys.argv[2] != "never":
        die_at(sys.argv[2], int(sys.argv[3]))
    trials.finetune(FinetuneSettings(**json.loads(sys.argv[1])))
