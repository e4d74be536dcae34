"""The exported model in TensorFlow's own C++ loader, without Python's TensorFlow."""

import base64
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.export import manifest
from albert_tf.export.saved_model import export_saved_model
from tests.export import heads

HERE = pathlib.Path(__file__).parent
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="names of Linux's libraries"),
]


def ask(folder, requests):
    """What the C library answers, by signature, and what its process imported."""
    body = [
        {
            "signature_name": name,
            "inputs": {key: as_json(value) for key, value in inputs.items()},
        }
        for name, inputs in requests.items()
    ]
    result = subprocess.run(
        [sys.executable, HERE / "c_api.py", folder],
        input=json.dumps(body),
        env={"PYTHONPATH": str(HERE.parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    got = json.loads(result.stdout)
    outputs = [
        {name: from_json(*value) for name, value in answer.items()}
        for answer in got["outputs"]
    ]
    return dict(zip(requests, outputs, strict=True)), got["imported"]


def as_json(value):
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode()}
    return [as_json(x) for x in value] if np.ndim(value) else value.item()


def from_json(shape, values):
    """Returns an array of numbers; texts, which come without a shape, as they are."""
    return values if shape is None else np.reshape(values, shape)


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(head, marks=[] if head == "text_classifier" else pytest.mark.broad)
        for head in heads.EXPORTED
    ],
    ids=str,
)
def test_every_signature_of_every_head(head, tokenizer, tmp_path):
    """The answers are those of Python's TensorFlow, which other tests know."""
    folder = str(tmp_path / "model")
    model = heads.make_model(head)
    export_saved_model(model, folder, tokenizer=tokenizer, warmup_batch_sizes=(2,))
    requests = heads.requests_of(folder)
    answers, imported = ask(folder, requests)
    assert not imported
    loaded = tf.saved_model.load(folder).signatures
    assert answers.keys() == loaded.keys() > {"serving_default"}
    for name, inputs in requests.items():
        expected = loaded[name](**{k: tf.constant(v) for k, v in inputs.items()})
        assert answers[name].keys() == expected.keys()
        for key, value in expected.items():
            value, got = value.numpy(), answers[name][key]
            if value.dtype == object:
                decoded = [item.decode() for item in value.flat]
                value = np.array(decoded, object).reshape(value.shape)
                assert got == value.tolist()
            else:
                assert np.shape(got) == value.shape
                np.testing.assert_allclose(got, value, atol=1e-5, rtol=1e-5)
    if head == "text_classifier":
        found = manifest.read_saved_model(folder).meta_graphs[0].signature_def
        assert found["classify"].method_name == "tensorflow/serving/classify"
        assert np.ptp(answers["serving_default"]["logits"], axis=0).max() > 0.1
