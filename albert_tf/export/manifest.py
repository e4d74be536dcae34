"""The manifest of a SavedModel: its files, their digests, the operations it may run.

The list holds the operations that the models of this package need
(`saved_model_test.py` exports them), and others that also only compute, which another
version of Keras may choose instead.
"""

import os
import re
from collections.abc import Iterator
from typing import Any

from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from albert_tf.errors import DataError, require
from albert_tf.storage import files, folders
from albert_tf.text import sentencepiece

FILE = "assets.extra/manifest.json"
MODEL_FILE = "saved_model.pb"
_SENTENCEPIECE = "SentencepieceOp"
_CALLABLE = "__saved_model"  # prefix of entries that the loader adds for itself

_ALLOWED = """
    # What the models compute with.
    AddV2 All Any ArgMax BatchMatMulV2 BiasAdd BroadcastTo Cast ConcatV2 Const Cumsum
    Einsum Equal Erfc ExpandDims Fill FloorDiv FloorMod GatherNd GatherV2 GreaterEqual
    Identity IdentityN Less LessEqual LogicalAnd MatMul Max Maximum Mean Min Minimum Mul
    Neg NoOp NotEqual OneHot Pack Pow Prod RaggedGather RaggedRange RaggedTensorToTensor
    Range RealDiv Relu Reshape Rsqrt Select SelectV2 Shape Sigmoid Softmax Square
    SquaredDifference Squeeze StopGradient StridedSlice Sub Sum Tanh TensorScatterUpdate
    Tile Transpose Unpack UpperBound Where
    # What another version of Keras may choose instead.
    Abs Add AddN BatchMatMulV3 Bitcast BroadcastArgs Ceil Erf Exp Expm1 Floor
    FusedBatchNormV3 Greater LeakyRelu Log Log1p LogicalNot LogicalOr
    LogSoftmax OnesLike PadV2 Rank Reciprocal Round ScatterNd Selu Sign Size Slice
    Softplus Split SplitV Sqrt TensorScatterAdd ZerosLike
    # Control flow, calls of the graph's own functions, inputs, checks of inputs.
    Assert EnsureShape If PartitionedCall Placeholder PlaceholderWithDefault
    StatefulPartitionedCall StatelessIf StatelessWhile While
    # Strings.
    ParseExampleV2 StaticRegexFullMatch StaticRegexReplace StringJoin StringLength
    StringStrip Substr UnicodeDecode UnicodeEncode UnicodeTranscode UnsortedSegmentJoin
    # For byte-level BPE; its table is filled from constants in the graph.
    DecodeRaw DenseBincount HashTableV2 LookupTableFindV2 LookupTableImportV2
    StringSplit StringSplitV2 UnsortedSegmentSum
    # For question answering.
    Exp Pad ReverseV2 TopKV2 Unique UnsortedSegmentMax UnsortedSegmentMin
    # From TensorFlow Text; part of every TensorFlow Serving since 2.13.
    NormalizeUTF8 SentencepieceOp SentencepieceTokenizeOp
    SentencepieceTokenizeWithOffsetsOp
    # A SavedModel reads its own variables with these. The loader determines the file
    # names; no signature can change them.
    AssignVariableOp DisableCopyOnRead MergeV2Checkpoints ReadVariableOp RestoreV2
    SaveV2 ShardedFilename VarHandleOp VarIsInitializedOp
"""
ALLOWED_OPS = frozenset(re.sub("#.*", "", _ALLOWED).split())


def read_saved_model(path: str | os.PathLike) -> saved_model_pb2.SavedModel:
    """Reads and parses `saved_model.pb`."""
    file = files.join(path, MODEL_FILE)
    data = files.read_bytes(file)
    try:
        return saved_model_pb2.SavedModel.FromString(data)
    except Exception as e:  # the parser's error has no public name
        raise DataError(f"{file}: not a SavedModel: {e}") from None


def check_operations(path: str | os.PathLike) -> set[str]:
    """Returns the operations of a SavedModel; raises `DataError` if one is not allowed.

    A SavedModel is a program: it can read and write files when it is loaded or run.
    Models of this package need few operations. Rejected are operations that access
    files or Python, operations that a stock TensorFlow Serving does not have (from
    TensorFlow Text, all its versions have the operations of one SentencePiece model
    and `NormalizeUTF8`), and functions that require XLA, which servers refuse. A
    SentencePiece model must be one that SentencePiece reads safely.
    """
    saved_model = read_saved_model(path)
    graphs = [meta_graph.graph_def for meta_graph in saved_model.meta_graphs]
    functions = [one for graph in graphs for one in graph.library.function]
    nodes = [node for graph in graphs for node in graph.node]
    nodes += [node for one in functions for node in one.node_def]
    # Calls of the graph's own functions are listed under the functions' names.
    operations = {node.op for node in nodes} - {one.signature.name for one in functions}
    strangers = ", ".join(sorted(operations - ALLOWED_OPS))
    expected = f"{path}: operations that are not allowed: {strangers}"
    require(not strangers, expected, error=DataError)
    for model in {n.attr["model"].s for n in nodes if n.op == _SENTENCEPIECE}:
        sentencepiece.check(model, files.join(path, MODEL_FILE))
    for one in functions:
        expected = f"{path}: {one.signature.name} is jit-compiled, which a default "
        expected += "TensorFlow Serving refuses"
        require(not one.attr["_XlaMustCompile"].b, expected, error=DataError)
    return operations


