"""Finds the record files (shards) of a data set, and checks that none is missing."""

import os
import re
from collections.abc import Iterable, Sequence

from albert_tf.errors import DataError, require
from albert_tf.storage import files, streams

_SHARD = re.compile(
    r"(?P<prefix>.*)-(?P<number>\d{5,})-of-(?P<total>\d{5,})\.tfrecord$"
)
# Common endings of record files; ours use the first.
_ENDINGS = (".tfrecord", ".tfrecords", ".tf_record")


def find_shards(pattern: str | Sequence[str]) -> list[str]:
    """Returns the record files that a pattern or list denotes, sorted by name.

    A path or a glob denotes its matches, a prefix all its shards, and a folder all
    record files in it; held-out ones (`<prefix>-eval-...`) only if the folder contains
    no others. Raises `DataError` if nothing matches, or shards of a prefix or folder
    are missing.
    """
    parts = pattern.split(",") if isinstance(pattern, str) else list(pattern)
    paths: list[str] = []
    for part in filter(None, (os.fspath(part).strip() for part in parts)):
        matches = _in_folder(part) if files.is_folder(part) else []
        matches = matches or [p for p in streams.glob(part) if not files.is_folder(p)]
        if not matches:
            matches = of_prefix(part)
            check_complete(matches)
        if not matches:
            raise DataError(
                f"{part}: no record file matches; give the --output_file of "
                "create_pretraining_data, or the files"
            )
        paths.extend(path for path in matches if not path.endswith(".idx"))
    if not paths:
        raise DataError(f"{pattern!r}: no record file matches")
    return sorted(dict.fromkeys(paths))


def are_records(pattern: str) -> bool:
    """Returns whether a pattern, as in `find_shards`, denotes record files.

    Raises `DataError` if it denotes nothing, and is not a file or folder either.
    """
    first = pattern.split(",")[0].strip()
    if files.is_folder(first):
        return bool(streams.glob(os.path.join(streams.escape(first), "*.tfrecord")))
    if not first or first.endswith(_ENDINGS):
        return bool(first)
    matches = [*streams.glob(first), *of_prefix(first)]
    expected = f"{pattern}: no such file or folder, and no record file begins with it"
    require(matches or files.exists(pattern), expected, error=DataError)
    return any(path.endswith(_ENDINGS) for path in matches)


def prefix_of(path: str) -> str | None:
    """Returns the prefix of a shard's path, or None if it is not named like one."""
    name = _SHARD.match(path)
    return name["prefix"] if name else None


def of_prefix(prefix: str) -> list[str]:
    """Returns the existing shards of a prefix, complete or not."""
    matches = streams.glob(f"{streams.escape(prefix)}-[0-9]*-of-[0-9]*.tfrecord")
    return [path for path in matches if prefix_of(path) == prefix]


def check_complete(paths: Iterable[str]) -> None:
    """Raises `DataError` if shards of a prefix are missing or from two data sets."""
    totals_of: dict[str, dict[int, set[int]]] = {}
    for name in filter(None, map(_SHARD.match, paths)):
        totals = totals_of.setdefault(name["prefix"], {})
        totals.setdefault(int(name["total"]), set()).add(int(name["number"]))
    for prefix, totals in totals_of.items():
        if len(totals) > 1:
            raise DataError(
                f"{prefix}: shards of several data sets, with "
                f"{' and '.join(map(str, sorted(totals)))} shards; remove those of the "
                "old one"
            )
        for total, numbers in totals.items():
            if missing := sorted(set(range(total)) - numbers):
                raise DataError(
                    f"{prefix}: shard {missing[0]} of {total} is missing "
                    f"({len(numbers)} exist); list the files to use only these"
                )
        if files.is_folder(f"{prefix.removesuffix('-eval')}.partial"):
            raise DataError(
                f"{prefix}: belongs to an unfinished run; finish it with the same "
                "create_pretraining_data command"
            )


def _in_folder(folder: str) -> list[str]:
    paths = streams.glob(os.path.join(streams.escape(folder), "*.tfrecord"))
    check_complete(paths)
    train = [path for path in paths if not (prefix_of(path) or "").endswith("-eval")]
    return train or paths
