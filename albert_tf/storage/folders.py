"""Model folders: written as a whole or not at all, and checked by a manifest."""

import contextlib
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Collection, Iterator
from typing import BinaryIO

from albert_tf.errors import DataError, UsageError
from albert_tf.storage import files

MANIFEST = "manifest.json"
# What this package writes; a folder with anything else in it is never replaced.
OWN_NAMES = {
    MANIFEST,
    "config.json",
    "model.safetensors",
    "spiece.model",
    "30k-clean.model",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "model.weights.h5",
    "task.json",
    "task.weights.h5",
    "preprocessor.json",
    "metadata.json",
    "assets",
    "albert_config.json",
    "bert_config.json",
    "checkpoint",
    "model.ckpt-best.index",
    "model.ckpt-best.data-00000-of-00001",
    "labels.txt",
    "README.md",
    "parity.json",
    "parity.txt",
}


class FolderWriter:
    """Writes the files of a folder and remembers their digests.

    Args:
        path: str. Of the folder, which exists.
    """

    def __init__(self, path: str):
        self.path = path
        self.digests: dict[str, dict] = {}

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        """A binary file of that name to write to."""
        if files.is_remote(self.path):
            import tensorflow as tf

            f = tf.io.gfile.GFile(files.join(self.path, name), "wb")
        else:
            target = os.path.join(self.path, name)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            f = open(target, "wb")  # noqa: SIM115 - closed below
        with f:
            hashing = _Hashing(f)
            yield hashing
        self.digests[name] = hashing.digest()

    def write(self, name: str, data: bytes) -> None:
        """Writes a small file."""
        with self.open(name) as f:
            f.write(data)

    def write_json(self, name: str, content) -> None:
        """Writes a JSON file."""
        self.write(name, (json.dumps(content, indent=2) + "\n").encode())

    def write_manifest(self) -> None:
        """Writes size and sha256 of all files written so far."""
        self.write_json(MANIFEST, {"version": 1, "files": dict(self.digests)})


@contextlib.contextmanager
def writing(
    path: str | os.PathLike,
    overwrite: bool = False,
    own_names: Collection[str] = OWN_NAMES,
) -> Iterator[FolderWriter]:
    """Gives a `FolderWriter`; the folder appears under its name when all is written.

    On a remote file system, where folders cannot be renamed, the files are written in
    place; formats with a manifest write that last.

    Args:
        path: Of the folder to make.
        overwrite: Whether a model folder of that name may be replaced.
        own_names: Collection. Names that a folder to be replaced may contain.

    Raises:
        UsageError: If the folder exists and may not be replaced.
    """
    path = os.fspath(path).rstrip("/")
    _check_free(path, overwrite, own_names)
    if files.is_remote(path):
        files.make_folder(path)
        yield FolderWriter(path)
        return
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    temporary = f"{path}.tmp-{uuid.uuid4().hex[:8]}"
    os.mkdir(temporary)
    try:
        yield FolderWriter(temporary)
        files.replace_folder(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def verify(path: str | os.PathLike) -> set[str]:
    """Compares the files of a folder with its manifest.

    Returns:
        The names the manifest lists.

    Raises:
        DataError: If there is no manifest, a file is missing, or its size or digest
            differs.
    """
    where = files.join(path, MANIFEST)
    try:
        listed = json.loads(files.read_text(where))["files"]
        expected = {k: (int(v["size"]), str(v["sha256"])) for k, v in listed.items()}
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError, RecursionError):
        raise DataError(f"{where}: not a manifest") from None
    for name, (size, sha256) in expected.items():
        if os.path.isabs(name) or ".." in name.split("/"):
            raise DataError(f"{where}: names a file outside the folder: {name!r}")
        found = _digest_of(files.join(path, name))
        if found != {"size": size, "sha256": sha256}:
            raise DataError(
                f"{files.join(path, name)}: is not the file the manifest lists "
                f"(sha256 {found['sha256'][:12]}…, {found['size']} bytes; expected "
                f"{sha256[:12]}…, {size} bytes)"
            )
    return set(expected)


def _check_free(path: str, overwrite: bool, own_names: Collection[str]) -> None:
    if not files.exists(path):
        return
    if not files.is_folder(path):
        raise UsageError(f"{path}: exists already and is not a folder")
    names = files.list_folder(path)
    if not names:
        return
    if not overwrite:
        raise UsageError(f"{path}: exists already and would be overwritten")
    foreign = [name for name in names if name not in own_names]
    if foreign:
        raise UsageError(
            f"{path}: holds {foreign[0]}, which no model folder has, and so is not "
            "overwritten"
        )


class _Hashing:
    """A file that digests what is written to it."""

    def __init__(self, f: BinaryIO):
        self._file = f
        self._sha256 = hashlib.sha256()
        self._size = 0

    def write(self, data) -> int:
        self._sha256.update(data)
        self._size += len(data)
        self._file.write(data)
        return len(data)

    def digest(self) -> dict:
        return {"size": self._size, "sha256": self._sha256.hexdigest()}


def _digest_of(path: str) -> dict:
    sha256, size = hashlib.sha256(), 0
    try:
        if files.is_remote(path):
            data = files.read_bytes(path)
            return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        with open(path, "rb") as f:
            while block := f.read(1 << 22):
                sha256.update(block)
                size += len(block)
    except OSError as e:
        raise DataError(f"{path}: cannot be read: {e.strerror or e}") from None
    return {"size": size, "sha256": sha256.hexdigest()}
