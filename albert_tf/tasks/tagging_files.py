"""Reads words with tags: CoNLL's columns, JSON lines and Parquet.

Legend: `N` sentences.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from absl import logging

from albert_tf.errors import DataError, require
from albert_tf.tables.column_settings import ColumnSettings
from albert_tf.tables.columns import BadRows, Ids, file_format, warn_of_skipped
from albert_tf.tables.reader import read_columns
from albert_tf.tables.text_stream import TextStream
from albert_tf.tables.tfds_source import TfdsRows
from albert_tf.tasks import iob
from albert_tf.tasks.task import Examples, FileSource

_DOCUMENT = "-DOCSTART-"
_BYTE_ORDER_MARK = "\ufeff"
_BAD = "sentences that cannot be used"
_TAGS_KEY = "ner"  # in TensorFlow Datasets


@dataclasses.dataclass(frozen=True)
class TaggedExamples(Examples):
    """Sentences of words, with or without tags.

    Attributes:
        path: str. File they are from, for messages.
        ids: list of str. Name of each sentence.
        tokens: list of list of str. Words of each sentence.
        labels: list of list of str, or None. A tag for each word. Tags that mark
            entities are in IOB2, for any scheme in the file.
        lines: list of int. Where each sentence is: line of its first word, or its row.
        unit: str. What `lines` counts: "word" (one line a word), "line" or "row" (one
            line or row a sentence).
        note: str. How the tags differ from those of the file; may be empty.
        skipped: dict. Number of sentences left out, by reason.
    """

    path: str
    ids: list[str]
    tokens: list[list[str]]
    labels: list[list[str]] | None
    lines: list[int]
    unit: str = "word"
    note: str = ""
    skipped: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def place(self, sentence: int, word: int) -> str:
        """Returns where a word is, for messages."""
        line = self.lines[sentence]
        if self.unit == "word":
            return f"{self.path}: line {line + word}"
        return f"{self.path}: {self.unit} {line}: word {word} (from 0)"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggedTableSettings(ColumnSettings):
    """Where words and tags are in JSON lines and Parquet.

    Attributes:
        tokens_column: Column with the list of words.
        tags_column: Column with the list of their tags.
    """

    tokens_column: str = "tokens"
    tags_column: str = "tags"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggedSource(FileSource):
    """A file of tagged sentences in CoNLL's columns."""

    def read_file(self, path: str) -> TaggedExamples:
        """Reads any file; see `read_tagged`."""
        return read_tagged(path, None, self.labelled, self.on_bad_input)


class ConllSource(TaggedSource):
    """A file of CoNLL-2003, which TensorFlow Datasets has, too."""

    def from_rows(self, found: TfdsRows) -> TaggedExamples:
        """Returns the sentences of TensorFlow Datasets' conll2003.

        Rows without words are left out: the last sentence of conll2003 is empty.

        Raises:
            DataError: If numbers of words and tags differ, or a tag has no name.
        """
        names = dict(enumerate(found.class_names.get(_TAGS_KEY, ())))

        def rows():
            for number, row in enumerate(found.rows):
                tags = row.get(_TAGS_KEY)
                if isinstance(tags, list):
                    tags = [names.get(tag, tag) for tag in tags]
                if row.get("tokens") != []:
                    yield number, str(number), row.get("tokens"), tags

        checked = _checked(found.name, rows(), ("tokens", _TAGS_KEY), "row")
        return _finished(_collect(found.name, checked, "row", BadRows("stop")))


def read_tagged(
    path: str,
    settings: TaggedTableSettings | None = None,
    labelled: bool = True,
    on_bad_input: str = "stop",
) -> TaggedExamples:
    """Reads sentences from JSON lines or Parquet, or from CoNLL's columns.

    Columns are separated by spaces or tabs. The first one is the word, the last one
    its tag; with one column there are no tags. A blank line ends a sentence, as does
    one with only a byte order mark. Lines of `-DOCSTART-` are borders of documents.

    Args:
        path: str. Local or remote file; `.jsonl`, `.json` and `.parquet` have a row per
            sentence, all others a line per word.
        settings: `TaggedTableSettings`, or None for the usual columns.
        labelled: bool. Whether the tags must be there.
        on_bad_input: str. "stop" raises an error at a sentence that cannot be used,
            "skip" leaves it out and counts it.

    Raises:
        DataError: If the file cannot be read, a word has no tag, or there is no word.
    """
    bad = BadRows(on_bad_input)
    if file_format(path) in ("json", "parquet"):
        settings = settings or TaggedTableSettings()
        return _finished(_read_table(path, settings, labelled, bad))
    return _finished(_read_lines(path, labelled, bad))


def _finished(found: TaggedExamples) -> TaggedExamples:
    message = f"{found.path}: expected sentences of words, found none"
    require(any(found.tokens), message, error=DataError)
    warn_of_skipped(found.path, found.skipped)
    return with_iob2(found)


def with_iob2(examples: TaggedExamples) -> TaggedExamples:
    """Returns sentences whose tags of entities are in IOB2."""
    if examples.labels is None:
        return examples
    labels, note = iob.to_iob2(examples.labels, examples.place)
    if note:
        logging.warning("%s: %s", examples.path, note)
    return dataclasses.replace(examples, labels=labels, note=note)


