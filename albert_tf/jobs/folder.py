"""Stores the finished parts of a job until it is complete, so that it can be resumed.

A part of `Workplace.write` is one file: a line of JSON with the digests of the
settings, of its rows and of its content, followed by the content. A job may also store
other files.
"""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from albert_tf.errors import DataError, require
from albert_tf.storage import files
from albert_tf.storage.lock import LOCK_FILE, check_free, locked_workplace

_SETTINGS = "settings.json"
# Key in that file: names of the output files that this job puts in place.
_CLAIMED = "claimed"
# Finished work, and all files that a job writes until it ends.
_PART = re.compile(r"(block|part)-[-\d]+(\.npz)?")
_OWN = re.compile(r"(digests|group|job|rows|shard|text)-[-\da-f]+(\.[a-z]+)?")
_HALF = re.compile(r"\..+\.partial")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_MOST_DIFFERENCES = 5


class Part(NamedTuple):
    """The answers to some rows.

    Attributes:
        about: dict. Properties needed to join it with other parts, ready for JSON.
    """

    content: bytes
    about: dict[str, Any]


class Workplace:
    """The folder of an unfinished job, used by one process at a time.

    Args:
        path: str. Next to the output.
        settings: dict. All settings that determine the parts, ready for JSON.
        flag: str. Name of the setting that names the output, for messages.

    Attributes:
        path: str.
    """

    def __init__(
        self, path: str, settings: Mapping[str, Any], flag: str = "output_file"
    ):
        self.path, self._flag = path, flag
        text = json.dumps(settings, indent=1, sort_keys=True) + "\n"
        self._settings_text, self._settings = text, json.loads(text)
        self.digest = _sha256(text.encode())

    @contextlib.contextmanager
    def open(self, existing: Sequence[str], overwrite: bool) -> Iterator[None]:
        """Holds the folder for this run; `overwrite` removes the work of another one.

        A stopped job with the same settings is continued, and replaces the files that
        it has claimed. `existing` lists existing output files. They must be listed
        before, because TensorFlow's ram:// mistakes the folder made here for a file.
        Raises `UsageError` if there is the output of another run, or its parts, and
        `overwrite` is not set; or, in any case, if another process works on it, or the
        folder holds files that no run has written.
        """
        with locked_workplace(self.path):
            self._prepare(existing, overwrite)
            try:
                yield
            finally:
                if not self._has_parts():
                    self.remove()

    def _prepare(self, existing: Sequence[str], overwrite: bool) -> None:
        self._check_ours()
        is_same = False
        if files.exists(self.join(_SETTINGS)):
            before, claimed = self._recorded()
            differences = _differences(before, self._settings)
            if is_same := not differences:
                existing = [p for p in existing if os.path.basename(p) not in claimed]
            need = f"{self._flag}: {self.path} holds parts of a run that was stopped, "
            need += f"with other settings: {'; '.join(differences)}; repeat that run, "
            need += "or give --overwrite to start anew"
            require(is_same or overwrite or not self._has_parts(), need)
        _check_new(existing, overwrite)
        if not is_same:
            self.remove()
            files.write_text(self.join(_SETTINGS), self._settings_text)

    def _recorded(self) -> tuple[dict[str, Any], list[str]]:
        """Returns the settings on record, and the claimed names."""
        record = files.read_record(self.join(_SETTINGS))
        claimed = record.pop(_CLAIMED, [])
        names = isinstance(claimed, list) and all(isinstance(x, str) for x in claimed)
        expected = f"{self.join(_SETTINGS)}: {_CLAIMED} must be a list of names"
        require(names, expected, claimed, error=DataError)
        return record, claimed

    def claim(self, paths: Sequence[str]) -> None:
        """Records the files that this job is going to write or replace.

        If the job is stopped meanwhile, they do not prevent its continuation.
        """
        names = {*self._recorded()[1], *map(os.path.basename, paths)}
        text = json.dumps(self._settings | {_CLAIMED: sorted(names)})
        files.write_text(self.join(_SETTINGS), text)

    def join(self, name: str) -> str:
        """Returns the path of a file in the folder."""
        return files.join(self.path, name)

    def find(self, index: int, rows: str) -> bool:
        """Returns whether an undamaged part of rows with this digest exists."""
        try:
            header, _ = self._read(index)
            return header["rows"] == rows
        except DataError:
            return False

    def write(self, index: int, rows: str, part: Part) -> None:
        """Writes a part; see `find`."""
        header = {"rows": rows, "sha256": _sha256(part.content), "about": part.about}
        header["settings"] = self.digest
        line = json.dumps(header).encode() + b"\n"
        files.write_bytes(self._name(index), line + part.content)

    def parts(self, count: int) -> Iterator[Part]:
        """Yields parts in order; raises `DataError` if one is missing or damaged."""
        for index in range(count):
            header, content = self._read(index)
            yield Part(content, header["about"])

    def remove(self) -> None:
        """Removes the folder; the settings come last, so that this can be interrupted.

        Files that no run has written stay, and so does the folder then.
        """
        ours = filter(_is_ours, files.list_folder(self.path))
        for name in sorted(ours, key=_SETTINGS.__eq__):
            files.remove(self.join(name))

    def _has_parts(self) -> bool:
        return any(map(_PART.fullmatch, files.list_folder(self.path)))

    def _check_ours(self) -> None:
        names = files.list_folder(self.path)
        others = [n for n in names if not _is_ours(n) and n != LOCK_FILE]
        if _SETTINGS not in names:
            # Every run writes the settings first and removes them last.
            others += [name for name in names if _PART.fullmatch(name)]
        need = f"{self._flag}: {self.path} must be free for the parts of the output, "
        need += f"received a folder with {', '.join(others[:1])}, which is not a part; "
        need += "move it, or give another name of the output"
        require(not others, need)

    def _name(self, index: int) -> str:
        return self.join(f"part-{index:06d}")

    def _read(self, index: int) -> tuple[dict[str, Any], bytes]:
        path = self._name(index)
        expected = f"{path}: missing; the same command makes it again"
        require(files.exists(path), expected, error=DataError)
        line, _, content = files.read_bytes(path).partition(b"\n")
        try:
            header = files.from_json(line)
            is_whole = header["sha256"] == _sha256(content)
            is_ours = header["settings"] == self.digest
            if is_whole and is_ours and {"rows", "about"} <= header.keys():
                return header, content
        except (ValueError, AttributeError, KeyError, TypeError):
            pass
        raise DataError(f"{path}: damaged; the same command makes it again")


