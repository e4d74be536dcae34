"""Defines flags from settings, and aliases for the original scripts' flag names."""

import dataclasses
import functools
from collections.abc import Collection
from typing import Any

from absl import flags

from albert_tf.errors import UsageError
from albert_tf.settings import Description, describe

# The flags belong to the command that defines them, not to this module.
flags.disclaim_key_flags()

# Alias -> name of the flag that it denotes.
ALIASES: dict[str, str] = {}
# Settings whose values come from a config file.
FROM_CONFIG: set[str] = set()
# Flags that `--help` does not list.
HIDDEN: set[str] = set()
_DEFINE = {
    bool: flags.DEFINE_bool,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
}


def define_settings(
    settings: type, required: bool = True, names: Collection[str] = ()
) -> None:
    """Defines one flag for each field of a dataclass of settings, or for some `names`.

    The flag has the field's name, default and help text (see `settings.setting`). Flags
    chosen by name have the default None. Without `required`, a config file may supply
    fields without a default.
    """
    descriptions = describe(settings)
    for field in dataclasses.fields(settings):
        if names and field.name not in names:
            continue
        name, about = field.name, descriptions[field.name]
        is_open = bool(names) or field.default is dataclasses.MISSING
        needed = required and is_open and not names
        default = None if is_open else field.default
        if about.choices:
            flags.DEFINE_enum(name, default, about.choices, about.text)
            flags.FLAGS[name].parser = _Choice(about)
        elif field.type == tuple[str, ...]:
            define = flags.DEFINE_multi_string if about.repeated else flags.DEFINE_list
            define(name, list(default or ()), about.text)
        else:
            kind = next(kind for kind in _DEFINE if field.type in (kind, kind | None))
            _DEFINE[kind](name, default, about.text, required=needed)
        if about.group:
            flags.FLAGS[name].place = about.group, about.common


class _Choice(flags.EnumParser):
    """Accepts the choices of a setting, and other names for them."""

    def __init__(self, about: Description):
        super().__init__(about.choices)
        self._aliases = about.aliases

    def parse(self, argument: str) -> str:
        return super().parse(self._aliases.get(argument, argument))


def read_settings(settings: type, base: dict[str, Any] | None = None) -> Any:
    """Builds the settings from the parsed flags.

    Values of `base`, by field name, take precedence over defaults, and flags on the
    command line over them.
    """
    values = dict(base or {})
    if "config" in flags.FLAGS and flags.FLAGS["config"].value:
        FROM_CONFIG.update(name for name, value in values.items() if value != "")
    for field in dataclasses.fields(settings):
        flag = flags.FLAGS[field.name]
        if flag.present or field.name not in values:
            FROM_CONFIG.discard(field.name)
            is_tuple = field.type == tuple[str, ...]
            values[field.name] = tuple(flag.value) if is_tuple else flag.value
    return settings(**values)


def refuse(reason: str, *given: type | str) -> None:
    """Raises `UsageError`, with a reason, if a flag is set that has no effect.

    `given` holds dataclasses given to `define_settings`, and names of flags.
    """
    for one in given:
        fields = [] if isinstance(one, str) else dataclasses.fields(one)
        for name in [field.name for field in fields] or [one]:
            flag = flags.FLAGS[name]
            if flag.value != flag.default:
                raise UsageError(f"{name}: {reason}, received {flag.value!r}")


def define_alias(alias: str, name: str) -> None:
    """Accepts `--alias` as another name of the flag `--name`.

    Parsing rejects different values under both names.
    """
    flags.DEFINE_alias(alias, name)
    ALIASES[alias] = name
    flag, other = flags.FLAGS[name], flags.FLAGS[alias]
    parse = flag.__class__.parse

    def parse_as(spelling: str, argument: str) -> None:
        before = getattr(flag, "given_as", spelling) if flag.present else spelling
        value, flag.given_as = flag.value, spelling
        parse(flag, argument)
        other.present += spelling == alias
        if (
            before != spelling
            and flag.value != value
            and not isinstance(flag, flags.MultiFlag)
        ):
            raise flags.IllegalFlagValueError(
                f"--{spelling}={flag.value}: --{before}={value} was given, too, and "
                "both are names of one flag; leave one out"
            )

    flag.parse = functools.partial(parse_as, name)
    other.parse = functools.partial(parse_as, alias)
