"""Finds the files of SWAG and CODAH: sentences to complete, with four endings each."""

import dataclasses

from albert_tf.errors import DataError
from albert_tf.storage import files
from albert_tf.tables.columns import BadRows
from albert_tf.tasks.choice_files import (
    ChoiceExamples,
    ChoiceTableSettings,
    read_choice_table,
)
from albert_tf.tasks.task import find_file

_ENDINGS = 4


@dataclasses.dataclass(frozen=True)
class SwagSource:
    """A file of SWAG (https://github.com/rowanz/swagaf), found in a folder.

    Segment A is `sent1`, B is `sent2` with the ending, as in Hugging Face's `run_swag`.

    Attributes:
        split: str. "train", "dev" or "test".
        on_bad_input: str. "stop", or "skip" to leave out rows that cannot be used.
    """

    split: str
    on_bad_input: str = "stop"

    def read(self, folder: str = "") -> ChoiceExamples:
        """Reads `train.csv`, `val.csv` or `test.csv` of the folder, or of its `SWAG`.

        The file of the test split has no answers; `labels` is then None.

        Raises:
            DataError: If the file is missing or malformed.
        """
        names = {"dev": ("val.csv", "dev.csv")}.get(self.split, (f"{self.split}.csv",))
        return self.read_file(find_file(folder, ("", "SWAG", "swag", "data"), names))

    def read_file(self, path: str) -> ChoiceExamples:
        """Reads any file of this form."""
        settings = ChoiceTableSettings(context_column="sent1", question_column="sent2")
        return _read(path, settings, self.split, self.on_bad_input)


@dataclasses.dataclass(frozen=True)
class CodahSource:
    """A file of CODAH (https://github.com/Websail-NU/CODAH), found in a folder.

    Columns without a header and without quoting: category (10 rows have none), prompt,
    4 endings, label. Segment A is the prompt, B the ending.

    Attributes:
        split: str. "train", "dev" or "test".
        on_bad_input: str. "stop", or "skip" to leave out rows that cannot be used.
    """

    split: str
    on_bad_input: str = "stop"

    def read(self, folder: str = "") -> ChoiceExamples:
        """Reads the split's file of the folder itself, or of its first fold.

        Raises:
            DataError: If the file is missing or malformed.
        """
        folders = ("", "fold_0", "cv_split/fold_0", "CODAH", "CODAH/cv_split/fold_0")
        folders += ("codah/cv_split/fold_0", "data/cv_split/fold_0")
        hint = "; name one of the folders fold_0 to fold_4 to choose a fold"
        if files.exists(files.join(folder, "full_data.tsv")):
            hint = "; full_data.tsv has no split" + hint
        return self.read_file(find_file(folder, folders, (f"{self.split}.tsv",), hint))

    def read_file(self, path: str) -> ChoiceExamples:
        """Reads any file of this form."""
        settings = ChoiceTableSettings(
            context_column="1",
            choice_columns=("2", "3", "4", "5"),
            label_column="6",
            header=False,
            quoting=False,
        )
        return _read(path, settings, self.split, self.on_bad_input)


def _read(
    path: str, settings: ChoiceTableSettings, split: str, on_bad_input: str
) -> ChoiceExamples:
    """Reads a file in which every question has four endings."""
    examples = read_choice_table(path, settings, split != "test", on_bad_input)
    bad, kept = BadRows(on_bad_input), []
    for row, choices in enumerate(examples.choices):
        if len(choices) == _ENDINGS:
            kept.append(row)
            continue
        where, number = examples.where[row], len(choices)
        message = f"{where}: expected {_ENDINGS} endings, received {number}"
        bad.report("questions without four endings", message)
    if not bad.counts:
        return examples
    if not kept:
        raise DataError(f"{path}: no question has {_ENDINGS} endings")
    return examples.kept(kept, bad.counts)
