"""Classifies the texts of a table; writes labels and probabilities.

Example: `albert-tf predict --model=sentiment --input_file=new.tsv
--text_column=sentence --output_file=predictions.tsv`
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from absl import flags, logging

from albert_tf.cli.flags import define_settings, read_settings
from albert_tf.cli.run import run
from albert_tf.data.wording import count_of
from albert_tf.errors import UsageError
from albert_tf.storage import files
from albert_tf.tasks.texts.tables import TableSettings

_MODEL = flags.DEFINE_string(
    "model",
    None,
    "Folder of a text classifier, as written by `finetune`.",
    required=True,
)
_INPUT_FILE = flags.DEFINE_string(
    "input_file", None, "CSV or TSV table; may be gzipped.", required=True
)
_OUTPUT_FILE = flags.DEFINE_string(
    "output_file",
    None,
    "File to write: .jsonl for JSON Lines, .csv for commas, otherwise tabs.",
    required=True,
)
define_settings(TableSettings)
_MAX_SEQ_LENGTH = flags.DEFINE_integer(
    "max_seq_length",
    None,
    "Longer texts are cut. Default: as in fine-tuning, or else the model's maximum.",
)
_BATCH_SIZE = flags.DEFINE_integer("predict_batch_size", 32, "Texts per batch.", 1)
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Replace output_file.")


def main() -> None:
    """Reads the table, predicts and writes."""
    from albert_tf.inference.classifier import Classifier
    from albert_tf.tasks.texts.text_classification import predictions_text

    output_file = _OUTPUT_FILE.value
    if files.exists(output_file) and not _OVERWRITE.value:
        raise UsageError(
            f"--output_file={output_file}: exists already; give --overwrite or "
            "another name"
        )
    table = read_settings(TableSettings).read_table(_INPUT_FILE.value)
    classify = Classifier.from_pretrained(
        _MODEL.value,
        max_seq_length=_MAX_SEQ_LENGTH.value,
        batch_size=_BATCH_SIZE.value,
    )
    logits = classify.logits(table.texts, table.text_pairs)
    text = predictions_text(output_file, logits, classify.labels)
    files.write_text(output_file, text, overwrite=_OVERWRITE.value)
    logging.info("%s: %s", output_file, count_of(len(table), "prediction"))


if __name__ == "__main__":
    run(main)
