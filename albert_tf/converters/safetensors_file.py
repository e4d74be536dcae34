"""Reads safetensors files with the `safetensors` library, and writes them in one pass.

Writing does not use the library, which takes a complete dict of arrays: here a file
gets one tensor at a time, so that a conversion never holds a model twice
(`test_one_tensor_is_in_memory_at_a_time`).
"""

import json
import math
import os
import shutil
import tempfile
from collections.abc import Mapping
from typing import Any, BinaryIO

import ml_dtypes  # noqa: F401  (defines the bfloat16 that the library requests from NumPy)
import numpy as np
import safetensors

from albert_tf.converters.checkpoint import Tensor, as_float32
from albert_tf.errors import DataError, require
from albert_tf.storage import files

_DTYPES = ("F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U8", "BOOL")
_SPACE_AFTER_HEADER = 8
_MOST_AXES = 32  # the limit of NumPy in all versions


def read(path: str | os.PathLike) -> dict[str, Tensor]:
    """Reads the header of a `.safetensors` file; values are read later, one by one.

    float16 and bfloat16 become float32. Raises `DataError` if the file does not match
    its header.
    """
    path = os.fspath(path)
    try:
        with files.reading(path) as f:
            file = _open(f, path)
    except safetensors.SafetensorError as e:
        raise DataError(f"{path}: not a usable safetensors file: {_line(e)}") from None
    tensors = {}
    for name in file.keys():  # noqa: SIM118  (not a dict)
        part = file.get_slice(name)
        if part.get_dtype() not in _DTYPES:
            raise DataError(
                f"{path}: tensor {name[:200]!r}: dtype {part.get_dtype()!r} is not "
                "supported"
            )
        shape = tuple(part.get_shape())
        expected = f"{path}: tensor {name[:200]!r}: must have at most {_MOST_AXES} axes"
        require(len(shape) <= _MOST_AXES, expected, len(shape), error=DataError)
        tensors[name] = Tensor(name, shape, lambda n=name: _read(file, n, path))
    return tensors


def read_sharded(index: str | os.PathLike) -> dict[str, Tensor]:
    """Reads the headers of the files that a `….safetensors.index.json` lists.

    Raises `DataError` if the index is invalid, names a file outside its folder, or
    disagrees with a file about its tensors.
    """
    content = files.read_record(index)
    try:
        shard_of = dict(content["weight_map"])
        names = set(shard_of.values())
    except (ValueError, KeyError, TypeError, RecursionError):
        raise DataError(f"{index}: not an index of safetensors files") from None
    for name in names:
        inside = isinstance(name, str) and os.path.basename(name) == name
        if not (inside and name.endswith(".safetensors")):
            raise DataError(f"{index}: not the name of a file next to it: {name!r}")
    tensors = {}
    for name in sorted(names):
        shard = read(files.join(os.path.dirname(os.fspath(index)), name))
        expected = {key for key, value in shard_of.items() if value == name}
        if wrong := sorted(expected ^ shard.keys()):
            raise DataError(f"{index}: disagrees with {name} about {wrong[0]}")
        tensors.update(shard)
    return tensors


def write(f: BinaryIO, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]):
    """Writes float32 tensors, one at a time, to a file that need not be seekable.

    The strings of `metadata` go into the header. Raises `DataError` if a tensor's shape
    differs from the announced one.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    offset = 0
    for name, tensor in tensors.items():
        end = offset + 4 * math.prod(tensor.shape)
        header[name] = {
            "dtype": "F32",
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _SPACE_AFTER_HEADER)
    f.write(len(text).to_bytes(8, "little"))
    f.write(text)
    for name, tensor in tensors.items():
        array = np.asarray(tensor.read(), "<f4", order="C")
        expected = f"{name}: expected shape {tensor.shape}"
        require(array.shape == tensor.shape, expected, array.shape, error=DataError)
        # GFile accepts only bytes, not a view of the array.
        f.write(array.tobytes())
        del array  # before the next one is read


def _open(f: BinaryIO, path: str):
    """Opens a file without mapping it: a mapped file that shrinks kills the process."""
    if not files.is_remote(path):
        return safetensors.safe_open(path, framework="np", backend="pread")
    # The open file outlives its name.
    with tempfile.NamedTemporaryFile() as copy:
        shutil.copyfileobj(f, copy)
        copy.flush()
        return safetensors.safe_open(copy.name, framework="np", backend="pread")


def _read(file, name: str, path: str) -> np.ndarray:
    try:
        return as_float32(file.get_tensor(name), f"{path}: {name}")
    except (safetensors.SafetensorError, OSError) as e:
        raise DataError(f"{path}: {name} cannot be read: {_line(e)}") from None


def _line(error: Exception) -> str:
    text = str(error).removeprefix("Error while deserializing header: ")
    return text.split("\n")[0][:300]
