"""Measures a text classifier on a table of texts and labels; prints JSON.

Example: `albert-tf evaluate --model=sentiment --eval_file=dev.tsv
--text_column=sentence`
"""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from absl import flags

from albert_tf.cli.flags import define_alias
from albert_tf.cli.run import run
from albert_tf.storage import files

_MODEL = flags.DEFINE_string(
    "model", None, "Folder of a text classifier, as `finetune` makes it.", required=True
)
_EVAL_FILE = flags.DEFINE_string(
    "eval_file", None, "CSV or TSV table; .gz too.", required=True
)
_OUTPUT_FILE = flags.DEFINE_string("output_file", "", "Also write the JSON there.")
_TEXT_COLUMN = flags.DEFINE_string("text_column", "text", "Name or number from 0.")
_TEXT_PAIR_COLUMN = flags.DEFINE_string("text_pair_column", "", "For pairs of texts.")
_LABEL_COLUMN = flags.DEFINE_string("label_column", "label", "Name or number from 0.")
_DELIMITER = flags.DEFINE_string("delimiter", "", "Default: tab for .tsv, else comma.")
_HEADER = flags.DEFINE_bool("header", True, "Whether the first line names columns.")
_QUOTING = flags.DEFINE_bool("quoting", True, "Whether a double quote quotes a cell.")
_MAX_SEQ_LENGTH = flags.DEFINE_integer(
    "max_seq_length", None, "Longer texts are cut. Default: the model's longest."
)
_BATCH_SIZE = flags.DEFINE_integer("eval_batch_size", 32, "Texts a batch.", 1)
define_alias("dev_file", "eval_file")


def main() -> None:
    """Reads, predicts, compares."""
    from albert_tf.inference.classifier import Classifier
    from albert_tf.tasks.tables import read_table
    from albert_tf.tasks.text_classification import evaluate

    table = read_table(
        _EVAL_FILE.value,
        text_column=_TEXT_COLUMN.value,
        text_pair_column=_TEXT_PAIR_COLUMN.value or None,
        label_column=_LABEL_COLUMN.value,
        delimiter=_DELIMITER.value or None,
        header=_HEADER.value,
        quoting=_QUOTING.value,
    )
    classify = Classifier.from_pretrained(
        _MODEL.value,
        max_seq_length=_MAX_SEQ_LENGTH.value,
        batch_size=_BATCH_SIZE.value,
    )
    results = {"examples": len(table), "labels": classify.labels}
    logits = classify.logits(table.texts, table.text_pairs)
    results |= evaluate(logits, table, classify.labels)
    text = json.dumps(results, indent=2) + "\n"
    if _OUTPUT_FILE.value:
        files.write_text(_OUTPUT_FILE.value, text)
    print(text, end="")


if __name__ == "__main__":
    run(main)
