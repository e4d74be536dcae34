"""Reading and writing whole small files, on this machine or in a bucket.

Every path may carry a scheme (`gs://…`); such paths go through `tf.io.gfile`, which is
imported only then. Writing is atomic: a reader never sees half a file.
"""

import contextlib
import errno
import json
import math
import os
import pathlib
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from typing import IO, Any

from albert_tf.errors import DataError, UsageError

# Disk errors, as opposed to a wrong path.
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
# Temporary files of `write_bytes`.
# Half-written files, and locks that were never taken.
_LEFTOVER = re.compile(r"\..+\.[0-9a-f]{8}\.partial|\.lock-[0-9a-f]{8}")


def is_remote(path: str | os.PathLike) -> bool:
    """Returns whether `path` has a scheme such as `gs://`."""
    return "://" in os.fspath(path)


def join(folder: str | os.PathLike, *names: str) -> str:
    """Joins names to a folder, which may have a scheme."""
    return os.path.join(os.fspath(folder), *names)


def exists(path: str | os.PathLike) -> bool:
    """Returns whether a file or folder exists."""
    if is_remote(path):
        with _reaching(path):
            return gfile(path).exists(os.fspath(path))
    return os.path.exists(path)


def is_folder(path: str | os.PathLike) -> bool:
    """Returns whether `path` is a folder."""
    if is_remote(path):
        # `isdir` answers False where the file system cannot be reached.
        found = gfile(path).isdir(os.fspath(path))
        if not found:
            exists(path)
        return found
    return os.path.isdir(path)


def list_folder(path: str | os.PathLike) -> list[str]:
    """Returns the sorted names of the files and folders in a folder."""
    if is_remote(path):
        with _reaching(path):
            names = gfile(path).listdir(os.fspath(path))
    else:
        names = os.listdir(path)
    return sorted(name.rstrip("/") for name in names)


def make_folder(path: str | os.PathLike) -> None:
    """Creates a folder and its parents, unless they exist.

    Raises:
        UsageError: If it cannot be created.
        DataError: If the disk is full or fails.
    """
    if is_remote(path):
        with _reaching(path):
            gfile(path).makedirs(os.fspath(path))
        return
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as e:
        if e.errno in _DISK_ERRORS:
            raise DataError(f"{path}: cannot be created: {e.strerror}") from e
        reason = e.strerror
        if e.errno in (errno.EEXIST, errno.ENOTDIR):
            reason = "a file is in its place or above it"
        raise UsageError(
            f"{path}: cannot be created: {reason}; choose another folder"
        ) from e


def read_bytes(path: str | os.PathLike) -> bytes:
    """Returns the content of a file.

    Raises:
        DataError: If the file is missing, a folder, or cannot be read.
    """
    try:
        if is_remote(path):
            with gfile(path).GFile(os.fspath(path), "rb") as f:
                return f.read()
        return pathlib.Path(path).read_bytes()
    except IsADirectoryError:
        raise DataError(f"{path}: expected a file, found a folder") from None
    except (OSError, remote_errors(path)) as e:
        reason = getattr(e, "strerror", None) or e
        raise DataError(f"{path}: cannot be read: {reason}") from None


