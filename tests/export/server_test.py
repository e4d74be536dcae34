"""A served model answers TensorFlow Serving's API, and no request harms it."""

import json
import shutil
import sys

import numpy as np
import pytest

from albert_tf.export import warmup
from albert_tf.export.saved_model import export_saved_model
from tests.export import heads, hostile
from tests.export.serving import Server

LABELS = ["no", "maybe", "ja ✓"]
FIXED = json.dumps({"instances": ["I loved it!", "", "x" * 99]}).encode()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="names of Linux's libraries"),
]


@pytest.fixture(scope="module")
def model():
    return heads.make_model("text_classifier")


@pytest.fixture(scope="module")
def base(model, tokenizer, tmp_path_factory):
    """Versions 9 and 10 of a model, and folders that are not versions."""
    base = tmp_path_factory.mktemp("served") / "films"
    export_saved_model(
        model,
        base,
        tokenizer=tokenizer,
        labels=LABELS,
        version=9,
        warmup_batch_sizes=(1, 2),
    )
    shutil.copytree(base / "9", base / "10")
    for name in (".11.tmp-0123abcd", "notes"):
        (base / name).mkdir()
    return base


@pytest.fixture(scope="module")
def server(base):
    with Server(base, "films") as server:
        yield server


def test_warmup_requests_are_executed(server, base):
    requests = list(
        warmup.read_requests(str(base / "9" / "assets.extra" / warmup.FILE))
    )
    assert len(requests) > 5
    assert server.warmed == 2 * len(requests)
    assert not server.imported  # the C library did it


def test_a_warmup_request_that_fails_prevents_loading(base, tmp_path):
    shutil.copytree(base / "9", tmp_path / "m/1")
    bad = {
        "token_ids": np.array([[-1]], np.int32),
        "lengths": np.array([1], np.int32),
        "segment_ids": np.array([[0]], np.int32),
    }
    file = tmp_path / "m/1/assets.extra" / warmup.FILE
    warmup.write_requests(str(file), [("tokens", bad)])
    with pytest.raises(RuntimeError, match="token_ids: from 0 to 29999"):
        Server(tmp_path / "m", "m").__exit__()


def test_rows_and_columns(server, model, tokenizer):
    texts = ["I loved it!", "a\0b"]
    status, rows = server.predict({"instances": texts})
    assert status == 200
    status, columns = server.predict({"inputs": {"text": texts}})
    assert status == 200
    outputs = columns["outputs"]
    assert outputs.keys() == {"probabilities", "logits", "label"}
    for i, row in enumerate(rows["predictions"]):
        assert row == {key: value[i] for key, value in outputs.items()}
    encoded = [tokenizer.encode(text) for text in texts]
    expected = np.concatenate(
        [
            model({"token_ids": np.array([[tokenizer.cls_id, *x, tokenizer.sep_id]])})
            for x in encoded
        ]
    )
    np.testing.assert_allclose(outputs["logits"], expected, atol=1e-5)
    assert outputs["label"] == [LABELS[i] for i in expected.argmax(-1)]
    pair = [{"text": "a", "text_pair": "b"}] * 2
    status, answer = server.predict({"signature_name": "pair", "instances": pair})
    assert status == 200 and len(answer["predictions"]) == 2


def test_versions_status_metadata(server):
    newest = server.get(":predict", FIXED)
    assert newest[0] == 200
    for version in (9, 10):
        assert server.get(f"/versions/{version}:predict", FIXED) == newest
    assert server.get("/versions/11:predict", FIXED)[0] == 404
    status = json.loads(server.get()[1])["model_version_status"]
    assert [(x["version"], x["state"]) for x in status] == [
        ("10", "AVAILABLE"),
        ("9", "AVAILABLE"),
    ]
    found = json.loads(server.get("/metadata")[1])
    assert found["model_spec"] == {
        "name": "films",
        "signature_name": "",
        "version": "10",
    }
    signatures = found["metadata"]["signature_def"]["signature_def"]
    assert signatures["pair"]["inputs"].keys() == {"text", "text_pair"}
    assert signatures["pair"]["inputs"]["text"]["dtype"] == "DT_STRING"
    assert signatures["classify"]["method_name"] == "tensorflow/serving/classify"


def attack(server, seed, count):
    """Sends requests; checks each status, and a fixed request in between."""
    expected = server.get(":predict", FIXED)
    assert expected[0] == 200
    for number, (body, status) in enumerate(hostile.requests(seed, count)):
        found, answer = server.get(":predict", body)
        assert found == status, (number, body[:300], answer[:500])
        assert b"NaN" not in answer and b"Infinity" not in answer
        if status == 400:
            assert json.loads(answer)["error"]
        if number % 20 == 0:
            assert server.get(":predict", FIXED) == expected
    assert server.get(":predict", FIXED) == expected


