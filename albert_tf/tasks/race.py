"""Reads RACE: exam questions about articles, with four options each.

Source: Lai et al., arXiv:1704.04683, and the original's `RaceProcessor`.
"""

import collections
import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from absl import logging

from albert_tf.errors import DataError, MissingFileError, UsageError, require
from albert_tf.storage import files
from albert_tf.tables.columns import BadRows, Ids, warn_of_skipped
from albert_tf.tables.text_stream import read_text
from albert_tf.tables.tfds_source import TfdsRows
from albert_tf.tasks.choice_files import ChoiceExamples
from albert_tf.tasks.task import FileSource
from albert_tf.text.normalization import to_unicode

LEVELS = ("middle", "high")
_ANSWERS = "ABCD"
_JOINED = "all.txt"
_BLANK = re.compile(r"[\s\ufeff]*")

# Where an article is, for messages; its level, "middle" or "high"; and a dict with
# `article`, `questions`, `options` (4 for each question), `answers` (letters) and `id`,
# or `example_id` in TensorFlow Datasets.
Article = tuple[str, str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RaceSource(FileSource):
    """A split of RACE, found in a folder.

    Attributes:
        split: str. "train", "dev" or "test". In the last one, all articles have
            answers, or none.
    """

    split: str

    def read(self, folder: str = "") -> ChoiceExamples:
        """Reads `<split>/{middle,high}/*.txt` of the folder, or of its folder `RACE`.

        A file holds one JSON object per article, or several, as in the `all.txt` that
        the original expects. Where there is an `all.txt`, the other files, of which
        it was made, are not read again.

        Raises:
            UsageError: If no folder is given.
            DataError: If there is no such folder, or an article is malformed.
        """
        if not folder:
            raise UsageError("data_dir must be the folder RACE, received none")
        candidates = [files.join(folder, *p, self.split) for p in (("RACE",), ())]
        base = next(filter(files.is_folder, candidates), None)
        if base is None:
            raise MissingFileError(
                f"{folder}: no folder {self.split} or RACE/{self.split}; expected "
                f"{self.split}/middle and {self.split}/high with .txt files of RACE"
            )
        levels = [x for x in LEVELS if files.is_folder(files.join(base, x))]
        if not levels:
            raise DataError(f"{base}: expected folders middle and high, found neither")
        articles = (
            article
            for level in levels
            for article in _folder_articles(files.join(base, level), level)
        )
        return self._examples(articles, base)

    def read_file(self, path: str) -> ChoiceExamples:
        """Reads one file of articles; its path tells the level, middle or high."""
        parts = {part.removesuffix(".txt") for part in path.lower().split("/")}
        level = "middle" if "middle" in parts else "high"
        articles = (
            (f"{path}: line {line}", level, article) for line, article in _objects(path)
        )
        return self._examples(articles, path)

    def from_rows(self, found: TfdsRows) -> ChoiceExamples:
        """Returns the questions of a set of TensorFlow Datasets."""
        level = "middle" if "middle" in found.name else "high"
        articles = (
            (f"{found.name}: row {i}", level, row) for i, row in enumerate(found.rows)
        )
        return self._examples(articles, found.name)

    def set_split(self, name: str, split: str) -> str:
        """Returns the same name: the set has a split "dev"."""
        return split

    def _examples(self, articles: Iterable[Article], path: str) -> ChoiceExamples:
        """Returns the questions of articles, of which no id may occur twice."""
        names = ("ids", "contexts", "questions", "choices", "labels", "where", "groups")
        columns: dict[str, list] = {name: [] for name in names}
        bad, ids = BadRows(self.on_bad_input), collections.defaultdict(Ids)
        for count, (where, level, article) in enumerate(articles):
            try:
                fields = _fields(where, article, self.split != "test")
                name = fields["id"] or f"article{count}"
                if problem := ids[level].problem(name, where):
                    raise DataError(f"{where}: {problem}")
            except DataError as e:
                bad.report("malformed articles", str(e))
                continue
            numbers = range(len(fields["choices"]))
            fields["ids"] = [f"{name}-{i}" for i in numbers]
            fields["contexts"] = [fields["article"]] * len(numbers)
            fields["where"] = [f"{where}: question {i} (from 0)" for i in numbers]
            fields["groups"] = [level] * len(numbers)
            for key, column in columns.items():
                column += fields[key]
        warn_of_skipped(path, bad.counts)
        require(
            columns["ids"], f"{path}: expected questions, found none", error=DataError
        )
        options = [text for row in columns["choices"] for text in row]
        if empty := sum(not text.strip() for text in options):
            # The original reads them too; a folder that it can train on must not fail.
            logging.warning("%s: %d options are empty", path, empty)
        labels = columns["labels"]
        if None in labels:
            place = columns["where"][labels.index(None)]
            message = f"{place}: no answer, while other questions have one"
            require(set(labels) == {None}, message, error=DataError)
            columns["labels"] = None
        skipped = dict(bad.counts)
        return ChoiceExamples(
            path=path, fills_blanks=True, lettered=True, skipped=skipped, **columns
        )


def _folder_articles(folder: str, level: str) -> Iterator[tuple[str, str, Any]]:
    """Yields the articles of a folder, in the order of their files' names."""
    names = [
        name
        for name in files.list_folder(folder)
        if name.endswith(".txt") and not name.startswith(".")
    ]
    if not names:
        raise DataError(f"{folder}: expected .txt files, found none")
    if _JOINED in names:
        names = [_JOINED]
    for name in names:
        path = files.join(folder, name)
        for line, article in _objects(path):
            where = f"{path}: line {line}"
            # `id` is the name of the file that RACE was published with.
            if name != _JOINED and isinstance(article, dict):
                article = {"id": name, **article}
            yield where, level, article


def _objects(path: str) -> Iterator[tuple[int, Any]]:
    """Yields (line, JSON value) of a file with one value after the other.

    The published files have no line break at their end, so that `cat` puts several
    articles on one line.
    """
    text = read_text(path)
    decoder = json.JSONDecoder()
    position, line = _BLANK.match(text).end(), 1
    counted = 0
    if position == len(text):
        raise DataError(f"{path}: expected a JSON object, received an empty file")
    while position < len(text):
        line += text.count("\n", counted, position)
        counted = position
        try:
            value, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError) as e:
            reason = e.msg if isinstance(e, json.JSONDecodeError) else e
            raise DataError(f"{path}: line {line}: not JSON: {reason}") from None
        yield line, value
        position = _BLANK.match(text, end).end()


