"""Reads questions with choices: RACE, SWAG, CODAH, and the user's own tables.

Legend: `N` questions, `K` choices, which may differ from question to question.
"""

import dataclasses
import functools
import itertools
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from absl import logging

from albert_tf.errors import DataError, MissingFileError, UsageError, require
from albert_tf.storage import files
from albert_tf.tables.column_settings import LabelSettings
from albert_tf.tables.columns import (
    BadRow,
    BadRows,
    Columns,
    Ids,
    expect,
    expect_texts,
    file_format,
    shown,
    warn_of_skipped,
    warn_of_unread,
)
from albert_tf.tables.reader import ColumnReader
from albert_tf.tables.text_stream import read_text
from albert_tf.tables.tfds_source import TfdsRows
from albert_tf.tasks.task import Examples, FileSource, Portions
from albert_tf.tasks.text_tables import label_key
from albert_tf.text.normalization import to_unicode

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
# Columns that each hold one choice, in the order of their numbers.
_NUMBERED = re.compile(r"(choice|ending|option|answer)_?(\d{1,3})")
_LAST_NUMBER = re.compile(r"\d+$")
_NO_ANSWERS = (None, "", "-1")
_BAD = "rows without a valid question"
_LEVELS = ("middle", "high")  # of RACE
_OPTIONS = 4
_JOINED = "all.txt"
_BLANK = re.compile(r"[\s\ufeff]*")
# The values of a question; see `ChoiceExamples`.
_FIELDS = ("ids", "contexts", "questions", "choices", "labels", "where", "groups")

# The article's place, for messages; its level, "middle" or "high"; and a dict with
# `article`, `questions`, `options` (4 for each question), `answers` (letters) and `id`,
# or `example_id` in TensorFlow Datasets.
Article = tuple[str, str, Any]


@dataclasses.dataclass(frozen=True)
class ChoiceExamples(Examples):
    """Questions with choices.

    Attributes:
        contexts: The text that each question is about; segment A.
        questions: Start of segment B, before the choice. May be empty.
        choices: `K` choices of each question.
        labels: Index of each correct choice.
        where: File and line of each question, for messages.
        groups: Part of the data, such as "middle", or an empty string.
        fills_blanks: Whether a choice replaces each `_` of its question.
        lettered: Whether choices are called A, B, ... instead of 0, 1, ...
    """

    path: str
    ids: list[str]
    contexts: list[str]
    questions: list[str]
    choices: list[list[str]]
    labels: list[int] | None
    where: list[str]
    groups: list[str]
    fills_blanks: bool = False
    lettered: bool = False
    skipped: Mapping[str, int] = dataclasses.field(default_factory=dict)
    problems: list[str] | None = None

    def choice_name(self, index: int) -> str:
        """Returns the name of a choice in files of predictions."""
        return _LETTERS[index] if self.lettered else str(index)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChoiceTableSettings(LabelSettings):
    """The columns of the contexts, the choices and the correct answers.

    Attributes:
        context_column: Column of the context of each question.
        question_column: Column of questions, which are read before each choice; may be
            empty.
        choice_columns: Column with a list of choices (JSON lines, Parquet), or one
            column per choice. Default: choices, or choice0, choice1, ... or ending0,
            ending1, ...
    """

    context_column: str = "context"
    question_column: str = ""
    choice_columns: tuple[str, ...] = ()


def _indices(labels: list, written: Mapping[str, str] | None) -> list:
    """Returns the index or letter that each cell of the label column stands for."""
    if not written:
        return labels
    names = ", ".join(written)
    return [written.get(str(cell), f"{cell}: not in {names}") for cell in labels]


def _question(table, named, endings, labels, first, columns, ids: Ids, row) -> tuple:
    """Returns the question in a row of a table: a value for each of `_FIELDS`."""
    cells = [table.values[x][row] if x in table.values else None for x in columns]
    choices = _row_choices(cells, columns, endings)
    name, context, start = (
        expect(table.values[column][row], str, column) if column else ""
        for column in named
    )
    name, where = name or str(first + row), table.where(row)
    answer = None if labels is None else _label(labels[row], len(choices))
    ids.add(name, where)
    return name, context, start, choices, answer, where, ""


def _blank(table, named, endings, labels, first, row) -> tuple:
    """Returns an empty question in place of a row that cannot be used."""
    name = table.values[named[0]][row] if named[0] else ""
    name = name if name and isinstance(name, str) else str(first + row)
    return name, "", "", [""] * (endings or 2), labels and 0, table.where(row), ""


