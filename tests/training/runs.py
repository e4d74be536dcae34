"""Short runs of both commands, which may kill themselves at a given moment.

`execute` starts `python -m tests.training.runs COMMAND SETTINGS MOMENT COUNT`. SETTINGS
is JSON, MOMENT a key of `MOMENTS` or "never".
"""

import csv
import itertools
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import tensorflow as tf

from albert_tf.reports.run_page import draw_run
from albert_tf.storage import folders
from albert_tf.training import callbacks, checkpoints, engine, evaluation, loop, seeds
from albert_tf.training.finetune_settings import FinetuneSettings
from albert_tf.training.pretrain import pretrain
from albert_tf.training.pretrain_evaluation import evaluate_records
from albert_tf.training.pretrain_settings import PretrainSettings
from tests import forked, tiny
from tests.tiny import GOLDEN, SPIECE

ROOT = pathlib.Path(__file__).parents[2]
RECORDS = GOLDEN / "tf1_data/seq128_pred20.tfrecord"
# Of the models that are fine-tuned.
CONFIG = tiny.tiny_config(
    embedding_size=12,
    hidden_size=24,
    num_hidden_layers=1,
    intermediate_size=40,
    hidden_dropout_prob=0.1,
    initializer_range=0.2,
)
# Of those that are pretrained, as a file of the original.
SIZES = {
    "vocab_size": 30000,
    "embedding_size": 8,
    "hidden_size": 12,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 20,
    "max_position_embeddings": 128,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
}
QUIET = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}


def pretraining(folder, sizes=None, **changes) -> dict:
    """Returns the settings of a run in `folder/run`, ready for JSON."""
    config = folder / "albert_config.json"
    config.write_text(json.dumps({**SIZES, **(sizes or {})}))
    values = {
        "input_file": RECORDS,
        "spm_model_file": SPIECE,
        "albert_config_file": config,
        "output_dir": folder / "run",
        "max_seq_length": 128,
        "max_predictions_per_seq": 20,
        "train_batch_size": 4,
        "eval_batch_size": 8,
        "num_train_steps": 6,
        "num_warmup_steps": 1,
        "learning_rate": 0.01,
        "optimizer": "adamw",  # LAMB takes longer to trace
        "fuse_elementwise": False,  # XLA takes longer than the few steps
        "max_eval_steps": 1,
        "seed": 7,
        **changes,
    }
    return {k: str(v) if isinstance(v, pathlib.Path) else v for k, v in values.items()}


def run_pretraining(folder, sizes=None, **changes) -> str:
    """Pretrains in `folder/run`; returns the folder of the model.

    Evaluations write no answers unless `sample_texts` asks for them.
    """
    values = pretraining(folder, sizes, **{"sample_texts": ("",), **changes})
    return pretrain(PretrainSettings(**values), draw_run)


def finetuning(output_dir, **changes) -> dict:
    """Returns the settings of a run, ready for JSON."""
    values = {"learning_rate": 5e-3, "train_batch_size": 16, "num_train_steps": 45}
    return {"output_dir": str(output_dir), **values, "seed": 7, **changes}


def run(output_dir, **changes) -> dict:
    """Fine-tunes; returns the results."""
    settings = FinetuneSettings(**finetuning(output_dir, **changes))
    return seeds.finetune(settings, draw=draw_run)


def write_table(path, count, seed, labels=("bad", "good")) -> str:
    """Writes texts that hold a word which decides the label."""
    rng = random.Random(seed)
    with open(path, "w", newline="", encoding="utf-8") as f:
        writer = csv.writer(f, delimiter="\t")
        writer.writerow(["id", "label", "text"])
        for i in range(count):
            label = rng.choice(labels)
            words = rng.choices(["the", "film", "was", "a", "day"], k=5)
            words.insert(rng.randrange(6), label)
            writer.writerow([i, label, " ".join(words)])
    return str(path)


def _write_sentences(path, count, seed):
    rng = random.Random(seed)
    lines = []
    for _ in range(count):
        for _ in range(rng.randrange(2, 9)):
            is_name = rng.random() < 0.3
            word = rng.choice(["Anna", "Berlin"] if is_name else ["the", "goes", "to"])
            lines.append(f"{word}\t{'B-NAME' if is_name else 'O'}\n")
        lines.append("\n")
    path.write_text("".join(lines))
    return str(path)


def _write_choices(path, count, seed):
    rng = random.Random(seed)
    rows = []
    for i in range(count):
        choices = [f"a {w} day" for w in rng.sample(["good", "bad", "long", "hot"], 3)]
        choices = choices[: rng.randrange(2, 4)]
        label = rng.randrange(len(choices))
        row = {"context": f"text {i}", "choices": choices, "label": label}
        rows.append(json.dumps(row) + "\n")
    path.write_text("".join(rows))
    return str(path)


# Heads, the last two those of SQuAD: how to write examples, and the ending of the file.
_FILES = {
    "texts": (write_table, "tsv"),
    "words": (_write_sentences, "conll"),
    "choices": (_write_choices, "jsonl"),
}
_SQUAD = {
    "spans": ("squad1", GOLDEN / "squad/train-v1.1.json"),
    "questions": ("squad2", GOLDEN / "squad/dev-v2.0.json"),
}
FAMILIES = [*_FILES, *_SQUAD]


