"""Searches a corpus for the texts nearest to each query, by their vectors.

Example: `albert-tf search --model=my_embedder --corpus=corpus.jsonl
--queries=queries.jsonl --id_column=_id --output_file=found.tsv`
"""

import dataclasses
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from absl import flags

from albert_tf.cli import start
from albert_tf.cli.flags import define_settings, read_settings
from albert_tf.cli.run import run
from albert_tf.inference.settings import BulkSettings, check_output_file
from albert_tf.tasks.text_tables import TextFileSettings

_MODEL = flags.DEFINE_string(
    "model", None, "Embedder, or another model, whose mean is used.", required=True
)
_CORPUS = flags.DEFINE_string(
    "corpus", None, "Table of texts to search.", required=True
)
_QUERIES = flags.DEFINE_string(
    "queries", None, "Table of texts to search for.", required=True
)
_OUTPUT_FILE = flags.DEFINE_string(
    "output_file",
    None,
    "Table to write, .tsv, .csv, .jsonl or .parquet: query, rank, id, score, text.",
    required=True,
)
_K = flags.DEFINE_integer("k", 10, "Texts of the corpus for each query.", 1)
define_settings(TextFileSettings)
_VECTORS = flags.DEFINE_string(
    "corpus_vectors", "", "Vectors of the corpus (.npy), which `embed` wrote."
)
_INDEX_DIR = flags.DEFINE_string(
    "index_dir",
    "",
    "Folder of the index, which a later search of the same corpus uses again. Default: "
    "one that is removed at the end.",
)
define_settings(BulkSettings)
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Replace existing output.")


def main() -> None:
    """Makes or finds the index, searches and writes."""
    settings, bulk = read_settings(TextFileSettings), read_settings(BulkSettings)
    check_output_file(_OUTPUT_FILE.value, _OVERWRITE.value)
    start.use_onednn("float32")
    # TensorFlow is imported after the checks that do not need it.
    from albert_tf.inference.files import EmbedWork, answer_rows
    from albert_tf.inference.search import SearchWork, build_index, role_of_corpus

    columns = dataclasses.asdict(settings)
    index = build_index(
        _INDEX_DIR.value or f"{_OUTPUT_FILE.value}.index",
        EmbedWork(
            model=_MODEL.value,
            output_file="",
            role=role_of_corpus(_MODEL.value),
            **bulk.sizes,
        ),
        lambda: settings.stream(_CORPUS.value),
        columns | {"input_file": _CORPUS.value},
        bulk,
        _VECTORS.value,
        overwrite=_OVERWRITE.value,
    )
    answer_rows(
        SearchWork(
            model=_MODEL.value,
            output_file=_OUTPUT_FILE.value,
            index=index,
            k=_K.value,
            **bulk.sizes,
        ),
        lambda: settings.stream(_QUERIES.value),
        columns | {"input_file": _QUERIES.value},
        bulk,
        _OVERWRITE.value,
    ).report("row")
    if not _INDEX_DIR.value:
        index.remove()


if __name__ == "__main__":
    run(main)
