import io
import json
import struct
import weakref

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from albert_tf.converters import safetensors_file
from albert_tf.converters.checkpoint import Tensor, as_float32
from albert_tf.errors import DataError

ARRAYS = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "empty": np.zeros((0, 4), np.float32),
    "scalar": np.array(2.5, np.float32),
    "b/c.d": np.arange(5, dtype=np.float32),
}


def entry(shape, offsets, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def assert_read(path):
    tensors = safetensors_file.read(path)
    assert set(tensors) == set(ARRAYS)
    for name, tensor in tensors.items():
        assert tensor.shape == ARRAYS[name].shape
        np.testing.assert_array_equal(tensor.read(), ARRAYS[name])
    return tensors


def test_reads_what_the_package_writes_and_back(tmp_path):
    path = tmp_path / "theirs.safetensors"
    safetensors.numpy.save_file(ARRAYS, path)
    tensors = assert_read(path)
    ours = io.BytesIO()
    safetensors_file.write(ours, tensors, {"format": "pt"})
    np.testing.assert_equal(safetensors.numpy.load(ours.getvalue()), ARRAYS)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_types_become_float32(tmp_path, dtype):
    values = np.array([0, 1, 1, 0]).astype(getattr(ml_dtypes, dtype, dtype))
    path = tmp_path / "x.safetensors"
    safetensors.numpy.save_file({"x": values}, path)
    read = safetensors_file.read(path)["x"].read()
    assert read.dtype == np.float32
    np.testing.assert_array_equal(read, [0, 1, 1, 0])
    with pytest.raises(DataError, match="^y: holds numbers beyond float32's range"):
        as_float32(np.array([1.0, 1e300]), "y")


@pytest.mark.parametrize("dtype", ["int32", "int8", "bool"])
def test_numbers_that_are_no_weights_are_refused(tmp_path, dtype):
    safetensors.numpy.save_file({"x": np.ones(2, dtype)}, tmp_path / "x.safetensors")
    tensor = safetensors_file.read(tmp_path / "x.safetensors")["x"]
    with pytest.raises(DataError, match=f"x: must hold floating-point .*'{dtype}'"):
        tensor.read()


def test_a_promise_that_is_not_kept_is_noticed():
    wrong = Tensor("x", (3,), lambda: np.zeros(2))
    with pytest.raises(DataError, match=r"expected shape \(3,\), received \(2,\)"):
        safetensors_file.write(io.BytesIO(), {"x": wrong}, {})


@pytest.mark.parametrize(
    ("header", "size", "message"),
    [
        ({"a": entry([2], [0, 8]), "b": entry([2], [4, 12])}, 12, "tensor `b`"),
        ({"a": entry([3], [0, 12])}, 11, "not fully covered"),
        ({"a": entry([2**62, 2**62], [0, 4])}, 4, "overflow"),
        ({"a": entry([1] * 100_000, [0, 4])}, 4, "at most 32 axes, received 100000"),
        ({"a": entry([1], [0, 1], "F8_E4M3")}, 1, "tensor 'a': dtype .* not supported"),
        (b"{nope", 0, "JSON"),
    ],
)
def test_headers_that_lie(tmp_path, header, size, message):
    path = tmp_path / "x.safetensors"
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + bytes(size))
    with pytest.raises(DataError, match=message) as error:
        safetensors_file.read(path)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


def test_not_safetensors_or_a_file_that_shrinks_while_it_is_read(tmp_path):
    path = tmp_path / "x.safetensors"
    with pytest.raises(DataError, match="cannot be read"):
        safetensors_file.read(path)
    for content in (b"", b"abc", b"\xff" * 8, b"\0" * 8):
        path.write_bytes(content)
        with pytest.raises(DataError, match="not a usable"):
            safetensors_file.read(path)
    safetensors.numpy.save_file({"x": np.ones(9, np.float32)}, path)
    tensor = safetensors_file.read(path)["x"]
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(DataError, match="x cannot be read"):
        tensor.read()


def test_remote_file():
    path = "ram://safetensors_file_test/x.safetensors"
    tensors = {name: Tensor.of(name, array) for name, array in ARRAYS.items()}
    with tf.io.gfile.GFile(path, "wb") as f:
        safetensors_file.write(f, tensors, {"format": "pt"})
    assert_read(path)


def test_one_tensor_is_in_memory_at_a_time():
    earlier = []

    def read():
        assert all(array() is None for array in earlier)
        array = np.ones(4, np.float32)
        earlier.append(weakref.ref(array))
        return array

    class Stream:
        """A stream that cannot seek."""

        size = 0

        def write(self, data):
            assert isinstance(data, bytes)
            self.size += len(data)

    stream = Stream()
    names = ("a", "b", "c")
    tensors = {name: Tensor(name, (4,), read) for name in names}
    safetensors_file.write(stream, tensors, {})
    assert stream.size > 3 * 16


@pytest.mark.parametrize(
    "content",
    [
        {},
        [],
        {"weight_map": 3},
        {"weight_map": {"a": "../x.safetensors"}},
        {"weight_map": {"a": "/etc/passwd"}},
        {"weight_map": {"a": "x.bin"}},
        {"weight_map": {"a": ["x.safetensors"]}},
        {"weight_map": {"b": "x.safetensors"}},
        {"weight_map": {"a": "absent.safetensors"}},
    ],
)
def test_bad_index(tmp_path, content):
    safetensors.numpy.save_file({"a": ARRAYS["a"]}, tmp_path / "x.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps(content))
    with pytest.raises(DataError):
        safetensors_file.read_sharded(index)
