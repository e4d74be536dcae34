"""Checks, before the work is done, that its results can be written."""

import os

from albert_tf.errors import UsageError
from albert_tf.storage import files


def check_output_file(flag: str, path: str, overwrite: bool) -> None:
    """Checks that a file can be written.

    Args:
        flag: str. Name of the flag that named it.
        path: str. The file; empty for no file.
        overwrite: bool. Whether an existing file may be replaced.

    Raises:
        UsageError: If the file exists and may not be replaced, or its folder does not
            exist.
    """
    if path and files.exists(path) and not overwrite:
        raise UsageError(
            f"--{flag}={path}: exists already; give --overwrite or another name"
        )
    folder = os.path.dirname(path)
    if folder and not files.is_remote(path) and not files.is_folder(folder):
        raise UsageError(f"--{flag}={path}: there is no folder {folder}")
