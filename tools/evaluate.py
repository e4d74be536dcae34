"""Evaluates a text classifier on a table of texts and labels; prints JSON.

Example: `albert-tf evaluate --model=sentiment --eval_file=dev.tsv
--text_column=sentence`
"""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from absl import flags

from albert_tf.cli.flags import define_alias, define_settings, read_settings
from albert_tf.cli.run import run
from albert_tf.storage import files
from albert_tf.tasks.texts.tables import LabelledTableSettings

_MODEL = flags.DEFINE_string(
    "model",
    None,
    "Folder of a text classifier, as written by `finetune`.",
    required=True,
)
_EVAL_FILE = flags.DEFINE_string(
    "eval_file", None, "CSV or TSV table; may be gzipped.", required=True
)
_OUTPUT_FILE = flags.DEFINE_string("output_file", "", "Also write the JSON here.")
define_settings(LabelledTableSettings)
_MAX_SEQ_LENGTH = flags.DEFINE_integer(
    "max_seq_length",
    None,
    "Longer texts are cut. Default: as in fine-tuning, or else the model's maximum.",
)
_BATCH_SIZE = flags.DEFINE_integer("eval_batch_size", 32, "Texts per batch.", 1)
define_alias("dev_file", "eval_file")


def main() -> None:
    """Reads the table, predicts and compares."""
    from albert_tf.inference.classifier import Classifier
    from albert_tf.tasks.texts.text_classification import evaluate, table_task

    table = read_settings(LabelledTableSettings).read_table(_EVAL_FILE.value)
    classify = Classifier.from_pretrained(
        _MODEL.value,
        max_seq_length=_MAX_SEQ_LENGTH.value,
        batch_size=_BATCH_SIZE.value,
    )
    results = {"examples": len(table), "labels": classify.labels}
    logits = classify.logits(table.texts, table.text_pairs)
    results |= evaluate(table_task(classify.labels), logits, table)
    text = json.dumps(results, indent=2) + "\n"
    if _OUTPUT_FILE.value:
        files.write_text(_OUTPUT_FILE.value, text)
    print(text, end="")


if __name__ == "__main__":
    run(main)
