"""Folds an encoder without shared layers into ALBERT's form: one block, many times.

The layers of BERT, RoBERTa or ELECTRA get their mean as shared weights, and each layer
the nearest matrices of a low rank to what is left (--depth_rank). The report says how
much each layer loses; training heals it. convert_checkpoint writes the result for other
libraries as layers that share nothing.

Example: `albert-tf fold --input=bert_base --output=one_block --depth_rank=32
--embedding_size=128 --texts_file=texts.txt`
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from absl import flags

from albert_tf.cli.flags import define_alias, define_settings, read_settings
from albert_tf.cli.run import run
from albert_tf.converters.fold_settings import FoldSettings
from albert_tf.errors import require
from albert_tf.storage import files

_INPUT = flags.DEFINE_string(
    "input", None, "Folder, archive or checkpoint prefix.", required=True
)
_OUTPUT = flags.DEFINE_string("output", None, "Folder to create.", required=True)
_HEAD = flags.DEFINE_string(
    "head",
    "auto",
    "auto: the input's head; none: the encoder alone; or the name of a head.",
)
define_settings(FoldSettings)
_TEXTS_FILE = flags.DEFINE_string(
    "texts_file", "", "File with one text per line, on which states are compared."
)
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Replace existing output.")
define_alias("from", "input")
define_alias("init_checkpoint", "input")
define_alias("output_dir", "output")
define_alias("groups", "num_hidden_groups")


def main() -> None:
    """Folds and prints the report."""
    settings, path = read_settings(FoldSettings), _TEXTS_FILE.value
    texts = [*filter(None, files.read_lines(path))] if path else []
    require(texts or not path, f"--texts_file={path}: holds no text")
    from albert_tf.converters.folding import fold_checkpoint

    head = None if _HEAD.value in ("", "none") else _HEAD.value
    options = {"head": head, "texts": texts, "overwrite": _OVERWRITE.value}
    report = fold_checkpoint(_INPUT.value, _OUTPUT.value, settings, **options)
    print(report.to_text())


if __name__ == "__main__":
    run(main)