def write_manifest(out: folders.FolderWriter, content: dict[str, Any]) -> None:
    """Writes a manifest of a folder that is otherwise complete.

    `content` has further entries of the manifest.
    """
    out.write_json(FILE, {"files": list_files(out.path), **content})


def list_files(root: str | os.PathLike) -> dict[str, dict[str, Any]]:
    """Returns the size and sha256 of all files but the manifest, by relative path."""
    digests = files.digests_of(root)
    digests.pop(FILE, None)
    names = sorted(digests, key=lambda name: name.split("/"))
    return {name: {k: digests[name][k] for k in ("sha256", "size")} for name in names}


def verify(path: str | os.PathLike, sha256: str | None = None) -> dict[str, Any]:
    """Compares an exported folder with its manifest, and checks what it can do.

    Nothing in the folder is run. The manifest shows that the files are from one export,
    but not from whose: anyone who can change the files can write another manifest.
    `sha256`, the expected digest of the manifest, kept elsewhere, excludes this.
    Returns the content of the manifest.

    Raises `DataError` if the manifest is missing or is another one; if a file is
    missing, changed, added or outside the folder; if the SavedModel contains an
    operation that is not allowed, a SentencePiece model that cannot be read safely, or
    other operations or signatures than the manifest lists.
    """
    path = os.fspath(path).rstrip("/")
    file = files.join(path, FILE)
    is_whole = not files.exists(files.join(path, folders.INCOMPLETE))
    need = f"{path}: incomplete, its upload was interrupted; repeat it"
    require(is_whole, need, error=DataError)
    content = files.read_json(file)
    if sha256 is not None:
        need = f"sha256: expected 64 hexadecimal digits, received {sha256}"
        require(re.fullmatch("[0-9a-fA-F]{64}", sha256), need)
        actual = files.digest_of(file)["sha256"]
        need = f"{file}: expected sha256 {sha256}, found {actual}"
        require(actual == sha256.lower(), need, error=DataError)
    listed = _listed(file, content)
    problems = "; ".join(_differences(path, listed))
    need = f"{path}: not what was exported: {problems}"
    require(not problems, need, error=DataError)
    is_same = sorted(check_operations(path)) == content.get("operations")
    need = f"{file}: lists other operations than {MODEL_FILE}"
    require(is_same, need, error=DataError)
    for meta_graph in read_saved_model(path).meta_graphs:
        # The loader passes these files to the graph.
        for name in (asset.filename for asset in meta_graph.asset_file_def):
            is_listed = f"assets/{name}" in listed and not _leaves(name)
            need = f"{files.join(path, MODEL_FILE)}: reads an asset that is not in the "
            require(is_listed, f"{need}manifest: {name!r}", error=DataError)
        actual = {
            name: {key: _spec(info) for key, info in signature.inputs.items()}
            for name, signature in _signatures(meta_graph)
        }
        need = f"{file}: lists other signatures than {MODEL_FILE}"
        require(actual == content.get("signatures"), need, error=DataError)
    return content


def describe(path: str | os.PathLike) -> list[str]:
    """Returns a line for each signature: its name, inputs and outputs."""
    lines = []
    for meta_graph in read_saved_model(path).meta_graphs:
        for name, signature in _signatures(meta_graph):
            inputs, outputs = (
                ", ".join(f"{key}: {_spec(info)}" for key, info in sorted(part.items()))
                for part in (signature.inputs, signature.outputs)
            )
            lines.append(f"{name}({inputs}) -> {outputs}")
    return lines


def _listed(file: str, content: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns the files that a manifest lists, all of them inside the folder."""
    try:
        listed = {
            str(name): {"size": int(value["size"]), "sha256": str(value["sha256"])}
            for name, value in content["files"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError):
        raise DataError(f"{file}: not the manifest of an exported model") from None
    for name in listed:
        expected = f"{file}: names a file outside the folder: {name!r}"
        require(not _leaves(name), expected, error=DataError)
    return listed


def _leaves(name: str) -> bool:
    parts = name.replace("\\", "/").split("/")
    return os.path.isabs(name) or "://" in name or ".." in parts or "" in parts


def _differences(path: str, listed: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Yields a description of each file that differs from the list."""
    remote = files.is_remote(path)
    present = set(files.tree(path)) - {FILE}
    root = os.path.realpath(path)

    def is_link(name: str) -> bool:
        # The target of a link can be exchanged after the check.
        where = os.path.realpath(files.join(path, name))
        return not remote and where != os.path.join(root, name)

    if is_link(FILE):
        yield f"{FILE} is a link"
    for name in sorted(present | set(listed)):
        if name not in listed:
            yield f"{name} was added"
        elif name not in present:
            yield f"{name} is missing"
        elif is_link(name):
            yield f"{name} is a link"
        elif files.digest_of(files.join(path, name)) != listed[name]:
            yield f"{name} was changed"


def _signatures(meta_graph: meta_graph_pb2.MetaGraphDef) -> list[tuple[str, Any]]:
    entries = sorted(meta_graph.signature_def.items())
    return [(name, value) for name, value in entries if not name.startswith(_CALLABLE)]


def _spec(info: meta_graph_pb2.TensorInfo) -> str:
    dtype = types_pb2.DataType.Name(info.dtype).removeprefix("DT_").lower()
    dtype = {"float": "float32", "double": "float64"}.get(dtype, dtype)
    sizes = [None if dim.size < 0 else dim.size for dim in info.tensor_shape.dim]
    return f"{dtype} {sizes}"
