"""Settings of a command: dataclasses whose docstrings describe their fields.

The entry of a field in the `Attributes:` of its class is also the help of its flag:
`cli.flags.define_settings` turns such a dataclass into flags. `load_experiment` reads
the same fields from a Python file in `configs/`.
"""

import dataclasses
import difflib
import functools
import importlib.util
import inspect
import math
import os
import re
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.errors import DataError, UsageError

_SECTION = re.compile(r"^Attributes:\n((?: {4}.*(?:\n|$))*)", re.M)
_ENTRY = re.compile(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", re.M)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Description:
    """The properties of a setting other than its name, type and default.

    Attributes:
        text: str. Entry of the setting in the docstring.
        group: str. First word of its heading in `--help` (`cli.help.HEADINGS`); by
            default, the attribute `group` of its class.
        common: bool. Whether `--help` shows it for a command with many flags.
        choices: sequence of str. Values that it can have; empty for any.
        aliases: dict. Other names of these values that the flag accepts.
        repeated: bool. Whether a field of type `tuple[str, ...]` takes one value per
            flag, which may be repeated, instead of one comma-separated list.
        identity: bool or str. Whether the value determines the result of a run, which
            can be resumed only with the same value; a str instead names the content
            that determines it (see `training.run_folder`), or is `"follows"` for a
            value that other settings or the content may determine, or `"recorded"` for
            a value that is on record but may change.
        minimum, above, maximum, below: float. The range, with or without its ends. If
            only the lower end is given, any finite number above it fits.
    """

    text: str = ""
    group: str = ""
    common: bool = False
    choices: Sequence[str] = ()
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)
    repeated: bool = False
    identity: bool | str = True
    minimum: float = -math.inf
    above: float = -math.inf
    maximum: float = math.inf
    below: float = math.inf

    def check(self, name: str, value: Any) -> None:
        """Raises `UsageError` if a value is not among the choices or out of range."""
        if value is None:
            return
        if self.choices and value not in self.choices:
            choices = ", ".join(filter(None, self.choices))
            raise UsageError(f"--{name} must be one of {choices}, received {value!r}")
        least = max(self.minimum, self.above)
        if least == -math.inf:
            return
        is_enough = value >= self.minimum and value > self.above
        if not (is_enough and value <= self.maximum and value < self.below):
            raise UsageError(f"--{name} {self._range()}, received {value}")

    def _range(self) -> str:
        """Returns the range in words."""
        if self.maximum == self.below == math.inf:
            return "must not be negative" if self.minimum == 0 else "must be positive"
        least = f"({self.above}" if self.above > self.minimum else f"[{self.minimum}"
        most = f"{self.below})" if self.below < self.maximum else f"{self.maximum}]"
        return f"must be in {least}, {most}"


def setting(default: Any = dataclasses.MISSING, **description: Any):
    """Returns a field of a dataclass of settings, with a `Description`.

    Without a default, the field is required. A subclass that declares the field again
    inherits the properties that it does not mention. The `group` of the other fields of
    a class is its attribute `group`.
    """
    return dataclasses.field(default=default, metadata=description)


@functools.cache
def describe(settings: type) -> dict[str, Description]:
    """Returns the descriptions of the fields of a dataclass of settings, by name."""
    collected: dict[str, dict[str, Any]] = {}
    for base in reversed(settings.__mro__):
        for name in inspect.get_annotations(base):
            about = base.__dataclass_fields__[name].metadata
            usual = {"group": getattr(base, "group", "")}
            collected[name] = {**usual, **collected.get(name, {}), **about}
        section = _SECTION.search(inspect.cleandoc(base.__doc__ or ""))
        for name, text in _ENTRY.findall(section[1] if section else ""):
            collected[name]["text"] = " ".join(text.split())
    return {
        field.name: Description(**collected[field.name])
        for field in dataclasses.fields(settings)
    }


def check_fields(settings: Any) -> None:
    """Raises `UsageError` if a field violates its choices or range; None fits."""
    for name, description in describe(type(settings)).items():
        description.check(name, getattr(settings, name))


def load_experiment(path: str | os.PathLike, settings: type) -> dict[str, Any]:
    """Reads settings from a Python file such as `configs/pretrain/demo.py`.

    The file defines `get_config() -> dict`, whose keys are fields of `settings`. Its
    docstring records the command, the hardware and the result. The file is executed:
    load only files that you trust.

    Returns the values by field name; all keys must belong to `settings`. Raises
    `DataError` if the file is missing, fails, names an unknown setting, or gives a
    value of the wrong type.
    """
    path = os.fspath(path)
    if not os.path.isfile(path):
        hint = ""
        if path.startswith("configs/"):
            hint = "; configs/ is part of a checkout of the albert_tf repository"
        raise DataError(f"--config={path}: no such file{hint}")
    spec = importlib.util.spec_from_file_location("albert_tf_experiment", path)
    if spec is None or spec.loader is None:
        raise DataError(f"--config={path}: must be a Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        values = module.get_config()
    except Exception as e:
        raise DataError(f"--config={path}: {type(e).__name__}: {e}") from None
    if not isinstance(values, dict):
        raise DataError(
            f"--config={path}: get_config() must return a dict, received "
            f"{type(values).__name__}"
        )
    try:
        return checked(values, settings)
    except DataError as e:
        raise DataError(f"--config={path}: {e}") from None


def checked(values: dict, settings: type) -> dict[str, Any]:
    """Returns values by the names of fields of a dataclass; lists become tuples.

    Raises `DataError` if there is no such field, or a value does not have its type.
    """
    kinds = {field.name: field.type for field in dataclasses.fields(settings)}
    unknown = sorted(str(name) for name in values if name not in kinds)
    if unknown:
        close = [difflib.get_close_matches(name, kinds, 1) for name in unknown]
        close = ", ".join(name for names in close for name in names)
        hint = f"; did you mean {close}?" if close else ""
        noun = "setting" if len(unknown) == 1 else "settings"
        raise DataError(f"unknown {noun} {', '.join(unknown)}{hint}")
    for name, value in values.items():
        if not _fits(value, kinds[name]):
            raise DataError(f"{name} must be {_words(kinds[name])}, received {value!r}")
    return {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}


# The types that a field can have, in words.
_WORDS = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a string",
    type(None): "None",
}


def _words(kind: Any) -> str:
    if typing.get_origin(kind) is tuple:
        return "a list of strings"
    return " or ".join(_WORDS[one] for one in typing.get_args(kind) or (kind,))


def _fits(value: Any, kind: Any) -> bool:
    """Returns whether a value has the type of a field."""
    if typing.get_origin(kind) is tuple:
        return isinstance(value, list | tuple) and all(
            isinstance(x, str) for x in value
        )
    if typing.get_args(kind):
        return any(_fits(value, one) for one in typing.get_args(kind))
    if isinstance(value, bool):
        return kind is bool
    if kind is float:
        return isinstance(value, int | float)
    return isinstance(value, kind)
