"""Which files a data set consists of."""

import os
import re
from collections.abc import Iterable, Sequence

from albert_tf.errors import DataError
from albert_tf.storage import files, streams

_SHARD = re.compile(
    r"(?P<prefix>.*)-(?P<number>\d{5,})-of-(?P<total>\d{5,})\.tfrecord$"
)


def find_shards(pattern: str | Sequence[str]) -> list[str]:
    """Paths of the record files that a pattern or list stands for, in name order.

    A path or a glob stands for what it matches. A prefix stands for all its shards; a
    folder for all record files in it, without held-out ones (`<prefix>-eval-...`) if
    there are others.

    Raises:
        DataError: Nothing matches, or shards of a prefix or folder are missing.
    """
    wanted = pattern.split(",") if isinstance(pattern, str) else list(pattern)
    found: list[str] = []
    for one in filter(None, (os.fspath(part).strip() for part in wanted)):
        if files.is_folder(one):
            matches = _in_folder(one)
        elif not (matches := [p for p in streams.glob(one) if not files.is_folder(p)]):
            matches = of_prefix(one)
            check_complete(matches)
        if not matches:
            raise DataError(f"{one}: no record file matches")
        found.extend(path for path in matches if not path.endswith(".idx"))
    if not found:
        raise DataError(f"{pattern!r}: no record file matches")
    return sorted(dict.fromkeys(found))


def prefix_of(path: str) -> str | None:
    """The prefix of a shard's path; None if it is named otherwise."""
    name = _SHARD.match(path)
    return name["prefix"] if name else None


def of_prefix(prefix: str) -> list[str]:
    """The shards of a prefix that are there, of whatever number of them."""
    matches = streams.glob(f"{streams.escape(prefix)}-[0-9]*-of-[0-9]*.tfrecord")
    return [path for path in matches if prefix_of(path) == prefix]


def check_complete(paths: Iterable[str]) -> None:
    """Raises DataError if shards of the same prefix are missing, or of two sets."""
    there: dict[str, dict[int, set[int]]] = {}
    for name in filter(None, map(_SHARD.match, paths)):
        totals = there.setdefault(name["prefix"], {})
        totals.setdefault(int(name["total"]), set()).add(int(name["number"]))
    for prefix, totals in there.items():
        if len(totals) > 1:
            raise DataError(
                f"{prefix}: shards of several data sets, of {sorted(totals)} shards "
                "each; remove those of the old one"
            )
        for total, numbers in totals.items():
            if missing := sorted(set(range(total)) - numbers):
                raise DataError(
                    f"{prefix}: shard {missing[0]} of {total} is missing "
                    f"({len(numbers)} are there); name the files to use them alone"
                )
        if files.is_folder(f"{prefix.removesuffix('-eval')}.partial"):
            raise DataError(
                f"{prefix}: belongs to an unfinished run; finish it with the same "
                "create_pretraining_data command"
            )


def _in_folder(folder: str) -> list[str]:
    paths = streams.glob(os.path.join(streams.escape(folder), "*.tfrecord"))
    check_complete(paths)
    train = [path for path in paths if not _is_held_out(path)]
    return train or paths


def _is_held_out(path: str) -> bool:
    return (prefix_of(path) or "").endswith("-eval")
