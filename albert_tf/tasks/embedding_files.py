"""Reads texts to train vectors on: pairs, pairs with negatives, scores, texts alone.

Legend: `N` examples, `K` texts of an example.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from albert_tf.errors import DataError, require
from albert_tf.storage import streams
from albert_tf.tables.columns import (
    REFUSE,
    BadRow,
    BadRows,
    Ids,
    expect,
    find_column,
    warn_of_skipped,
)
from albert_tf.tables.reader import ColumnReader
from albert_tf.tasks import text_tables
from albert_tf.tasks.task import Examples, FileSource, Portions

# What a row has: a text and its positive, perhaps with negatives; two texts and a
# score; or one text.
TUPLES, SCORES, TEXTS = "tuples", "scores", "texts"
# Names of the first text's column in sets for sentence-transformers and others.
_ANCHORS = ("anchor", "query")
_NEGATIVE = re.compile(r"(?:hard_)?negatives?(?:_?(\d{1,3}))?|neg")
_BAD = "rows that cannot be used"
# Rows of JSON Lines that show which columns there are.
_FEW_ROWS = 4096


@dataclasses.dataclass(frozen=True)
class TextTuples(Examples):
    """Examples of several texts each.

    Attributes:
        texts: Texts of each example: the first one, its positive or its second text,
            and negatives.
        labels: Score of each pair; of tuples, the positive; None for texts alone.
        where: File and line of each example, for messages.
        form: `TUPLES`, `SCORES` or `TEXTS`.
    """

    path: str
    ids: list[str]
    texts: list[list[str]]
    labels: list[Any] | None
    where: list[str]
    form: str
    skipped: Mapping[str, int] = dataclasses.field(default_factory=dict)
    problems: list[str] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairFileSettings(text_tables.TableSettings):
    """The columns of pairs, and of their negatives.

    Attributes:
        positive_column: Vectors: column of the text whose vector should be near the
            vector of text_column. Without one, text_pair_column is it, or with a
            label_column of scores the other text of a pair.
        negative_columns: Vectors: columns of texts, or of lists of them, that should be
            far. Default: negative, negative_1, negative_2, ...
    """

    positive_column: str = "positive"
    negative_columns: tuple[str, ...] = ()

    def stream(self, path: str) -> Portions:
        """Returns the pairs in a file, to be read in portions."""
        source = TupleSource(columns=self, on_bad_input=REFUSE)
        names = _names(path, self)
        form, *_ = find_form(path, TupleTableSettings(**vars(self)), names)
        expected = f"{path}: expected pairs, with a column {self.positive_column}, or "
        expected += "--text_pair_column and no label"
        require(form == TUPLES, expected, ", ".join(names))
        return source.open(path)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TupleTableSettings(PairFileSettings, text_tables.LabelledTableSettings):
    """The columns of texts to train vectors on, and of scores."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TupleSource(FileSource):
    """A table of texts as the source of examples; its columns decide their form."""

    columns: PairFileSettings

    def open(self, path: str) -> Portions:
        """Returns the examples in a file."""
        settings, reader = self.columns, None
        names = _names(path, settings)
        form, text, others = find_form(path, settings, names)
        wanted = [text, *others[:1]]
        wanted += [settings.label_column] if form == SCORES else []
        wanted = list(dict.fromkeys(filter(None, [*wanted, settings.id_column])))

        def portions(size: int | None) -> Iterator[TextTuples]:
            nonlocal reader
            bad, first, ids = BadRows(self.on_bad_input), 0, Ids()
            layout = {"optional": others[1:], "bad": bad, **settings.layout}
            reader = ColumnReader(path, wanted, **layout)
            for table in reader.portions(size):
                make = functools.partial(
                    _example, table, settings, form, [text, *others], ids, first
                )
                rows = list(bad.usable(_BAD, range(len(table)), make, table.where))
                message = f"{table.path}: no row can be used"
                require(rows, message, error=DataError)
                warn_of_skipped(table.path, bad.counts, bad.first)
                values = zip(*rows, strict=True)
                names, texts, labels, where = map(list, values)
                yield TextTuples(
                    table.path,
                    names,
                    texts,
                    None if form == TEXTS else labels,
                    where,
                    form,
                    dict(bad.counts),
                )
                first += len(table)

        return Portions(portions, lambda: reader.fraction() if reader else 0.0)


