"""Calls of a file system, repeated if they may have failed only temporarily.

Network file systems and buckets lose single calls. `tf.io.gfile`, which accesses every
path with a scheme, raises `OSError` here, like Python's own functions.
"""

import contextlib
import errno
import functools
import io
import itertools
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import IO, Any

from albert_tf.errors import UsageError, without_graph_names


def numbered(names: str) -> frozenset[int]:
    """Returns the numbers of system errors from their space-separated names."""
    return frozenset(getattr(errno, name) for name in names.split())


# Seconds to wait before a call is repeated.
WAITS = (0.2, 0.5, 1.0, 2.0, 4.0)
# Maximum number of bytes of a file to be sent that are held in memory.
_SPOOL = 1 << 24
_TRANSIENT = numbered(
    "EAGAIN ECONNABORTED ECONNREFUSED ECONNRESET EHOSTDOWN EHOSTUNREACH EIO "
    "ENETDOWN ENETRESET ENETUNREACH ENOTCONN ESTALE ETIMEDOUT"
)
# TensorFlow's local file system ends its messages with the system's own words.
_NUMBERS = {os.strerror(number): number for number in errno.errorcode}
_NUMBERS_BY_CLASS = {
    "AbortedError": errno.EIO,
    "AlreadyExistsError": errno.EEXIST,
    "DeadlineExceededError": errno.ETIMEDOUT,
    "NotFoundError": errno.ENOENT,
    "PermissionDeniedError": errno.EACCES,
    "UnauthenticatedError": errno.EACCES,
    "UnavailableError": errno.EIO,
    "UnknownError": errno.EIO,
}


def repeated(call: Callable, *args, **kwargs) -> Any:
    """Calls a function, again while it may yet succeed, and returns its result.

    Raises `OSError` if the last attempt fails, or the first for a permanent reason.
    """
    for wait in (*WAITS, None):
        try:
            with as_os_error():
                return call(*args, **kwargs)
        except OSError as e:
            if wait is None or e.errno not in _TRANSIENT:
                raise
        time.sleep(wait)
    raise AssertionError


@contextlib.contextmanager
def as_os_error() -> Iterator[None]:
    """Converts an error of TensorFlow that concerns a file to an `OSError`."""
    try:
        yield
    except Exception as e:
        kinds = [kind.__name__ for kind in type(e).__mro__]
        if "OpError" not in kinds:
            raise
        message = without_graph_names(" ".join(str(e.message).split()))[:300]
        where, _, words = message.rpartition("; ")
        if number := _NUMBERS.get(words):
            raise OSError(number, words, where) from e
        number = next(filter(None, map(_NUMBERS_BY_CLASS.get, kinds)), None)
        reason = message or (os.strerror(number) if number else kinds[0])
        raise OSError(number, reason) from e


def reason_of(error: OSError) -> str:
    """Returns the reason why a call has failed, without the path."""
    return error.strerror or " ".join(str(error).split())[:300]


def gfile(path: str | os.PathLike) -> "_FileSystem":
    """Returns `tf.io.gfile`, whose functions are repeated and raise `OSError`.

    Raises `UsageError` if TensorFlow has no file system for the scheme of the path.
    """
    import tensorflow as tf

    scheme = os.fspath(path).partition("://")[0]
    schemes = tf.io.gfile.get_registered_schemes()
    if scheme not in schemes:
        listed = ", ".join(f"{name}://" for name in sorted(filter(None, schemes)))
        raise UsageError(
            f"{path}: {scheme}:// is not supported; use a local path or one of {listed}"
        )
    return _FileSystem(tf)


class _FileSystem:
    def __init__(self, tf):
        self._tf = tf

    def __getattr__(self, name: str) -> Callable:
        return functools.partial(repeated, getattr(self._tf.io.gfile, name))

    def stat(self, path: str) -> Any:
        """Returns the status of a file or folder."""
        status = repeated(self._tf.io.gfile.stat, path)
        folder, name = os.path.split(path.rstrip("/"))
        # There, the beginning of any name counts as a folder.
        if folder.startswith("ram://") and name not in self.listdir(folder):
            raise FileNotFoundError(errno.ENOENT, "not found")
        return status

    def listdir(self, path: str) -> list[str]:
        """Returns the names in a folder."""
        return repeated(self._list, path)

    def _list(self, path: str) -> list[str]:
        try:
            return self._tf.io.gfile.listdir(path)
        except self._tf.errors.NotFoundError:
            # The same error is raised if the server could not be asked.
            if self.stat(path).is_directory:
                raise OSError(errno.EAGAIN, "cannot be listed") from None
            raise


class RemoteReader(io.RawIOBase):
    """A remote file to read, reopened at the same position if reading fails."""

    def __init__(self, path: str):
        super().__init__()
        self._gfile = gfile(path)
        self._path = path
        self._place = 0
        self._file = None

    def read(self, size: int | None = -1) -> bytes:
        """Returns `size` bytes, fewer at the end of the file; by default, all."""
        data = repeated(self._read, -1 if size is None else size)
        self._place += len(data)
        return data

    def _read(self, size: int) -> bytes:
        import tensorflow as tf

        file, self._file = self._file, None
        file = file or tf.io.gfile.GFile(self._path, "rb")
        if file.tell() != self._place:
            file.seek(self._place)
        data = file.read(size)
        self._file = file
        return data

    def readinto(self, buffer) -> int:
        """Fills a buffer; returns the number of bytes."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Moves to a position in the file and returns it."""
        if whence == os.SEEK_CUR:
            offset += self._place
        elif whence == os.SEEK_END:
            offset += self._gfile.stat(self._path).length
        self._place = offset
        return offset

    def readable(self) -> bool:
        """Returns True."""
        return True

    def seekable(self) -> bool:
        """Returns True."""
        return True


@contextlib.contextmanager
def sending(path: str) -> Iterator[IO[bytes]]:
    """Opens a remote file to write, sent as a whole so that this can be repeated.

    If the block fails, nothing is sent.
    """
    gfile(path)
    with tempfile.SpooledTemporaryFile(_SPOOL) as file:
        yield file
        repeated(_send, file, path, itertools.count())


def _send(file: IO[bytes], path: str, attempts: Iterator[int]) -> None:
    import tensorflow as tf

    if next(attempts):  # `ram://` would append
        with contextlib.suppress(tf.errors.NotFoundError):
            tf.io.gfile.remove(path)
    file.seek(0)
    with tf.io.gfile.GFile(path, "wb") as target:
        target.write(b"")  # an empty file is one, too
        while block := file.read(_SPOOL):
            target.write(block)
