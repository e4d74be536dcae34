"""Runs a SavedModel in Python, with answers that do not depend on the machine's load.

Legend: `B` texts in a batch, `K` choices, entities, words or masks of a text.
"""

import contextlib
import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from albert_tf.errors import DataError, UsageError
from albert_tf.storage import files, streams

_MODEL_FILE = "saved_model.pb"
# Names every tensor with its checksum.
_INDEX_FILE = "variables/variables.index"
# The outputs that say how many entries of a row are its own. Another output may begin
# with `num_` too: `num_layers` is the number of layers that an exit rule computed.
_COUNTS = frozenset({"num_entities", "num_masks", "num_words"})


class Signature(NamedTuple):
    """What a signature takes and gives.

    Attributes:
        ranks: dict. Rank of the tensor by input: 1 for a text per row, 2 for a list.
        outputs: list of str. Names of the outputs.
    """

    ranks: dict[str, int]
    outputs: list[str]


def digest(path: str | os.PathLike) -> str:
    """Returns a digest of the graph and the weights of a SavedModel."""
    found = hashlib.sha256()
    for name in (_MODEL_FILE, _INDEX_FILE):
        file = files.join(path, name)
        if name == _MODEL_FILE or files.exists(file):
            found.update(files.read_bytes(file))
    return found.hexdigest()


def read_signature(path: str | os.PathLike, signature: str) -> Signature:
    """Reads what a signature takes and gives, without loading the model.

    Raises:
        DataError: If the folder does not contain a SavedModel.
        UsageError: If it has no such signature, or one that takes other than strings.
    """
    from tensorflow.core.framework import types_pb2
    from tensorflow.core.protobuf import saved_model_pb2

    file = files.join(path, _MODEL_FILE)
    data = files.read_bytes(file)
    try:
        (graph,) = saved_model_pb2.SavedModel.FromString(data).meta_graphs
    except Exception as error:  # The parser's error has no public name.
        raise DataError(f"{file}: not a SavedModel: {error}") from None
    # Those with `__` are TensorFlow's own.
    known = sorted(name for name in graph.signature_def if not name.startswith("__"))
    if signature not in known:
        raise UsageError(
            f"signature: expected one of {', '.join(known)}, received {signature!r}"
        )
    found = graph.signature_def[signature]
    inputs = sorted(found.inputs.items())
    for name, info in inputs:
        if info.dtype != types_pb2.DT_STRING:
            kind = types_pb2.DataType.Name(info.dtype)
            raise UsageError(
                f"signature: {signature} takes {name} of type {kind}; expected one "
                "that takes only texts"
            )
    ranks = {name: len(info.tensor_shape.dim) for name, info in inputs}
    return Signature(ranks, sorted(found.outputs))


class ServedModel:
    """A signature of a SavedModel, loaded into this process.

    TensorFlow computes each operation with one thread if it has not started yet: with
    more, sums can be split differently on a machine with another number of cores. To
    use all cores, run one worker per core.

    Args:
        path: str. Folder of the SavedModel. It is a program: see docs/serving.md.
        signature: str. Name of the signature.
    """

    def __init__(self, path: str, signature: str):
        import tensorflow as tf
        import tensorflow_text  # noqa: F401  (registers the operations)

        with contextlib.suppress(RuntimeError):  # the process has used TensorFlow
            tf.config.threading.set_intra_op_parallelism_threads(1)
        self._tf = tf
        # Keeps the variables alive.
        self._loaded = tf.saved_model.load(streams.literal(path))
        self._ask = self._loaded.signatures[signature]

    def answer(
        self, inputs: Mapping[str, Sequence], batch_size: int
    ) -> list[dict[str, Any]]:
        """Returns the outputs for each row, as values that JSON has.

        Rows are batched by length. The batches depend only on the arguments, so equal
        arguments give equal answers to the last digit.

        Args:
            inputs: Mapping. Texts, or lists of texts, by input.
            batch_size: int. Maximum number of rows in a batch.
        """
        columns = list(inputs.values())
        sizes = [sum(map(_length, row)) for row in zip(*columns, strict=True)]
        order = sorted(range(len(sizes)), key=lambda k: (sizes[k], k))
        answers: list[dict[str, Any]] = [{} for _ in sizes]
        for begin in range(0, len(order), batch_size):
            rows = order[begin : begin + batch_size]
            chosen = {name: [v[k] for k in rows] for name, v in inputs.items()}
            tensors = {k: self._tf.constant(_filled(v)) for k, v in chosen.items()}
            found = {k: v.numpy() for k, v in self._ask(**tensors).items()}
            for at, k in enumerate(rows):
                texts = [values[at] for values in chosen.values()]
                answers[k] = _row(found, at, texts)
        return answers


def _length(value: str | list[str]) -> int:
    return len(value) if isinstance(value, str) else sum(map(len, value))


def _filled(values: list) -> np.ndarray:
    """Returns texts [B], or lists of texts [B, K] with empty ones at their ends."""
    if isinstance(values[0], str):
        return np.array([text.encode() for text in values], object)
    filled = np.full((len(values), max(map(len, values))), b"", object)
    for row, texts in zip(filled, values, strict=True):
        row[: len(texts)] = [text.encode() for text in texts]
    return filled


def _row(outputs: Mapping[str, np.ndarray], at: int, inputs: list) -> dict[str, Any]:
    """Returns the outputs of one row, without what fills it up in its batch."""
    counts = [int(v[at]) for name, v in outputs.items() if name in _COUNTS]
    counts += [len(value) for value in inputs if isinstance(value, list)]
    end = max(counts[0], 0) if counts else None
    return {
        name: _plain(value[at][:end] if value.ndim > 1 else value[at])
        for name, value in sorted(outputs.items())
    }


def _plain(value: Any) -> Any:
    """Returns a value of an output as JSON has it."""
    if isinstance(value, np.ndarray):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, np.floating):
        # The shortest number that is read back as the same float32.
        number = float(str(value))
        return number if math.isfinite(number) else None
    return value.item() if isinstance(value, np.generic) else value