def _examples(
    path: str, rows: Iterable[tuple], bad: BadRows, **kinds
) -> ChoiceExamples:
    """Returns the questions in `rows`, tuples with a value for each of `_FIELDS`."""
    rows = list(rows)
    warn_of_skipped(path, bad.counts, bad.first)
    require(rows, f"{path}: no question can be used", error=DataError)
    values = dict(zip(_FIELDS, map(list, zip(*rows, strict=True)), strict=True))
    labels = values["labels"]
    if None in labels:
        place = values["where"][labels.index(None)]
        message = f"{place}: no answer, while other questions have one"
        require(set(labels) == {None}, message, error=DataError)
        values["labels"] = None
    kinds |= {"skipped": dict(bad.counts), "problems": bad.problems or None}
    return ChoiceExamples(path=path, **values, **kinds)


def has_choices(names: Iterable[str]) -> bool:
    """Returns whether a table has columns of choices, by their usual names."""
    numbered = [name for name in names if _NUMBERED.fullmatch(name)]
    return "choices" in names or len(numbered) > 1


def _find_choice_columns(table: Columns) -> tuple[str, ...]:
    """Returns `choices`, or the columns that are numbered from 0 or 1."""
    if "choices" in table.names:
        return ("choices",)
    stems: dict[str, dict[int, str]] = {}
    for name in table.names:
        if match := _NUMBERED.fullmatch(name):
            stems.setdefault(match[1], {})[int(match[2])] = name
    for numbered in stems.values():
        order = sorted(numbered)
        if len(order) > 1:
            names = [numbered[i] for i in order]
            message = f"{table.path}: expected columns of choices numbered from 0 or 1 "
            message += f"without a gap, received {', '.join(names)}"
            is_whole = order == list(range(order[0], order[0] + len(order)))
            require(is_whole and order[0] < 2, message, error=DataError)
            return tuple(names)
    raise DataError(
        f"{table.path}: no columns of choices; expected a column of lists named "
        "choices, or columns named choice0, choice1, ..., received "
        f"{', '.join(table.names)[:400]} (--choice_columns names them)"
    )


def _row_choices(values: list, columns: Sequence[str], endings: int) -> list[str]:
    """Returns the choices in the cells of a row."""
    if len(columns) == 1:
        values = expect(values[0], list, columns[0])
    else:
        while values and (values[-1] is None or values[-1] == ""):
            values.pop()
    number = len(values)
    message = f"expected {endings} endings, received {number}"
    require(number == (endings or number), message, error=DataError)
    message = f"expected at least 2 choices, received {number}"
    require(number > 1, message, error=DataError)
    for i, value in enumerate(values):
        name = f"choice {i} (from 0)"
        require(expect(value, str, name).strip(), f"{name} is empty", error=DataError)
    return values


def _label(cell: Any, number: int) -> int:
    """Returns the index of the correct choice, of `number` choices."""
    index, last = None, _LETTERS[min(number, 26) - 1]
    if isinstance(cell, str):
        if len(cell) == 1 and cell in _LETTERS:
            index = _LETTERS.index(cell)
        elif cell.isascii() and cell.isdecimal() and len(cell) < 10:
            index = int(cell)
    if index is None or index >= number:
        raise DataError(
            f"expected the index of a choice, 0 to {number - 1} (or A to {last}), "
            f"received {shown(cell)} (--labels=1,2,... says what the column calls the "
            "choices, in their order)"
        )
    return index


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChoiceSource(FileSource):
    """A file with a question in each row; a test set may have no answers.

    Attributes:
        written: Index of a choice by its name in the label column, if that is neither
            the index nor a letter.
        endings: Number of choices that every row must have; 0 for at least 2.
    """

    columns: ChoiceTableSettings
    written: Mapping[str, str] = dataclasses.field(default_factory=dict)
    endings: int = 0

    def open(self, path: str) -> Portions:
        """Returns the questions of CSV, TSV, JSON lines or Parquet.

        With one column per choice, empty cells at the end of a row mean fewer choices.
        The first portion decides which columns are choices, and, if no answers are
        required, whether there are any. Reading raises `DataError` if a column, a
        choice or an answer is missing or invalid.
        """
        return _opened(self, path)


