"""Settings of a command: dataclasses whose fields describe themselves.

A field made by `setting` carries its help text, and `cli.flags.define_settings` turns
such a dataclass into flags. `load_experiment` reads the same fields from a Python file
in `configs/`.
"""

import dataclasses
import difflib
import importlib.util
import math
import os
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.errors import DataError, UsageError


def setting(
    text: str,
    *default,
    choices: Sequence[str] | None = None,
    aliases: Mapping[str, str] | None = None,
    repeated: bool = False,
    identity: bool | str = True,
    **limits: float,
):
    """Returns a dataclass field with a help text.

    Args:
        text: str. Help text of the field and of its flag.
        *default: Default value. Without one, the field is required.
        choices: Sequence. Values that the flag accepts; None for any.
        aliases: dict or None. Other names of these values that the flag accepts.
        repeated: bool. Whether a field of type `tuple[str, ...]` takes one value per
            flag, which may be repeated, instead of one comma-separated list.
        identity: bool or str. Whether the value decides the result of a run, which is
            resumed only with the same one; a str instead names the content that decides
            (see `training.run_folder`), or is `"follows"` for a value that other
            settings or the content may decide.
        **limits: float. The range that `check_fields` knows: `minimum` or `above`,
            `maximum` or `below`; without the latter two, any finite number.
    """
    kwargs = {"default": default[0]} if default else {}
    metadata = {"help": text, "choices": choices, "aliases": aliases or {}}
    metadata |= {"repeated": repeated, "limits": limits, "identity": identity}
    return dataclasses.field(metadata=metadata, **kwargs)


def redefined(base: type, name: str, *default, more: str = "", **metadata):
    """Returns a field of a base class with another default, or more help.

    Args:
        base: type. Dataclass of settings.
        name: str. Name of its field.
        *default: Default value, if it is another one.
        more: str. Sentences that are added to the help text.
        **metadata: What else is different, such as `identity`.
    """
    field = {field.name: field for field in dataclasses.fields(base)}[name]
    text = f"{field.metadata['help']} {more}".strip()
    return dataclasses.field(
        default=default[0] if default else field.default,
        metadata={**field.metadata, "help": text, **metadata},
    )


def check_fields(settings: Any) -> None:
    """Checks every field against its choices and its range; None always fits.

    Args:
        settings: Dataclass whose fields are made by `setting`.

    Raises:
        UsageError: If a value does not fit.
    """
    for field in dataclasses.fields(settings):
        name, value = field.name, getattr(settings, field.name)
        choices, limits = field.metadata["choices"], field.metadata["limits"]
        if choices and value not in choices:
            known = ", ".join(choice for choice in choices if choice)
            raise UsageError(f"--{name} must be one of {known}, received {value!r}")
        if limits and value is not None and not _is_within(value, **limits):
            raise UsageError(f"--{name} {_rule(**limits)}, received {value}")


def _is_within(
    value: float,
    minimum: float = -math.inf,
    above: float = -math.inf,
    maximum: float = math.inf,
    below: float = math.inf,
) -> bool:
    is_enough = value >= minimum and value > above
    return is_enough and value <= maximum and value < below


def _rule(**limits: float) -> str:
    """Returns a range in words."""
    if not {"maximum", "below"} & set(limits):
        return (
            "must not be negative" if limits.get("minimum") == 0 else "must be positive"
        )
    least = f"({limits['above']}" if "above" in limits else f"[{limits['minimum']}"
    most = f"{limits['below']})" if "below" in limits else f"{limits['maximum']}]"
    return f"must be in {least}, {most}"


def load_experiment(path: str | os.PathLike, settings: type) -> dict[str, Any]:
    """Reads settings from a Python file such as `configs/pretrain/demo.py`.

    The file defines `get_config() -> dict`, whose keys are fields of `settings`. Its
    docstring records the command, the hardware and the result. The file is executed:
    load only files that you trust.

    Args:
        path: str. Path of the file.
        settings: type. Dataclass that the keys must belong to.

    Returns:
        dict. Values by field name.

    Raises:
        DataError: If the file is missing, fails, names an unknown setting, or gives a
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
    """Returns values by the names of fields; lists become tuples.

    Args:
        values: dict. Values by the names of fields of `settings`.
        settings: type. Dataclass.

    Raises:
        DataError: If there is no such field, or a value has not its type.
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
