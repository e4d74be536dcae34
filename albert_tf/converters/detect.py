"""Detects the format of a path and opens it, without running code from it."""

import contextlib
import os
import re
import tarfile
import tempfile
import types
import zipfile

from absl import logging

from albert_tf.config import AlbertConfig
from albert_tf.converters import (
    huggingface,
    keras_hub,
    own_format,
    sentence_transformers,
    tf1,
)
from albert_tf.converters.checkpoint import Checkpoint
from albert_tf.errors import DataError, UsageError, require
from albert_tf.storage import files, folders, hubs

# Modules with `matches(path, names, config)`, `read(path, config)` and
# `write(checkpoint, writer)`.
FORMATS: dict[str, types.ModuleType] = {
    own_format.NAME: own_format,
    huggingface.NAME: huggingface,
    keras_hub.NAME: keras_hub,
    tf1.NAME: tf1,
    sentence_transformers.NAME: sentence_transformers,
}
_PROGRAMS = (".pkl", ".pickle", ".pt", ".pth", ".keras", ".h5", ".npy", ".bin")


def open_checkpoint(
    path: str | os.PathLike,
    *,
    format: str | None = None,
    config: AlbertConfig | None = None,
    ignore: str | None = None,
) -> Checkpoint:
    """Detects the format of `path` and reads everything but the tensors' values.

    Opening unpacks an archive or hashes a folder's files. A command should therefore
    open a path once, and take the config, labels, tokenizer (`make_tokenizer`) and
    model (`keras_model.build_model`) from it inside a `with` statement. The arguments
    are as for `from_pretrained`; `build_model` rejects `unknown` tensors. Raises
    `DataError` if there is not exactly one format, or its files are damaged.
    """
    path = os.fspath(path)
    if format is not None:
        check_format(format)
    checkpoint = (_download if hubs.is_name(path) else _open)(path, format, config)
    if ignore is not None:
        pattern = compile_ignore(ignore)
        unread = [name for name in checkpoint.unknown if not pattern.search(name)]
        checkpoint.dropped += sorted(set(checkpoint.unknown) - set(unread))
        checkpoint.unknown = unread
    return checkpoint


def compile_ignore(ignore: str) -> re.Pattern:
    """Compiles the pattern of an `ignore` argument, or raises `UsageError`."""
    try:
        return re.compile(ignore)
    except re.error as e:
        raise UsageError(f"ignore: not a regular expression: {e}") from None


def check_format(format: str) -> None:
    """Raises `UsageError` if there is no such format."""
    names = ", ".join(FORMATS)
    require(format in FORMATS, f"format must be one of {names}", format)


def check_path(path: str) -> None:
    """Raises `DataError` if a path on this machine cannot be a checkpoint.

    No weights are read; see `open_checkpoint`.
    """
    is_file = is_archive(path) or (
        path.endswith(own_format.KERAS_ENDING) and files.exists(path)
    )
    named = hubs.is_name(path) or tf1.is_prefix(path) or own_format.find_run(path)
    if not is_file and not named:
        format_of(path)


def _download(path: str, format: str | None, config: AlbertConfig | None) -> Checkpoint:
    if path.startswith(hubs.KAGGLE):
        # All files of the model were downloaded; this format reads no executable ones.
        fits = format in (None, keras_hub.NAME)
        require(fits, f"{path}: format must be {keras_hub.NAME}", format)
        format = keras_hub.NAME
    copy = hubs.download(path)
    logging.info("%s is %s", path, copy.origin)
    try:
        checkpoint = _open(copy.folder, format, config)
    except (DataError, UsageError) as e:
        raise type(e)(str(e).replace(copy.folder, path)) from None
    for net in checkpoint.nets.values():
        net.path, net.folder, net.origin = path, copy.folder, copy.origin
    return checkpoint


def _open(path: str, format: str | None, config: AlbertConfig | None) -> Checkpoint:
    run = None if format else own_format.find_run(path)
    if run:
        return own_format.read_run(*run, config)
    if path.endswith(own_format.KERAS_ENDING) and not format:
        return own_format.read_keras(path, config)
    if tf1.is_prefix(path):
        return tf1.read(path, config)
    own_format.refuse_unfinished(path)
    with contextlib.ExitStack() as resources:
        inside = path
        if is_archive(path):
            temporary = tempfile.TemporaryDirectory(prefix="albert_tf-")
            inside = extract(path, resources.enter_context(temporary))
        checkpoint = FORMATS[format or format_of(inside)].read(inside, config)
        for net in checkpoint.nets.values():
            net.path = path
        resources.push(checkpoint.resources)
        checkpoint.resources = resources.pop_all()
        return checkpoint


def format_of(path: str | os.PathLike) -> str:
    """Returns the format of a folder; raises `DataError` unless there is just one."""
    path = os.fspath(path)
    if not files.exists(path):
        hint = ""
        if re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", path):
            hint = f"; a model of Hugging Face's hub is called hf://{path}"
        raise DataError(f"{path}: no such file or folder{hint}")
    if not files.is_folder(path):
        kind = "may contain code and " if path.endswith(_PROGRAMS) else ""
        raise DataError(f"{path}: {kind}is not a checkpoint of a known format")
    names = set(files.list_folder(path))
    if folders.INCOMPLETE in names:
        raise DataError(f"{path}: incomplete, its upload was interrupted; repeat it")
    if {"saved_model.pb", "assets.extra"} <= names:
        raise DataError(f"{path}: an exported SavedModel; give the folder of its model")
    if "adapter_config.json" in names:
        raise DataError(f"{path}: a PEFT adapter; give a folder of the merged model")
    where = files.join(path, "config.json")
    config = files.read_json(where) if "config.json" in names else None
    kinds = [k for k, module in FORMATS.items() if module.matches(path, names, config)]
    if len(kinds) == 1:
        return kinds[0]
    if kinds:
        raise DataError(
            f"{path}: holds several formats ({', '.join(kinds)}); specify one of them"
        )
    raise DataError(
        f"{path}: none of its files is of a known format ({', '.join(FORMATS)})"
    )


ENDINGS = (".tar.gz", ".tgz", ".tar", ".zip")
# The largest release is 0.9 GB (xxlarge); a decompression bomb is far larger.
MAX_BYTES = 16 * 2**30
MAX_FILES = 10_000


def is_archive(path: str) -> bool:
    """Returns whether a path is a file whose name has an archive's ending."""
    return path.endswith(ENDINGS) and files.exists(path) and not files.is_folder(path)


def extract(path: str, folder: str) -> str:
    """Unpacks regular files and folders, and nothing else, into an empty folder.

    Returns the folder with the files: the archive's own top folder if it has one.
    Raises `DataError` if the archive is damaged, holds a link, a device or a path that
    leads outside, or is too large.
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
    # The libraries raise TarError, BadZipFile, EOFError, zlib.error and OSError.
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
