"""Writes the requests that TensorFlow Serving runs when it loads a model.

The first request of each shape is slow; the server runs these before it reports that it
is ready. A request that fails makes loading fail, so the export runs each of them.

The file is a TFRecord of `tensorflow.serving.PredictionLog`. Its few message fields are
written without the package that defines them (`tensorflow-serving-api`), which nothing
else here needs; a test compares the two.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence

import keras
import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2

from albert_tf.export.text_inputs import Signature, make_inputs
from albert_tf.storage import protobuf
from albert_tf.text.tokenizer import MASK

FILE = "tf_serving_warmup_requests"
MAX_RECORDS = 1000  # TensorFlow Serving's limit
# Lengths of rows that are tried, up to the longest.
_LENGTHS = (16, 32, 64, 128, 256, 512)
# Signatures that run the model for its main answers, tried with rows of every length.
_MAIN = ("serving_default", "tokens", "fill_mask")
_UNTRIED = "classify"

Request = tuple[str, dict[str, np.ndarray]]


def make_requests(
    model: keras.Model,
    signatures: Mapping[str, Signature],
    max_seq_length: int,
    batch_sizes: Sequence[int],
) -> list[Request]:
    """Returns requests for every signature, with all length buckets where they matter.

    Each length gets requests of all `batch_sizes`. A request is a pair of a signature's
    name and its inputs.
    """
    requests = []
    for name, signature in signatures.items():
        if name == _UNTRIED:
            continue
        shapes = [(8, 1)]
        if name in _MAIN:
            shorter = [length for length in _LENGTHS if length < max_seq_length]
            shapes = itertools.product([*shorter, max_seq_length], batch_sizes)
        word = MASK.encode() if name == "fill_mask" else b"a "
        for length, size in shapes:
            request = make_inputs(signature, model, length, size, word)
            requests.append((name, request))
    return requests[:MAX_RECORDS]


def write_requests(path: str, requests: Sequence[Request]) -> None:
    """Writes the TFRecord file."""
    with tf.io.TFRecordWriter(path) as writer:
        for name, inputs in requests:
            writer.write(prediction_log(name, inputs))


def prediction_log(signature: str, inputs: dict[str, np.ndarray]) -> bytes:
    """Returns a serialized `PredictionLog` with a predict request.

    It omits the model's name and version; the server adds the loaded model's.
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
    """Yields the requests of a file written by `write_requests`."""
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
