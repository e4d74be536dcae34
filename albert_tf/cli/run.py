"""Runs a command: parses flags, prints help, reports errors in one line.

A tool ends with `run(main)`. Exit codes: 0 success, 1 a file or its content cannot be
used, 2 a flag cannot be used, 70 a bug in this package, 130 interrupted, 141 the reader
of the output has closed it, 143 terminated; 130 and 143 also after saving.

Importing this module before TensorFlow also prepares TensorFlow's start (see `start`).
It imports neither TensorFlow nor Keras, so that `--help` is fast.
"""

import codecs
import errno
import io
import logging as std_logging
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

from absl import flags, logging

from albert_tf.cli import start
from albert_tf.cli.flags import ALIASES, FROM_CONFIG, HIDDEN
from albert_tf.cli.help import help_text
from albert_tf.errors import DataError, Stopped, UsageError, without_graph_names

start.install()

_DEBUG_VARIABLE = "ALBERT_TF_DEBUG"
_DEBUG = flags.DEFINE_bool(
    "debug", False, f"Show the traceback of an error (or set {_DEBUG_VARIABLE}=1)."
)
# Flags that this module defines belong to the tool that runs.
flags.disclaim_key_flags()

_HELP = {"--help": False, "-help": False, "-h": False, "--helpfull": True}

# TensorFlow errors that concern the user's files.
_TENSORFLOW_FILE_ERRORS = {
    "AbortedError",
    "AlreadyExistsError",
    "DataLossError",
    "DeadlineExceededError",
    "NotFoundError",
    "PermissionDeniedError",
    "UnauthenticatedError",
    "UnavailableError",
}


# Unreadable inputs raise DataError earlier, so these errors are about an output path.
_UNWRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR)


class _Terminated(KeyboardInterrupt):
    """Raised on SIGTERM, so that cleaning up works as after Ctrl-C."""

    exit_code = 143


def run(main: Callable[..., None], arguments: str = "") -> NoReturn:
    """Parses the flags, calls `main` and exits; reports an error in one line on stderr.

    The docstring of the file of `main` introduces the text of `--help`. `arguments`
    names the positional arguments, of which a command that takes any needs at least
    one.
    """
    _ensure_utf8()
    sys.exit(_run(main, sys.argv, arguments))


def _ensure_utf8() -> None:
    """Restarts in UTF-8 mode if paths would have another encoding."""
    # TensorFlow's paths are UTF-8, as are all files here. In the C locale, Python
    # itself chooses this mode by default.
    if codecs.lookup(sys.getfilesystemencoding()).name != "utf-8":
        command = [sys.executable, "-X", "utf8", *sys.orig_argv[1:]]
        os.execve(sys.executable, command, {**os.environ, "PYTHONUTF8": "1"})
    if sys.stdout is None:  # closed
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _run(main: Callable[..., None], argv: list[str], arguments: str = "") -> int:
    requested = [_HELP[argument] for argument in argv[1:] if argument in _HELP]
    try:
        signal.signal(signal.SIGTERM, _terminate)
        if requested:
            print(help_text(main, argv[0], any(requested), arguments))
        else:
            positional = _parse(argv, arguments)
            _start_logging()
            main(*positional)
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:
        return _report(error)
    return 0


def _terminate(number: int, frame) -> NoReturn:
    del number, frame
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second one ends at once
    raise _Terminated


def _parse(argv: list[str], arguments: str) -> list[list[str]]:
    """Parses `argv` into FLAGS and returns the arguments that are not flags."""
    # Flags may follow arguments.
    flags.FLAGS.set_gnu_getopt(True)
    try:
        positional = flags.FLAGS(argv)[1:]
    except flags.UnrecognizedFlagError as error:
        raise UsageError(f"--{error.flagname}: {_unknown(error.flagname)}") from error
    except flags.Error as error:
        raise UsageError(_refusal(str(error))) from error
    if positional and not arguments:
        raise UsageError(
            f"unexpected argument {positional[0]!r}: flags are written --name=value"
        )
    if arguments and not positional:
        raise UsageError(f"{arguments}: required, but not given")
    return [positional] if arguments else []


def _unknown(name: str) -> str:
    import difflib

    names = [flag for flag in flags.FLAGS if flag not in HIDDEN]
    module = flags.FLAGS.find_module_defining_flag
    names = [flag for flag in names if not module(flag).startswith("absl.")]
    # --epochs is nearer to --num_train_epochs than its letters suggest.
    close = [flag for flag in names if len(name) > 2 and name in flag]
    close = close or [flag for flag in names if len(flag) > 5 and flag in name]
    close = close or difflib.get_close_matches(name, names, n=1)
    if not close:
        return "unknown flag (--help lists the flags)"
    # The real name, even where an alias is the closest match.
    real = dict.fromkeys(ALIASES.get(flag, flag) for flag in close)
    return f"unknown flag; did you mean --{' or --'.join([*real][:3])}?"


