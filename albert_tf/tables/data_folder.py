"""Finds and reads the files of a data set in the folder that the user named."""

from collections.abc import Callable, Iterator, Sequence

from albert_tf.errors import DataError, MissingFileError, UsageError
from albert_tf.storage import files
from albert_tf.tables import cells

# The columns of `read_classes`.
COLUMNS = ["text", "label", "file"]


def read_classes(
    folder: str, report: Callable[[str, str], None]
) -> Iterator[tuple[str, list[str]]]:
    """Yields the name and the values of `COLUMNS` of every file in a folder of classes.

    Args:
        folder: str. It has a folder per class, in which every file is a text.
        report: callable. Told the reason and the message for every file that is none.
    """
    for label in files.list_folder(folder):
        inner = files.join(folder, label)
        if label.startswith(".") or not files.is_folder(inner):
            continue
        for name in files.list_folder(inner):
            if name.startswith("."):
                continue
            try:
                text = cells.read_text(files.join(inner, name))
                yield f"{label}/{name}", [text, label, f"{label}/{name}"]
            except DataError as e:
                report("files that are not text", str(e))


def find_file(
    folder: str, folders: Sequence[str], names: Sequence[str], hint: str = ""
) -> str:
    """Returns the first of several files that exists.

    Args:
        folder: str. Folder of the data.
        folders: sequence of str. Folders in it that may hold the file.
        names: sequence of str. Names that the file may have.
        hint: str. End of the message if there is none.

    Raises:
        UsageError: If no folder is given.
        MissingFileError: If no such file exists.
    """
    if not folder:
        raise UsageError(f"data_dir must be the folder of {names[0]}, received none")
    for inner in folders:
        for name in names:
            path = (
                files.join(folder, inner, name) if inner else files.join(folder, name)
            )
            if files.exists(path):
                return path
    raise MissingFileError(f"{folder}: no file {' or '.join(names)}{hint}")
