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
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from albert_tf.converters.detect import open_checkpoint
from albert_tf.errors import DataError, require
from albert_tf.heads import QUERY, passage_role
from albert_tf.inference import formats
from albert_tf.inference.embedder import Embedder
from albert_tf.inference.files import (
    EmbedWork,
    RowWork,
    TextsDigest,
    answer_rows,
    model_digest,
)
from albert_tf.inference.settings import BulkSettings
from albert_tf.jobs.folder import Part
from albert_tf.jobs.run import Job, OnRows
from albert_tf.storage import files
from albert_tf.tasks.embedding import load_vectors
from albert_tf.tasks.nearest import nearest, of_length_1
from albert_tf.tasks.task import Portions
from albert_tf.tasks.text_tables import TextTable

_VECTORS, _TEXTS, _PAIRS, _RECORD = "vectors.npy", "texts.db", "pairs.db", "index.json"
# What is recorded about the vectors besides their model, and decides about queries.
_HOW = ("layer", "pooling", "role", "dimension", "max_seq_length")
# Least cosine of a vector of the index and the vector that the model gives its text.
_SAME = 0.99


@dataclasses.dataclass(frozen=True)
class Index:
    """A corpus to search: vectors `[N, E]`, and ids and texts by number.

    Attributes:
        vectors: str. Path of the vectors, inside the folder or given by the user.
        digest: str. Digest of the model, the ids and the texts.
        how: dict. Origin of the vectors, by the names of `_HOW`.
    """

    folder: str
    vectors: str
    digest: str
    how: Mapping[str, Any]

    def rows(self, numbers: Sequence[int]) -> list[tuple[str, str]]:
        """Returns ids and texts of the corpus, in the order of the numbers."""
        with contextlib.closing(_database(self.folder)) as database:
            ask = "SELECT id, text FROM texts WHERE number = ?"
            return [database.execute(ask, (int(n),)).fetchone() for n in numbers]

    def remove(self) -> None:
        """Removes the folder, unless it holds other files."""
        own = (_VECTORS, formats.record_of(_VECTORS), _TEXTS, _PAIRS, _RECORD)
        for path in (os.path.join(self.folder, name) for name in own):
            if os.path.exists(path):
                os.remove(path)
        with contextlib.suppress(OSError):
            os.rmdir(self.folder)

    def nearest(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns cosines and numbers of the nearest texts, each `[Q, k]`."""
        try:
            return nearest(queries, load_vectors(self.vectors), k, cosine=True)
        except DataError as e:
            raise DataError(f"{self.vectors}: {e}") from None


def build_index(
    folder: str,
    work: EmbedWork,
    open_corpus: Callable[[], Portions],
    settings: Mapping[str, Any],
    bulk: BulkSettings | None = None,
    vectors: str = "",
    overwrite: bool = False,
) -> Index:
    """Makes the index of a corpus, or finds the one that an earlier run made.

    `settings` determine the corpus, ready for JSON; `vectors` is a file that `embed`
    wrote for it. Raises `UsageError` if the folder holds the index of another model or
    corpus and `overwrite` is not set, or the vectors belong to others, and `DataError`
    if the corpus cannot be used, or has two texts of one id.
    """
    make_folder(folder)
    model, path = model_digest(work.model, work.layers), os.path.join(folder, _RECORD)
    own = os.path.join(folder, _VECTORS)
    how = {name: getattr(work, name) for name in _HOW}
    with _new_database(folder, _TEXTS) as database:
        count, ids, texts = _write_texts(database, open_corpus())
        if vectors:
            how = _how_made(vectors, work, model, count, texts)
        record = {"model": model, "ids": ids, "texts": texts, **how}
        message = f"{folder}: holds the index of another model or corpus; "
        same = not files.exists(path) or files.read_json(path) == record
        require(same or overwrite, f"{message}--overwrite replaces it")
    if not same and os.path.exists(own):
        os.remove(own)  # before there is a record that does not fit
    files.write_text(path, files.to_json(record))
    if not vectors:
        vectors = own
        if not files.exists(vectors):
            embed = dataclasses.replace(work, output_file=vectors)
            answer_rows(embed, open_corpus, settings, bulk, overwrite)
    digest = hashlib.sha256(files.to_json(record).encode()).hexdigest()
    return Index(folder, vectors, digest, how)


def make_folder(folder: str) -> None:
    """Makes the folder of an index, whose files are mapped into memory."""
    expected = "index: expected a folder on this machine, received"
    require(not files.is_remote(folder), f"{expected} {folder}")
    os.makedirs(folder, exist_ok=True)


def role_of_corpus(model: str) -> str:
    """Returns the role of the texts of a corpus among the prompts of a model."""
    return passage_role(_prompts(model))


def _prompts(model: str) -> Mapping[str, str]:
    with open_checkpoint(model) as checkpoint:
        return checkpoint.head_options.get("prompts") or {}


def _how_made(
    path: str, work: EmbedWork, model: str, count: int, texts: str
) -> dict[str, Any]:
    """Reads the record of a file of vectors, and checks that they fit."""
    beside = formats.record_of(path)
    require(
        files.exists(beside),
        f"corpus_vectors: {path} has no {os.path.basename(beside)} next to it, which "
        "embed writes: the model of the vectors is unknown",
    )
    record = files.read_json(beside)
    for name, value in (("model", model), ("texts", texts)):
        expected = f"corpus_vectors: {path} was made with other {name}"
        require(record.get(name) == value, expected)
    rows = len(load_vectors(path))
    expected = (
        f"corpus_vectors: {path} has {rows:,} vectors, the corpus {count:,} texts"
    )
    require(rows == count, expected)
    prompts, role = _prompts(work.model), record.get("role") or ""
    expected = f"corpus_vectors: {path} must be made by embed --role={work.role}"
    same = prompts.get(role, "") == prompts.get(work.role, "")
    require(same, expected, role)
    return {name: record.get(name) for name in _HOW} | {"role": work.role}


def _database(folder: str, name: str = _TEXTS) -> sqlite3.Connection:
    return sqlite3.connect(os.path.join(folder, name))


@contextlib.contextmanager
def _new_database(folder: str, name: str) -> Iterator[sqlite3.Connection]:
    """Yields an empty database, which at the end replaces the one of that name."""
    partial = f"{name}.{os.getpid()}"
    path = os.path.join(folder, partial)
    try:
        with contextlib.closing(_database(folder, partial)) as database, database:
            yield database
        os.replace(path, os.path.join(folder, name))
    finally:
        if os.path.exists(path):
            os.remove(path)


def _stored(text: str) -> str:
    """Returns a text as it is stored: halves of characters become question marks."""
    return text.encode("utf-8", "replace").decode()


def _write_texts(
    database: sqlite3.Connection, corpus: Portions
) -> tuple[int, str, str]:
    """Writes a corpus; returns the number of texts, and digests of ids and texts."""
    ids, texts, count = hashlib.sha256(), TextsDigest(), 0
    columns = "number INTEGER PRIMARY KEY, id TEXT UNIQUE, text TEXT"
    database.execute(f"CREATE TABLE texts ({columns})")
    for part in corpus.portions(4096):
        texts.add(part.texts)
        for name, text in zip(part.ids, part.texts, strict=True):
            ids.update(f"{_stored(name)}\0".encode())
            row = (count, _stored(name), _stored(text))
            try:
                database.execute("INSERT INTO texts VALUES (?, ?, ?)", row)
            except sqlite3.IntegrityError:
                message = f"{part.path}: the id {name!r:.80} occurs twice"
                raise DataError(message) from None
            count += 1
    return count, ids.hexdigest(), texts.value()


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchWork(RowWork):
    """The nearest texts of a corpus for each query."""

    answers: ClassVar[str] = formats.RANKED
    index: Index
    k: int = 10

    def vectors_of(self, embedder: Embedder, texts: Sequence[str], role: str):
        """Returns the vectors of texts, made as the index was."""
        how = {name: self.index.how[name] for name in ("layer", "pooling", "dimension")}
        return embedder(texts, role=role, **how)

    def load(self, kind: type[Embedder], num_threads: int, **options) -> Embedder:
        """Returns the embedder, after a look at whether it made the index."""
        embedder = super().load(kind, num_threads, **options)
        if self.index.how["max_seq_length"] != self.max_seq_length:
            return embedder  # which cuts the texts elsewhere
        path = self.index.vectors
        vectors = load_vectors(path)
        numbers = sorted({0, len(vectors) // 2, len(vectors) - 1})
        texts = [text for _, text in self.index.rows(numbers)]
        own = self.vectors_of(embedder, texts, self.index.how["role"])
        expected = f"{path}: expected vectors of {own.shape[1]} numbers"
        require(vectors.shape[1] == own.shape[1], expected, vectors.shape[1])
        there = np.asarray(vectors[numbers], np.float32)
        cosines = (of_length_1(own) * of_length_1(there)).sum(1)
        for number, cosine in zip(numbers, cosines.tolist(), strict=True):
            expected = f"{path}: row {number} is not the model's vector of its text"
            require(not cosine < _SAME, f"{expected}: their cosine is {cosine:.3f}")
        return embedder

    def open(self, num_threads: int) -> Callable[[Job, OnRows], Part]:
        embedder = self.load(Embedder, num_threads)

        def compute(job: Job, on_rows: OnRows) -> Part:
            role = QUERY if QUERY in embedder.prompts else ""
            queries = self.vectors_of(embedder, job.rows.texts, role)
            on_rows(len(job.rows))
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
        min_rank, max_rank: Ranks that are considered, from 1, positives left out.
        margin: Least difference between the cosines of the positive and a negative.
        pairs: Digest of all pairs, which decide about the negatives of each row.
    """

    min_rank: int = 1
    max_rank: int = 50
    margin: float = 0.0
    pairs: str = ""

    def open(self, num_threads: int) -> Callable[[Job, OnRows], Part]:
        embedder = self.load(Embedder, num_threads)
        query = QUERY if QUERY in embedder.prompts else ""
        roles = (query, passage_role(embedder.prompts))

        def compute(job: Job, on_rows: OnRows) -> Part:
            rows = job.rows.texts
            first, positive = (
                self.vectors_of(embedder, [row[i] for row in rows], roles[i])
                for i in (0, 1)
            )
            on_rows(len(rows))
            known = self._known(rows)
            # Texts that are left out are ranked as well.
            most = self.max_rank + max(map(len, known))
            scores, found = self.index.nearest(first, most)
            lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(positive, axis=1)
            limits = (first * positive).sum(1) / lengths - self.margin
            made = [
                self._negatives(embedder.tokenizer.normalize, *values)
                for values in zip(rows, known, found, scores, limits, strict=True)
            ]
            return formats.rows_of(self.output, job, made)

        return compute

    def _known(self, rows: Sequence[Sequence[str]]) -> list[set[str]]:
        """Returns the first text of each row and all its positives."""
        ask = "SELECT positive FROM pairs WHERE text = ?"
        with contextlib.closing(_database(self.index.folder, _PAIRS)) as database:
            texts = [_stored(row[0]) for row in rows]
            return [{t, *(x for (x,) in database.execute(ask, (t,)))} for t in texts]

    def _negatives(
        self, normalize, row, known, numbers, scores, limit
    ) -> dict[str, str]:
        """Returns an example with its negatives, "" where none is left."""

        def key(text: str) -> str:
            # What differs in case or white space may be the same text for the model.
            return " ".join(normalize(text).split())

        text, positive = map(_stored, row[:2])
        keys = set(map(key, known))
        others = [
            (other, score)
            for (_, other), score in zip(self.index.rows(numbers), scores, strict=True)
            if key(other) not in keys
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


def write_pairs(folder: str, pairs: Portions) -> str:
    """Writes the positives of each text into the folder of an index; returns a digest.

    It does not depend on the portions in which the pairs are read.
    """
    make_folder(folder)
    digest = TextsDigest()
    with _new_database(folder, _PAIRS) as database:
        database.execute("CREATE TABLE pairs (text TEXT, positive TEXT)")
        for part in pairs.portions(4096):
            rows = [tuple(map(_stored, row[:2])) for row in part.texts]
            digest.add(text for row in rows for text in row)
            database.executemany("INSERT INTO pairs VALUES (?, ?)", rows)
        database.execute("CREATE INDEX by_text ON pairs (text)")
    return digest.value()


def positives(folder: str, path: str) -> Portions:
    """Returns the positives that `write_pairs` wrote, each once, as a corpus."""

    def portions(size: int | None) -> Iterator[TextTable]:
        with contextlib.closing(_database(folder, _PAIRS)) as database:
            ask = "SELECT positive FROM pairs GROUP BY positive ORDER BY MIN(rowid)"
            rows, first = database.execute(ask), 0
            while part := [x for (x,) in itertools.islice(rows, size)]:
                names = [str(first + i) for i in range(len(part))]
                lines = list(range(first + 1, first + len(part) + 1))
                yield TextTable(path, part, None, None, lines, names)
                first += len(part)

    return Portions(portions, lambda: 0.0)