def test_hostile_requests(server):
    """Each is answered as it should be; the server stays, and so do its answers."""
    for request, rows in ((hostile.BIG, 3), (hostile.MANY, 10_000)):
        status, answer = server.predict(request)
        assert status == 200
        assert np.isfinite(answer["outputs"]["logits"]).all()
        assert np.shape(answer["outputs"]["logits"]) == (rows, 3)
    before = server.memory()
    attack(server, 1, 300)
    assert server.memory() - before < 50
    for request in (hostile.BIG, hostile.MANY) * 3:
        assert server.predict(request)[0] == 200
    assert server.memory() - before < 300


@pytest.mark.broad
def test_ten_thousand_hostile_requests(server):
    start = server.memory()
    # oneDNN keeps what it prepared for each number of rows and tokens: up to 60 MB
    # after 6,000 requests, and no more after 40,000.
    attack(server, 2, 6000)
    before = server.memory()
    assert before - start < 300
    attack(server, 3, 9000)
    assert server.memory() - before < 50


def test_official_messages(server, model):
    grpc = pytest.importorskip("grpc")
    pytest.importorskip("tensorflow_serving")
    import tensorflow as tf
    from tensorflow_serving.apis import (
        get_model_metadata_pb2,
        predict_pb2,
        prediction_service_pb2_grpc,
    )

    with grpc.insecure_channel(f"localhost:{server.grpc_port}") as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)

        def predict(signature, **inputs):
            request = predict_pb2.PredictRequest()
            request.model_spec.name = "films"
            request.model_spec.signature_name = signature
            for key, value in inputs.items():
                request.inputs[key].CopyFrom(tf.make_tensor_proto(value))
            return stub.Predict(request, timeout=300)

        def refused(*args, **kwargs):
            with pytest.raises(grpc.RpcError) as raised:
                predict(*args, **kwargs)
            assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT
            return raised.value.details()

        texts = ["I loved it!", "", "x" * 99]
        answer = predict("", text=texts)
        assert answer.model_spec.version.value == 10
        logits = tf.make_ndarray(answer.outputs["logits"])
        rest = json.loads(server.get(":predict", FIXED)[1])["predictions"]
        np.testing.assert_allclose(logits, [x["logits"] for x in rest], atol=1e-6)
        labels = tf.make_ndarray(answer.outputs["label"]).tolist()
        assert [x.decode() for x in labels] == [x["label"] for x in rest]
        assert predict("", text=tf.constant([], tf.string)).outputs["logits"]
        assert "text" in refused("", text="no rank")
        assert "text" in refused("", text=[["two", "ranks"]])
        assert "text" in refused("", text=[1, 2])
        assert "texts" in refused("", texts=["a"])
        assert "nope" in refused("nope", text=["a"])
        tokens = {"token_ids": [[2, 9, 3]], "lengths": [3], "segment_ids": [[0, 0, 0]]}
        assert predict("tokens", **tokens).outputs["logits"]
        assert "lengths: " in refused("tokens", **{**tokens, "lengths": [4]})
        request = get_model_metadata_pb2.GetModelMetadataRequest()
        request.model_spec.name = "films"
        request.metadata_field.append("signature_def")
        signatures = get_model_metadata_pb2.SignatureDefMap()
        found = stub.GetModelMetadata(request).metadata["signature_def"]
        assert found.Unpack(signatures)
        assert "serving_default" in signatures.signature_def


def test_an_independent_client(server):
    """OpenVINO's client of TensorFlow Serving, over gRPC and REST."""
    ovmsclient = pytest.importorskip("ovmsclient")
    rest = json.loads(server.get(":predict", FIXED)[1])["predictions"]
    expected = [row["logits"] for row in rest]
    texts = json.loads(FIXED)["instances"]
    grpc = ovmsclient.make_grpc_client(f"localhost:{server.grpc_port}")
    http = ovmsclient.make_http_client(f"localhost:{server.port}")
    encoded = [text.encode() for text in texts]
    for client, inputs in ((grpc, encoded), (http, texts)):
        status = client.get_model_status("films")
        assert status[10]["state"] == status[9]["state"] == "AVAILABLE"
        for version in (0, 9):  # 0 is the newest
            found = client.predict({"text": inputs}, "films", model_version=version)
            np.testing.assert_allclose(found["logits"], expected, atol=1e-6)
    metadata = grpc.get_model_metadata("films")
    assert metadata["model_version"] == 10
    assert metadata["inputs"] == {"text": {"shape": [-1], "dtype": "DT_STRING"}}
    assert http.get_model_metadata("films")["model_spec"]["version"] == "10"
