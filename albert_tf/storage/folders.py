"""Folders that are written completely or not at all, and checked by a manifest.

A local folder is written under a temporary name and renamed. Remote file systems cannot
rename folders: there the files are written to a local temporary folder and uploaded,
and the file `INCOMPLETE` exists until the upload has finished. The replacement of a
complete remote folder is uploaded twice, first into a folder inside it, so that one of
the two copies is complete at any moment.
"""

import contextlib
import errno
import json
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Collection, Iterator
from typing import BinaryIO

from albert_tf.errors import DataError, UsageError
from albert_tf.storage import files
from albert_tf.storage.calls import as_os_error

MANIFEST = "manifest.json"
# Lists the files of an upload; exists from before its first file until after its last.
INCOMPLETE = "INCOMPLETE"
# First copy of a remote folder's replacement; complete if `INCOMPLETE` lists it.
_STAGE = re.compile(r"\.new-[0-9a-f]{8}")
# The files that may define a folder's tokenizer; the first that exists is its
# vocabulary. The others belong to one of them.
VOCABULARIES = ("spiece.model", "tokenizer.json", "vocab.json", "vocab.txt")
TOKENIZER_FILES = (
    *VOCABULARIES,
    "merges.txt",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
)
# Names that this package writes into model folders; a folder with any other file in it
# is never replaced.
OWN_NAMES = frozenset(
    f"""
    {MANIFEST} config.json model.safetensors spiece.model 30k-clean.model tokenizer.json
    vocab.txt tokenizer_config.json special_tokens_map.json model.weights.h5 task.json
    task.weights.h5 preprocessor.json metadata.json assets albert_config.json
    bert_config.json checkpoint model.ckpt-best.index
    model.ckpt-best.data-00000-of-00001 labels.txt head.json README.md parity.json
    parity.txt generator modules.json config_sentence_transformers.json
    sentence_bert_config.json 1_Pooling 2_Dense 3_Dense 4_Dense 2_Normalize 3_Normalize
    4_Normalize 5_Normalize fold.json fold.txt
    """.split()
)


class DamagedError(DataError):
    """A folder does not match its manifest."""


