"""Errors that a user can cause, one exit code each; parts of messages; warnings."""

import re
from collections.abc import Mapping
from typing import Any


class UsageError(ValueError):
    """A flag, argument or output folder cannot be used as given (exit code 2)."""


class DataError(ValueError):
    """A file, its content or another machine cannot be used (exit code 1)."""


class UntrainedWeightsWarning(UserWarning):
    """A model was loaded whose files lack some of its weights, named in the message.

    Example:
        >>> import albert_tf, warnings
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore", albert_tf.UntrainedWeightsWarning)
        ...     model = albert_tf.from_pretrained("demo_output/pretrain/model",
        ...                                       head="text_classifier")
        >>> model.untrained_weights
        ['classifier/bias', 'classifier/kernel']
    """


class MissingFileError(DataError):
    """A file of a data set, or the config of a checkpoint, does not exist."""


class Stopped(KeyboardInterrupt):
    """A run ended early on a signal, after saving its state.

    It is a `KeyboardInterrupt`, so that no code treats it as a failure.

    Attributes:
        exit_code: int. 130 after Ctrl-C, else 143: commands that wait for the run to
            be complete, as with `&&` and in schedulers, must not continue.
    """

    def __init__(self, message: str, signal: str = "SIGTERM"):
        super().__init__(message)
        self.exit_code = 130 if signal == "SIGINT" else 143


def require(
    condition: Any,
    expectation: str,
    *received: Any,
    error: type[Exception] = UsageError,
) -> None:
    """Raises `error` unless a condition holds: "expectation, received value".

    Args:
        expectation: str. The file, flag or argument, and its constraint.
        *received: The actual values, if the message is to show them.
    """
    if not condition:
        values = " and ".join(map(repr, received))
        raise error(f"{expectation}, received {values}" if received else expectation)


def count_of(number: int, noun: str) -> str:
    """Returns "1 example", "2,000 examples"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def list_counts(counts: Mapping[str, int]) -> str:
    """Returns "short 1,200, long 3", or "none"."""
    return ", ".join(f"{name} {number:,}" for name, number in counts.items()) or "none"


def without_graph_names(line: str) -> str:
    """Removes TensorFlow's names in the graph: `{{node x}}`, `[Op:y] name: z`."""
    line = re.sub(r"\{\{.*?\}\}\s*", "", line)
    return re.sub(r"\s*\[Op:\w+\].*$", "", line).strip()