def _opened(source: ChoiceSource, path: str) -> Portions:
    settings, labelled, policy = source.columns, source.labelled, source.on_bad_input
    reader, label = None, settings.label_column
    named = (settings.id_column, settings.context_column, settings.question_column)

    def portions(size: int | None) -> Iterator[ChoiceExamples]:
        nonlocal reader
        bad, columns, optional = BadRows(policy), settings.choice_columns, []
        if columns and size and file_format(path) == "json":
            # The first portion may have fewer choices. Numbers cannot be optional.
            optional = [x for x in columns[2:] if not x.lstrip("-").isdecimal()]
        elif not columns:
            start = ColumnReader(path, (), bad=bad, **settings.layout)
            columns = _find_choice_columns(next(start.portions(size)))
            bad.counts.clear()
            # As optional columns, further choices raise an error in later portions.
            if digits := _LAST_NUMBER.search(columns[0]):
                stem, width = columns[0][: digits.start()], len(digits[0])
                numbered = [f"{stem}{i:0{width}}" for i in range(100)]
                optional = [name for name in numbered if name not in columns]
        needed = [name for name in columns if name not in optional]
        wanted = [*named, *needed, *([label] if labelled else [])]
        optional += [] if labelled or not label else [label]
        wanted = list(dict.fromkeys(filter(None, wanted)))
        layout = {"optional": optional, "bad": bad, **settings.layout}
        reader = ColumnReader(path, wanted, **layout)
        first, ids, answered = 0, Ids(), labelled or None
        for table in reader.portions(size):
            if not first:
                warn_of_unread(table, "question", "question_column")
            cells = table.values.get(label) or []
            labels = [None if isinstance(x, BadRow) else label_key(x) for x in cells]
            given = [i for i, cell in enumerate(labels) if cell not in _NO_ANSWERS]
            answered = bool(given) if answered is None else answered
            if given and not answered:
                rule = f"{table.where(given[0])}: an answer, while the first questions "
                raise DataError(f"{rule}have none")
            labels = _indices(labels, source.written) if answered else None
            about = (table, named, source.endings, labels, first)
            make = functools.partial(_question, *about, columns, ids)
            blank = functools.partial(_blank, *about)
            unusable = BadRows(policy, Counter(table.skipped))
            rows = unusable.usable(_BAD, range(len(table)), make, table.where, blank)
            yield _examples(table.path, rows, unusable)
            first += len(table)

    return Portions(portions, lambda: reader.fraction() if reader else 0.0)


def swag_source(split: str) -> ChoiceSource:
    """Returns a split of SWAG (https://github.com/rowanz/swagaf).

    Segment A is `sent1`, B is `sent2` with the ending, as in Hugging Face's `run_swag`.
    """
    return ChoiceSource(
        names={"dev": ("val.csv", "dev.csv")}.get(split, (f"{split}.csv",)),
        folders=("", "SWAG", "swag", "data"),
        labelled=split != "test",
        columns=ChoiceTableSettings(context_column="sent1", question_column="sent2"),
        endings=_OPTIONS,
    )


