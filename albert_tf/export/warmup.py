"""Requests that TensorFlow Serving runs when it loads a model.

The first request of a shape is slow; these are sent before the server says that it is
ready. A record that fails makes the load fail, so the export runs each of them.

The file is a TFRecord of `tensorflow.serving.PredictionLog`. The few message fields
it needs are written by hand, because their package (`tensorflow-serving-api`) is no
other part's need; a test compares with it.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2

from albert_tf.storage import protobuf
from albert_tf.text import inputs as packing

FILE = "tf_serving_warmup_requests"
MAX_RECORDS = 1000  # TensorFlow Serving's limit.

Request = tuple[str, dict[str, np.ndarray]]


def make_requests(
    signatures: Sequence[str],
    max_seq_length: int,
    batch_sizes: Sequence[int],
    token: int,
) -> list[Request]:
    """Requests for every signature, length bucket and batch size.

    Args:
        signatures: Names from `signatures.make_signatures`.
        max_seq_length: int. Longest row.
        batch_sizes: Of the requests.
        token: int. Id that fills the rows of `tokens`.

    Returns:
        List of (signature, inputs).
    """
    requests = []
    for length in packing.length_buckets(max_seq_length):
        for size in batch_sizes:
            # At least a token a word, and cut at max_seq_length.
            text = np.array([b"a " * length] * size, object)
            ids = np.full((size, length), token, np.int32)
            lengths = np.full(size, length, np.int32)
            tokens = {"token_ids": ids, "lengths": lengths, "segment_ids": ids * 0}
            requests += [("serving_default", {"text": text}), ("tokens", tokens)]
    text = np.array([b"a b"], object)
    small = {
        "pair": {"text": text, "text_pair": text},
        "preprocess": {"text": text},
        "embed": {"text": text},
    }
    requests += [(name, small[name]) for name in signatures if name in small]
    return requests[:MAX_RECORDS]


def write_requests(path: str, requests: Sequence[Request]) -> None:
    """Writes the TFRecord file."""
    with tf.io.TFRecordWriter(path) as writer:
        for name, inputs in requests:
            writer.write(prediction_log(name, inputs))


def prediction_log(signature: str, inputs: dict[str, np.ndarray]) -> bytes:
    """A serialized `PredictionLog` of a predict request.

    Without the model's name and version: the server fills in those it loads.
    """
    model_spec = protobuf.delimited(3, signature.encode())  # ModelSpec.signature_name
    request = protobuf.delimited(1, model_spec)  # PredictRequest.model_spec
    for name, value in inputs.items():
        tensor = tf.make_tensor_proto(value).SerializeToString(deterministic=True)
        entry = protobuf.delimited(1, name.encode()) + protobuf.delimited(2, tensor)
        request += protobuf.delimited(2, entry)  # PredictRequest.inputs
    predict_log = protobuf.delimited(1, request)  # PredictLog.request
    return protobuf.delimited(6, predict_log)  # PredictionLog.predict_log


def read_requests(path: str) -> Iterator[Request]:
    """The requests of a file that `write_requests` made."""
    for record in tf.data.TFRecordDataset(path).as_numpy_iterator():
        log = dict(protobuf.fields(record))
        fields = list(protobuf.fields(dict(protobuf.fields(log[6]))[1]))
        inputs = {}
        for number, value in fields:
            if number == 2:
                entry = dict(protobuf.fields(value))
                tensor = tensor_pb2.TensorProto.FromString(entry[2])
                inputs[entry[1].decode()] = tf.make_ndarray(tensor)
        model_spec = dict(protobuf.fields(dict(fields)[1]))
        yield model_spec[3].decode(), inputs
