"""Unpacks archives of checkpoints, which may be hostile."""

import os
import tarfile
import zipfile

from albert_tf.errors import DataError
from albert_tf.storage import files

ENDINGS = (".tar.gz", ".tgz", ".tar", ".zip")
# The largest release is 0.9 GB (xxlarge); a decompression bomb is far larger.
MAX_BYTES = 16 * 2**30
MAX_FILES = 10_000


def is_archive(path: str) -> bool:
    """Returns whether a path is a file with an archive's name."""
    return path.endswith(ENDINGS) and files.exists(path) and not files.is_folder(path)


def extract(path: str, folder: str) -> str:
    """Unpacks regular files and folders, and nothing else.

    Args:
        path: str. The archive, a local file.
        folder: str. An empty folder to unpack into.

    Returns:
        The folder with the files, which is the archive's own top folder if it has one.

    Raises:
        DataError: If the archive is damaged, holds a link, a device or a path outside
            of it, or is too large.
    """
    if files.is_remote(path):
        raise DataError(f"{path}: an archive must be on this machine to be unpacked")
    try:
        if path.endswith(".zip"):
            with zipfile.ZipFile(path) as f:
                _check(path, [(m.filename, m.file_size) for m in f.infolist()])
                f.extractall(folder)  # a link becomes a file
        else:
            with tarfile.open(path) as f:
                members = f.getmembers()
                for m in members:
                    if not (m.isfile() or m.isdir()):
                        raise DataError(
                            f"{path}: {m.name!r} is neither a file nor a folder"
                        )
                _check(path, [(m.name, m.size) for m in members])
                # Python 3.11.0 to 3.11.3 have no filters; the checks above need none.
                safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
                f.extractall(folder, **safe)
    except DataError:
        raise
    # What the libraries raise: TarError, BadZipFile, EOFError, zlib.error, OSError.
    except Exception as e:
        reason = str(e).split("\n")[0]
        raise DataError(f"{path}: damaged archive: {reason}") from None
    names = os.listdir(folder)
    inner = os.path.join(folder, names[0]) if len(names) == 1 else folder
    return inner if os.path.isdir(inner) else folder


def _check(path: str, members: list[tuple[str, int]]) -> None:
    if len(members) > MAX_FILES or sum(size for _, size in members) > MAX_BYTES:
        raise DataError(
            f"{path}: more than {MAX_FILES} files or {MAX_BYTES} bytes when unpacked"
        )
    for name, _ in members:
        parts = name.replace("\\", "/").split("/")
        if name.startswith(("/", "\\")) or ".." in parts or ":" in parts[0]:
            raise DataError(f"{path}: {name!r} would be written outside of the folder")
