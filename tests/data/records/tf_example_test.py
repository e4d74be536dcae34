"""The hand-made messages are those of protobuf."""

import hypothesis
import numpy as np
import tensorflow as tf
from hypothesis import strategies as st

from albert_tf.data.records import tf_example

ROWS = st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=9), min_size=1, max_size=7)


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
        example = tf.train.Example()
        features = example.features.feature
        features["long_name"].int64_list.value[:] = row
        features["bits"].int64_list.value[:] = [v % 2 for v in row]
        features["weights"].float_list.value[:] = [v % 7 for v in row]
        for name in ("long_name", "bits"):
            features[name].int64_list.SetInParent()  # also if it is empty
        features["weights"].float_list.SetInParent()
        assert payload == example.SerializeToString(deterministic=True)
