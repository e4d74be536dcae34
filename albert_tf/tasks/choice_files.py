"""Reads questions with choices: SWAG, CODAH, and the user's own tables.

Legend: `N` questions, `K` choices, which may differ from question to question.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence

from albert_tf.errors import DataError, require
from albert_tf.storage import files
from albert_tf.tables.columns import BadRows, Columns, Ids, warn_of_skipped
from albert_tf.tables.reader import read_columns
from albert_tf.tables.settings import LabelSettings
from albert_tf.tasks.task import Examples, FileSource, find_file

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_ENDINGS = 4  # of SWAG and CODAH
# Columns that each hold one choice, in the order of their numbers.
_NUMBERED = re.compile(r"(choice|ending|option|answer)_?(\d{1,3})")


@dataclasses.dataclass(frozen=True)
class ChoiceExamples(Examples):
    """Questions with choices.

    Attributes:
        path: str. File or folder the questions are from, for messages.
        ids: list of str. Name of each question.
        contexts: list of str. What the question is about; segment A.
        questions: list of str. Start of segment B, before the choice. May be empty.
        choices: list of list of str. `K` choices of each question.
        labels: list of int or None. Index of each right choice.
        where: list of str. File and line of each question, for messages.
        groups: list of str. Part of the data, such as "middle", or an empty string.
        fills_blanks: bool. Whether a choice replaces each `_` of its question.
        lettered: bool. Whether choices are called A, B, ... instead of 0, 1, ...
        skipped: dict. Number of questions left out, by reason.
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

    def choice_name(self, index: int) -> str:
        """Returns what a choice is called in files of predictions."""
        return _LETTERS[index] if self.lettered else str(index)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChoiceTableSettings(LabelSettings):
    """Where the contexts, the choices and the right answers are in a table.

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


def read_choice_table(
    path: str,
    settings: ChoiceTableSettings,
    labelled: bool = True,
    on_bad_input: str = "stop",
    written: Mapping[str, str] | None = None,
) -> ChoiceExamples:
    """Reads questions from CSV, TSV, JSON lines or Parquet.

    With one column per choice, empty cells at the end of a row mean fewer choices.

    Args:
        path: str. Local or remote file.
        settings: `ChoiceTableSettings`.
        labelled: bool. Whether the right choices must be there. If not, they are read
            where there are any, and `labels` is None if no row has one.
        on_bad_input: str. "stop" raises an error at a row that cannot be used, "skip"
            leaves it out and counts it.
        written: dict. Index of a choice by what the label column calls it, if that is
            neither the index nor a letter.

    Raises:
        DataError: If a column, a choice or an answer is missing or invalid.
    """
    layout = {**settings.layout, "on_bad_input": on_bad_input}
    columns = settings.choice_columns
    if not columns:
        columns = _find_choice_columns(read_columns(path, (), **layout))
    label = settings.label_column
    wanted = [settings.context_column, settings.question_column, settings.id_column]
    wanted += [*columns, label] if labelled else columns
    table = read_columns(
        path,
        list(dict.fromkeys(filter(None, wanted))),
        optional=[] if labelled or not label else [label],
        **layout,
    )
    cells = table.values.get(label)
    if cells and not labelled and all(cell in (None, "", "-1") for cell in cells):
        cells = None
    if written and cells:
        known = ", ".join(written)
        cells = [written.get(str(cell), f"{cell}: not in {known}") for cell in cells]
    return _examples(table, settings, columns, cells, BadRows(on_bad_input))


def _examples(
    table: Columns, settings, columns, labels, bad: BadRows
) -> ChoiceExamples:
    """Returns the questions of the rows that can be used."""
    names = ("ids", "contexts", "questions", "choices", "labels", "where")
    values: dict[str, list] = {name: [] for name in names}
    ids = Ids()
    for row in range(len(table)):
        where = table.where(row)
        try:
            choices = _row_choices(table, columns, row)
            name = _text(table, settings.id_column, row) or str(row)
            context = _text(table, settings.context_column, row)
            question = _text(table, settings.question_column, row)
            label = labels and _label(where, labels[row], len(choices))
            if problem := ids.problem(name, where):
                raise DataError(f"{where}: {problem}")
        except DataError as e:
            bad.report("rows without a valid question", str(e))
            continue
        found = (name, context, question, choices, label, where)
        for column, value in zip(values.values(), found, strict=True):
            column.append(value)
    require(values["ids"], f"{table.path}: no question can be used", error=DataError)
    if labels is None:
        values["labels"] = None
    skipped = {**table.skipped, **bad.counts}
    warn_of_skipped(table.path, skipped)
    groups = [""] * len(values["ids"])
    return ChoiceExamples(path=table.path, groups=groups, skipped=skipped, **values)


def _find_choice_columns(table: Columns) -> tuple[str, ...]:
    """Returns `choices`, or the columns that are numbered from 0 or 1."""
    if "choices" in table.names:
        return ("choices",)
    found: dict[str, dict[int, str]] = {}
    for name in table.names:
        if match := _NUMBERED.fullmatch(name):
            found.setdefault(match[1], {})[int(match[2])] = name
    for numbered in found.values():
        order = sorted(numbered)
        if len(order) > 1:
            missing = sorted({*range(order[0], order[-1])} - {*order})
            if missing or order[0] > 1:
                raise DataError(
                    f"{table.path}: expected columns of choices numbered from 0 or 1 "
                    f"without a gap, received {', '.join(numbered[i] for i in order)}"
                )
            return tuple(numbered[i] for i in order)
    raise DataError(
        f"{table.path}: no columns of choices; expected a column of lists named "
        "choices, or columns named choice0, choice1, ..., received "
        f"{', '.join(table.names)[:400]} (--choice_columns names them)"
    )


def _row_choices(table: Columns, columns: Sequence[str], row: int) -> list[str]:
    where = table.where(row)
    values = [table.values[name][row] for name in columns]
    if len(columns) == 1:
        if not isinstance(values[0], list):
            raise DataError(
                f"{where}: {columns[0]}: expected a list of choices, received "
                f"{values[0]!r:.80}"
            )
        values = values[0]
    else:
        while values and (values[-1] is None or values[-1] == ""):
            values.pop()
    for i, value in enumerate(values):
        if not isinstance(value, str):
            kind = "is missing" if value is None else f"is not text: {value!r:.80}"
            raise DataError(f"{where}: choice {i} (from 0) {kind}")
    if len(values) < 2:
        raise DataError(f"{where}: expected at least 2 choices, received {len(values)}")
    for i, choice in enumerate(values):
        require(
            choice.strip(), f"{where}: choice {i} (from 0) is empty", error=DataError
        )
    return values


def _label(where: str, cell, number: int) -> int:
    """Returns the index of the right one of a number of choices."""
    index = _index(cell)
    if index is None or index >= number:
        raise DataError(
            f"{where}: expected the index of a choice, 0 to {number - 1} (or A to "
            f"{_LETTERS[min(number, 26) - 1]}), received {cell!r:.80} "
            "(--labels=1,2,... says what the column calls the choices, in their order)"
        )
    return index


def _index(cell) -> int | None:
    if not isinstance(cell, str):
        return None
    if len(cell) == 1 and cell in _LETTERS:
        return _LETTERS.index(cell)
    plain = cell.isascii() and cell.isdecimal() and len(cell) < 10
    return int(cell) if plain else None


def _text(table: Columns, column: str, row: int) -> str:
    if not column:
        return ""
    value = table.values[column][row]
    if not isinstance(value, str):
        kind = "null or missing" if value is None else f"{value!r:.80}"
        raise DataError(f"{table.where(row)}: {column}: expected text, received {kind}")
    return value


@dataclasses.dataclass(frozen=True, kw_only=True)
class EndingsSource(FileSource):
    """A file of sentences to complete, with four endings each (SWAG, CODAH).

    Attributes:
        columns: `ChoiceTableSettings`. How the file is laid out.
        hint: str. End of the message if there is no such file.
    """

    columns: ChoiceTableSettings
    hint: str = ""

    def read(self, folder: str = "") -> ChoiceExamples:
        """Reads the file in the folder; see `FileSource.read`."""
        hint = self.hint
        if hint and files.exists(files.join(folder, "full_data.tsv")):
            hint = f"; full_data.tsv has no split{hint}"
        return self.read_file(find_file(folder, self.folders, self.names, hint))

    def read_file(self, path: str) -> ChoiceExamples:
        """Reads any file of this form; the answers of a test set may be missing."""
        layout = (self.columns, self.labelled, self.on_bad_input)
        examples = read_choice_table(path, *layout)
        bad, kept = BadRows(self.on_bad_input), []
        for row, choices in enumerate(examples.choices):
            if len(choices) == _ENDINGS:
                kept.append(row)
                continue
            received = f"expected {_ENDINGS} endings, received {len(choices)}"
            message = f"{examples.where[row]}: {received}"
            bad.report("questions without four endings", message)
        if not bad.counts:
            return examples
        require(kept, f"{path}: no question has {_ENDINGS} endings", error=DataError)
        return examples.kept(kept, bad.counts)


def swag_source(split: str) -> EndingsSource:
    """Returns a split of SWAG (https://github.com/rowanz/swagaf).

    Segment A is `sent1`, B is `sent2` with the ending, as in Hugging Face's `run_swag`.
    """
    return EndingsSource(
        names={"dev": ("val.csv", "dev.csv")}.get(split, (f"{split}.csv",)),
        folders=("", "SWAG", "swag", "data"),
        labelled=split != "test",
        columns=ChoiceTableSettings(context_column="sent1", question_column="sent2"),
    )


def codah_source(split: str) -> EndingsSource:
    """Returns a split of CODAH (https://github.com/Websail-NU/CODAH).

    Columns without a header and without quoting: category (10 rows have none), prompt,
    4 endings, label. Segment A is the prompt, B the ending. Of five folds, the first
    one is found.
    """
    folders = ("", "fold_0", "cv_split/fold_0", "CODAH", "CODAH/cv_split/fold_0")
    return EndingsSource(
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
        hint="; name one of the folders fold_0 to fold_4 to choose a fold",
    )
