"""Checks that an exported folder is what was exported, without loading it."""

import os
from collections.abc import Iterator
from typing import Any

from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from albert_tf.errors import DataError, UsageError
from albert_tf.export import manifest
from albert_tf.storage import digests, files, folders

_CALLABLE = "__saved_model"  # what the loader adds for itself begins like this


def verify(path: str | os.PathLike, sha256: str | None = None) -> dict[str, Any]:
    """Compares an exported folder with its manifest, and checks what it can do.

    Nothing in the folder is run. The manifest shows that the files are those of one
    export, not whose: who can change the files can write another manifest. `sha256`,
    kept elsewhere, excludes this.

    Args:
        path: str or path. The folder, local or remote.
        sha256: str or None. Expected digest of the manifest.

    Returns:
        dict. The manifest's content.

    Raises:
        UsageError: If `sha256` is not the digest of any file.
        DataError: If the manifest is missing or is another one; if a file is missing,
            changed, added or outside the folder; if the SavedModel contains an
            operation that is not allowed, a SentencePiece model that cannot be read
            safely, or other operations or signatures than the manifest lists.
    """
    path = os.fspath(path).rstrip("/")
    file = files.join(path, manifest.FILE)
    if files.exists(files.join(path, folders.INCOMPLETE)):
        raise DataError(f"{path}: incomplete, its upload was interrupted; repeat it")
    content = files.read_json(file)
    if sha256 is not None:
        _check_digest(file, sha256)
    listed = _listed(file, content)
    if problems := list(_differences(path, listed)):
        raise DataError(f"{path}: not what was exported: {'; '.join(problems)}")
    if sorted(manifest.check_operations(path)) != content.get("operations"):
        raise DataError(f"{file}: lists other operations than {manifest.MODEL_FILE}")
    for meta_graph in manifest.read_saved_model(path).meta_graphs:
        _check_assets(path, meta_graph, listed)
        if _inputs(meta_graph) != content.get("signatures"):
            raise DataError(
                f"{file}: lists other signatures than {manifest.MODEL_FILE}"
            )
    return content


def describe(path: str | os.PathLike) -> list[str]:
    """Returns a line for each signature: its name, inputs and outputs."""
    lines = []
    for meta_graph in manifest.read_saved_model(path).meta_graphs:
        for name, signature in _signatures(meta_graph):
            inputs, outputs = (
                ", ".join(f"{key}: {_spec(info)}" for key, info in sorted(part.items()))
                for part in (signature.inputs, signature.outputs)
            )
            lines.append(f"{name}({inputs}) -> {outputs}")
    return lines


def _check_digest(file: str, sha256: str) -> None:
    if len(sha256) != 64 or set(sha256.lower()) - set("0123456789abcdef"):
        raise UsageError(f"sha256: expected 64 hexadecimal digits, received {sha256}")
    found = digests.of_file(file)["sha256"]
    if found != sha256.lower():
        raise DataError(f"{file}: expected sha256 {sha256}, found {found}")


def _listed(file: str, content: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns the files that a manifest lists.

    Raises:
        DataError: If it is not a manifest, or names a file outside the folder.
    """
    try:
        listed = {
            str(name): {"size": int(value["size"]), "sha256": str(value["sha256"])}
            for name, value in content["files"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError):
        raise DataError(f"{file}: not the manifest of an exported model") from None
    for name in listed:
        if _leaves(name):
            raise DataError(f"{file}: names a file outside the folder: {name!r}")
    return listed


def _leaves(name: str) -> bool:
    parts = name.replace("\\", "/").split("/")
    return os.path.isabs(name) or "://" in name or ".." in parts or "" in parts


def _differences(path: str, listed: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Yields each file that is not as listed, and how it differs."""
    remote = files.is_remote(path)
    found = set(folders.remote_tree(path) if remote else digests.tree(path))
    found.discard(manifest.FILE)
    root = os.path.realpath(path)

    def is_link(name: str) -> bool:
        # What a link leads to can be exchanged after the check.
        where = os.path.realpath(files.join(path, name))
        return not remote and where != os.path.join(root, name)

    if is_link(manifest.FILE):
        yield f"{manifest.FILE} is a link"
    for name in sorted(found | set(listed)):
        if name not in listed:
            yield f"{name} was added"
        elif name not in found:
            yield f"{name} is missing"
        elif is_link(name):
            yield f"{name} is a link"
        elif digests.of_file(files.join(path, name)) != listed[name]:
            yield f"{name} was changed"


def _check_assets(
    path: str, meta_graph: meta_graph_pb2.MetaGraphDef, listed: dict[str, Any]
) -> None:
    """Checks the files that the loader passes to the graph: all are in `assets`."""
    for asset in meta_graph.asset_file_def:
        if _leaves(asset.filename) or f"assets/{asset.filename}" not in listed:
            raise DataError(
                f"{files.join(path, manifest.MODEL_FILE)}: reads an asset that is not "
                f"in the manifest: {asset.filename!r}"
            )


def _signatures(meta_graph: meta_graph_pb2.MetaGraphDef) -> list[tuple[str, Any]]:
    found = sorted(meta_graph.signature_def.items())
    return [(name, value) for name, value in found if not name.startswith(_CALLABLE)]


def _inputs(meta_graph: meta_graph_pb2.MetaGraphDef) -> dict[str, dict[str, str]]:
    """Returns the inputs of each signature as the manifest describes them."""
    return {
        name: {key: _spec(info) for key, info in signature.inputs.items()}
        for name, signature in _signatures(meta_graph)
    }


def _spec(info: meta_graph_pb2.TensorInfo) -> str:
    dtype = types_pb2.DataType.Name(info.dtype).removeprefix("DT_").lower()
    dtype = {"float": "float32", "double": "float64"}.get(dtype, dtype)
    sizes = [None if dim.size < 0 else dim.size for dim in info.tensor_shape.dim]
    return f"{dtype} {sizes}"