def _fields(where: str, article: Any, need_answers: bool) -> dict[str, Any]:
    """Returns the checked content of an article, answers as indices or None."""
    if not isinstance(article, Mapping):
        raise DataError(
            f"{where}: expected a JSON object, received {type(article).__name__}"
        )
    name = article.get("id", article.get("example_id", ""))
    name = _expect(where, "id", name, str)
    text = _expect(where, "article", article.get("article"), str)
    questions = _expect(where, "questions", article.get("questions"), list)
    options = _expect(where, "options", article.get("options"), list)
    answers = article.get("answers")
    if answers is None and not need_answers:
        answers = [None] * len(questions)
    _expect(where, "answers", answers, list)
    if not len(questions) == len(options) == len(answers):
        raise DataError(
            f"{where}: expected as many options and answers as questions, "
            f"{len(questions)}, received {len(options)} and {len(answers)}"
        )
    rows = []
    for i, (question, row) in enumerate(zip(questions, options, strict=True)):
        place = f"{where}: question {i} (from 0)"
        _expect(place, "question", question, str)
        _expect(place, "options", row, list)
        if len(row) != len(_ANSWERS):
            raise DataError(
                f"{place}: expected {len(_ANSWERS)} options, received {len(row)}"
            )
        named = zip(_ANSWERS, row, strict=True)
        rows.append([_expect(place, f"option {x}", one, str) for x, one in named])
    return {
        "id": name,
        "article": text,
        "questions": list(map(to_unicode, questions)),
        "choices": rows,
        "labels": [_index(where, i, answer) for i, answer in enumerate(answers)],
    }


def _index(where: str, number: int, answer: Any) -> int | None:
    if answer is None:
        return None
    if not isinstance(answer, str) or len(answer) != 1 or answer not in _ANSWERS:
        raise DataError(
            f"{where}: question {number} (from 0): the answer must be one of "
            f"{', '.join(_ANSWERS)}, received {answer!r:.80}"
        )
    return _ANSWERS.index(answer)


def _expect(where: str, name: str, value: Any, kind: type) -> Any:
    """Returns a value if it has the right type; text without lone surrogates."""
    if not isinstance(value, kind):
        received = "nothing" if value is None else f"{value!r:.80}"
        wanted = "text" if kind is str else "a list"
        raise DataError(f"{where}: {name}: expected {wanted}, received {received}")
    return to_unicode(value) if kind is str else value
