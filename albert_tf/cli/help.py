"""Formats the text of `--help`."""

import os
import shutil
import textwrap
from collections.abc import Callable, Iterable

from absl import flags

from albert_tf.cli.flags import ALIASES, HIDDEN


def help_text(
    main: Callable[..., None], program: str, full: bool, arguments: str = ""
) -> str:
    """Returns the help of a command.

    Args:
        main: callable. Function whose module docstring introduces the command.
        program: str. Path of the command's file.
        full: bool. Whether to list the flags of all libraries too.
        arguments: str. What positional arguments are called, if any.
    """
    documentation = (main.__globals__.get("__doc__") or "").strip()
    verb = os.path.splitext(os.path.basename(program))[0]
    taken = f" {arguments} ..." if arguments else ""
    text = [documentation, "", f"usage: albert-tf {verb}{taken} [--flag=value ...]"]
    own = flags.FLAGS.get_key_flags_for_module(program)
    text += ["", "flags:", *_flag_lines(own)]
    shared = [flag for flag in [flags.FLAGS["debug"]] if flag not in own]
    text += ["", "flags of every command:", *_flag_lines(shared)]
    text += [
        "  --help, --helpfull",
        "      Show this text; --helpfull adds all libraries' flags.",
    ]
    if full:
        for module, others in flags.FLAGS.flags_by_module_dict().items():
            rest = [flag for flag in others if flag not in [*own, *shared]]
            if rest:
                text += ["", f"flags of {module}:", *_flag_lines(rest)]
    return "\n".join(text)


def _flag_lines(own: Iterable[flags.Flag]) -> list[str]:
    width = min(shutil.get_terminal_size().columns, 88)
    lines = []
    for flag in own:
        if flag.name in ALIASES or flag.name in HIDDEN:
            continue
        notes = [f"also --{old}" for old, new in ALIASES.items() if new == flag.name]
        if flag.default is not None:
            default = flag.default_as_str
            quoted = isinstance(flag.default, str)
            notes.append(f"default: {default if quoted else default.strip(chr(39))}")
        elif any("other than None" in check.message for check in flag.validators):
            notes.append("required")
        name = f"--[no]{flag.name}" if flag.boolean else f"--{flag.name}"
        lines.append(f"  {name}")
        note = f" ({'; '.join(notes)})" if notes else ""
        lines += textwrap.wrap(
            f"{flag.help}{note}",
            width=width,
            initial_indent=" " * 6,
            subsequent_indent=" " * 6,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return lines
