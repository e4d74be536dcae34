"""Defines the kinds of error a user can cause, one exit code each; warnings."""


class UsageError(ValueError):
    """A flag, argument or output folder cannot be used as given (exit code 2)."""


class DataError(ValueError):
    """A file, its content or another machine cannot be used (exit code 1)."""


class UntrainedWeightsWarning(UserWarning):
    """A model was loaded whose files lack some of its weights, named in the message."""


class MissingFileError(DataError):
    """A file of a data set, or the config of a checkpoint, does not exist."""


class Stopped(KeyboardInterrupt):
    """A run ended early because it was asked to, after saving what it had reached.

    Exit code 0. A `KeyboardInterrupt`, so that nothing takes it for a failure.
    """
