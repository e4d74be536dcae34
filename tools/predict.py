"""Classifies the texts of a table; writes labels and probabilities.

Example: `albert-tf predict --model=sentiment --input_file=new.tsv
--text_column=sentence --output_file=predictions.tsv`
"""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from absl import flags, logging

from albert_tf.cli.run import run
from albert_tf.errors import UsageError
from albert_tf.storage import files

_MODEL = flags.DEFINE_string(
    "model", None, "Folder of a text classifier, as `finetune` makes it.", required=True
)
_INPUT_FILE = flags.DEFINE_string(
    "input_file", None, "CSV or TSV table; .gz too.", required=True
)
_OUTPUT_FILE = flags.DEFINE_string(
    "output_file", None, "Where to: .tsv, or .jsonl for JSON lines.", required=True
)
_TEXT_COLUMN = flags.DEFINE_string("text_column", "text", "Name or number from 0.")
_TEXT_PAIR_COLUMN = flags.DEFINE_string("text_pair_column", "", "For pairs of texts.")
_DELIMITER = flags.DEFINE_string("delimiter", "", "Default: tab for .tsv, else comma.")
_HEADER = flags.DEFINE_bool("header", True, "Whether the first line names columns.")
_QUOTING = flags.DEFINE_bool("quoting", True, "Whether a double quote quotes a cell.")
_MAX_SEQ_LENGTH = flags.DEFINE_integer(
    "max_seq_length", None, "Longer texts are cut. Default: the model's longest."
)
_BATCH_SIZE = flags.DEFINE_integer("predict_batch_size", 32, "Texts a batch.", 1)
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Replace output_file.")


def main() -> None:
    """Reads, predicts, writes."""
    from albert_tf.inference.classifier import Classifier
    from albert_tf.tasks.tables import read_table
    from albert_tf.tasks.text_classification import predictions_table

    output_file = _OUTPUT_FILE.value
    if files.exists(output_file) and not _OVERWRITE.value:
        raise UsageError(f"--output_file={output_file}: exists already")
    table = read_table(
        _INPUT_FILE.value,
        text_column=_TEXT_COLUMN.value,
        text_pair_column=_TEXT_PAIR_COLUMN.value or None,
        label_column=None,
        delimiter=_DELIMITER.value or None,
        header=_HEADER.value,
        quoting=_QUOTING.value,
    )
    classify = Classifier.from_pretrained(
        _MODEL.value,
        max_seq_length=_MAX_SEQ_LENGTH.value,
        batch_size=_BATCH_SIZE.value,
    )
    if output_file.endswith(".jsonl"):
        ranked = classify(table.texts, table.text_pairs, top_k=None)
        lines = [
            {
                "index": i,
                "prediction": row[0]["label"],
                "probabilities": {x["label"]: round(x["score"], 6) for x in row},
            }
            for i, row in enumerate(ranked)
        ]
        text = "".join(json.dumps(x, ensure_ascii=False) + "\n" for x in lines)
    else:
        logits = classify.logits(table.texts, table.text_pairs)
        text = predictions_table(logits, classify.labels)
    files.write_text(output_file, text, overwrite=_OVERWRITE.value)
    logging.info("%s: %d predictions", output_file, len(table))


if __name__ == "__main__":
    run(main)