def read_text(path: str | os.PathLike) -> str:
    """Returns the content of a UTF-8 file.

    Raises:
        DataError: If the file cannot be read or is not UTF-8.
    """
    data = read_bytes(path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise DataError(f"{path}: not UTF-8 text (byte {e.start})") from None


def read_json(path: str | os.PathLike) -> dict[str, Any]:
    """Returns the object in a JSON file.

    Raises:
        DataError: If the file cannot be read, or holds anything but a JSON object.
    """
    text = read_text(path)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise DataError(f"{path}: not JSON: {e}") from None
    if not isinstance(content, dict):
        raise DataError(
            f"{path}: expected a JSON object, received {type(content).__name__}"
        )
    return content


def to_json(value: Any, **options) -> str:
    """Returns a value as JSON, which has no numbers but finite ones: others are null.

    Args:
        value: What JSON may hold.
        **options: As for `json.dumps`.
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


def write_bytes(path: str | os.PathLike, data: bytes, overwrite: bool = True) -> None:
    """Writes a file under its final name only when it is complete.

    Args:
        path: str. Path of the file. Its folder must exist.
        data: bytes. Content of the file.
        overwrite: bool. Whether an existing file may be replaced.

    Raises:
        UsageError: If the file exists and may not be replaced, or its folder
            cannot be written to.
        DataError: If the disk is full or fails.
    """
    if not overwrite and exists(path):
        raise UsageError(f"{path}: exists already; give another name, or overwrite it")
    # Several processes may write the same small file: each gets its own temporary.
    with open_atomically(path, suffix=f"{uuid.uuid4().hex[:8]}.partial") as file:
        file.write(data)


def write_text(path: str | os.PathLike, text: str, overwrite: bool = True) -> None:
    """Writes a UTF-8 file atomically; see `write_bytes`."""
    write_bytes(path, text.encode("utf-8"), overwrite)


def is_leftover(name: str) -> bool:
    """Returns whether a file is what a killed `write_bytes` leaves behind."""
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
        # Some file systems cannot do it for folders.
        if not os.path.isdir(path) or e.errno in _DISK_ERRORS:
            raise


@contextlib.contextmanager
def open_atomically(
    path: str | os.PathLike,
    suffix: str = "partial",
    error: type[Exception] = UsageError,
) -> Iterator[IO[bytes]]:
    """Opens a temporary file that is renamed to `path` when the block has succeeded.

    If anything fails inside the block, a full disk included, neither a half-written
    `path` nor the temporary file remains.

    Args:
        path: str. Path of the file. Its folder must exist.
        suffix: str. Ending of the temporary file's name. With a fixed suffix, the
            temporary file of a killed process is overwritten by the next attempt.
        error: type. Raised if the folder cannot be written to.

    Raises:
        DataError: If the disk is full or fails.
    """
    path = os.fspath(path)
    if is_remote(path):
        gfile(path)  # an error about its scheme names this path, not the temporary
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{suffix}")
    try:
        with open_binary(temporary, "wb") as file:
            yield file
            file.flush()
            if not is_remote(path):
                os.fsync(file.fileno())
        rename(temporary, path)
    except BaseException as e:
        with contextlib.suppress(OSError, remote_errors(path)):
            remove(temporary)
        if isinstance(e, (OSError, remote_errors(path))):
            reason = getattr(e, "strerror", None) or str(e)
            number = getattr(e, "errno", 0)
            if number == errno.ENOSPC:
                reason += "; free some space and run the same command again"
            kind = DataError if number in _DISK_ERRORS else error
            raise kind(f"{path}: cannot be written: {reason}") from e
        raise


def open_binary(path: str | os.PathLike, mode: str = "rb") -> IO[bytes]:
    """Opens a local or remote file in a binary mode."""
    if not is_remote(path):
        return open(path, mode)
    file = gfile(path).GFile(os.fspath(path), mode)
    return file if mode == "rb" else _RemoteWriter(file)


def rename(source: str, target: str) -> None:
    """Renames a file, replacing an existing `target`; or a local folder.

    A power cut afterwards does not undo it.
    """
    if is_remote(target):
        gfile(target).rename(source, target, overwrite=True)
    else:
        os.replace(source, target)
        sync(os.path.dirname(target) or ".")


def remove(path: str) -> None:
    """Removes a file if it exists."""
    if is_remote(path):
        if exists(path):
            gfile(path).remove(path)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)


def remove_tree(path: str) -> None:
    """Removes a file, or a folder with all that is in it, if it exists."""
    if not is_folder(path):
        remove(path)
    elif is_remote(path):
        gfile(path).rmtree(path)
    else:
        shutil.rmtree(path)


def remove_empty_folder(path: str | os.PathLike) -> None:
    """Removes a folder if it exists and nothing is in it."""
    if not is_remote(path):
        with contextlib.suppress(OSError):
            os.rmdir(path)
    elif is_folder(path) and not list_folder(path):
        gfile(path).rmtree(os.fspath(path))


class _RemoteWriter:
    """A remote file to write to; `GFile.write` itself accepts only `bytes`."""

    def __init__(self, file):
        self._file = file

    def write(self, data) -> int:
        """Writes bytes, or anything with a buffer of bytes such as a memoryview."""
        self._file.write(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Sends what is buffered to the file system."""
        self._file.flush()

    def close(self) -> None:
        """Completes the file."""
        self._file.close()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()


def gfile(path: str | os.PathLike):
    """Returns `tf.io.gfile`, for a path whose file system it knows.

    Raises:
        UsageError: If TensorFlow has no file system for the scheme of the path.
    """
    import tensorflow as tf

    scheme = os.fspath(path).partition("://")[0]
    known = tf.io.gfile.get_registered_schemes()
    if scheme not in known:
        listed = ", ".join(f"{name}://" for name in sorted(filter(None, known)))
        raise UsageError(
            f"{path}: {scheme}:// is not supported; use a local path or one of {listed}"
        )
    return tf.io.gfile


@contextlib.contextmanager
def _reaching(path: str | os.PathLike) -> Iterator[None]:
    """Turns what a file system that cannot be reached raises into a `DataError`."""
    try:
        yield
    except remote_errors(path) as e:
        reason = " ".join(str(getattr(e, "message", e)).split())[:300]
        raise DataError(f"{path}: cannot be reached: {reason}") from None


def remote_errors(path: str | os.PathLike) -> type[Exception]:
    """Returns what remote file access raises; `OSError` for a local path."""
    if not is_remote(path):
        return OSError
    import tensorflow as tf

    return tf.errors.OpError