def check_output(path: str, existing: Sequence[str], overwrite: bool) -> None:
    """Raises an error early if `Workplace.open` would reject the output.

    The output exists, or another process works on it. `path` is the folder of the
    parts, and `existing` lists existing output files.
    """
    if files.exists(path):
        check_free(path)
    else:
        _check_new(existing, overwrite)


def split_evenly(total: int, count: int) -> list[tuple[int, int]]:
    """Returns the first row of each file, and the one after its last row."""
    borders = [total * k // count for k in range(count + 1)]
    return list(zip(borders[:-1], borders[1:], strict=True))


def _check_new(existing: Sequence[str], overwrite: bool) -> None:
    names = ", ".join(existing[:1])
    expected = f"output_file: {names} exists already; give --overwrite or another name"
    require(overwrite or not existing, expected)


def _is_ours(name: str) -> bool:
    """Returns whether a run may have written a file."""
    is_known = any(one.fullmatch(name) for one in (_PART, _OWN, _HALF))
    return name == _SETTINGS or is_known or files.is_leftover(name)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Describes the settings that differ."""
    before, now = dict(_flat(before)), dict(_flat(now))
    names = sorted(n for n in {*before, *now} if before.get(n) != now.get(n))
    words = [f"{n} was {_short(before.get(n))}, is {_short(now.get(n))}" for n in names]
    rest = len(words) - _MOST_DIFFERENCES
    return words[:_MOST_DIFFERENCES] + ([f"{rest} more"] if rest > 0 else [])


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields names and values; names in an inner dict are `outer.inner`."""
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _short(value: Any) -> str:
    if isinstance(value, str) and _DIGEST.fullmatch(value):
        return f"{value[:8]}…"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:79]}…"
