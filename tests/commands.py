"""Runs commands in the process of the tests, which has imported TensorFlow already.

What a command does before TensorFlow is imported, its signals and its exit on a closed
pipe need a process of its own (`run_python`).
"""

import contextlib
import dataclasses
import functools
import io
import runpy
import sys
from collections.abc import Iterator

from absl import flags, logging
from absl.testing import flagsaver

from albert_tf.cli import flags as ours
from albert_tf.cli import run  # its flags are there before any command's
from tests.imports import ROOT
from tools import main as dispatch

assert run


@dataclasses.dataclass(frozen=True)
class Done:
    """What a command has left: its exit code and what it printed."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The last line on stderr, where a refusal stands."""
        return self.err.splitlines()[-1] if self.err else ""


@contextlib.contextmanager
def fresh_flags() -> Iterator[None]:
    """Forgets afterwards what a command has defined."""
    saved = flagsaver.save_flag_values(flags.FLAGS)
    aliases, hidden = dict(ours.ALIASES), set(ours.HIDDEN)
    verbosity = logging.get_verbosity()
    ours.ALIASES.clear()
    ours.HIDDEN.clear()
    flags.FLAGS["verbosity"].using_default_value = True  # a library may have set it
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)  # which sets its flag, too
        flagsaver.restore_flag_values(saved, flags.FLAGS)
        ours.ALIASES.update(aliases)
        ours.HIDDEN.update(hidden)


@functools.cache
def flags_of_commands(aliases: bool = False) -> dict[str, dict[str, flags.Flag]]:
    """Returns the flags of every command that `--helpfull` lists, by verb and name.

    Args:
        aliases: bool. Whether other names of a flag are names, too.
    """
    found = {}
    for verb, file in dispatch.verb_files().items():
        before = {*flags.FLAGS}
        with fresh_flags():
            runpy.run_path(str(file), run_name="tool")
            names = {*flags.FLAGS} - before - ours.HIDDEN
            names -= set() if aliases else ours.ALIASES.keys()
            found[verb] = {name: flags.FLAGS[name] for name in names}
    return found


def run_command(verb: str, *arguments: object, **given: object) -> Done:
    """Runs `albert-tf VERB ARGUMENTS --NAME=VALUE...`.

    Args:
        verb: str. Name of a file in `tools/`, or the path of another one.
        *arguments: Arguments and flags, as on a command line.
        **given: Values of flags by name.
    """
    tool = verb if verb.endswith(".py") else str(ROOT / "tools" / f"{verb}.py")
    words = [tool, *map(str, arguments)]
    words += [f"--{name}={value}" for name, value in given.items()]
    before, code = sys.argv, 0
    out, err = io.StringIO(), io.StringIO()
    handler = logging.get_absl_handler().python_handler
    try:
        sys.argv = words
        stream = handler.setStream(err)
        outputs = contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)
        with fresh_flags(), outputs[0], outputs[1]:
            runpy.run_path(tool, run_name="__main__")
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.argv = before
        handler.setStream(stream)
    return Done(code, out.getvalue(), err.getvalue())