def codah_source(split: str) -> ChoiceSource:
    """Returns a split of CODAH (https://github.com/Websail-NU/CODAH).

    Columns without a header and without quoting: category (10 rows have none), prompt,
    4 endings, label. Segment A is the prompt, B the ending. Of five folds, the first
    one is found.
    """
    folders = ("", "fold_0", "cv_split/fold_0", "CODAH", "CODAH/cv_split/fold_0")
    return ChoiceSource(
        names=(f"{split}.tsv",),
        folders=(*folders, "codah/cv_split/fold_0", "data/cv_split/fold_0"),
        labelled=split != "test",
        columns=ChoiceTableSettings(
            context_column="1",
            choice_columns=("2", "3", "4", "5"),
            label_column="6",
            header=False,
            quoting=False,
        ),
        endings=_OPTIONS,
        hint=(
            "; name one of the folders fold_0 to fold_4 to choose a fold "
            "(full_data.tsv has no split)"
        ),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RaceSource(FileSource):
    """A split of RACE: exam questions about articles, with four options each.

    Source: Lai et al., arXiv:1704.04683, and the original's `RaceProcessor`.

    Attributes:
        split: "train", "dev" or "test". In "test", either all articles have answers, or
            none has.
    """

    split: str

    def read(self, folder: str = "") -> ChoiceExamples:
        """Reads `<split>/{middle,high}/*.txt` of the folder, or of its folder `RACE`.

        A file holds one JSON object per article, or several, as in the `all.txt` that
        the original expects. If there is an `all.txt`, the files it was made of are not
        read again.
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
        levels = [x for x in _LEVELS if files.is_folder(files.join(base, x))]
        if not levels:
            raise DataError(f"{base}: expected folders middle and high, found neither")
        articles = (
            article
            for level in levels
            for article in _folder_articles(files.join(base, level), level)
        )
        return self._examples(articles, base)

    def read_file(self, path: str) -> ChoiceExamples:
        """Reads one file of articles; its path shows the level, middle or high."""
        parts = {part.removesuffix(".txt") for part in path.lower().split("/")}
        level = "middle" if "middle" in parts else "high"
        articles = ((where, level, article) for where, article in _objects(path))
        return self._examples(articles, path)

    def from_rows(self, found: TfdsRows) -> ChoiceExamples:
        """Returns the questions of a set of TensorFlow Datasets."""
        level = "middle" if "middle" in found.name else "high"
        rows = enumerate(found.rows)
        articles = ((f"{found.name}: row {i}", level, row) for i, row in rows)
        return self._examples(articles, found.name)

    def set_split(self, name: str, split: str) -> str:
        """Returns the same name, since the set has a split "dev"."""
        return split

    def _examples(self, articles: Iterable[Article], path: str) -> ChoiceExamples:
        """Returns the questions of articles; each id must be unique."""
        bad, ids = BadRows(self.on_bad_input), defaultdict(Ids)

        def questions(numbered: tuple[int, Article]) -> list[tuple]:
            number, (where, level, article) = numbered
            name, about = _questions(where, article, self.split != "test")
            name = name or f"article{number}"
            ids[level].add(name, where)
            return [(f"{name}-{i}", *row, level) for i, row in enumerate(about)]

        numbered, why = enumerate(articles), "malformed articles"
        read = bad.usable(why, numbered, questions, lambda row: row[1][0])
        rows = list(itertools.chain.from_iterable(read))
        if empty := sum(not text.strip() for row in rows for text in row[3]):
            # The original reads them too; a folder that it can train on must not fail.
            logging.warning("%s: %d options are empty", path, empty)
        return _examples(path, rows, bad, fills_blanks=True, lettered=True)


def _folder_articles(folder: str, level: str) -> Iterator[Article]:
    """Yields the articles of a folder, in the order of their file names."""
    names = [
        name
        for name in files.list_folder(folder)
        if name.endswith(".txt") and not name.startswith(".")
    ]
    if not names:
        raise DataError(f"{folder}: expected .txt files, found none")
    for name in [_JOINED] if _JOINED in names else names:
        for where, article in _objects(files.join(folder, name)):
            # RACE was published with the file's name as `id`.
            if name != _JOINED and isinstance(article, dict):
                article = {"id": name, **article}
            yield where, level, article


def _objects(path: str) -> Iterator[tuple[str, Any]]:
    """Yields (place, JSON value) of a file with one value after the other."""
    # The published files do not end in a line break, so `cat` puts several articles on
    # one line.
    text = read_text(path)
    decoder = json.JSONDecoder()
    position, line, counted = _BLANK.match(text).end(), 1, 0
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
        yield f"{path}: line {line}", value
        position = _BLANK.match(text, end).end()


def _questions(where: str, article: Any, need_answers: bool) -> tuple[str, list[tuple]]:
    """Returns the id of an article, and its questions without their ids and groups."""
    expect(article, dict)
    name = expect(article.get("id", article.get("example_id", "")), str, "id")
    context = to_unicode(expect(article.get("article"), str, "article"))
    questions = expect_texts(article.get("questions"), "questions")
    options = expect(article.get("options"), list, "options")
    answers = article.get("answers")
    if answers is None and not need_answers:
        answers = [None] * len(questions)
    expect(answers, list, "answers")
    if not len(questions) == len(options) == len(answers):
        raise DataError(
            f"expected as many options and answers as questions, {len(questions)}, "
            f"received {len(options)} and {len(answers)}"
        )
    letters = list(_LETTERS[:_OPTIONS])
    rows = []
    for i, (question, row, answer) in enumerate(
        zip(questions, options, answers, strict=True)
    ):
        place = f"question {i} (from 0)"
        choices = list(map(to_unicode, expect_texts(row, f"{place}: options")))
        message = f"{place}: expected {_OPTIONS} options, received {len(choices)}"
        require(len(choices) == _OPTIONS, message, error=DataError)
        message = f"{place}: the answer must be one of {', '.join(letters)}"
        message += f", received {shown(answer)}"
        require(answer in [None, *letters], message, error=DataError)
        label = None if answer is None else letters.index(answer)
        about = (context, to_unicode(question), choices, label)
        rows.append((*about, f"{where}: {place}"))
    return to_unicode(name), rows
