"""Formats the text of `--help`."""

import os
import re
import shutil
import textwrap
from collections.abc import Callable, Iterable

from absl import flags

from albert_tf.cli.flags import ALIASES, HIDDEN

# A command with more flags shows only the common ones, unless --helpfull is given.
SHORT = 25
HEADINGS = ["inputs", "model", "examples", "training", "evaluation and checkpoints"]
HEADINGS += ["devices and speed", "outputs", "measurements"]
# Flags that tools define without a setting, by the first word of their heading: common
# ones | others. A setting has its place in its field.
OF_TOOLS = {
    "inputs": "input input_file predictions prediction_dir text data_dir split "
    "train_file eval_file text_column label_column language | quoting",
    "model": "model preset albert_config_file spm_model_file max_seq_length exit "
    "layers | from head do_lower_case keep_accents vocab_size model_type "
    "character_coverage depth_rank depth_matrices",
    "training": "config num_train_steps train_batch_size seed precision",
    "evaluation": "| eval_batch_size",
    "devices": "| jit_compile fuse_elementwise batch_size",
    "outputs": "output output_file output_dir report_file format overwrite | "
    "output_model output_prefix exits_curve top_k ignore verify",
    "measurements": "topic steps num_texts",
}
_PLACES = {
    name: (group, not index)
    for group, names in OF_TOOLS.items()
    for index, column in enumerate(names.split("|"))
    for name in column.split()
}


def help_text(
    main: Callable[..., None], program: str, full: bool, arguments: str = ""
) -> str:
    """Returns the help of a command."""
    documentation = (main.__globals__.get("__doc__") or "").strip()
    # The file of the verb `inspect` must not have the name of Python's module.
    verb = os.path.splitext(os.path.basename(program))[0].removesuffix("_model")
    taken = f" {arguments} ..." if arguments else ""
    text = [documentation, "", f"usage: albert-tf {verb}{taken} [--flag=value ...]"]
    hidden = ALIASES.keys() | HIDDEN | {"debug"}
    own = {
        flag.name: flag
        for flag in flags.FLAGS.get_key_flags_for_module(program)
        if flag.name not in hidden
    }
    every = full or len(own) <= SHORT
    shown = [flag for flag in own.values() if every or is_common(flag)]
    for heading, several in grouped(shown).items():
        text += ["", f"{heading}:", *_lines(several, full)]
    rest = len(own) - len(shown)
    more = f"the other {rest} flags, and whole texts" if rest else "whole texts"
    text += ["", f"--helpfull shows {more}; --debug the traceback of an error."]
    if full:
        for module, others in flags.FLAGS.flags_by_module_dict().items():
            rest = [flag for flag in others if flag.name not in {*own, *hidden}]
            if rest:
                text += ["", f"flags of {module}:", *_lines(rest, full)]
    return "\n".join(text)


def place_of(flag: flags.Flag) -> tuple[str, bool]:
    """Returns the group of a flag, "" without one, and whether it is common."""
    return getattr(flag, "place", None) or _PLACES.get(flag.name, ("", False))


def is_common(flag: flags.Flag) -> bool:
    """Returns whether `--help` shows a flag for commands that have many."""
    return place_of(flag)[1]


def grouped(own: Iterable[flags.Flag]) -> dict[str, list[flags.Flag]]:
    """Returns flags by heading, in display order: in each group, common ones first."""
    groups = {heading: [] for heading in (*HEADINGS, "others")}
    headings = {heading.split()[0]: heading for heading in HEADINGS}
    for flag in sorted(own, key=is_common, reverse=True):
        groups[headings.get(place_of(flag)[0], "others")].append(flag)
    return {heading: several for heading, several in groups.items() if several}


def _lines(own: Iterable[flags.Flag], full: bool) -> list[str]:
    """Returns the flags with their texts, which the short help cuts to one sentence."""
    indent = 6 if full else 28
    lines = []
    for flag in own:
        text = flag.help
        if not full:
            text = re.split(r"\. (?=[A-Z])", text, maxsplit=1)[0].rstrip(".")
        text = f"{text}{_notes(flag)}"
        name = f"  --[no]{flag.name}" if flag.boolean else f"  --{flag.name}"
        if full or len(name) > indent - 2:
            lines.append(name)
            name = ""
        lines += textwrap.wrap(
            text,
            width=min(shutil.get_terminal_size().columns, 88),
            initial_indent=name.ljust(indent),
            subsequent_indent=" " * indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return lines


def _notes(flag: flags.Flag) -> str:
    notes = [f"also --{old}" for old, new in ALIASES.items() if new == flag.name]
    if flag.default is not False and flag.default not in (None, "", []):
        default = flag.default_as_str
        quoted = isinstance(flag.default, str)
        notes.append(f"default: {default if quoted else default.strip(chr(39))}")
    elif any("other than None" in check.message for check in flag.validators):
        notes.append("required")
    return f" ({'; '.join(notes)})" if notes else ""
