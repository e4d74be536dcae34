"""Adds hard negatives to pairs of texts: texts that are near but not positives.

Example: `albert-tf mine_negatives --model=my_embedder --input_file=pairs.tsv
--output_file=triples.tsv --num_negatives=2`
"""

import dataclasses
import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from absl import flags

from albert_tf.cli import start
from albert_tf.cli.flags import define_settings, read_settings
from albert_tf.cli.run import run
from albert_tf.errors import require
from albert_tf.inference.settings import BulkSettings, check_output_file
from albert_tf.tasks.embedding_files import PairFileSettings

_MODEL = flags.DEFINE_string(
    "model", None, "Embedder, or another model, whose mean is used.", required=True
)
_INPUT_FILE = flags.DEFINE_string(
    "input_file",
    None,
    "Table of pairs. The positives of all pairs are the corpus.",
    required=True,
)
_OUTPUT_FILE = flags.DEFINE_string(
    "output_file",
    None,
    "Table to write, .tsv, .csv, .jsonl or .parquet: text, positive, negative_1, ...",
    required=True,
)
define_settings(PairFileSettings)
_COUNT = flags.DEFINE_integer("num_negatives", 1, "Negatives of each pair.", 1)
_MIN_RANK = flags.DEFINE_integer(
    "min_rank", 1, "First rank to take from, without the positives.", 1
)
_MAX_RANK = flags.DEFINE_integer("max_rank", 50, "Last rank to take from.", 1)
_MARGIN = flags.DEFINE_float(
    "margin", 0.0, "Least difference from the cosine of the positive."
)
define_settings(BulkSettings)
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Replace existing output.")


def main() -> None:
    """Makes or finds the index of the positives, searches and writes."""
    settings, bulk = read_settings(PairFileSettings), read_settings(BulkSettings)
    check_output_file(_OUTPUT_FILE.value, _OVERWRITE.value)
    expected = f"--max_rank: must be at least --min_rank={_MIN_RANK.value}"
    require(_MAX_RANK.value >= _MIN_RANK.value, expected, _MAX_RANK.value)
    expected = "--margin: must be a finite number"
    require(math.isfinite(_MARGIN.value), expected, _MARGIN.value)
    start.use_onednn("float32")
    # TensorFlow is imported after the checks that do not need it.
    from albert_tf.inference import search
    from albert_tf.inference.files import EmbedWork, answer_rows

    columns = dataclasses.asdict(settings) | {"input_file": _INPUT_FILE.value}
    folder = f"{_OUTPUT_FILE.value}.index"
    pairs = search.write_pairs(folder, settings.stream(_INPUT_FILE.value))
    role = search.role_of_corpus(_MODEL.value)
    index = search.build_index(
        folder,
        EmbedWork(model=_MODEL.value, output_file="", role=role, **bulk.sizes),
        lambda: search.positives(folder, _INPUT_FILE.value),
        columns,
        bulk,
        overwrite=_OVERWRITE.value,
    )
    answer_rows(
        search.NegativesWork(
            model=_MODEL.value,
            output_file=_OUTPUT_FILE.value,
            index=index,
            k=_COUNT.value,
            min_rank=_MIN_RANK.value,
            max_rank=_MAX_RANK.value,
            margin=_MARGIN.value,
            pairs=pairs,
            **bulk.sizes,
        ),
        lambda: settings.stream(_INPUT_FILE.value),
        columns,
        bulk,
        _OVERWRITE.value,
    ).report("pair")
    index.remove()


if __name__ == "__main__":
    run(main)