def family(name, folder, start) -> dict:
    """Returns settings of a run with a head, and writes its examples."""
    values = {
        "init_checkpoint": start,
        "num_train_steps": 12,
        "num_warmup_steps": 2,
        "train_batch_size": 4,
        "eval_steps": 4,
        "save_checkpoints_steps": 3,
        "log_steps": 2,
        "learning_rate": 2e-3,
        "early_stopping_patience": 3,
        "dropout": 0.1,
        "seed": 7,
    }
    if name in _FILES:
        write, end = _FILES[name]
        values["train_file"] = write(folder / f"train.{end}", 40, 1)
        return {**values, "dev_file": write(folder / f"dev.{end}", 13, 2)}
    task, file = _SQUAD[name]
    lengths = {"max_seq_length": 64, "max_query_length": 16, "doc_stride": 20}
    values |= {"train_file": str(file), "dev_file": str(file), "train_batch_size": 2}
    return {**values, **lengths, "task": task, "on_bad_input": "skip"}


def lines_of(folder, split=None) -> list[dict]:
    """Returns what was measured, without the times."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").open()]
    for line in lines:
        line.pop("tokens_per_second", None)
    return [line for line in lines if split in (None, line["split"])]


def assert_evaluated_again(run, data) -> dict:
    """Compares the last evaluation of a run with `evaluate`, which it returns."""
    line = lines_of(run, "eval")[-1]
    metrics = {k: v for k, v in line.items() if k not in ("split", "step", "time")}
    found = evaluate_records(run, data, eval_batch_size=8, max_eval_steps=1)
    assert {name: found[name] for name in metrics} == metrics
    assert found["rows"] == 8
    return found


def assert_same_run(one, other) -> None:
    """Compares what two finished runs left, to the bit."""
    names = ["metrics.json", "config.json", "samples.jsonl", "model.safetensors"]
    folders = ("model", "generator", "best", "best/generator")
    inside = ("model.safetensors", "config.json")
    names += [f"{folder}/{name}" for folder in folders for name in inside]
    names += [path.name for path in one.glob("*predictions*")]
    for name in names:
        exists = [(folder / name).exists() for folder in (one, other)]
        assert exists[0] == exists[1], name
        if exists[0]:
            assert (one / name).read_bytes() == (other / name).read_bytes(), name
    left = [sorted(p.name for p in f.glob("checkpoints/*")) for f in (one, other)]
    assert left[0] == left[1]
    found = [lines_of(folder) for folder in (one, other)]
    found = [[x for x in lines if x["split"] != "unfinished"] for lines in found]
    assert found[0] == found[1]


class Killed(BaseException):
    """Stands for the end of the process; nothing catches it."""


# What has just done its work when a run is killed.
MOMENTS = {
    "step": (engine.TrainStep, "train"),
    "checkpoint": (checkpoints.TrainingCheckpoints, "save"),
    "evaluation": (evaluation.Evaluator, "__call__"),
    "pretraining evaluation": (loop, "evaluate_batches"),
    "best weights": (callbacks.KeepWeights, "save"),
    "model": (folders.FolderWriter, "write_manifest"),
    "upload": (tf.io.gfile, "copy"),
}


def start(command, values, moment="never", count=1) -> subprocess.Popen:
    """Starts a command in a process that kills itself at a moment."""
    backend = values.get("backend", "tensorflow")
    arguments = [command, json.dumps(values), moment, str(count)]
    return subprocess.Popen(
        [*forked.PYTHON, "-m", "tests.training.runs", *arguments],
        env={**QUIET, "KERAS_BACKEND": backend},
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_step(folder, step, *processes) -> None:
    """Waits until a run has recorded a step."""
    deadline = time.time() + 300
    while time.time() < deadline:
        path = pathlib.Path(folder) / "metrics.jsonl"
        if path.exists() and f'"step": {step},' in path.read_text():
            return
        assert all(process.poll() is None for process in processes)
        time.sleep(0.01)
    raise AssertionError(f"never reached step {step}")


def execute(command, values, moment="never", count=1) -> None:
    """Runs a command in a process to its end, or until it has killed itself."""
    process = start(command, values, moment, count)
    _, errors = process.communicate(timeout=900)
    expected = 0 if moment == "never" else -signal.SIGKILL
    assert process.returncode == expected, errors[-2000:]


def command_line(verb, values) -> list[str]:
    """Returns a command as a person gives it."""
    flags = [f"--{name}={value}" for name, value in values.items()]
    return [*forked.PYTHON, str(ROOT / "tools" / f"{verb}.py"), *flags]


def main(command, values, moment, count) -> None:
    """Runs a command; see `start`."""
    if moment != "never":
        function, calls = getattr(*MOMENTS[moment]), itertools.count(1)

        def dying(*args, **kwargs):
            result = function(*args, **kwargs)
            if next(calls) == int(count):
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        setattr(*MOMENTS[moment], dying)
    if command == "pretrain":
        pretrain(PretrainSettings(**json.loads(values)), draw_run)
    else:
        seeds.finetune(FinetuneSettings(**json.loads(values)), draw=draw_run)


if __name__ == "__main__":
    main(*sys.argv[1:])
