"""Defines the kinds of error a user can cause, one exit code each; warnings."""

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