def _refusal(message: str) -> str:
    """Turns absl's various messages into `--flag must be X, received value`."""
    message = message.splitlines()[0]
    missing = re.fullmatch(r"flag --(\w+)=None: .* other than None\.?", message)
    if missing:
        return f"--{missing[1]}: required, but not given"
    no_value = re.fullmatch(r"Missing value for flag -*(\w+)", message)
    if no_value:
        return f"--{no_value[1]}: a value is missing"
    refused = re.fullmatch(r"flag --(\w+)=(.*?): (.*)", message)
    if not refused:
        return message
    name, value, reason = refused.groups()
    parser = flags.FLAGS[name].parser
    if reason.startswith("value should be one of"):
        choices = ", ".join(filter(None, parser.enum_values))
        return f"--{name} must be one of {choices}, received {value!r}"
    if reason.endswith("is not a positive integer"):
        return f"--{name} must be positive, received {value}"
    if reason.startswith(("invalid literal", "could not convert", "('Non-boolean")):
        kind = parser.syntactic_help or "true or false"
        return f"--{name} must be {kind}, received {value!r}"
    return f"--{name}={value}: {reason}"


def _start_logging() -> None:
    logging.use_absl_handler()
    # The format of the commands' own output: no date, no process, no source line.
    logging.get_absl_handler().setFormatter(_Lines())
    if flags.FLAGS["verbosity"].using_default_value:
        logging.set_verbosity(logging.INFO)
        # TensorFlow logs every checkpoint that it writes; show only its warnings.
        logging.get_absl_logger().addFilter(
            lambda record: (
                record.levelno >= std_logging.WARNING
                or "tensorflow" not in record.pathname
            )
        )
        # Some of its modules use a logger of this name instead, for example about the
        # temporary folder of a SavedModel.
        std_logging.getLogger("tensorflow").addFilter(
            lambda record: record.levelno >= std_logging.WARNING
        )
        # JAX names every kind of device that the machine lacks.
        std_logging.getLogger("jax").setLevel(std_logging.WARNING)


class _Lines(std_logging.Formatter):
    """Formats a message as one line that names only its level, unless it is info."""

    def format(self, record: std_logging.LogRecord) -> str:
        line = super().format(record)
        if record.levelno <= std_logging.INFO:
            return line
        return f"{record.levelname.lower()}: {line}"


def _report(error: BaseException) -> int:
    """Prints an error and returns the exit code."""
    if isinstance(error, Stopped):
        print(error, file=sys.stderr, flush=True)
        return error.exit_code
    code, message = _describe(error)
    if code == 141:
        # Python flushes stdout again at exit, which would fail once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return code
    debug = os.environ.get(_DEBUG_VARIABLE, "") not in ("", "0")
    if debug or "--debug" in sys.argv[1:]:
        traceback.print_exception(error)
    elif code == 70:
        message += " (this is a bug; --debug shows where it happened)"
    print(f"error: {message}", file=sys.stderr, flush=True)
    return code


def _describe(error: BaseException) -> tuple[int, str]:
    """Returns the exit code and a one-line message for an error."""
    line = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, _Terminated):
        return 143, "terminated"
    if isinstance(error, KeyboardInterrupt):
        return 130, "interrupted"
    if isinstance(error, BrokenPipeError):
        return 141, line
    if isinstance(error, UsageError | flags.Error):
        return 2, _as_given(_with_origin(_as_flag(line)))
    if isinstance(error, DataError | ImportError):
        return 1, _as_given(_as_flag(line))
    if isinstance(error, OSError):
        code = 2 if error.errno in _UNWRITABLE else 1
        return code, _describe_os_error(error) or line
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "OpError" in kinds:
        if kinds & _TENSORFLOW_FILE_ERRORS or "No space left" in line:
            return 1, without_graph_names(line)
        line = without_graph_names(line)
    return 70, f"{type(error).__name__}: {line}"


def _as_flag(line: str) -> str:
    """Turns the argument at the start of a message into the flag of that name."""
    name = re.match(r"(\w+)(?=: | must | = )", line)
    if name is None or name[1] not in flags.FLAGS:
        return line
    if name[1] in sys.argv[1:] or any(a.endswith(f"={name[1]}") for a in sys.argv):
        return line  # more likely the user's file of that name
    return f"--{line}"


def _as_given(line: str) -> str:
    """Begins with the alias that was given, if a message begins with its flag."""
    there = [alias for alias in ALIASES if alias in flags.FLAGS]  # not in a library
    given = {ALIASES[alias]: alias for alias in there if flags.FLAGS[alias].present}
    return re.sub(r"^--(\w+)\b(?!=)", lambda m: f"--{given.get(m[1], m[1])}", line)


def _with_origin(line: str) -> str:
    """Adds the source of values in an error message that nobody typed."""
    named = dict.fromkeys(re.findall(r"--(\w+)", line))
    path = flags.FLAGS["config"].value if "config" in flags.FLAGS else None
    in_config = [f"--{name}" for name in named if path and name in FROM_CONFIG]
    if in_config:
        verb = "is" if len(in_config) == 1 else "are"
        return f"{line}; {' and '.join(in_config)} {verb} from --config={path}"
    subject = re.match(r"--(\w+)(?:=| must be (?!given))", line)
    name = subject[1] if subject else ""
    # A flag whose value could not be parsed does not know that it was given.
    was_typed = name not in flags.FLAGS or flags.FLAGS[name].present
    was_typed = was_typed or any(a.lstrip("-").startswith(name) for a in sys.argv[1:])
    return line if was_typed else f"{line}; this is the default of --{name}"


def _describe_os_error(error: OSError) -> str | None:
    if not error.strerror:
        return None
    reason = error.strerror
    if error.errno == errno.ENOSPC:
        reason = "the disk is full"
    where = error.filename2 or error.filename
    return f"{where}: {reason}" if where else reason
