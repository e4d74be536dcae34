"""Reads safetensors files that may be hostile, and writes them in one pass.

A file is 8 bytes (the header's length, little endian), the header (JSON: name to dtype,
shape, and the first and last byte of its data), and the data. Nothing in it can be
executed, but the header can be wrong, so every number in it is checked before any data
is read.

The `safetensors` library is not used here, because it cannot do three things that
safetensors_file_test.py tests:

* It maps a file into memory; if the file shrinks while it is read, the process dies of
  SIGBUS instead of reporting an error (`test_file_that_shrinks_while_it_is_read`).
* It opens paths of the local file system only (`test_remote_file`).
* It serializes a complete dict of values; a writer that takes one tensor at a time and
  passes the bytes to a stream, which hashes them, does not exist
  (`test_one_tensor_is_in_memory_at_a_time`).
"""

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np

from albert_tf.converters.checkpoint.checkpoint import Tensor
from albert_tf.errors import DataError
from albert_tf.storage import files, streams

MAX_HEADER = 100_000_000
MAX_RANK = 32
DTYPES = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
_SPACE_AFTER_HEADER = 8


def read(path: str | os.PathLike) -> dict[str, Tensor]:
    """Reads the header of a file; the values are read later, one tensor at a time.

    Args:
        path: path. A `.safetensors` file on this machine or in a bucket.

    Returns:
        dict. Name to `Tensor`; float16 and bfloat16 become float32 when read.

    Raises:
        DataError: If the file does not match its header.
    """
    path = os.fspath(path)
    with files.reading(path) as f:
        size = streams.size(path)
        start, header = _read_header(f, size, path)
    _check_layout(header, size - start, path)
    return {
        name: Tensor(name, tuple(entry["shape"]), _reader(path, start, entry))
        for name, entry in header.items()
    }


def read_sharded(index: str | os.PathLike) -> dict[str, Tensor]:
    """Reads the headers of the files that a `….safetensors.index.json` lists.

    Raises:
        DataError: If the index is invalid, names a file outside its folder, or
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
            raise DataError(f"{index}: not the name of a file beside it: {name!r}")
    tensors = {}
    for name in sorted(names):
        shard = read(files.join(os.path.dirname(os.fspath(index)), name))
        expected = {key for key, value in shard_of.items() if value == name}
        if wrong := sorted(expected ^ shard.keys()):
            raise DataError(f"{index}: disagrees with {name} about {wrong[0]}")
        tensors.update(shard)
    return tensors


def write(f: BinaryIO, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]):
    """Writes float32 tensors, one at a time.

    Args:
        f: binary file. Open for writing; need not be seekable.
        tensors: mapping. Name to `Tensor`; `read` must return an array of its shape.
        metadata: mapping. Strings for the header.

    Raises:
        DataError: If a tensor has another shape than announced.
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
        if array.shape != tuple(tensor.shape):
            raise DataError(
                f"{name}: expected shape {tensor.shape}, received {array.shape}"
            )
        # GFile takes bytes only, and not a view of the array.
        f.write(array.tobytes())
        del array  # before the next one is read


def _read_header(f: BinaryIO, size: int, path: str) -> tuple[int, dict[str, dict]]:
    length = int.from_bytes(f.read(8), "little")
    if size < 8 or not 2 <= length <= min(size - 8, MAX_HEADER):
        raise DataError(
            f"{path}: not a safetensors file: header of {length} bytes in {size}"
        )
    raw = f.read(length)
    try:
        header = json.loads(raw.decode("utf-8"), object_pairs_hook=_no_duplicates)
    except (ValueError, RecursionError) as e:
        raise DataError(f"{path}: header is not valid JSON: {e}") from None
    if not isinstance(header, dict):
        raise DataError(f"{path}: header is not a JSON object")
    header.pop("__metadata__", None)
    for name, entry in header.items():
        _check_entry(name, entry, path)
    return 8 + length, header


def _no_duplicates(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    result = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"key {key!r} twice")
        result[key] = value
    return result


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _check_entry(name: str, entry: Any, path: str) -> None:
    where = f"{path}: tensor {name[:200]!r}"
    if not isinstance(entry, dict) or {"dtype", "shape", "data_offsets"} - set(entry):
        raise DataError(f"{where}: needs dtype, shape and data_offsets")
    if not (isinstance(entry["dtype"], str) and entry["dtype"] in DTYPES):
        raise DataError(f"{where}: dtype {entry['dtype']!r} is not supported")
    shape, offsets = entry["shape"], entry["data_offsets"]
    if not isinstance(shape, list) or not all(map(_is_size, shape)):
        raise DataError(f"{where}: shape must be a list of sizes")
    if len(shape) > MAX_RANK:
        raise DataError(f"{where}: more than {MAX_RANK} dimensions")
    if not isinstance(offsets, list) or not all(map(_is_size, offsets)):
        raise DataError(f"{where}: data_offsets must be two numbers of bytes")
    if len(offsets) != 2 or offsets[0] > offsets[1]:
        raise DataError(f"{where}: data_offsets must be first and last byte")
    expected = math.prod(shape) * DTYPES[entry["dtype"]].itemsize
    if offsets[1] - offsets[0] != expected:
        raise DataError(
            f"{where}: {offsets[1] - offsets[0]} bytes of data, "
            f"but its shape needs {expected}"
        )


def _check_layout(header: dict[str, dict], size: int, path: str) -> None:
    """Checks that the data is contiguous and ends where the file does."""
    end = 0
    for name in sorted(header, key=lambda n: header[n]["data_offsets"]):
        first, last = header[name]["data_offsets"]
        if first != end:
            kind = "overlaps another" if first < end else "leaves a hole before it"
            raise DataError(f"{path}: data of tensor {name[:200]!r} {kind}")
        end = last
    if end != size:
        kind = "truncated" if end > size else "has bytes that belong to no tensor"
        raise DataError(f"{path}: {kind}: data of {size} bytes, header says {end}")


def _reader(path: str, start: int, entry: dict) -> Callable[[], np.ndarray]:
    dtype, shape = DTYPES[entry["dtype"]], tuple(entry["shape"])
    first, last = entry["data_offsets"]

    def read_now() -> np.ndarray:
        if first == last:
            array = np.zeros(shape, dtype)
        elif files.is_remote(path):
            with files.reading(path) as f:
                f.seek(start + first)
                data = f.read(last - first)
            array = np.frombuffer(data, dtype).reshape(shape)
        else:
            # Not mapped: if a mapped file shrinks, reading it kills the process.
            count = math.prod(shape)
            array = np.fromfile(path, dtype, count, offset=start + first)
            if array.size != count:
                raise DataError(f"{path}: became shorter while it was read")
            array = array.reshape(shape)
        return array if dtype == np.float32 else array.astype(np.float32)

    return read_now
