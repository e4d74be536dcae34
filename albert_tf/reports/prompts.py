"""The texts whose masks a run and its checkpoints fill in."""

from albert_tf.errors import DataError
from albert_tf.storage import files

MASK = "[MASK]"
# Neutral sentences: what they lack depends on grammar and common knowledge.
PROMPTS = (
    "the capital of france is [MASK] .",
    "she opened the door and [MASK] into the room .",
    "water is [MASK] than ice .",
    "this function [MASK] a list of numbers .",
    "he was born in 1950 [MASK] london .",
)


def read_prompts(path: str) -> list[str]:
    """Returns the texts in a file, one per line, or the default ones.

    Args:
        path: str. The file; empty for the default texts.

    Raises:
        DataError: If the file cannot be read, or a line in it has no mask.
    """
    if not path:
        return list(PROMPTS)
    lines = [line.strip() for line in files.read_text(path).splitlines()]
    for number, line in enumerate(lines, 1):
        if line and MASK not in line:
            raise DataError(
                f"{path}: line {number} must contain {MASK}, received {line[:60]!r}"
            )
    if not any(lines):
        raise DataError(f"{path}: must contain a sentence with {MASK}, is empty")
    return [line for line in lines if line]
