"""Checks a SavedModel: the digests of its files and the operations it runs."""

import os
from collections.abc import Collection, Iterator
from typing import Any

from tensorflow.core.protobuf import saved_model_pb2

from albert_tf.errors import DataError
from albert_tf.export.allowed_ops import ALLOWED_OPS
from albert_tf.storage import digests, files, folders
from albert_tf.text import sentencepiece_file

FILE = "assets.extra/manifest.json"
MODEL_FILE = "saved_model.pb"
_SENTENCEPIECE = "SentencepieceOp"


def operations(path: str | os.PathLike) -> set[str]:
    """Returns the names of all operations in a SavedModel, without loading it.

    Raises:
        DataError: If the folder does not contain a SavedModel.
    """
    saved_model = read_saved_model(path)
    names = {node.op for node in _nodes(saved_model)}
    # Calls of the graph's own functions are listed under the functions' names.
    own = {
        function.signature.name
        for meta_graph in saved_model.meta_graphs
        for function in meta_graph.graph_def.library.function
    }
    return names - own


def _nodes(saved_model: saved_model_pb2.SavedModel) -> Iterator[Any]:
    for meta_graph in saved_model.meta_graphs:
        yield from meta_graph.graph_def.node
        for function in meta_graph.graph_def.library.function:
            yield from function.node_def


def read_saved_model(path: str | os.PathLike) -> saved_model_pb2.SavedModel:
    """Reads and parses `saved_model.pb`."""
    file = files.join(path, MODEL_FILE)
    data = files.read_bytes(file)
    try:
        return saved_model_pb2.SavedModel.FromString(data)
    except Exception as e:  # The parser's error has no public name.
        raise DataError(f"{file}: not a SavedModel: {e}") from None


def check_operations(path: str | os.PathLike, extra: Collection[str] = ()) -> set[str]:
    """Checks that a SavedModel contains only allowed operations.

    A SavedModel is a program: it can read and write files when it is loaded or run.
    Models of this package need few operations. Operations that access files or Python
    are rejected, and so are those that a stock TensorFlow Serving does not have (from
    TensorFlow Text, all its versions have the operations of one SentencePiece model
    and `NormalizeUTF8`) and functions that require XLA, which servers refuse. A
    SentencePiece model must be one that SentencePiece reads safely.

    Args:
        path: str or path. The folder.
        extra: Collection of str. Further operations to allow.

    Returns:
        set of str. The operations in the SavedModel.

    Raises:
        DataError: If the SavedModel contains another operation or a damaged
            SentencePiece model.
    """
    found = operations(path)
    if strangers := sorted(found - ALLOWED_OPS - set(extra)):
        names = ", ".join(strangers)
        raise DataError(f"{path}: operations that are not allowed: {names}")
    saved_model = read_saved_model(path)
    models = (n.attr["model"].s for n in _nodes(saved_model) if n.op == _SENTENCEPIECE)
    for model in set(models):
        sentencepiece_file.check(model, files.join(path, MODEL_FILE))
    for meta_graph in saved_model.meta_graphs:
        for function in meta_graph.graph_def.library.function:
            if function.attr["_XlaMustCompile"].b:
                raise DataError(
                    f"{path}: {function.signature.name} is jit-compiled, which a "
                    "default TensorFlow Serving refuses"
                )
    return found


def write_manifest(out: folders.FolderWriter, content: dict[str, Any]) -> None:
    """Writes a manifest of all files in a folder.

    Args:
        out: `FolderWriter`. The folder, complete except for the manifest.
        content: dict. Further entries of the manifest.
    """
    out.write_json(FILE, {"files": _digests(out.path), **content})


def _digests(root: str | os.PathLike) -> dict[str, dict[str, Any]]:
    """Returns the size and sha256 of all files but the manifest, by relative path."""
    found = digests.of_tree(root)
    found.pop(FILE, None)
    names = sorted(found, key=lambda name: name.split("/"))
    return {name: {k: found[name][k] for k in ("sha256", "size")} for name in names}
