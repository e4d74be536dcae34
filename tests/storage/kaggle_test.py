"""KerasHub's presets by name, from a hub that runs in a thread of this process."""

import socket

import pytest

import albert_tf
from albert_tf.converters import load
from albert_tf.errors import DataError, UsageError
from albert_tf.storage import hubs
from tests.storage import hub_server
from tests.storage.hub_server import read
from tests.tiny import CONFIG, SPIECE


@pytest.fixture(scope="module")
def hub():
    with hub_server.serve() as hub:
        yield hub


@pytest.fixture
def kaggle(hub, tmp_path, monkeypatch):
    """kagglehub, which reads its settings at each call, asks the hub of this process.

    Its address is fixed, so that the hub is made its proxy.
    """
    variables = {
        "KAGGLE_API_ENVIRONMENT": "LOCALHOST",
        "KAGGLE_API_TOKEN": hub_server.TOKEN,
        "KAGGLEHUB_CACHE": str(tmp_path / "cache"),
        "HOME": str(tmp_path),
        "http_proxy": hub.url,
        "no_proxy": "",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for name in ("HTTP_PROXY", "NO_PROXY", "KAGGLE_KERNEL_RUN_TYPE"):
        monkeypatch.delenv(name, raising=False)
    hub.requests.clear()
    return hub


@pytest.mark.slow
def test_a_kaggle_preset_by_name(kaggle, tmp_path, monkeypatch, capsys):
    preset = tmp_path / "preset"
    model = albert_tf.AlbertMaskedLM(CONFIG, seed=2)
    albert_tf.save_pretrained(model, preset, "keras_hub", tokenizer=SPIECE)
    handle = "keras/albert/keras/tiny_en"
    # The reader of presets has no use for a torch file, even a harmless one.
    kaggle.kaggle[f"{handle}/1"] = {"config.json": b"{}"}
    kaggle.kaggle[f"{handle}/2"] = read(preset) | {"pytorch_model.bin": b"a pickle"}
    with load.open_checkpoint(preset) as expected:
        digest = expected.digest()
    for name in (f"kaggle://{handle}", f"kaggle://{handle}/2"):
        with load.open_checkpoint(name) as checkpoint:
            assert checkpoint.digest() == digest
            assert checkpoint.make_tokenizer().sha256 == model_sha256(preset)
            assert checkpoint.path == name
            assert checkpoint.origin == f"kaggle://{handle}/2"
    assert {token for _, _, token in kaggle.requests} == {hub_server.TOKEN}
    assert not capsys.readouterr().out
    # A version in the cache needs no network; the newest one does.
    kaggle.requests.clear()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{taken.getsockname()[1]}")
        load.open_checkpoint(f"kaggle://{handle}/2").resources.close()
        with pytest.raises(DataError, match="cannot be reached.*with a version needs"):
            load.open_checkpoint(f"kaggle://{handle}")
    with pytest.raises(UsageError, match="format must be keras_hub"):
        load.open_checkpoint(f"kaggle://{handle}/2", format="huggingface")
    assert not kaggle.requests


def model_sha256(preset):
    with load.open_checkpoint(preset) as checkpoint:
        return checkpoint.make_tokenizer().sha256


def test_what_kaggle_refuses_or_damages(kaggle, tmp_path):
    with pytest.raises(DataError, match="no such model or version, or one that asks"):
        hubs.download("kaggle://keras/albert/keras/absent")
    name = "kaggle://keras/albert/keras/damaged/1"
    files = {"config.json": b"{}", "model.weights.h5": bytes(4096)}
    kaggle.kaggle[name.removeprefix("kaggle://")] = files
    kaggle.damaged.add("model.weights.h5")
    with pytest.raises(DataError, match="damaged on its way"):
        hubs.download(name)
    kaggle.damaged.clear()
    kaggle.cut.add("model.weights.h5")
    with pytest.raises(DataError, match="cannot be reached.*run it again"):
        hubs.download(name)
    kaggle.cut.clear()
    found = hubs.download(name)
    assert read(found.folder) == files
