"""Reading and writing whole small files, on this machine or in a bucket.

Every path may carry a scheme (`gs://…`); such paths go through `tf.io.gfile`, which is
imported only then. Writing is atomic: a reader never sees half a file. A file that does
not exist is distinguished from one that cannot be reached, which is a `DataError`.
etils.epath does not distinguish them, and does not repeat calls.
"""

import contextlib
import errno
import hashlib
import json
import math
import os
import pathlib
import re
import shutil
import stat
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from typing import IO, Any, NamedTuple

from albert_tf.errors import DataError, UsageError, require
from albert_tf.storage.calls import (
    RemoteReader,
    gfile,
    numbered,
    reason_of,
    repeated,
    sending,
)

# Errors caused by a wrong path, as opposed to a disk or network that fails.
_WRONG_PATH = numbered("EACCES EEXIST EISDIR ENAMETOOLONG ENOENT ENOTDIR EPERM EROFS")
# Some file systems cannot wait for the disk, or not for folders.
_NO_SYNC = numbered("EACCES EBADF EINVAL EISDIR ENOSYS ENOTSUP EOPNOTSUPP EPERM")
# Errors of a path that cannot name anything.
_NOTHING = numbered("ENOENT ENOTDIR ENAMETOOLONG ELOOP")
# Half-written files, and locks that were never taken.
_LEFTOVER = re.compile(r"\..+\.[0-9a-f]{8}\.partial|\.lock-[0-9a-f]{8}")


def is_remote(path: str | os.PathLike) -> bool:
    """Returns whether `path` has a scheme such as `gs://`."""
    return "://" in os.fspath(path)


def join(folder: str | os.PathLike, *names: str) -> str:
    """Joins names to a folder, which may have a scheme."""
    return os.path.join(os.fspath(folder), *names)


class Status(NamedTuple):
    """The properties of a path in its file system.

    Attributes:
        is_regular: bool. Whether it can be read repeatedly: not a pipe or a device.
        modified: int. Modification time in nanoseconds; 0 where none is kept.
    """

    is_folder: bool
    is_regular: bool
    size: int
    modified: int


def status(path: str | os.PathLike) -> Status | None:
    """Returns the status of a path, None if nothing is there.

    Raises `DataError` if this cannot be determined.
    """
    if "\0" in os.fspath(path):
        return None
    with _reaching(path):
        try:
            if is_remote(path):
                entry = gfile(path).stat(os.fspath(path))
                return Status(entry.is_directory, True, entry.length, entry.mtime_nsec)
            entry = repeated(os.stat, path)
        except OSError as e:
            if e.errno in _NOTHING:
                return None
            raise
    is_regular = stat.S_ISREG(entry.st_mode)
    is_folder = stat.S_ISDIR(entry.st_mode)
    return Status(is_folder, is_regular, entry.st_size, entry.st_mtime_ns)


def exists(path: str | os.PathLike) -> bool:
    """Returns whether a file or folder exists; see `status`."""
    return status(path) is not None


def is_folder(path: str | os.PathLike) -> bool:
    """Returns whether `path` is a folder; see `status`."""
    known_status = status(path)
    return known_status is not None and known_status.is_folder


def list_folder(path: str | os.PathLike) -> list[str]:
    """Returns the sorted names of the files and folders in a folder.

    Raises `DataError` if there is no such folder, or it cannot be read.
    """
    with _reaching(path):
        if is_remote(path):
            names = gfile(path).listdir(os.fspath(path))
        else:
            names = repeated(os.listdir, path)
    return sorted(name.rstrip("/") for name in names)


def make_folder(path: str | os.PathLike) -> None:
    """Creates a folder and its parents, unless they exist.

    Raises `UsageError` if it cannot be created, and `DataError` if the disk is full or
    fails.
    """
    try:
        if is_remote(path):
            gfile(path).makedirs(os.fspath(path))
        else:
            repeated(os.makedirs, path, exist_ok=True)
    except OSError as e:
        if e.errno not in _WRONG_PATH:
            verb = "reached" if is_remote(path) else "created"
            raise DataError(f"{path}: cannot be {verb}: {reason_of(e)}") from e
        reason = reason_of(e)
        if e.errno in (errno.EEXIST, errno.ENOTDIR):
            reason = "a file is in its place or above it"
        raise UsageError(
            f"{path}: cannot be created: {reason}; choose another folder"
        ) from e


def read_bytes(path: str | os.PathLike) -> bytes:
    """Returns the content of a file.

    Raises `DataError` if the file is missing, a folder, or cannot be read.
    """
    if is_remote(path):
        with reading(path) as file:
            return file.read()
    try:
        return repeated(pathlib.Path(path).read_bytes)
    except OSError as e:
        raise _unreadable(path, e) from None


