"""The two kinds of mistake a user can make, told apart by their exit code."""


class UsageError(ValueError):
    """A flag, argument or output folder cannot be used as given (exit code 2)."""


class DataError(ValueError):
    """The content of a file is not what it must be (exit code 1)."""
