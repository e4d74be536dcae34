"""Keeps the finished parts of a run until all are there, so that it can be resumed.

A part is one file: a line of JSON with the digests of the settings, of its rows and of
its content, and the content. One process writes here at a time.
"""

import contextlib
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from albert_tf.errors import DataError, UsageError
from albert_tf.storage import files
from albert_tf.storage.lock import LOCK_FILE, locked_workplace

_SETTINGS = "settings.json"
_PART = re.compile(r"part-\d{6,}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Part(NamedTuple):
    """The answers to some rows.

    Attributes:
        content: bytes. What is written, or what that is made from.
        about: dict. What must be known to join it with others, ready for JSON.
    """

    content: bytes
    about: dict[str, Any]


class PartsFolder:
    """The folder `<output_file>.parts`.

    Args:
        output_file: str. The file that the parts are for.
        settings: dict. All that determines the parts, ready for JSON.
    """

    def __init__(self, output_file: str, settings: Mapping[str, Any]):
        self.path = f"{output_file}.parts"
        self._output_file = output_file
        text = json.dumps(settings, indent=1, sort_keys=True) + "\n"
        self._settings_text, self._settings = text, json.loads(text)
        self._header = {"settings": _sha256(text.encode())}

    @contextlib.contextmanager
    def open(self, overwrite: bool) -> Iterator[None]:
        """Keeps the folder for this run; `overwrite` removes what exists.

        Raises:
            UsageError: If there is a finished output, or parts of a run with other
                settings, and `overwrite` is not set; or, in any case, if another
                process works on it, or the folder holds what no run has written.
        """
        # Asked first: TensorFlow's ram:// takes the folder made next for this file.
        is_finished = files.exists(self._output_file)
        with locked_workplace(self.path):
            self._prepare(overwrite, is_finished)
            try:
                yield
            finally:
                names = files.list_folder(self.path)
                if not any(map(_PART.fullmatch, names)):
                    self.remove()

    def _prepare(self, overwrite: bool, is_finished: bool) -> None:
        self._check_ours()
        where = files.join(self.path, _SETTINGS)
        if files.exists(where):
            differences = _differences(files.read_record(where), self._settings)
            if not differences:
                return
            if not overwrite:
                raise UsageError(
                    f"output_file: {self.path} holds parts of a run that was stopped, "
                    f"with other settings: {'; '.join(differences)}; repeat that run, "
                    "or give --overwrite to start anew"
                )
        if is_finished and not overwrite:
            raise UsageError(
                f"output_file: {self._output_file} exists already; give --overwrite or "
                "another name"
            )
        self.remove()
        files.write_text(where, self._settings_text)

    def find(self, number: int, rows: str) -> bool:
        """Returns whether a part is there, undamaged and of these rows.

        Args:
            number: int. Index of the part.
            rows: str. Digest of the rows.
        """
        try:
            header, _ = self._read(number)
            return header["rows"] == rows
        except DataError:
            return False

    def write(self, number: int, rows: str, part: Part) -> None:
        """Writes a part; see `find`."""
        header = {"rows": rows, "sha256": _sha256(part.content), "about": part.about}
        header |= self._header
        line = json.dumps(header).encode() + b"\n"
        files.write_bytes(self._name(number), line + part.content)

    def parts(self, count: int) -> Iterator[Part]:
        """Yields the parts in order.

        Raises:
            DataError: If one is missing or damaged.
        """
        for number in range(count):
            header, content = self._read(number)
            yield Part(content, header["about"])

    def remove(self) -> None:
        """Removes the folder; the settings last, so that this can be interrupted.

        What no run has written is kept, and so is then the folder.
        """
        ours = filter(_is_ours, files.list_folder(self.path))
        for name in sorted(ours, key=_SETTINGS.__eq__):
            files.remove(files.join(self.path, name))

    def _check_ours(self) -> None:
        names = files.list_folder(self.path)
        others = [n for n in names if not _is_ours(n) and n != LOCK_FILE]
        if _SETTINGS not in names:
            # Every run writes them first and removes them last.
            others += [name for name in names if _PART.fullmatch(name)]
        if others:
            raise UsageError(
                f"output_file: {self.path} must be free for the parts of the output, "
                f"received a folder with {others[0]}, which is not a part; move it, or "
                "give another name of the output"
            )

    def _name(self, number: int) -> str:
        return files.join(self.path, f"part-{number:06d}")

    def _read(self, number: int) -> tuple[dict[str, Any], bytes]:
        path = self._name(number)
        if not files.exists(path):
            raise DataError(f"{path}: missing; the same command makes it again")
        line, _, content = files.read_bytes(path).partition(b"\n")
        try:
            header = json.loads(line)
            is_whole = header["sha256"] == _sha256(content)
            is_ours = self._header.items() <= header.items()
            if is_whole and is_ours and {"rows", "about"} <= header.keys():
                return header, content
        except (ValueError, AttributeError, KeyError, TypeError):
            pass
        raise DataError(f"{path}: damaged; the same command makes it again")


def _is_ours(name: str) -> bool:
    """Returns whether a run may have written a file."""
    return name == _SETTINGS or bool(_PART.fullmatch(name)) or files.is_leftover(name)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Returns in words which settings differ."""
    names = sorted({n for n in {*before, *now} if before.get(n) != now.get(n)})
    return [f"{n} was {_short(before.get(n))}, is {_short(now.get(n))}" for n in names]


def _short(value: Any) -> str:
    if isinstance(value, str) and _DIGEST.fullmatch(value):
        return f"{value[:8]}…"
    return json.dumps(value, ensure_ascii=False)