class FolderWriter:
    """Writes the files of an existing local folder.

    Code that writes files by itself, such as TensorFlow's, may write them to `path`.
    """

    def __init__(self, path: str):
        self.path = path

    def open(self, name: str) -> BinaryIO:
        """Opens a binary file of this name for writing."""
        target = os.path.join(self.path, name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        return open(target, "wb")

    def write(self, name: str, data: bytes) -> None:
        """Writes a small file."""
        with self.open(name) as f:
            f.write(data)

    def write_json(self, name: str, content) -> None:
        """Writes a JSON file."""
        self.write(name, (files.to_json(content, indent=2) + "\n").encode())

    def write_manifest(self) -> None:
        """Writes the size and sha256 of all files in the folder so far."""
        listed = files.digests_of(self.path)
        self.write_json(MANIFEST, {"version": 1, "files": listed})


@contextlib.contextmanager
def writing(
    path: str | os.PathLike,
    overwrite: bool = False,
    own_names: Collection[str] = OWN_NAMES,
    last: str = MANIFEST,
) -> Iterator[FolderWriter]:
    """Yields a `FolderWriter` whose files appear under `path` once all are written.

    If several processes write the same folder without `overwrite`, one succeeds. A
    folder to be replaced may contain only `own_names`. Readers of the format wait for
    the file `last`, which is uploaded last. Raises `DataError` if the upload fails: a
    remote folder may then be incomplete (see `is_complete`), and another attempt
    replaces it, even without `overwrite`.
    """
    path = os.fspath(path).rstrip("/")
    check_free(path, overwrite, own_names)
    unfinished = bool(_read_marker(path))
    if files.is_remote(path):
        with tempfile.TemporaryDirectory(prefix="albert_tf-") as temporary:
            yield FolderWriter(temporary)
            is_free = not files.exists(path) or not files.list_folder(path)
            if not (unfinished or overwrite or is_free):
                raise _taken(path)
            upload(temporary, path, last, own_names)
        return
    parent, name = os.path.split(os.path.abspath(path))
    files.make_folder(parent)
    temporary = os.path.join(parent, f".{name}.tmp-{uuid.uuid4().hex[:8]}")
    try:
        files.make_folder(temporary)
        yield FolderWriter(temporary)
        _sync(temporary)
        if overwrite or unfinished:
            _replace(temporary, path)
        else:
            try:
                files.rename(temporary, path)  # fails if a folder with files is there
            except OSError as e:
                if e.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    raise
                raise _taken(path) from None
    except BaseException as e:
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(e, Exception):
            raise _named(e, temporary, path) from e
        raise


def _named(error: Exception, temporary: str, path: str) -> Exception:
    """Returns an error that names the path instead of the temporary folder."""
    if isinstance(error, DataError | UsageError):
        return type(error)(str(error).replace(temporary, path))
    full = os.strerror(errno.ENOSPC)
    if full in str(error):  # also from libraries with their own errors
        return files.unwritable(path, OSError(errno.ENOSPC, full))
    try:
        with as_os_error():
            raise error
    except OSError as e:
        return files.unwritable(path, e) if temporary in str(error) else error
    except Exception:
        return error


def _sync(path: str) -> None:
    """Waits until a local folder, with its content, is on the disk."""
    for folder, _, names in os.walk(path):
        for name in [*names, ""]:
            files.sync(os.path.join(folder, name))


def _replace(temporary: str, path: str) -> None:
    """Renames a complete local folder to its final name."""
    # An existing folder of that name is removed once the new one is in place, and put
    # back if that fails; `tidy` puts it back if the process is killed in between.
    if not files.exists(path):
        files.rename(temporary, path)
        return
    parent, name = os.path.split(path)
    old = os.path.join(parent, f".{name}.old-{uuid.uuid4().hex[:8]}")
    os.rename(path, old)
    try:
        files.rename(temporary, path)
    except BaseException:
        if files.exists(temporary):
            files.rename(old, path)
        raise
    # A folder with `.old-` in its name is complete at any moment.
    files.rename(old, temporary)
    shutil.rmtree(temporary, ignore_errors=True)


def leftovers(path: str | os.PathLike) -> list[str]:
    """Returns the paths that `writing` leaves behind if it is killed.

    They may also belong to a process that is writing the folder now.
    """
    names = files.list_folder(path) if files.is_folder(path) else []
    inside = [n for n in names if _STAGE.fullmatch(n) or files.is_leftover(n)]
    paths = [files.join(path, name) for name in inside]
    if not files.is_remote(path):
        parent, name = os.path.split(os.path.abspath(path))
        ours = rf"\.{re.escape(name)}\.(tmp|old)-[0-9a-f]{{8}}"
        names = files.list_folder(parent) if files.is_folder(parent) else []
        paths += [os.path.join(parent, n) for n in names if re.fullmatch(ours, n)]
    return paths


def tidy(path: str | os.PathLike) -> None:
    """Restores a folder whose replacement was killed, and removes leftovers.

    The caller must hold a lock that every writer of this folder holds. Raises
    `DataError` if a remote folder cannot be written.
    """
    restore(path)
    # Otherwise, an old folder next to it may be the only copy.
    whole = any(files.exists(files.join(path, n)) for n in (MANIFEST, "run.json"))
    for left in leftovers(path):
        if whole or ".old-" not in os.path.basename(left):
            files.remove_tree(left)


def restore(path: str | os.PathLike) -> None:
    """Restores a folder whose replacement was killed; see `tidy`."""
    path = os.fspath(path)
    paths = leftovers(path)
    if files.is_remote(path):
        listed = _read_marker(path)
        whole = [left for left in paths if os.path.basename(left) in listed]
        if whole:
            upload(whole[0], path)
    elif not files.exists(path):
        old = [left for left in paths if ".old-" in os.path.basename(left)]
        if len(old) == 1:
            files.rename(old[0], path)


def _taken(path: str) -> UsageError:
    return UsageError(f"{path}: exists already: another process has just written it")


def upload(
    local: str | os.PathLike,
    target: str,
    last: str = MANIFEST,
    own_names: Collection[str] = OWN_NAMES,
) -> None:
    """Copies a complete local folder to a remote one, replacing its earlier content.

    Files named in `own_names`, and files of an interrupted upload, are removed first.
    Of two concurrent uploads the later one continues, and the other stops at its next
    file. A file that both copy at the same moment may come from either; then the folder
    does not match its manifest. Raises `UsageError` if another process has started to
    upload the same folder, and `DataError` if the upload fails.
    """
    local = os.fspath(local)
    names = sorted(files.tree(local), key=lambda name: (name == last, name))
    marker = files.join(target, INCOMPLETE)
    # Listed like a file, although no file has this name.
    token = f".upload-{uuid.uuid4().hex}"
    interrupted = _read_marker(target)
    stages = set(filter(_STAGE.fullmatch, interrupted))

    def copy(name, folder):
        remote = files.join(folder, name)
        files.make_folder(os.path.dirname(remote))
        files.gfile(target).copy(files.join(local, name), remote, overwrite=True)

    def check_ours():
        if token not in _read_marker(target):
            raise _taken(target)

    try:
        files.make_folder(target)
        if is_complete(target):
            stage = f".new-{uuid.uuid4().hex[:8]}"
            stages = {stage}
            for name in names:
                copy(name, files.join(target, stage))
        own = {*own_names, *_top(interrupted)} - stages
        old = {name for name in files.tree(target) if name.split("/")[0] in own}
        old.discard(INCOMPLETE)
        # An interrupted second upload must still be recognized as ours.
        listed = sorted({*names, *old, *stages, token})
        files.write_text(marker, json.dumps(listed, indent=2) + "\n")
        for name in sorted(old, key=lambda name: name != last):
            files.remove(files.join(target, name))
        for name in names:
            check_ours()
            copy(name, target)
        check_ours()
        files.remove(marker)
    except OSError as e:
        raise DataError(
            f"{target}: cannot be written: {files.reason_of(e)}; run the same command "
            "again"
        ) from e
    finally:
        # Stages that a marker lists are still needed.
        with contextlib.suppress(OSError, DataError):
            for stage in stages if not files.exists(marker) else ():
                files.remove_tree(files.join(target, stage))


@contextlib.contextmanager
def adding(path: str, last: Collection[str] = ()) -> Iterator[FolderWriter]:
    """Yields a `FolderWriter` whose files join a folder's once all are written.

    They replace files of the same name one by one, each of which is complete at any
    moment. The caller must hold a lock that every writer of this folder holds. The
    files in `last` appear at the end, in this order. Raises `DataError` if a file
    cannot be written.
    """
    order, remote = {name: i for i, name in enumerate(last)}, files.is_remote(path)
    token = uuid.uuid4().hex[:8]
    stage = tempfile.mkdtemp() if remote else os.path.join(path, f".new-{token}")
    try:
        files.make_folder(stage)
        yield FolderWriter(stage)
        _sync(stage)
        for name in sorted(files.tree(stage), key=lambda n: (order.get(n, -1), n)):
            new, target = os.path.join(stage, name), files.join(path, name)
            folder, base = os.path.split(target)
            files.make_folder(folder)
            if remote:
                local, new = new, files.join(folder, f".{base}.{token}.partial")
                files.gfile(new).copy(local, new, overwrite=True)
            files.rename(new, target)
    except OSError as e:
        raise DataError(
            f"{path}: cannot be written: {files.reason_of(e)}; run the same command "
            "again"
        ) from e
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def is_complete(path: str | os.PathLike) -> bool:
    """Returns whether a folder exists, is not empty, and is completely uploaded."""
    if not files.is_folder(path):
        return False
    names = files.list_folder(path)
    return bool(names) and INCOMPLETE not in names


def verify(path: str | os.PathLike) -> set[str]:
    """Compares the files of a folder with its manifest; returns the names in it.

    Raises `DamagedError` if the folder is half uploaded, there is no manifest, a file
    is missing, or its size or digest differs, and `DataError` if a file cannot be read.
    """
    if files.exists(files.join(path, INCOMPLETE)):
        raise DamagedError(f"{path}: incomplete, its upload was interrupted; repeat it")
    where = files.join(path, MANIFEST)
    _check_there(where)
    text = files.read_text(where)
    try:
        listed = files.from_json(text)["files"]
        expected = {k: (int(v["size"]), str(v["sha256"])) for k, v in listed.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DamagedError(f"{where}: not a manifest") from None
    for name, (size, sha256) in expected.items():
        if os.path.isabs(name) or ".." in name.split("/"):
            raise DamagedError(f"{where}: names a file outside the folder: {name!r}")
        _check_there(files.join(path, name))
        actual = files.digest_of(files.join(path, name))
        if actual != {"size": size, "sha256": sha256}:
            raise DamagedError(
                f"{files.join(path, name)}: is not the file the manifest lists "
                f"(sha256 {actual['sha256'][:12]}…, {actual['size']} bytes; expected "
                f"{sha256[:12]}…, {size} bytes)"
            )
    return set(expected)


def _check_there(path: str) -> None:
    if not files.exists(path):
        raise DamagedError(f"{path}: cannot be read: No such file")


def check_free(
    path: str | os.PathLike,
    overwrite: bool = False,
    own_names: Collection[str] = OWN_NAMES,
) -> None:
    """Raises `UsageError` if a folder exists and `writing` may not replace it."""
    if not files.exists(path):
        return
    if not files.is_folder(path):
        raise UsageError(f"{path}: exists already and is not a folder")
    names = files.list_folder(path)
    if not names:
        return
    unfinished = _top(_read_marker(path))
    if not overwrite and not unfinished:
        raise UsageError(f"{path}: exists already; give another name, or overwrite it")
    own = {*own_names, *unfinished, *map(os.path.basename, leftovers(path))}
    foreign = [n for n in names if n not in own]
    if foreign:
        raise UsageError(
            f"{path}: contains {foreign[0]}, which does not belong to a model folder; "
            "the folder is not overwritten"
        )


def _read_marker(path: str | os.PathLike) -> frozenset[str]:
    """Returns the marker and the files of an interrupted upload; empty without one."""
    marker = files.join(path, INCOMPLETE)
    if not files.exists(marker):
        return frozenset()
    data = files.read_bytes(marker)
    try:
        return frozenset({INCOMPLETE, *map(str, files.from_json(data))})
    except (ValueError, TypeError):  # damaged: it vouches only for itself
        return frozenset({INCOMPLETE})


def _top(paths: Collection[str]) -> frozenset[str]:
    """Returns the files and folders at the top of relative paths."""
    return frozenset(path.split("/")[0] for path in paths)
