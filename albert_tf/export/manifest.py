"""What a SavedModel consists of: digests of its files, and the operations it runs."""

import hashlib
import json
import os
import pathlib
from collections.abc import Collection
from typing import Any

from tensorflow.core.protobuf import saved_model_pb2

from albert_tf.errors import DataError
from albert_tf.export.allowed_ops import ALLOWED_OPS

FILE = os.path.join("assets.extra", "manifest.json")
_MODEL = "saved_model.pb"


def operations(path: str | os.PathLike) -> set[str]:
    """Names of all operations of a SavedModel, read without loading it.

    Raises:
        DataError: If the folder holds no SavedModel.
    """
    saved_model = read_saved_model(path)
    names = set()
    for meta_graph in saved_model.meta_graphs:
        graph = meta_graph.graph_def
        names |= {node.op for node in graph.node}
        for function in graph.library.function:
            names |= {node.op for node in function.node_def}
    # Calls of the graph's own functions are listed under the functions' names.
    own = {
        function.signature.name
        for meta_graph in saved_model.meta_graphs
        for function in meta_graph.graph_def.library.function
    }
    return names - own


def read_saved_model(path: str | os.PathLike) -> saved_model_pb2.SavedModel:
    """The parsed `saved_model.pb`."""
    file = pathlib.Path(path, _MODEL)
    try:
        return saved_model_pb2.SavedModel.FromString(file.read_bytes())
    except OSError as e:
        raise DataError(f"{file}: cannot be read: {e.strerror}") from None
    except Exception as e:  # The parser's error has no public name.
        raise DataError(f"{file}: not a SavedModel: {e}") from None


def check_operations(path: str | os.PathLike, extra: Collection[str] = ()) -> set[str]:
    """Makes sure that a SavedModel only computes.

    A SavedModel is a program: it can read and write files when it is loaded or run.
    One of this package needs few operations, and no others are allowed: none that
    touches files or Python, none that a stock TensorFlow Serving does not know (of
    TensorFlow Text's it has `SentencepieceOp`, `SentencepieceTokenizeOp` and
    `NormalizeUTF8` in all versions), none that asks for XLA, which servers refuse.

    Args:
        path: The folder.
        extra: Operations to allow as well.

    Returns:
        The operations.

    Raises:
        DataError: If there is another operation; names it.
    """
    found = operations(path)
    if strangers := sorted(found - ALLOWED_OPS - set(extra)):
        raise DataError(f"{path}: operations that are not allowed: {strangers}")
    for meta_graph in read_saved_model(path).meta_graphs:
        for function in meta_graph.graph_def.library.function:
            if function.attr["_XlaMustCompile"].b:
                raise DataError(
                    f"{path}: {function.signature.name} is jit-compiled, which a "
                    "default TensorFlow Serving refuses"
                )
    return found


def write_manifest(path: str | os.PathLike, content: dict[str, Any]) -> None:
    """Adds size and sha256 of every file to `content`, and writes it."""
    root = pathlib.Path(path)
    (root / FILE).parent.mkdir(exist_ok=True)
    content = {"files": _digests(root), **content}
    (root / FILE).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def verify_saved_model(
    path: str | os.PathLike, sha256: str | None = None
) -> dict[str, Any]:
    """Compares a SavedModel with its manifest, and its operations with what is allowed.

    A matching manifest shows that nothing was damaged, not who made it: for that give
    the manifest's own digest, learned from elsewhere.

    Args:
        path: The folder.
        sha256: Expected digest of `assets.extra/manifest.json`, or None.

    Returns:
        The manifest.

    Raises:
        DataError: If something is missing, changed, added, or not allowed.
    """
    root = pathlib.Path(path)
    try:
        data = (root / FILE).read_bytes()
        manifest = json.loads(data)
        expected = dict(manifest["files"])
    except OSError as e:
        raise DataError(f"{root / FILE}: cannot be read: {e.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise DataError(f"{root / FILE}: not a manifest") from None
    if sha256 is not None and hashlib.sha256(data).hexdigest() != sha256.lower():
        raise DataError(f"{root / FILE}: sha256 is not {sha256}")
    found = _digests(root)
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            what = "is missing" if name not in found else "is not the listed file"
            raise DataError(f"{root / name}: {what}")
    check_operations(path)
    return manifest


def _digests(root: pathlib.Path) -> dict[str, dict[str, Any]]:
    result = {}
    for file in sorted(root.rglob("*")):
        name = file.relative_to(root).as_posix()
        if file.is_file() and name != pathlib.PurePath(FILE).as_posix():
            digest = hashlib.sha256()
            with file.open("rb") as f:
                while block := f.read(1 << 22):
                    digest.update(block)
            result[name] = {"sha256": digest.hexdigest(), "size": file.stat().st_size}
    return result
