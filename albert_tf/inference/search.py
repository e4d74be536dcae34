"""Searches a corpus by vectors, and finds hard negatives, for files of any size.

The index is a folder: vectors, which are mapped into memory, and a database of the ids
and texts. Only a few parts of the queries are in memory at a time; see
`inference.files`.
"""

import contextlib
import dataclasses
import hashlib
import itertools
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from albert_tf.converters.detect import open_checkpoint
from albert_tf.errors import DataError, UsageError, require
from albert_tf.inference import formats
from albert_tf.inference.embedder import Embedder
from albert_tf.inference.files import (
    EmbedWork,
    RowWork,
    answer_rows,
    model_digest,
)
from albert_tf.inference.settings import BulkSettings
from albert_tf.jobs.folder import Part
from albert_tf.jobs.run import Job, OnRows
from albert_tf.storage import files
from albert_tf.tasks.embedding import PASSAGE, QUERY
from albert_tf.tasks.nearest import nearest
from albert_tf.tasks.task import Portions
from albert_tf.tasks.text_tables import TextTable

_VECTORS, _TEXTS, _RECORD = "vectors.npy", "texts.db", "index.json"


@dataclasses.dataclass(frozen=True)
class Index:
    """A corpus to search: vectors `[N, E]`, and ids and texts by number.

    Attributes:
        folder: str. Local folder of the index.
        vectors: str. Path of the vectors, inside the folder or given by the user.
    """

    folder: str
    vectors: str

    def rows(self, numbers: Sequence[int]) -> list[tuple[str, str]]:
        """Returns ids and texts of the corpus, in the order of the numbers."""
        with contextlib.closing(_database(self.folder)) as database:
            ask = "SELECT id, text FROM texts WHERE number = ?"
            return [database.execute(ask, (int(n),)).fetchone() for n in numbers]

    def remove(self) -> None:
        """Removes the folder."""
        shutil.rmtree(self.folder)

    def nearest(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns cosines and numbers of the nearest texts, each `[Q, k]`."""
        vectors = np.load(self.vectors, mmap_mode="r")
        expected = f"{self.vectors}: expected vectors of {queries.shape[1]} numbers"
        require(vectors.shape[1] == queries.shape[1], expected, vectors.shape[1])
        try:
            return nearest(queries, vectors, k, cosine=True)
        except DataError as e:
            raise DataError(f"{self.vectors}: {e}") from None


def build_index(
    folder: str,
    work: EmbedWork,
    open_corpus: Callable[[], Portions],
    settings: Mapping[str, Any],
    bulk: BulkSettings | None = None,
    vectors: str = "",
) -> Index:
    """Makes the index of a corpus, or finds the one that an earlier run made.

    Args:
        work: `EmbedWork`. How texts become vectors; without its output file.
        open_corpus: callable. Returns the texts of the corpus.
        settings: dict. Settings that determine the corpus, ready for JSON.
        vectors: str. File that `embed` wrote for this corpus, instead of new vectors.

    Raises:
        UsageError: If the folder holds the index of another model or corpus, or the
            vectors belong to another model.
        DataError: If the corpus cannot be used, or has two texts of one id.
    """
    expected = "index_dir: expected a folder on this machine, whose files are mapped"
    require(not files.is_remote(folder), f"{expected} into memory, received {folder}")
    os.makedirs(folder, exist_ok=True)
    count, digest = _write_texts(folder, open_corpus())
    how = dataclasses.asdict(work) | {"model": model_digest(work.model)}
    record = {name: how[name] for name in formats.RECORDED} | {"texts": digest}
    path = os.path.join(folder, _RECORD)
    if files.exists(path) and files.read_json(path) != record:
        raise UsageError(
            f"index_dir: {folder} holds the index of another model or corpus; remove "
            "it, or give another folder"
        )
    if vectors:
        _check_vectors(vectors, record, count)
    else:
        files.write_text(path, files.to_json(record))
        vectors = os.path.join(folder, _VECTORS)
        if not files.exists(vectors):
            embed = dataclasses.replace(work, output_file=vectors)
            answer_rows(embed, open_corpus, settings, bulk)
    return Index(folder, vectors)


def passages(model: str) -> str:
    """Returns the role of a corpus: "passage" if the model has a prompt for it."""
    with open_checkpoint(model) as checkpoint:
        prompts = checkpoint.head_options.get("prompts") or {}
    return PASSAGE if PASSAGE in prompts else ""


def _check_vectors(path: str, record: Mapping[str, Any], count: int) -> None:
    beside = formats.record_of(path)
    require(
        files.exists(beside),
        f"corpus_vectors: {path} has no {os.path.basename(beside)} next to it, which "
        "embed writes: the model of the vectors is unknown",
    )
    for name, value in files.read_json(beside).items():
        expected = f"corpus_vectors: {path} was made with another {name}; expected "
        require(
            record.get(name, value) == value, f"{expected}{record.get(name)!r}", value
        )
    rows = len(np.load(path, mmap_mode="r"))
    expected = (
        f"corpus_vectors: {path} has {rows:,} vectors, the corpus {count:,} texts"
    )
    require(rows == count, expected)


def _database(folder: str) -> sqlite3.Connection:
    return sqlite3.connect(os.path.join(folder, _TEXTS))


def _write_texts(folder: str, corpus: Portions) -> tuple[int, str]:
    """Writes the database; returns the number of texts, and a digest of them all."""
    sha256, count = hashlib.sha256(), 0
    with contextlib.closing(_database(folder)) as database, database:
        database.execute("DROP TABLE IF EXISTS texts")
        columns = "number INTEGER PRIMARY KEY, id TEXT UNIQUE, text TEXT"
        database.execute(f"CREATE TABLE texts ({columns})")
        for part in corpus.portions(4096):
            for name, text in zip(part.ids, part.texts, strict=True):
                sha256.update(f"{name}\0{text}\0".encode("utf-8", "surrogatepass"))
                row = (count, name, text.encode("utf-8", "replace").decode())
                try:
                    database.execute("INSERT INTO texts VALUES (?, ?, ?)", row)
                except sqlite3.IntegrityError:
                    raise DataError(
                        f"{part.path}: the id {name!r:.80} occurs twice"
                    ) from None
                count += 1
    return count, sha256.hexdigest()


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchWork(RowWork):
    """The nearest texts of a corpus for each query.

    Attributes:
        index: `Index`.
        k: Number of texts.
        layer, pooling, dimension: See `Embedder`.
    """

    answers: ClassVar[str] = formats.RANKED
    index: Index
    k: int = 10
    layer: int = -1
    pooling: str | None = None
    dimension: int | None = None

    def open(self, num_threads: int) -> Callable[[Job, OnRows], Part]:
        embedder = self.load(Embedder, num_threads)

        def compute(job: Job, on_rows: OnRows) -> Part:
            how = {"on_batch": on_rows, "dimension": self.dimension}
            role = QUERY if QUERY in embedder.prompts else ""
            queries = embedder(
                job.rows.texts, self.layer, self.pooling, role=role, **how
            )
            scores, found = self.index.nearest(queries, self.k)
            rows = [
                {
                    "query": name,
                    "rank": rank,
                    "id": text_id,
                    "score": round(float(score), 6),
                    "text": text,
                }
                for name, numbers, values in zip(
                    job.rows.ids, found, scores, strict=True
                )
                for rank, (score, (text_id, text)) in enumerate(
                    zip(values, self.index.rows(numbers), strict=True), 1
                )
            ]
            return formats.rows_of(self.output, job, rows)

        return compute


@dataclasses.dataclass(frozen=True, kw_only=True)
class NegativesWork(SearchWork):
    """Texts of the corpus that are near a text but are not its positives.

    Attributes:
        k: Number of negatives.
        min_rank, max_rank: Ranks that are considered, from 1, positives left out.
        margin: Least difference between the cosines of the positive and a negative.
    """

    min_rank: int = 1
    max_rank: int = 50
    margin: float = 0.0

    def open(self, num_threads: int) -> Callable[[Job, OnRows], Part]:
        embedder = self.load(Embedder, num_threads)
        roles = (QUERY, PASSAGE)
        roles = [role if role in embedder.prompts else "" for role in roles]

        def compute(job: Job, on_rows: OnRows) -> Part:
            rows = job.rows.texts
            first, positive = (
                embedder(
                    [row[i] for row in rows],
                    self.layer,
                    self.pooling,
                    role=roles[i],
                    dimension=self.dimension,
                )
                for i in (0, 1)
            )
            on_rows(len(rows))
            scores, found = self.index.nearest(first, self.max_rank + _MOST_POSITIVES)
            lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(positive, axis=1)
            limits = (first * positive).sum(1) / lengths - self.margin
            made = [
                self._negatives(row, numbers, values, limit)
                for row, numbers, values, limit in zip(
                    rows, found, scores, limits, strict=True
                )
            ]
            return formats.rows_of(self.output, job, made)

        return compute

    def _negatives(self, row, numbers, scores, limit) -> dict[str, str]:
        """Returns an example with its negatives, "" where none is left."""
        text, positive = row[:2]
        with contextlib.closing(_database(self.index.folder)) as database:
            ask = "SELECT positive FROM pairs WHERE text = ?"
            known = {text, positive, *(x for (x,) in database.execute(ask, (text,)))}
        others = [
            (other, score)
            for (_, other), score in zip(self.index.rows(numbers), scores, strict=True)
            if other not in known
        ]
        window = others[self.min_rank - 1 : self.max_rank]
        chosen = [other for other, score in window if score <= limit][: self.k]
        chosen += [""] * (self.k - len(chosen))
        names = (f"negative_{i}" for i in range(1, self.k + 1))
        return {
            "text": text,
            "positive": positive,
            **dict(zip(names, chosen, strict=True)),
        }


# Texts that are left out are ranked as well; more positives of a text are rare.
_MOST_POSITIVES = 20


def write_pairs(folder: str, pairs: Portions) -> None:
    """Writes the positives of each text into the database of an index."""
    os.makedirs(folder, exist_ok=True)
    with contextlib.closing(_database(folder)) as database, database:
        database.execute("DROP TABLE IF EXISTS pairs")
        database.execute("CREATE TABLE pairs (text TEXT, positive TEXT)")
        for part in pairs.portions(4096):
            rows = [tuple(row[:2]) for row in part.texts]
            database.executemany("INSERT INTO pairs VALUES (?, ?)", rows)
        database.execute("CREATE INDEX by_text ON pairs (text)")


def positives(folder: str, path: str) -> Portions:
    """Returns the positives in the database of an index, each once, as a corpus."""

    def portions(size: int | None) -> Iterator[TextTable]:
        with contextlib.closing(_database(folder)) as database:
            ask = "SELECT positive FROM pairs GROUP BY positive ORDER BY MIN(rowid)"
            rows, first = database.execute(ask), 0
            while part := [x for (x,) in itertools.islice(rows, size)]:
                names = [str(first + i) for i in range(len(part))]
                lines = list(range(first + 1, first + len(part) + 1))
                yield TextTable(path, part, None, None, lines, names)
                first += len(part)

    return Portions(portions, lambda: 0.0)