def read_text(path: str | os.PathLike) -> str:
    """Returns the content of a UTF-8 file, or raises `DataError`."""
    data = read_bytes(path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise DataError(f"{path}: not UTF-8 text (byte {e.start})") from None


def read_lines(path: str | os.PathLike) -> list[str]:
    """Returns the lines of a UTF-8 file without surrounding white space.

    Only line feeds and carriage returns end a line, not Unicode's other line breaks.
    Raises `DataError` like `read_text`.
    """
    return [line.strip() for line in re.split(r"\r\n?|\n", read_text(path))]


def read_json(path: str | os.PathLike) -> dict[str, Any]:
    """Returns the object in a JSON file.

    Raises `DataError` if the file cannot be read, or holds anything but a JSON object.
    """
    text = read_text(path)
    try:
        content = from_json(text)
    except ValueError as e:
        raise DataError(f"{path}: not JSON: {e}") from None
    if not isinstance(content, dict):
        raise DataError(
            f"{path}: expected a JSON object, received {type(content).__name__}"
        )
    return content


def from_json(text: str | bytes) -> Any:
    """Returns the value of JSON text; raises ValueError if it is invalid."""
    try:
        return json.loads(text)
    except RecursionError as e:
        raise ValueError(str(e)) from None


def to_json(value: Any, **options) -> str:
    """Returns a value as JSON, in which numbers that are not finite become null.

    `options` are arguments of `json.dumps`.
    """
    try:
        return json.dumps(value, allow_nan=False, **options)
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False, **options)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_record(path: str | os.PathLike) -> dict[str, Any]:
    """Returns the object in a JSON file; empty if the file is missing or damaged.

    Raises `DataError` if the file cannot be read.
    """
    if not exists(path):
        return {}
    data = read_bytes(path)
    try:
        content = from_json(data)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def write_bytes(path: str | os.PathLike, data: bytes, overwrite: bool = True) -> None:
    """Writes a file, which gets its final name only when it is complete.

    Its folder must exist. Raises `UsageError` if the file exists and may not be
    replaced, or its folder cannot be written to, and `DataError` if the disk is full or
    fails.
    """
    if not overwrite and exists(path):
        raise UsageError(f"{path}: exists already; give another name, or overwrite it")
    # Several processes may write the same small file: each has its own temporary file.
    with open_atomically(path, suffix=f"{uuid.uuid4().hex[:8]}.partial") as file:
        file.write(data)


def check_new(name: str, path: str, overwrite: bool) -> None:
    """Raises `UsageError`, before the work is done, if a file cannot be written.

    The file exists and may not be replaced, or its folder does not exist or is
    read-only. `name` is the flag or argument that named the file, for the error; an
    empty path stands for no file.
    """
    need = f"{name}: {path} exists already; give --overwrite or another name"
    require(not path or overwrite or not exists(path), need)
    folder = os.path.dirname(path)
    need = f"{name}: {path}: there is no folder {folder}"
    require(not folder or is_remote(path) or is_folder(folder), need)
    is_open = not path or is_remote(path) or os.access(folder or ".", os.W_OK)
    require(is_open, f"{name}: {path}: the folder is read-only")


def write_text(path: str | os.PathLike, text: str, overwrite: bool = True) -> None:
    """Writes a UTF-8 file atomically; see `write_bytes`."""
    write_bytes(path, text.encode("utf-8"), overwrite)


def is_leftover(name: str) -> bool:
    """Returns whether a file is a leftover of a killed `write_bytes`."""
    return bool(_LEFTOVER.fullmatch(name))


