"""Makes a labelled table from installed packages; the label is a docstring's package.

The demo uses it, because it needs no download.
"""

import os
import random
import sysconfig

from albert_tf.data.corpus import docstrings
from albert_tf.errors import DataError, require
from albert_tf.storage import files
from albert_tf.tasks.task import table_text

# Dependencies of this package, so they are installed. None is the standard library.
TOPICS = {
    "python": None,
    "numpy": "numpy",
    "keras": "keras",
    "matplotlib": "matplotlib",
}


def write_topic_tables(
    train_file: str | os.PathLike,
    dev_file: str | os.PathLike,
    *,
    train_per_topic: int = 40,
    dev_per_topic: int = 250,
    seed: int = 0,
) -> None:
    """Writes two TSV tables with the columns `text` and `label`.

    In each table, every topic of `TOPICS` has the same number of docstrings, and no
    docstring is in both. The training table is small, because pretraining helps most
    then; the dev table is large, for precise measurements. Raises `DataError` if a
    package has too few docstrings.
    """
    rng = random.Random(seed)
    per_topic = train_per_topic + dev_per_topic
    train, dev = [], []
    for label, package in TOPICS.items():
        texts = [" ".join(p) for p in docstrings.read_docstrings(_files(package), None)]
        message = f"docstrings of {label}: expected at least {per_topic}"
        require(len(texts) >= per_topic, message, len(texts), error=DataError)
        rows = [(text, label) for text in rng.sample(texts, per_topic)]
        dev += rows[:dev_per_topic]
        train += rows[dev_per_topic:]
    for path, rows in ((train_file, train), (dev_file, dev)):
        rng.shuffle(rows)
        files.write_text(path, table_text([("text", "label"), *rows]))


def _files(package: str | None) -> list[str]:
    paths = sysconfig.get_paths()
    installed = {os.path.realpath(paths[name]) for name in ("purelib", "platlib")}
    sources = docstrings.source_files()
    if package is None:
        return [path for path in sources if not path.startswith(tuple(installed))]
    folders = tuple(os.path.join(root, package) + os.sep for root in installed)
    return [path for path in sources if path.startswith(folders)]
