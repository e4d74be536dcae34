"""Reading and writing whole small files, on this machine or in a bucket.

Every path may carry a scheme (`gs://…`); such paths go through `tf.io.gfile`, which is
imported only then. Writing is atomic: a reader never sees half a file.
"""

import errno
import os
import pathlib
import shutil
import uuid

from albert_tf.errors import DataError, UsageError

# Nobody named the wrong file; the disk has no room or is broken.
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


def is_remote(path: str | os.PathLike) -> bool:
    """Whether `path` has a scheme such as `gs://`."""
    return "://" in os.fspath(path)


def join(folder: str | os.PathLike, *names: str) -> str:
    """Joins names to a folder, keeping a scheme."""
    return os.path.join(os.fspath(folder), *names)


def exists(path: str | os.PathLike) -> bool:
    """Whether a file or folder is there."""
    if is_remote(path):
        return _gfile().exists(os.fspath(path))
    return os.path.exists(path)


def is_folder(path: str | os.PathLike) -> bool:
    """Whether `path` is a folder."""
    if is_remote(path):
        return _gfile().isdir(os.fspath(path))
    return os.path.isdir(path)


def list_folder(path: str | os.PathLike) -> list[str]:
    """Names in a folder, sorted."""
    names = _gfile().listdir(os.fspath(path)) if is_remote(path) else os.listdir(path)
    return sorted(name.rstrip("/") for name in names)


def make_folder(path: str | os.PathLike) -> None:
    """Makes a folder and those above it; it may exist already."""
    if is_remote(path):
        _gfile().makedirs(os.fspath(path))
    else:
        os.makedirs(path, exist_ok=True)


def read_bytes(path: str | os.PathLike) -> bytes:
    """The content of a file.

    Raises:
        DataError: If the file is missing, a folder, or cannot be read.
    """
    try:
        if is_remote(path):
            with _gfile().GFile(os.fspath(path), "rb") as f:
                return f.read()
        return pathlib.Path(path).read_bytes()
    except IsADirectoryError:
        raise DataError(f"{path}: expected a file, found a folder") from None
    except (OSError, _remote_errors(path)) as e:
        reason = getattr(e, "strerror", None) or e
        raise DataError(f"{path}: cannot be read: {reason}") from None


def read_text(path: str | os.PathLike) -> str:
    """The content of a UTF-8 file.

    Raises:
        DataError: If the file cannot be read or is not UTF-8.
    """
    data = read_bytes(path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise DataError(f"{path}: not UTF-8 text (byte {e.start})") from None


def write_bytes(path: str | os.PathLike, data: bytes, overwrite: bool = True) -> None:
    """Writes a file under its final name only when it is complete.

    Args:
        path: Where to. Its folder must exist.
        data: The content.
        overwrite: Whether a file of that name may be replaced.

    Raises:
        UsageError: If the file exists and may not be replaced, or its folder
            cannot be written to.
        DataError: If the disk is full or fails.
    """
    path = os.fspath(path)
    if not overwrite and exists(path):
        raise UsageError(f"{path}: exists already and would be overwritten")
    temporary = f"{path}.tmp-{uuid.uuid4().hex[:8]}"
    try:
        if is_remote(path):
            with _gfile().GFile(temporary, "wb") as f:
                f.write(data)
            _gfile().rename(temporary, path, overwrite=True)
        else:
            with open(temporary, "wb") as f:
                f.write(data)
                f.flush()
                os.fsync(f.fileno())
            os.replace(temporary, path)
    except BaseException as e:
        if exists(temporary):
            _gfile().remove(temporary) if is_remote(path) else os.remove(temporary)
        if isinstance(e, (OSError, _remote_errors(path))):
            reason = getattr(e, "strerror", None) or e
            kind = DataError if getattr(e, "errno", 0) in _DISK_ERRORS else UsageError
            raise kind(f"{path}: cannot be written: {reason}") from None
        raise


def write_text(path: str | os.PathLike, text: str, overwrite: bool = True) -> None:
    """Writes a UTF-8 file atomically; see `write_bytes`."""
    write_bytes(path, text.encode("utf-8"), overwrite)


def replace_folder(temporary: str | os.PathLike, path: str | os.PathLike) -> None:
    """Gives a complete local folder its final name.

    A folder that has that name goes when this has worked, and stays when it has not.
    """
    if not os.path.exists(path):
        os.rename(temporary, path)
        return
    old = f"{os.fspath(path)}.old-{uuid.uuid4().hex[:8]}"
    os.rename(path, old)
    try:
        os.rename(temporary, path)
    except BaseException:
        os.rename(old, path)
        raise
    shutil.rmtree(old)


def _gfile():
    import tensorflow as tf

    return tf.io.gfile


def _remote_errors(path):
    if not is_remote(path):
        return OSError
    import tensorflow as tf

    return tf.errors.OpError
