"""Reads words with tags: CoNLL's columns, JSON lines and Parquet.

Legend: `N` sentences.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from absl import logging

from albert_tf.errors import DataError
from albert_tf.settings import setting
from albert_tf.tables.columns import BadRows, file_format, warn_of_skipped
from albert_tf.tables.reader import read_columns
from albert_tf.tables.settings import ColumnSettings
from albert_tf.tables.text_stream import TextStream
from albert_tf.tasks import tag_schemes
from albert_tf.tasks.task import Examples, find_file

_DOCUMENT = "-DOCSTART-"
_BYTE_ORDER_MARK = "\ufeff"
_BAD = "sentences that cannot be used"


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
    """Where words and tags are in JSON lines and Parquet."""

    tokens_column: str = setting("Column with the list of words.", "tokens")
    tags_column: str = setting("Column with the list of their tags.", "tags")


@dataclasses.dataclass(frozen=True)
class TaggedSource:
    """A file of tagged sentences, for example of the user (see `task.FileSource`).

    Attributes:
        names: tuple of str. Names that the file may have in the folder of the data, or
            its path.
        folders: tuple of str. Folders in that folder that may hold it.
        columns: `TaggedTableSettings`. For JSON lines and Parquet.
        labelled: bool. Whether the tags must be there.
        on_bad_input: str. "stop", or "skip" to leave out sentences that cannot be used.
    """

    names: tuple[str, ...]
    folders: tuple[str, ...] = ("",)
    columns: TaggedTableSettings = TaggedTableSettings()
    labelled: bool = True
    on_bad_input: str = "stop"

    def read(self, folder: str = "") -> TaggedExamples:
        """Reads the file; see `read_tagged`.

        Raises:
            DataError: If it is missing or malformed.
        """
        path = self.names[0]
        if folder or len(self.names) > 1:
            path = find_file(folder, self.folders, self.names)
        return self.read_file(path)

    def read_file(self, path: str) -> TaggedExamples:
        """Reads any file; see `read_tagged`."""
        return read_tagged(path, self.columns, self.labelled, self.on_bad_input)


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
        found = _read_table(path, settings or TaggedTableSettings(), labelled, bad)
    else:
        found = _read_lines(path, labelled, bad)
    if not any(found.tokens):
        raise DataError(f"{path}: expected sentences of words, found none")
    warn_of_skipped(path, found.skipped)
    return with_iob2(found)


def examples_from_rows(
    rows: Iterable[Mapping[str, Any]],
    path: str,
    tag_names: Sequence[str] = (),
    tags_key: str = "ner",
) -> TaggedExamples:
    """Returns the sentences of rows, such as those of TensorFlow Datasets' conll2003.

    Args:
        rows: iterable of dict. Each has `tokens`, a list of str, and `tags_key`, a list
            of str or of numbers of `tag_names`. Rows without words are left out: the
            last sentence of conll2003 is empty.
        path: str. Name of the data, for messages.
        tag_names: sequence of str. Names of the numbers.
        tags_key: str. Key of the tags.

    Raises:
        DataError: If numbers of words and tags differ, or a tag has no name.
    """
    ids, tokens, labels, lines = [], [], [], []
    for number, row in enumerate(rows):
        where = f"{path}: row {number}"
        for key in ("tokens", tags_key):
            if not isinstance(row.get(key), (list, tuple)):
                raise DataError(
                    f"{where}: {key}: expected a list, received {row.get(key)!r:.80}"
                )
        words, tags = list(row["tokens"]), list(row[tags_key])
        if len(words) != len(tags):
            raise DataError(f"{where}: {len(words)} words but {len(tags)} tags")
        if not words:
            continue
        for tag in tags:
            if not isinstance(tag, str) and not 0 <= tag < len(tag_names):
                raise DataError(
                    f"{where}: expected a tag from 0 to {len(tag_names) - 1}, "
                    f"received {tag}"
                )
        ids.append(str(number))
        tokens.append(words)
        labels.append([t if isinstance(t, str) else tag_names[t] for t in tags])
        lines.append(number)
    if not tokens:
        raise DataError(f"{path}: expected sentences of words, found none")
    return with_iob2(TaggedExamples(path, ids, tokens, labels, lines, "row"))


def with_iob2(examples: TaggedExamples) -> TaggedExamples:
    """Returns sentences whose tags of entities are in IOB2."""
    if examples.labels is None:
        return examples
    labels, note = tag_schemes.to_iob2(examples.labels, examples.place)
    if note:
        logging.warning("%s: %s", examples.path, note)
    return dataclasses.replace(examples, labels=labels, note=note)


def _sentences(path: str) -> Iterator[list[tuple[int, list[str]]]]:
    """Yields the (line, columns) of the words of each sentence."""
    sentence = []
    for number, line in TextStream(path).lines():
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
    ids, tokens, labels, lines = [], [], [], []
    first = width = 0
    for number, sentence in enumerate(_sentences(path)):
        if not width:
            first, width = sentence[0][0], len(sentence[0][1])
        problem = ""
        for line, row in sentence:
            if problem := _row_problem(row, width, first, labelled):
                problem = f"{path}: line {line}: {problem}"
                break
        if problem:
            bad.report(_BAD, problem)
            continue
        ids.append(str(number))
        tokens.append([row[0] for _, row in sentence])
        labels.append([row[-1] for _, row in sentence])
        lines.append(sentence[0][0])
    known = labels if width > 1 else None
    skipped = dict(bad.counts)
    return TaggedExamples(path, ids, tokens, known, lines, "word", "", skipped)


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
    if tag_rows and not labelled and all(row is None for row in tag_rows):
        tag_rows = None
    ids, tokens, labels, lines = [], [], [], []
    seen: dict[str, str] = {}
    for row, words in enumerate(table.values[settings.tokens_column]):
        where = table.where(row)
        name = table.values[settings.id_column][row] if settings.id_column else str(row)
        found = None if tag_rows is None else tag_rows[row]
        problem = _lists_problem(words, settings.tokens_column)
        if not problem and tag_rows is not None:
            problem = _lists_problem(found, tags) or _tags_problem(words, found)
        if not problem and not isinstance(name, str):
            problem = f"{settings.id_column}: expected a name, received {name!r:.80}"
        if not problem and name in seen:
            problem = f"the id {name!r:.80} is already that of {seen[name]}"
        if problem:
            bad.report(_BAD, f"{where}: {problem}")
            continue
        seen[name] = where
        ids.append(name)
        tokens.append(words)
        labels.append(found)
        lines.append(table.lines[row])
    known = None if tag_rows is None else labels
    skipped = {**table.skipped, **bad.counts}
    return TaggedExamples(path, ids, tokens, known, lines, table.unit, "", skipped)


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
