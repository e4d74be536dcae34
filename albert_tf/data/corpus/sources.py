"""Named sources of a corpus, such as news and web, and how much of each is wanted.

They are named in `--input_file` itself, `news=a*.txt:0.3,web=b*.jsonl:0.7`, or in a
TOML file that it points to, where a source may have several inputs:

    [news]
    input_file = ["a*.txt", "tfds:newsroom"]
    weight = 0.3

Weights are shares of the tokens, and sum to 1. With a temperature, weights are not
allowed: they follow from the sizes of the sources.
"""

import math
import re
import tomllib
from collections.abc import Mapping
from typing import Any, NamedTuple

from albert_tf.errors import DataError, UsageError, require
from albert_tf.storage import files
from albert_tf.tables.columns import did_you_mean

# Must not match a path such as s3=x/y, or `tfds:`.
NAMED = re.compile(r"([A-Za-z0-9_][\w.-]*)=(.+)")
# Also matches a name with a weight, which is then rejected.
_TOML = re.compile(r"\.toml(:[^/:]*)?$")
_KEYS = ("input_file", "weight")
EXAMPLE = "such as news=a*.txt:0.3,web=b*.jsonl:0.7"


class NamedSource(NamedTuple):
    """A source as specified by the user.

    Attributes:
        inputs: tuple of str. Paths, globs, `tfds:...` or `docstrings:...`.
        weight: float or None. Wanted share of the tokens.
    """

    inputs: tuple[str, ...]
    weight: float | None


def read_sources(
    inputs: str, temperature: float | None = None
) -> dict[str, NamedSource]:
    """Returns the sources that `--input_file` names, in order; empty if it names none.

    With a temperature, sources need no weights and have none. A mistake in a TOML file
    is a `DataError`, and otherwise a `UsageError`.
    """
    need = "--source_temperature must be positive"
    require(temperature is None or 0 < temperature < math.inf, need, temperature)
    parts = list(filter(None, map(str.strip, inputs.split(","))))
    where, error = "--input_file", UsageError
    if any(map(_TOML.search, parts)):
        is_only = len(parts) == 1 and parts[0].endswith(".toml")
        need = "--input_file: a TOML file of sources must be the only input, without a "
        need += "name or weight"
        require(is_only and not NAMED.fullmatch(parts[0]), need, inputs)
        where, error = parts[0], DataError
        sources = _read_toml(where)
    else:
        sources = _read_list(parts, temperature is not None)
    if not sources:
        message = (
            "--source_temperature requires sources with names, such as "
            "--input_file=news=a*.txt,web=b*.jsonl"
        )
        require(temperature is None, message, inputs)
        return {}
    weights = {name: source.weight for name, source in sources.items()}
    for name, weight in weights.items():
        if temperature is None:
            need = f"{where}: source {name!r} needs a weight above 0, at most 1, or "
            need += "all none with --source_temperature"
            fits = weight is not None and 0 < weight <= 1
            require(fits, need, weight, error=error)
        else:
            need = f"{where}: source {name!r} can have no weight with "
            need += f"--source_temperature={temperature}"
            require(weight is None, need, weight, error=error)
    total = math.fsum(weight or 0 for weight in weights.values())
    if temperature is None and abs(total - 1) > 1e-6:
        terms = " + ".join(f"{weight:g}" for weight in weights.values())
        raise error(
            f"{where}: weights of the sources must sum to 1, received {terms} = "
            f"{total:g}"
        )
    return sources


def _read_list(parts: list[str], has_temperature: bool) -> dict[str, NamedSource]:
    """Parses `name=input:weight`; without temperature, only a weight marks a name."""
    sources: dict[str, NamedSource] = {}
    for part in parts:
        if not (match := NAMED.fullmatch(part)):
            continue
        name, path = match.groups()
        path, weight = _split_weight(path)
        if weight is None and not has_temperature:
            continue  # a path may contain "="
        if name in sources:
            raise UsageError(
                f"--input_file: source {name!r} is named twice; a TOML file may list "
                "several inputs of a source"
            )
        sources[name] = NamedSource((path,), weight)
    if 0 < len(sources) < len(parts):
        named = [f"{name}={source.inputs[0]}" for name, source in sources.items()]
        other = next(part for part in parts if not part.startswith(tuple(named)))
        raise UsageError(
            "--input_file: every source needs a name and a weight if one has them, "
            f"{EXAMPLE}, received {other!r}"
        )
    return sources


def _split_weight(path: str) -> tuple[str, float | None]:
    """Splits `a*.txt:0.3`; a version or an option after the colon is not a weight."""
    start, colon, end = path.rpartition(":")
    try:
        return (start, float(end)) if colon and start else (path, None)
    except ValueError:
        return path, None


def _read_toml(path: str) -> dict[str, NamedSource]:
    text = files.read_text(path)
    try:
        tables: Mapping[str, Any] = tomllib.loads(text)
    # int() of thousands of digits raises ValueError; deep nesting, RecursionError.
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: is not TOML: {error}") from None
    require(tables, f"{path}: must name a source", error=DataError)
    sources = {}
    for name, table in tables.items():
        is_table = isinstance(table, dict) and NAMED.fullmatch(f"{name}=x")
        expected = f"{path}: must have a table for each source, such as [news], with a "
        expected += "name of letters, digits, '.', '_' and '-'"
        require(is_table, expected, name, error=DataError)
        for key in table:
            hint = did_you_mean(key, _KEYS)
            expected = f"{path}: [{name}] can have input_file and weight{hint}"
            require(key in _KEYS, expected, key, error=DataError)
        inputs = table.get("input_file")
        listed = [inputs] if isinstance(inputs, str) else inputs
        are_paths = isinstance(listed, list) and all(
            isinstance(one, str) and one for one in listed
        )
        expected = f"{path}: [{name}] input_file must be a path or a list of them"
        require(listed and are_paths, expected, inputs, error=DataError)
        weight = table.get("weight")
        is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
        expected = f"{path}: [{name}] weight must be a number"
        require(weight is None or is_number, expected, weight, error=DataError)
        sources[name] = NamedSource(tuple(listed), weight)
    return sources
