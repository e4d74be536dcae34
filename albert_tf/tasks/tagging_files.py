"""Reads words with tags: CoNLL's columns, JSON lines and Parquet.

Legend: `N` sentences.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from absl import logging

from albert_tf.errors import DataError, require
from albert_tf.tables.column_settings import ColumnSettings
from albert_tf.tables.columns import (
    BadRow,
    BadRows,
    Ids,
    expect,
    expect_texts,
    file_format,
    warn_of_skipped,
)
from albert_tf.tables.reader import ColumnReader
from albert_tf.tables.text_stream import MAX_ROW_BYTES, TextStream, without_mark
from albert_tf.tables.tfds_source import TfdsRows
from albert_tf.tasks import iob
from albert_tf.tasks.task import Examples, FileSource, Portions
from albert_tf.tasks.text_tables import label_key

_DOCUMENT = "-DOCSTART-"
_BYTE_ORDER_MARK = "\ufeff"
_BAD = "sentences that cannot be used"
_TAGS_KEY = "ner"  # in TensorFlow Datasets


@dataclasses.dataclass(frozen=True)
class TaggedExamples(Examples):
    """Sentences of words, with or without tags.

    Attributes:
        labels: A tag for each word. Tags that mark entities are in IOB2, whatever the
            scheme of the file.
        lines: Place of each sentence: the line of its first word, or its row.
        unit: What `lines` counts: "word" (one line per word), "line" or "row" (one line
            or row per sentence).
        note: How the tags differ from the file's; may be empty.
    """

    path: str
    ids: list[str]
    tokens: list[list[str]]
    labels: list[list[str]] | None
    lines: list[int]
    unit: str = "word"
    note: str = ""
    skipped: Mapping[str, int] = dataclasses.field(default_factory=dict)
    problems: list[str] | None = None

    def place(self, sentence: int, word: int) -> str:
        """Returns the place of a word, for messages."""
        line = self.lines[sentence]
        if self.unit == "word":
            return f"{self.path}: line {line + word}"
        return f"{self.path}: {self.unit} {line}: word {word} (from 0)"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggedTableSettings(ColumnSettings):
    """The columns of words and tags in JSON lines and Parquet.

    Attributes:
        tokens_column: Column with the list of words.
        tags_column: Column with the list of their tags.
    """

    tokens_column: str = "tokens"
    tags_column: str = "tags"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggedSource(FileSource):
    """A file of tagged sentences."""

    columns: TaggedTableSettings = TaggedTableSettings()

    def open(self, path: str) -> Portions:
        """Returns the sentences of JSON lines or Parquet, or of CoNLL's columns.

        `.jsonl`, `.json` and `.parquet` have a row per sentence, all other files a line
        per word. Columns are separated by spaces or tabs. The first one is the word,
        the last one its tag; with one column there are no tags. A blank line ends a
        sentence, and so does a line with only a byte order mark. Lines of `-DOCSTART-`
        separate documents. If no tags are required, the first portion decides whether
        there are any. Reading raises `DataError` if the file cannot be read, a word has
        no tag, or the file has no words.
        """
        if file_format(path) in ("json", "parquet"):
            return _open_table(path, self.columns, self.labelled, self.on_bad_input)
        return _open_lines(path, self.labelled, self.on_bad_input)


class ConllSource(TaggedSource):
    """A file of CoNLL-2003; the set is also in TensorFlow Datasets."""

    def from_rows(self, found: TfdsRows) -> TaggedExamples:
        """Returns the sentences of TensorFlow Datasets' conll2003.

        Rows without words are left out: the last sentence of conll2003 is empty. Raises
        `DataError` if numbers of words and tags differ, or a tag has no name.
        """
        names = dict(enumerate(found.class_names.get(_TAGS_KEY, ())))

        def rows():
            for number, row in enumerate(found.rows):
                tags = row.get(_TAGS_KEY)
                if isinstance(tags, list):
                    tags = [names.get(tag, tag) for tag in tags]
                if row.get("tokens") != []:
                    yield number, str(number), row.get("tokens"), tags

        keys = ("tokens", _TAGS_KEY, "")
        arguments = (found.name, rows(), keys, "row", BadRows("stop"), Ids())
        (examples,) = _finished(found.name, iter([_from_rows(*arguments)]))
        return examples


def with_iob2(examples: TaggedExamples, warn: bool = True) -> TaggedExamples:
    """Returns sentences whose entity tags are in IOB2."""
    if examples.labels is None:
        return examples
    labels, note = iob.to_iob2(examples.labels, examples.place)
    if note and warn:
        logging.warning("%s: %s", examples.path, note)
    return dataclasses.replace(examples, labels=labels, note=note)


def _sentences(text: TextStream) -> Iterator[list[tuple[int, list[str]]]]:
    """Yields the (line, columns) of the words of each sentence."""
    sentence = []
    for number, line in enumerate(text.lines(), 1):
        row = _columns(line)
        if row and row[0] != _DOCUMENT:
            sentence.append((number, row))
        elif sentence:
            yield sentence
            sentence = []
    if sentence:
        yield sentence


def _columns(line: str) -> list[str]:
    """Returns the columns of a line; a blank line has none."""
    # Only spaces and tabs separate columns, since a word may be another kind of space.
    if not line.replace(_BYTE_ORDER_MARK, "").strip():
        return []
    if without_mark(line)[1]:
        return [line]
    line = line.rstrip(" \t\r")
    if "\t" in line:
        return [column.strip(" ") for column in line.split("\t")]
    return [column for column in line.split(" ") if column]


def _open_lines(path: str, labelled: bool, on_bad_input: str) -> Portions:
    bad = BadRows(on_bad_input)
    text = TextStream(path, bad, MAX_ROW_BYTES, rows=True)

    def portions(size: int | None) -> Iterator[TaggedExamples]:
        first = width = 0

        def sentence(numbered: tuple[int, list]) -> tuple:
            nonlocal first, width
            number, words = numbered
            line, columns = words[0]
            for _, row in words:
                if problem := without_mark(row[0])[1]:
                    raise DataError(problem[1].removeprefix(f"{path}: "))
            if not width:
                first, width = line, len(columns)
            for place, row in words:
                if problem := _row_problem(row, width, first, labelled):
                    raise DataError(f"line {place}: {problem}")
            tokens, tags = ([row[k] for _, row in words] for k in (0, -1))
            return line, str(number), tokens, tags if width > 1 else None

        def blank(row: tuple[int, list]) -> tuple:
            return row[1][0][0], str(row[0]), [], None if width == 1 else []

        bad.counts.clear()
        numbered = enumerate(_sentences(text))
        valid = bad.usable(_BAD, numbered, sentence, lambda row: path, blank)
        while block := list(itertools.islice(valid, size)):
            if width > 1:
                _check_words(path, [row[2] for row in block])
            yield _examples(path, block, "word", bad)

    return Portions(lambda size: _finished(path, portions(size)), text.fraction)


def _check_words(path: str, sentences: list[list[str]]) -> None:
    """Raises `DataError` if the first column has numbers or tags of words instead."""
    words = set(iob.flat(sentences))
    are_tags = iob.OUTSIDE in words and iob.mark_entities(words)
    are_tags = are_tags and not iob.of_no_scheme(words)
    numbers = ([str(i) for i in range(1, len(row) + 1)] for row in sentences)
    is_count = [*numbers] == sentences and any(row[1:] for row in sentences)
    message = f"{path}: the first column must be the words, and the last one their "
    message += "tags; write a file with just these two"
    require(not (are_tags or is_count), message, *sentences[0][:3], error=DataError)


def _row_problem(row: list[str], width: int, first: int, labelled: bool) -> str:
    """Returns the reason why a line cannot be used, or an empty string."""
    if len(row) == 1 and (labelled or width > 1):
        return f"the word {row[0]!r:.80} has no tag (spaces or tabs divide columns)"
    if len(row) != width:
        return (
            f"expected {width} columns, as in line {first}, received {len(row)}: "
            f"{' '.join(row)!r:.80}"
        )
    return "" if row[0] else f"there is no word before {row[-1]!r:.80}"


def _open_table(path: str, settings, labelled: bool, on_bad_input: str) -> Portions:
    tags, bad = settings.tags_column, BadRows(on_bad_input)
    wanted = [settings.tokens_column, settings.id_column, tags if labelled else ""]
    reader = ColumnReader(
        path,
        list(dict.fromkeys(filter(None, wanted))),
        optional=[] if labelled or not tags else [tags],
        bad=bad,
    )

    def portions(size: int | None) -> Iterator[TaggedExamples]:
        first, ids, tagged = 0, Ids(), labelled or None
        for table in reader.portions(size):
            end = first + len(table)
            tag_rows = table.values.get(tags) or [None] * len(table)
            if tagged is None:
                tagged = any(not isinstance(row, BadRow | None) for row in tag_rows)
            names = table.values.get(settings.id_column) or map(str, range(first, end))
            words = table.values[settings.tokens_column]
            rows = zip(table.lines, names, words, tag_rows, strict=True)
            keys = (settings.tokens_column, tags if tagged else "", settings.id_column)
            yield _from_rows(path, rows, keys, table.unit, bad, ids)
            first = end

    return Portions(lambda size: _finished(path, portions(size)), reader.fraction)


def _from_rows(
    path: str,
    rows: Iterable[tuple],
    keys: Sequence[str],
    unit: str,
    bad: BadRows,
    known: Ids,
) -> TaggedExamples:
    """Returns the sentences of those rows (line, id, words, tags) that can be used."""

    def check(row: tuple) -> tuple:
        line, name, words, tags = row
        expect_texts(words, keys[0])
        message = "expected no tags, as in the rows before, received some"
        require(keys[1] or tags is None, message, error=DataError)
        if keys[1]:
            tags = list(map(label_key, expect_texts(tags, keys[1])))
            number = len(tags)
            message = f"expected as many tags as words, {len(words)}, received {number}"
            require(number == len(words), message, error=DataError)
            for i, tag in enumerate(tags):
                if not tag.strip():
                    raise DataError(f"word {i} (from 0), {words[i]!r:.80}, has no tag")
        known.add(expect(name, str, keys[2]), f"{unit} {line}")
        return line, name, words, tags

    def where(row: tuple) -> str:
        return f"{path}: {unit} {row[0]}"

    def blank(row: tuple) -> tuple:
        name = row[1] if isinstance(row[1], str) else ""
        return row[0], name, [], [] if keys[1] else None

    return _examples(path, bad.usable(_BAD, rows, check, where, blank), unit, bad)


def _examples(
    path: str, rows: Iterable[tuple], unit: str, bad: BadRows
) -> TaggedExamples:
    """Returns sentences of (line, id, words, tags); `bad` counts the skipped ones."""
    table = list(rows)
    lines, ids, tokens, labels = ([row[k] for row in table] for k in range(4))
    labels = None if None in labels else labels
    counts, problems, bad.problems = dict(bad.counts), bad.problems or None, []
    return TaggedExamples(path, ids, tokens, labels, lines, unit, "", counts, problems)


def _finished(
    path: str, portions: Iterator[TaggedExamples]
) -> Iterator[TaggedExamples]:
    """Yields sentences with tags in IOB2; raises `DataError` if there are no words."""
    # Each portion is converted according to its own tags. If another portion's tags
    # have another form, they are not among the model's labels, and encoding raises an
    # error.
    is_empty, note = True, ""
    for examples in portions:
        warn_of_skipped(path, examples.skipped)
        is_empty = is_empty and not any(examples.tokens)
        examples = with_iob2(examples, warn=not note)
        note = note or examples.note
        if len(examples):
            yield examples
    message = f"{path}: expected sentences of words, found none"
    require(not is_empty, message, error=DataError)
