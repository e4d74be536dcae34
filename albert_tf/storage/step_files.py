"""Finds the checkpoints of a training run by their files."""

import os
import re

from albert_tf.storage import files

_INDEX = re.compile(r"step-(\d+)\.index")


def find_checkpoints(folder: str | os.PathLike) -> dict[int, str]:
    """Returns the prefixes of the complete checkpoints in a folder, the latest first.

    The files themselves are listed, not TensorFlow's file `checkpoint`, which may
    be damaged. TensorFlow moves the index into place after everything else.

    Args:
        folder: str. Folder of checkpoints; may be missing.

    Returns:
        dict: prefixes such as `folder/step-20` by step.
    """
    names = files.list_folder(folder) if files.is_folder(folder) else []
    steps = [int(found[1]) for found in map(_INDEX.fullmatch, names) if found]
    return {n: files.join(folder, f"step-{n}") for n in sorted(steps, reverse=True)}
