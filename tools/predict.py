"""Answers the examples of a task with a fine-tuned model, and writes the answers.

Example: `albert-tf predict --model=sentiment --input_file=new.tsv
--text_column=sentence --output_file=predictions.tsv`

Example: `albert-tf predict --model=mnli --task=ax --data_dir=glue
--output_file=ax_predictions.tsv`
"""

import dataclasses
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from absl import flags

from albert_tf.cli import start
from albert_tf.cli.flags import define_settings, read_settings
from albert_tf.cli.run import run
from albert_tf.errors import UsageError, require
from albert_tf.heads import HEADS, VECTORS
from albert_tf.inference.settings import BulkSettings, check_output_file
from albert_tf.models.exit_rules import RULE_HELP, check_exit
from albert_tf.tasks.opening import TABLE, DataSettings, open_portions, remembered
from albert_tf.tasks.registry import find_task as find_named_task

_MODEL = flags.DEFINE_string(
    "model", None, "Folder of a model, as written by `finetune`.", required=True
)
_INPUT_FILE = flags.DEFINE_string(
    "input_file", "", "Examples, which need no labels, instead of --data_dir."
)
_SPLIT = flags.DEFINE_string("split", "test", "With --data_dir: split to predict.")
_OUTPUT_FILE = flags.DEFINE_string(
    "output_file",
    None,
    "File to write: .tsv, .csv (not for tags), .jsonl or .parquet; .json or .parquet "
    "for the answers to questions.",
    required=True,
)
define_settings(DataSettings)
define_settings(BulkSettings)
_EXIT = flags.DEFINE_string(
    "exit", None, f"Stop early, text classifiers only: {RULE_HELP}."
)
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Replace existing output.")


def main() -> None:
    """Reads the examples, predicts and writes."""
    settings, bulk = read_settings(DataSettings), read_settings(BulkSettings)
    output_file, input_file = _OUTPUT_FILE.value, _INPUT_FILE.value
    if bool(settings.data_dir) == bool(input_file):
        raise UsageError(
            "exactly one of --input_file and --data_dir must be given, received "
            f"{input_file!r} and {settings.data_dir!r}"
        )
    check_exit(_EXIT.value, curve="")
    if settings.task not in ("", TABLE):
        find_named_task(settings.task)
    check_output_file(_OUTPUT_FILE.value, _OVERWRITE.value)
    start.use_onednn("float32")
    # TensorFlow is imported, and weights are read, after the checks that need neither.
    from albert_tf.inference.files import PredictWork, answer_rows
    from albert_tf.inference.predictor import find_task

    task = find_task(_MODEL.value, settings.task, bulk.max_seq_length)
    expected = f"model: {_MODEL.value} gives vectors, which embed writes"
    require(HEADS[task.head].answers != VECTORS, expected)
    settings = read_settings(DataSettings, remembered(task, input_file))
    work = PredictWork(
        answers=HEADS[task.head].answers,
        model=_MODEL.value,
        output_file=output_file,
        named=bool(settings.id_column),
        task=settings.task,
        exit=_EXIT.value,
        **bulk.sizes,
    )
    given = {"split": _SPLIT.value, "input_file": input_file}
    answer_rows(
        work,
        lambda: open_portions(task, settings, _SPLIT.value, input_file),
        dataclasses.asdict(settings) | given,
        bulk,
        _OVERWRITE.value,
    ).report("prediction")


if __name__ == "__main__":
    run(main)