def _sentences(path: str) -> Iterator[list[tuple[int, list[str]]]]:
    """Yields the (line, columns) of the words of each sentence."""
    sentence = []
    for number, line in enumerate(TextStream(path).lines(), 1):
        row = _columns(line)
        if row and row[0] != _DOCUMENT:
            sentence.append((number, row))
        elif sentence:
            yield sentence
            sentence = []
    if sentence:
        yield sentence


def _columns(line: str) -> list[str]:
    """Returns the columns of a line, none if it is blank.

    Only spaces and tabs separate: a word may be a space of another kind.
    """
    if not line.replace(_BYTE_ORDER_MARK, "").strip():
        return []
    line = line.rstrip(" \t\r")
    if "\t" in line:
        return [column.strip(" ") for column in line.split("\t")]
    return [column for column in line.split(" ") if column]


def _read_lines(path: str, labelled: bool, bad: BadRows) -> TaggedExamples:
    def rows():
        first = width = 0
        for i, sentence in enumerate(_sentences(path)):
            line, columns = sentence[0]
            if not width:
                first, width = line, len(columns)
            found = ((n, _row_problem(x, width, first, labelled)) for n, x in sentence)
            problem = next((f"{path}: line {n}: {why}" for n, why in found if why), "")
            words, tags = ([row[k] for _, row in sentence] for k in (0, -1))
            yield line, str(i), words, tags if width > 1 else None, problem

    return _collect(path, rows(), "word", bad)


def _row_problem(row: list[str], width: int, first: int, labelled: bool) -> str:
    """Returns why a line cannot be used, or an empty string."""
    if len(row) == 1 and (labelled or width > 1):
        return f"the word {row[0]!r:.80} has no tag"
    if len(row) != width:
        return (
            f"expected {width} columns, as in line {first}, received {len(row)}: "
            f"{' '.join(row)!r:.80}"
        )
    return "" if row[0] else f"there is no word before {row[-1]!r:.80}"


def _read_table(path: str, settings, labelled: bool, bad: BadRows) -> TaggedExamples:
    tags = settings.tags_column
    wanted = [settings.tokens_column, settings.id_column, tags if labelled else ""]
    table = read_columns(
        path,
        list(dict.fromkeys(filter(None, wanted))),
        optional=[] if labelled or not tags else [tags],
        on_bad_input=bad.action,
    )
    tag_rows = table.values.get(tags)
    if not labelled and all(row is None for row in tag_rows or ()):
        tag_rows = None
    names = table.values.get(settings.id_column) or map(str, range(len(table)))
    words = table.values[settings.tokens_column]
    rows = zip(table.lines, names, words, tag_rows or [None] * len(words), strict=True)
    keys = (settings.tokens_column, tag_rows and tags, settings.id_column)
    rows = _checked(path, rows, keys, table.unit)
    found = _collect(path, rows, table.unit, bad)
    return dataclasses.replace(found, skipped={**table.skipped, **found.skipped})


def _checked(
    path: str, rows: Iterable[tuple[int, Any, Any, Any]], keys, unit: str
) -> Iterator[tuple]:
    """Yields rows (line, id, words, tags) with the reason why one cannot be used.

    Args:
        path: str. Name of the data, for messages.
        rows: iterable of (line, id, words, tags).
        keys: tuple of str. What the file calls words, tags (None without tags) and ids.
        unit: str. What lines are.
    """
    known = Ids()
    for line, name, words, tags in rows:
        where = f"{path}: {unit} {line}"
        problem = _lists_problem(words, keys[0])
        if not problem and keys[1]:
            problem = _lists_problem(tags, keys[1]) or _tags_problem(words, tags)
        if not problem and not isinstance(name, str):
            problem = f"{keys[2]}: expected a name, received {name!r:.80}"
        problem = problem or known.problem(name, where)
        yield line, name, words, tags, f"{where}: {problem}" if problem else ""


def _collect(
    path: str, rows: Iterable[tuple], unit: str, bad: BadRows
) -> TaggedExamples:
    """Returns the sentences of rows that can be used; `bad` receives the others."""
    kept = []
    for *row, problem in rows:
        if problem:
            bad.report(_BAD, problem)
        else:
            kept.append(row)
    lines, ids, tokens, labels = map(
        list, zip(*kept, strict=True) if kept else [()] * 4
    )
    labels = None if None in labels else labels
    return TaggedExamples(path, ids, tokens, labels, lines, unit, "", dict(bad.counts))


def _lists_problem(values: Any, column: str) -> str:
    if not isinstance(values, list):
        return f"{column}: expected a list, received {values!r:.80}"
    for i, value in enumerate(values):
        if not isinstance(value, str):
            return f"{column}: expected text at {i} (from 0), received {value!r:.80}"
    return ""


def _tags_problem(words: Sequence[str], tags: Sequence[str]) -> str:
    if len(words) != len(tags):
        return f"expected as many tags as words, {len(words)}, received {len(tags)}"
    for i, (word, tag) in enumerate(zip(words, tags, strict=True)):
        if not tag.strip():
            return f"word {i} (from 0), {word!r:.80}, has no tag"
    return ""
