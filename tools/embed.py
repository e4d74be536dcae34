"""Turns the texts of a table of any size into vectors.

Example: `albert-tf embed --model=my_model --input_file=new.tsv --text_column=sentence
--output_file=vectors.npy`
"""

import dataclasses
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from absl import flags

from albert_tf.cli import start
from albert_tf.cli.flags import define_settings, read_settings
from albert_tf.cli.run import run
from albert_tf.heads import POOLINGS
from albert_tf.inference.settings import BulkSettings, check_output_file
from albert_tf.tasks.text_tables import TextFileSettings

_MODEL = flags.DEFINE_string(
    "model", None, "Model folder or checkpoint; its encoder is used.", required=True
)
_INPUT_FILE = flags.DEFINE_string(
    "input_file",
    None,
    "Table of texts: .tsv, .csv, .jsonl or .parquet, perhaps with .gz.",
    required=True,
)
_OUTPUT_FILE = flags.DEFINE_string(
    "output_file",
    None,
    "File to write: .npy for an array of float32, .jsonl or .parquet for an index and "
    "a vector per row.",
    required=True,
)
define_settings(TextFileSettings)
_POOLING = flags.DEFINE_enum(
    "pooling",
    None,
    POOLINGS,
    "Mean or maximum over the tokens of the text, vector of [CLS], or the pooler's "
    "output. Default: as an embedder was trained; of other models, the mean.",
)
_LAYER = flags.DEFINE_integer(
    "layer", -1, "Layer to read: 0 for the embeddings, -1 for the last layer."
)
_ROLE = flags.DEFINE_string(
    "role", "", "Role of the texts, whose prompt an embedder puts first, such as query."
)
_DIMENSION = flags.DEFINE_integer(
    "dimension", None, "Keep only the first numbers of each vector.", 1
)
define_settings(BulkSettings)
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Replace existing output.")


def main() -> None:
    """Reads the texts, computes vectors and writes."""
    settings, bulk = read_settings(TextFileSettings), read_settings(BulkSettings)
    check_output_file(_OUTPUT_FILE.value, _OVERWRITE.value)
    start.use_onednn("float32")
    # TensorFlow is imported after the checks that do not need it.
    from albert_tf.inference.files import EmbedWork, answer_rows

    work = EmbedWork(
        model=_MODEL.value,
        output_file=_OUTPUT_FILE.value,
        named=bool(settings.id_column),
        layer=_LAYER.value,
        pooling=_POOLING.value,
        role=_ROLE.value,
        dimension=_DIMENSION.value,
        **bulk.sizes,
    )
    answer_rows(
        work,
        lambda: settings.stream(_INPUT_FILE.value),
        dataclasses.asdict(settings) | {"input_file": _INPUT_FILE.value},
        bulk,
        _OVERWRITE.value,
    ).report("vector")


if __name__ == "__main__":
    run(main)
