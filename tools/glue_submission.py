"""Makes the zip for the GLUE leaderboard from the predictions of fine-tuned models.

Example: `albert-tf glue_submission --prediction_dir=runs --output_file=glue.zip`, where
runs/cola/test_predictions.tsv and so on are what `finetune` wrote.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from absl import flags

from albert_tf.cli.run import run
from albert_tf.errors import UsageError, count_of
from albert_tf.storage import files

_PREDICTION_DIR = flags.DEFINE_string(
    "prediction_dir",
    "",
    "Folder with a folder for each task (cola, sst2, ...) that has "
    "test_predictions.tsv; for MNLI test_matched_predictions.tsv and "
    "test_mismatched_predictions.tsv; for AX a folder ax, or ax_predictions.tsv in "
    "MNLI's.",
)
_PREDICTIONS = flags.DEFINE_multi_string(
    "predictions",
    [],
    "Another place for one task, such as --predictions=rte=best/rte or "
    "--predictions=mnli-m=matched.tsv; may be repeated.",
)
_OUTPUT_FILE = flags.DEFINE_string("output_file", None, "Zip to write.", required=True)
_DATA_DIR = flags.DEFINE_string(
    "data_dir",
    "",
    "Folder with all of GLUE: the test files say which indices are due. Default: those "
    "of the released files.",
)
_LEAVE_OUT = flags.DEFINE_list(
    "leave_out", [], "Tasks without predictions, such as wnli,ax."
)
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Replace existing output.")


def main() -> None:
    """Finds the predictions, checks them and writes the zip."""
    from albert_tf.tasks import glue_submission

    output_file = _OUTPUT_FILE.value
    files.check_new("output_file", output_file, _OVERWRITE.value)
    given = {}
    for item in _PREDICTIONS.value:
        task, equals, path = item.partition("=")
        if not (task and equals and path):
            raise UsageError(
                f"--predictions: expected TASK=PATH such as rte=best/rte, received "
                f"{item!r}"
            )
        if task in given:
            raise UsageError(f"--predictions: {task} is given twice")
        given[task] = path
    if not given and not _PREDICTION_DIR.value:
        raise UsageError("--prediction_dir or --predictions: one of them is required")
    found = glue_submission.find_predictions(_PREDICTION_DIR.value, given)
    data = glue_submission.make_submission(found, _LEAVE_OUT.value, _DATA_DIR.value)
    files.write_bytes(output_file, data, overwrite=_OVERWRITE.value)
    left_out = f", without {','.join(_LEAVE_OUT.value)}" if _LEAVE_OUT.value else ""
    print(f"{output_file}: {count_of(len(data), 'byte')}{left_out}")


if __name__ == "__main__":
    run(main)