def has_positives(settings: PairFileSettings, names: Sequence[str]) -> bool:
    """Returns whether a table's columns show that it is one to train vectors on."""
    is_labelled = settings.label_columns or settings.label_column in names
    return (
        not is_labelled
        and settings.positive_column in names
        and any(name in names for name in (settings.text_column, *_ANCHORS))
    )


def find_form(
    path: str, settings: PairFileSettings, names: Sequence[str]
) -> tuple[str, str, list[str]]:
    """Returns the form of a table's rows, the column of texts, and of the others.

    Raises `DataError` if a column that the settings name is missing.
    """
    usual = TupleTableSettings()
    label = getattr(settings, "label_column", "")
    is_named = settings.positive_column != usual.positive_column
    has_scores = label not in ("", usual.label_column)
    pairs = ((settings.positive_column, is_named), (label, has_scores))
    given = [column for column, is_given in pairs if is_given]
    for column in (*given, *settings.negative_columns):
        find_column(path, column, names, settings.header)
    text, pair = settings.text_column, settings.text_pair_column
    if text == "text" and text not in names:
        text = next((name for name in _ANCHORS if name in names), text)
    if not has_scores and (is_named or settings.positive_column in names):
        found = [x for x in names if _NEGATIVE.fullmatch(x)]
        found.sort(key=lambda x: int(_NEGATIVE.fullmatch(x)[1] or 0))
        negatives = settings.negative_columns or found
        return TUPLES, text, [settings.positive_column, *negatives]
    if not pair:
        rule = f"{path}: a score in --label_column belongs to two texts; "
        require(not has_scores, f"{rule}--text_pair_column names the second")
        return TEXTS, text, []
    if has_scores or label in names:
        return SCORES, text, [pair]
    return TUPLES, text, [pair, *settings.negative_columns]


def of_table(table: text_tables.TextTable, highest: float) -> TextTuples:
    """Returns the pairs and scores of a table, divided by the highest score."""
    pairs = zip(table.texts, table.text_pairs, strict=True)
    where = [table.where(row) for row in range(len(table))]
    labels = table.labels
    if labels is not None:
        places = zip(labels, where, strict=True)
        labels = [score_of(x, place) / highest for x, place in places]
    texts = [list(pair) for pair in pairs]
    return TextTuples(table.path, list(table.ids), texts, labels, where, SCORES)


def score_of(cell: Any, place: str) -> float:
    """Returns the score in a cell; raises `DataError` if it is not a number."""
    try:
        score = float(cell)
    except (TypeError, ValueError):
        score = math.nan
    expected = f"{place}: expected a score, a finite number"
    require(math.isfinite(score), expected, cell, error=DataError)
    return score


def _names(path: str, settings: PairFileSettings) -> tuple[str, ...]:
    # A second reading of a pipe would go on where this one ends.
    rule = f"{path}: must be a regular file, which is read several times"
    status = streams.status(path)
    require(status.is_regular or status.is_folder, rule, error=DataError)
    reader = ColumnReader(path, (), bad=BadRows("skip"), **settings.layout)
    return next(reader.portions(_FEW_ROWS)).names


def _example(table, settings, form, columns, ids: Ids, first, row) -> tuple:
    """Returns id, texts, label and place of the example in a row of a table."""
    text, *others = columns
    texts = [_text(table.values[text][row], text)]
    for i, name in enumerate(others):
        cell = table.values[name][row] if name in table.values else None
        if isinstance(cell, list) and i:
            texts += [_text(item, name) for item in cell]
        elif i == 0 or cell:  # a row may have fewer negatives
            texts.append(_text(cell, name))
            is_list = name == "negatives" and text_tables.LIST.fullmatch(cell)
            need = "negatives: expected one text, or in .jsonl or .parquet a list"
            require(not is_list, need, cell, error=DataError)
    if form == TUPLES and texts[1] in texts[2:]:
        raise DataError(
            f"the positive is also a negative, {texts[1]!r:.80}; remove one of them"
        )
    label = texts[1] if form == TUPLES else None
    if form == SCORES:
        label = score_of(table.values[settings.label_column][row], "label")
    column = settings.id_column
    name = expect(table.values[column][row], str, column) if column else ""
    where = table.where(row)
    name = name or str(first + row)
    ids.add(name, where)
    return name, texts, label, where


def _text(cell: Any, name: str) -> str:
    if isinstance(cell, BadRow):
        raise cell
    text = expect(cell, str, name)
    require(text.strip(), f"{name}: the text is empty", error=DataError)
    return text
