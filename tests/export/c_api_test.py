"""The exported model in TensorFlow's own C++ loader, without Python's TensorFlow."""

import sys

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.export import manifest, warmup
from tests.export import c_api, heads, hostile

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="names of Linux's libraries"),
]


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(head, marks=[] if head == "text_classifier" else pytest.mark.broad)
        for head in heads.EXPORTED
    ],
    ids=str,
)
def test_every_signature_of_every_head(head, exported):
    """The answers are those of Python's TensorFlow, which other tests know."""
    folder = exported(head)
    requests = heads.requests_of(folder)
    answers, _, imported = c_api.ask(folder, requests.items())
    assert not imported
    loaded = tf.saved_model.load(folder).signatures
    assert requests.keys() == loaded.keys() > {"serving_default"}
    for (name, inputs), answer in zip(requests.items(), answers, strict=True):
        assert_as_python(loaded[name], inputs, answer)
    if head == "text_classifier":
        found = manifest.read_saved_model(folder).meta_graphs[0].signature_def
        assert found["classify"].method_name == "tensorflow/serving/classify"
        logits = dict(zip(requests, answers, strict=True))["serving_default"]["logits"]
        assert np.ptp(logits, axis=0).max() > 0.1


def assert_as_python(signature, inputs, answer):
    expected = signature(**{k: tf.constant(v) for k, v in inputs.items()})
    assert answer.keys() == expected.keys()
    for key, value in expected.items():
        if value.dtype == tf.string:
            assert answer[key].tolist() == value.numpy().tolist()
        else:
            assert answer[key].shape == value.shape
            np.testing.assert_allclose(answer[key], value, atol=1e-5, rtol=1e-5)


def test_hostile_requests(exported):
    """Each is answered or refused; the process stays small, and so do its answers."""
    attack(exported("text_classifier"), 150, 50)


@pytest.mark.broad
def test_ten_thousand_hostile_requests(exported):
    # oneDNN keeps what it prepared for each number of rows and tokens.
    attack(exported("text_classifier"), 10_000, 300)


def attack(folder, count, most_megabytes):
    """Sends requests; checks each answer, and a fixed one in between."""
    fixed = hostile.ask(["I loved it!", "", "x" * 99])
    sent = [(hostile.BIG, True), (hostile.MANY, True), (fixed, True)]
    for number, request in enumerate(hostile.requests(1, count)):
        sent += [request, *([(fixed, True)] if number % 20 == 0 else [])]
    sent += [(hostile.BIG, True), (hostile.MANY, True)] * 3
    answers, memory, _ = c_api.ask(folder, [request for request, _ in sent])
    expected = answers[2]
    for (request, good), answer in zip(sent, answers, strict=True):
        assert isinstance(answer, dict) == good, (request, answer)
        if request is fixed:
            assert all((answer[k] == v).all() for k, v in expected.items())
        if good and "logits" in answer:
            rows = len(next(iter(request[1].values())))
            assert answer["logits"].shape == (rows, 3)
            assert np.isfinite(answer["logits"]).all()
        if not good:
            assert answer.code == c_api.INVALID_ARGUMENT, (request, str(answer))
    assert memory[-7] - memory[2] < most_megabytes
    assert memory[-1] - memory[2] < 300


@pytest.mark.runtimes
def test_the_servers_own_messages(exported):
    """The warm-up requests, as TensorFlow Serving reads them, are answered."""
    pytest.importorskip("tensorflow_serving")
    from tensorflow_serving.apis import prediction_log_pb2

    folder = exported("text_classifier")
    records = tf.data.TFRecordDataset(f"{folder}/assets.extra/{warmup.FILE}")
    requests = []
    for record in records.as_numpy_iterator():
        log = prediction_log_pb2.PredictionLog.FromString(record)
        request = log.predict_log.request
        inputs = {k: tf.make_ndarray(v) for k, v in request.inputs.items()}
        requests.append((request.model_spec.signature_name, inputs))
        # Nothing is left over: written again, it is the same size.
        assert len(log.SerializeToString()) == len(record)
    assert {name for name, _ in requests} > {"serving_default", "pair", "tokens"}
    # The same that the C library answers above.
    ours = warmup.read_requests(f"{folder}/assets.extra/{warmup.FILE}")
    for (name, inputs), (own_name, own) in zip(requests, ours, strict=True):
        assert name == own_name and inputs.keys() == own.keys()
        assert all((value == own[key]).all() for key, value in inputs.items())
