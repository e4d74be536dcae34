"""Class ids in the labels of a table, and the names they stand for."""

import os
import re
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from absl import logging

from albert_tf.errors import DataError, require
from albert_tf.storage import files
from albert_tf.tables.columns import file_format, find_column
from albert_tf.tables.typed_rows import open_parquet

# -1 stands for no label in Hugging Face's sets.
_ID = re.compile(r"-1|0|[1-9]\d{0,8}")
# Files next to the data that list the class names, one per line.
_NAME_FILES = ("labels.txt", "classes.txt")
_HEADER = "dataset_info.json"


def are_ids(labels: Iterable) -> bool:
    """Returns whether all labels, which may be nested, are class ids."""
    return all(map(_ID.fullmatch, set(_flat(labels)) - {""}))


def are_vectors(labels: Iterable) -> bool:
    """Returns whether the labels are vectors with a number for each class.

    The numbers are 0 or 1. A list of ids would not contain the same id twice.
    """
    rows = [row for row in labels if not isinstance(row, str)]
    lengths = {len(row) for row in rows}
    repeated = any(len(set(row)) < len(row) for row in rows)
    is_one = len(lengths) == 1 and min(lengths) > 1
    values = set(_flat(rows))
    is_bits = values <= {"0", "1"} or values <= {"true", "false"}
    return (is_bits and (repeated or is_one)) or (repeated and are_ids(rows))


def of_vectors(
    path: str,
    column: str,
    rows: Sequence[Sequence[str]],
    given: Sequence[str],
    known: Mapping[str, str],
) -> tuple[list[tuple[str, ...]], dict[str, str]]:
    """Returns the names of the classes marked 1 in each row, and all names by index.

    The other arguments are as for `find_names`; `rows` stay vectors if no source
    names the classes. Raises `DataError` for a row without one number per class.
    """
    names = tuple(given) or tuple(known.values()) or _stored_names(path, column)
    names = names or _listed_names(path)[1]
    if not names:
        return list(rows), {}
    for row in rows:
        message = f"{path}: expected 0 or 1 for each of {', '.join(names):.200}"
        fits = len(row) == len(names) and {*row} <= {"0", "1", "true", "false"}
        require(fits, message, list(row), error=DataError)
    pairs = (zip(row, names, strict=True) for row in rows)
    labels = [tuple(name for x, name in pair if x in ("1", "true")) for pair in pairs]
    return labels, {str(i): name for i, name in enumerate(names)}


def find_names(
    path: str,
    column: str,
    labels: Iterable,
    given: Sequence[str] = (),
    known: Mapping[str, str] = types.MappingProxyType({}),
) -> dict[str, str]:
    """Returns names in the order of class ids, by id as written, or an empty dict.

    The first available source decides: the names that Hugging Face stores with a column
    (in Parquet metadata, or in `dataset_info.json` next to the file), whose ids start
    at 0; `known`; the user's names (`given`), which take precedence over stored names
    that differ; a file `labels.txt` or `classes.txt` next to the data, with one name
    per line. The last two count from 1 if the ids do, that is, if there is no 0 and the
    highest id equals the number of names. Raises `DataError` if an id has no name, or
    it is unclear whether names count from 0 or 1.
    """
    distinct = set(_flat(labels)) - {""}
    ids = sorted({int(label) for label in distinct} - {-1}) if are_ids(distinct) else []
    given = given or tuple(known.values())
    if not ids or distinct <= set(given) or (given and are_ids(given)):
        return {}
    names = _stored_names(path, column)
    source, first = "the names stored with the column", 0
    if not names or (given and set(given) != set(names)):
        if all(str(i) in known for i in ids):
            return dict(known)
        source, names = ("--labels", tuple(given)) if given else _listed_names(path)
        if not names:
            return {}
        first = int(ids[0] > 0)
    # From 1, the last name must be used: the ids could count from 0 otherwise.
    end = first + len(names)
    if ids[-1] >= end or first and ids[-1] < end - 1 or len({*names}) < len(names):
        raise DataError(
            f"{path}: class ids from {ids[0]} to {ids[-1]} do not fit {source}: "
            f"expected {len(names)} different names, {', '.join(names):.200}, for ids "
            f"from 0, or for 1 to {len(names)}"
        )
    logging.info("%s: class ids from %d: %s", path, first, ", ".join(names))
    return {str(i): name for i, name in enumerate(names, first)}


def renamed(labels: Any, names: Mapping[str, str]) -> Any:
    """Returns labels, which may be nested, with ids replaced by their names."""
    if labels is None or isinstance(labels, str):
        return names.get(labels, labels)
    return type(labels)(renamed(label, names) for label in labels)


def _flat(labels: Iterable) -> Iterator[str]:
    for label in labels:
        if isinstance(label, str):
            yield label
        else:
            yield from _flat(label)


def _listed_names(path: str) -> tuple[str, tuple[str, ...]]:
    """Returns the path of a file that lists names, and the names; empty if missing."""
    for name in _NAME_FILES if path else ():
        list_file = files.join(os.path.dirname(path), name)
        if files.exists(list_file):
            return list_file, tuple(filter(None, files.read_lines(list_file)))
    return "", ()


def _stored_names(path: str, column: str) -> tuple[str, ...]:
    """Returns the class names that Hugging Face stores with a column."""
    header_file = files.join(os.path.dirname(path), _HEADER)
    if file_format(path) == "parquet":
        with open_parquet(path) as table:
            schema = table.schema_arrow
        header = (schema.metadata or {}).get(b"huggingface", b"{}")
        header_file, columns = f"{path}: its metadata 'huggingface'", schema.names
    elif file_format(path) == "json" and files.exists(header_file):
        header, columns = files.read_text(header_file), None
    else:
        return ()
    try:
        info = files.from_json(header)
        features = info.get("info", info).get("features") or {}
        columns = columns or list(features)
        feature = features.get(columns[find_column(path, column, columns)])
        while feature and (isinstance(feature, list) or "feature" in feature):
            feature = feature[0] if isinstance(feature, list) else feature["feature"]
        return tuple((feature or {}).get("names") or ())
    except DataError:
        return ()  # the header does not describe this column
    except (AttributeError, LookupError, TypeError, ValueError):
        raise DataError(f"{header_file} is not a description of a data set") from None
