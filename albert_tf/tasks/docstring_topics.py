"""A labelled table that is on every machine: which package is a docstring from?"""

import csv
import io
import os
import random
import sysconfig
from collections.abc import Sequence

from albert_tf.data.corpus import docstrings
from albert_tf.errors import DataError
from albert_tf.storage import files

# Packages that this one needs, so they are installed; None is the standard library.
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
    per_topic: int = 250,
    dev_fraction: float = 0.4,
    seed: int = 0,
) -> None:
    """Writes two TSV tables with the columns `text` and `label`.

    As many docstrings of each of `TOPICS`; no docstring is in both tables.

    Args:
        train_file, dev_file: Where to.
        per_topic: int. Docstrings of each topic, in both tables together.
        dev_fraction: float. Share of the rows in the dev table.
        seed: int. Of the draw.

    Raises:
        DataError: If a package has too few docstrings.
    """
    rng = random.Random(seed)
    rows = []
    for label, package in TOPICS.items():
        texts = [" ".join(p) for p in docstrings.read_docstrings(_files(package), None)]
        if len(texts) < per_topic:
            raise DataError(
                f"docstrings of {label}: {per_topic} are needed, found {len(texts)}"
            )
        rows += [(text, label) for text in rng.sample(texts, per_topic)]
    rng.shuffle(rows)
    cut = round(len(rows) * dev_fraction)
    _write(dev_file, rows[:cut])
    _write(train_file, rows[cut:])


def _files(package: str | None) -> list[str]:
    paths = sysconfig.get_paths()
    installed = {os.path.realpath(paths[name]) for name in ("purelib", "platlib")}
    found = docstrings.source_files()
    if package is None:
        return [path for path in found if not path.startswith(tuple(installed))]
    folders = tuple(os.path.join(root, package) + os.sep for root in installed)
    return [path for path in found if path.startswith(folders)]


def _write(path: str | os.PathLike, rows: Sequence[tuple[str, str]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, delimiter="\t", lineterminator="\n")
    writer.writerow(("text", "label"))
    writer.writerows(rows)
    files.write_text(path, text.getvalue())