def sync(path: str | os.PathLike) -> None:
    """Waits until a local file, or the list of names in a local folder, is on disk."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as e:
        if e.errno not in _NO_SYNC:
            raise


@contextlib.contextmanager
def open_atomically(
    path: str | os.PathLike,
    suffix: str = "partial",
    error: type[Exception] = UsageError,
) -> Iterator[IO[bytes]]:
    """Opens a temporary file that is renamed to `path` when the block has succeeded.

    If anything fails inside the block, including by a full disk, neither a half-written
    `path` nor the temporary file remains. With a fixed suffix, the temporary file of a
    killed process is overwritten by the next attempt. Raises `DataError` if the disk is
    full or fails.
    """
    path = os.fspath(path)
    if is_remote(path):
        gfile(path)  # an error about its scheme names this path, not the temporary
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{suffix}")
    try:
        with open_binary(temporary, "wb") as file:
            yield file
        if not is_remote(path):
            sync(temporary)
        rename(temporary, path)
    except BaseException as e:
        with contextlib.suppress(OSError):
            remove(temporary)
        if isinstance(e, OSError):
            raise unwritable(path, e, error) from e
        raise


def unwritable(
    path: str | os.PathLike, error: OSError, kind: type[Exception] = UsageError
) -> Exception:
    """Returns the error that explains why a file or folder cannot be written.

    `path` is the name that the user knows. The error is of the given kind if the path
    is wrong, otherwise a `DataError`.
    """
    reason = reason_of(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        where = f", also in {tempfile.gettempdir()}," if is_remote(path) else ""
        reason += f"; free some space{where} and run the same command again"
    kind = kind if error.errno in _WRONG_PATH else DataError
    return kind(f"{path}: cannot be written: {reason}")


def open_binary(
    path: str | os.PathLike, mode: str = "rb"
) -> contextlib.AbstractContextManager[IO[bytes]]:
    """Opens a local or remote file in a binary mode, "rb" or "wb".

    Raises `OSError` if it cannot be opened; for a remote file, perhaps only when it is
    read, or at the end of the block that writes it.
    """
    if is_remote(path):
        return (RemoteReader if mode == "rb" else sending)(os.fspath(path))
    return repeated(open, path, mode)


@contextlib.contextmanager
def reading(path: str | os.PathLike) -> Iterator[IO[bytes]]:
    """Opens a file to read bytes inside the block; raises `DataError` on failure."""
    try:
        with open_binary(path) as file:
            yield file
    except OSError as e:
        raise _unreadable(path, e) from None


def _unreadable(path: str | os.PathLike, error: OSError) -> DataError:
    if isinstance(error, IsADirectoryError):
        return DataError(f"{path}: expected a file, found a folder")
    return DataError(f"{path}: cannot be read: {reason_of(error)}")


def digest_of(path: str | os.PathLike) -> dict[str, int | str]:
    """Returns the size in bytes and the sha256 of a file, or raises `DataError`."""
    with reading(path) as f:
        sha256 = hashlib.file_digest(f, "sha256").hexdigest()
        return {"size": f.tell(), "sha256": sha256}


def digests_of(root: str | os.PathLike) -> dict[str, dict[str, int | str]]:
    """Returns the digests of all files below a folder, by relative path."""
    return {name: digest_of(join(root, name)) for name in tree(root)}


def tree(root: str | os.PathLike) -> list[str]:
    """Returns the relative paths of all files below a folder, sorted.

    Links to folders are left out: they may lead in a circle.
    """
    paths = []
    for name in list_folder(root):
        inner = join(root, name)
        if not is_folder(inner):
            paths.append(name)
        elif not os.path.islink(inner):
            paths += [f"{name}/{below}" for below in tree(inner)]
    return sorted(paths)


def rename(source: str, target: str) -> None:
    """Renames a file, replacing an existing `target`; or a local folder.

    A power cut afterwards does not undo it. Raises `OSError` if it cannot be renamed,
    and `DataError` if it was renamed but a power cut may undo it.
    """
    try:
        if is_remote(target):
            gfile(target).rename(source, target, overwrite=True)
        else:
            repeated(os.replace, source, target)
    except FileNotFoundError:
        # Perhaps it was renamed, and only the answer was lost.
        if exists(source) or not exists(target):
            raise
    if not is_remote(target):
        try:
            sync(os.path.dirname(target) or ".")
        except OSError as e:
            raise unwritable(target, e) from e


def remove(path: str) -> None:
    """Removes a file if it exists; raises `OSError` if it cannot be removed."""
    with contextlib.suppress(FileNotFoundError):
        gfile(path).remove(path) if is_remote(path) else repeated(os.remove, path)


def remove_tree(path: str) -> None:
    """Removes a file, or a folder with its content, if it exists."""
    if not is_folder(path):
        remove(path)
        return
    with contextlib.suppress(FileNotFoundError):
        gfile(path).rmtree(path) if is_remote(path) else repeated(shutil.rmtree, path)


def remove_empty_folder(path: str | os.PathLike) -> None:
    """Removes a folder if it exists and is empty."""
    if not is_remote(path):
        with contextlib.suppress(OSError):
            os.rmdir(path)
    elif is_folder(path) and not list_folder(path):
        gfile(path).rmtree(os.fspath(path))


@contextlib.contextmanager
def _reaching(path: str | os.PathLike) -> Iterator[None]:
    """Converts an `OSError` of a file system that cannot be reached to `DataError`."""
    try:
        yield
    except OSError as e:
        raise DataError(f"{path}: cannot be reached: {reason_of(e)}") from None
