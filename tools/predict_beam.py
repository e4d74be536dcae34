"""Answers many texts with an exported model: the same as `predict` of a SavedModel.

Example: `albert-tf predict_beam --saved_model=served/films/1
--input_file='reviews/*.jsonl' --output_file=answers/reviews`

`albert-tf predict --model=served/films/1 --runner=DirectRunner ...` replaces this
command, which goes in a later release.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from absl import flags

from albert_tf.cli.flags import define_settings, read_settings
from albert_tf.cli.run import run
from albert_tf.inference.settings import BulkSettings, ServedSettings

_MODEL = flags.DEFINE_string(
    "saved_model",
    None,
    "SavedModel that export wrote, such as served/films/1.",
    required=True,
)
_INPUT_FILE = flags.DEFINE_string(
    "input_file",
    None,
    "Texts: comma-separated files or globs. .txt: a text per line. .jsonl, .parquet, "
    ".csv, .tsv: a row per text. gzip is recognized.",
    required=True,
)
_OUTPUT_FILE = flags.DEFINE_string(
    "output_file",
    None,
    "Prefix of the JSON Lines files to write, or one file that ends in .jsonl.",
    required=True,
)
define_settings(ServedSettings)
_BLOCK_SIZE = flags.DEFINE_integer(
    "block_size",
    1024,
    "Neighbouring texts of a file that are answered together. Another number may "
    "change the last digits of the answers.",
    1,
)
_BATCH_SIZE = flags.DEFINE_integer(
    "batch_size",
    32,
    "Texts of a block that the model sees at once, sorted by length.",
    1,
)
_RUNNER = flags.DEFINE_string(
    "runner",
    "DirectRunner",
    "Apache Beam runner, such as DirectRunner or DaskRunner; empty: no Beam.",
)
_BEAM_OPTION = flags.DEFINE_multi_string(
    "beam_option",
    [],
    "Option for Beam, as --beam_option=--name=value; may be repeated.",
)
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Replace existing output.")


def main() -> None:
    """Answers all texts and prints the files with the answers."""
    bulk = BulkSettings(
        rows_per_part=_BLOCK_SIZE.value,
        runner=_RUNNER.value,
        beam_option=tuple(_BEAM_OPTION.value),
    )
    from albert_tf.inference.saved_model import predict_served

    done = predict_served(
        _MODEL.value,
        _INPUT_FILE.value,
        _OUTPUT_FILE.value,
        read_settings(ServedSettings),
        bulk,
        _BATCH_SIZE.value,
        _OVERWRITE.value,
    )
    print("\n".join(done.paths))


if __name__ == "__main__":
    run(main)
