"""The hand-made messages are those of protobuf."""

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from albert_tf.data.records import tf_example
from albert_tf.errors import DataError

ROWS = st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=9), min_size=1, max_size=7)


def _message(ints, floats):
    features = {
        name: tf.train.Feature(int64_list=tf.train.Int64List(value=values))
        for name, values in ints.items()
    }
    for name, values in floats.items():
        features[name] = tf.train.Feature(float_list=tf.train.FloatList(value=values))
    example = tf.train.Example(features=tf.train.Features(feature=features))
    return example.SerializeToString(deterministic=True)


@hypothesis.given(ROWS)
def test_bytes_are_those_of_protobuf(rows):
    flat = np.array([v for row in rows for v in row], np.int64)
    lengths = np.array([len(row) for row in rows])
    made = tf_example.serialize_batch(
        {
            "long_name": (flat, lengths),
            "bits": (flat % 2, lengths),
            "weights": ((flat % 7).astype(np.float32), lengths),
        }
    )
    for row, payload in zip(rows, made, strict=True):
        ints = {"long_name": row, "bits": [v % 2 for v in row]}
        floats = {"weights": [float(v % 7) for v in row]}
        assert payload == _message(ints, floats)
        parsed = tf_example.parse(payload)
        assert parsed["long_name"].tolist() == row
        assert parsed["weights"].tolist() == floats["weights"]


def test_parses_negative_and_unpacked_numbers():
    parsed = tf_example.parse(_message({"a": [-1, 5, -(2**40)]}, {}))
    assert parsed["a"].tolist() == [-1, 5, -(2**40)]
    # Int64List with two unpacked values, as an old writer may make it.
    unpacked = b"\x0a\x0d\x0a\x0b\x0a\x01a\x12\x06\x1a\x04\x08\x07\x08\x09"
    assert tf.train.Example.FromString(unpacked).features.feature["a"].int64_list
    assert tf_example.parse(unpacked)["a"].tolist() == [7, 9]


@pytest.mark.parametrize("payload", [b"\x0a\x99", b"abc", b"\x0a\x05\x0a"])
def test_refuses_other_bytes(payload):
    with pytest.raises(DataError, match="not a tf.train.Example"):
        tf_example.parse(payload)
