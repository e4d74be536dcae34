"""Finds the files of a data set in the folder that the user named."""

from collections.abc import Sequence

from albert_tf.errors import MissingFileError, UsageError
from albert_tf.storage import files


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
