"""Models by name, from hubs that run in a thread of this process."""

import contextlib
import pathlib
import socket
import sys

import huggingface_hub
import pytest
from huggingface_hub import constants

import albert_tf
from albert_tf.converters import load
from albert_tf.errors import DataError, UsageError
from albert_tf.storage import hubs
from tests.storage import hub_server
from tests.storage.hub_server import names_in, read
from tests.tiny import GOLDEN, make_model

HF = GOLDEN / "hf_tiny/AlbertForPreTraining"
# What a download must bring, and what it must leave.
SAFE = {
    "config.json": b"{}",
    "model.safetensors": bytes(4096),
    "README.md": b"# card",
    "spiece.model": b"pieces",
}
PROGRAMS = {
    "pytorch_model.bin": b"a pickle",
    "tf_model.h5": b"layers",
    "modeling_albert.py": b"import os",
    "onnx/model.onnx": b"graph",
    "sub/config.json": b"{}",
}


@pytest.fixture(scope="module")
def server():
    with hub_server.serve() as server:
        yield server


@pytest.fixture
def hub(server, tmp_path, monkeypatch):
    """The hub, which both libraries of this process ask, with a token and new caches.

    huggingface_hub has read its settings when it was imported; kagglehub, whose address
    is fixed, reads them at each call and gets the hub as its proxy.
    """
    template = f"{server.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(constants, "ENDPOINT", server.url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_URL_HOSTS", frozenset({"127.0.0.1"}))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    for name in ("HTTP_PROXY", "NO_PROXY", "KAGGLE_KERNEL_RUN_TYPE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {
        "HF_TOKEN": hub_server.TOKEN,
        "no_proxy": "127.0.0.1",
        "KAGGLE_API_ENVIRONMENT": "LOCALHOST",
        "KAGGLE_API_TOKEN": hub_server.TOKEN,
        "KAGGLEHUB_CACHE": str(tmp_path / "kaggle"),
        "HOME": str(tmp_path),
        "http_proxy": server.url,
    }.items():
        monkeypatch.setenv(name, value)
    huggingface_hub.close_session()
    server.requests.clear()
    return server


@pytest.fixture
def name(hub, request):
    """The name of a repository of its own for each test."""
    name = f"owner/{request.node.name.replace('test_', '')[:40]}"
    hub.repositories[name] = {"main": SAFE | PROGRAMS}
    return name


@contextlib.contextmanager
def refused(message):
    """Expects an error of one line."""
    with pytest.raises(DataError, match=message) as error:
        yield
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "name",
    [
        "hf://",
        "hf://@main",
        "hf://..",
        "hf://albert base",
        "hf://albert-base-v2@",
        "hf:///name",
        "hf://owner/",
        "hf://owner/na me",
        "hf://owner/..",
        "hf://owner/name@../main",
        "hf://owner/name/folder",
        "hf://owner/name\nmore",
        "kaggle://keras/albert/keras",
        "kaggle://keras/albert/tensorFlow1/base",
        "kaggle://keras/albert/keras/base/new",
        "kaggle://keras/albert/keras/../2",
    ],
)
def test_a_malformed_name_is_refused_before_anything_is_asked(name):
    with pytest.raises(UsageError, match="expected (hf|kaggle)://owner/") as error:
        load.open_checkpoint(name)
    assert name in str(error.value)


def test_a_missing_library_is_named(monkeypatch):
    for module in ("huggingface_hub", "kagglehub"):
        monkeypatch.setitem(sys.modules, module, None)
    for name in ("hf://owner/name", "kaggle://keras/albert/keras/base"):
        with pytest.raises(UsageError, match=r"pip install 'albert_tf\[hub\]'"):
            load.open_checkpoint(name)


def test_only_files_that_cannot_run_are_downloaded(hub, name):
    found = hubs.download(f"hf://{name}")
    assert names_in(found.folder) == set(SAFE)
    for file in PROGRAMS:
        assert not hub.asked(f"/{file}"), file
    commit = hub.commit_of(name, "main")
    assert found.origin == f"hf://{name}@{commit}"
    assert {token for _, _, token in hub.requests} == {hub_server.TOKEN}


def test_a_revision_is_a_branch_a_tag_or_a_commit(hub, name):
    hub.repositories[name]["v1.0"] = {**SAFE, "README.md": b"# the first"}
    commit = hub.commit_of(name, "v1.0")
    for revision in ("v1.0", commit):
        found = hubs.download(f"hf://{name}@{revision}")
        assert pathlib.Path(found.folder, "README.md").read_text() == "# the first"
        assert found.origin == f"hf://{name}@{commit}"
    with refused(f"{name}@v2: Revision Not Found"):
        hubs.download(f"hf://{name}@v2")


def test_a_name_without_an_owner_is_forwarded_to_the_repository(hub, name):
    hub.canonical["albert-base-v2"] = name
    commit = hub.commit_of(name, "main")
    for asked in ("hf://albert-base-v2", f"hf://albert-base-v2@{commit}"):
        found = hubs.download(asked)
        assert read(found.folder) == SAFE
        assert found.origin == f"hf://albert-base-v2@{commit}"
    with refused("hf://albert-tiny: Repository Not Found"):
        hubs.download("hf://albert-tiny")
    hub.requests.clear()
    with pytest.raises(UsageError, match="push_to: expected hf://owner/name"):
        hubs.check_upload("hf://albert-base-v2")
    assert not hub.requests


def test_a_torch_file_is_asked_for_where_there_is_no_other(hub, name):
    safe = {"config.json": b"{}", "vocab.json": b"{}", "merges.txt": b"a b"}
    hub.repositories[name]["main"] = safe | PROGRAMS
    found = hubs.download(f"hf://{name}")
    assert names_in(found.folder) == {*safe, "pytorch_model.bin"}
    hub.repositories[name]["none"] = safe
    with refused("has neither model.safetensors nor pytorch_model.bin"):
        hubs.download(f"hf://{name}@none")


def test_modules_of_sentence_transformers_come_with_their_transformer(hub, name):
    rows = ("modules.json", "sentence_bert_config.json", "1_Pooling/config.json")
    rows += ("config_sentence_transformers.json", "2_Dense/config.json")
    modules, torch = dict.fromkeys(rows, b"{}"), {"2_Dense/pytorch_model.bin": b"a"}
    inside = {f"0_Transformer/{file}": content for file, content in SAFE.items()}
    del inside["0_Transformer/README.md"]
    others = PROGRAMS | {"1_Pooling/pooling.py": b"import os"}
    for revision, files in {
        "root": SAFE | modules | torch,
        "inside": inside | modules | torch,
        "safe": SAFE | modules | {"2_Dense/model.safetensors": b"weights"},
    }.items():
        hub.repositories[name][revision] = files | others
        assert read(hubs.download(f"hf://{name}@{revision}").folder) == files
    hub.repositories[name]["none"] = SAFE | modules
    with refused("has neither model.safetensors nor pytorch_model.bin"):
        hubs.download(f"hf://{name}@none")


def test_what_is_missing_or_private(hub, name, monkeypatch):
    with refused("owner/absent: Repository Not Found"):
        hubs.download("hf://owner/absent")
    hub.repositories[f"{name}-gated"] = {"main": {**SAFE, "README.md": b"# gated"}}
    hub.gated.add(f"{name}-gated")
    with refused("gated: Cannot access.*set HF_TOKEN"):
        hubs.download(f"hf://{name}-gated")
    hub.private.add(name)
    assert hubs.download(f"hf://{name}").folder
    monkeypatch.setenv("HF_TOKEN", "")
    hub.repositories[name]["new"] = {**SAFE, "README.md": b"# new"}
    with refused("Repository Not Found.*set HF_TOKEN"):
        hubs.download(f"hf://{name}@new")


def test_the_cache_serves_without_a_network(hub, name, monkeypatch):
    first = hubs.download(f"hf://{name}")
    hub.requests.clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert hubs.download(f"hf://{name}") == first
    with refused("owner/new: Cannot find.*HF_HUB_OFFLINE=0"):
        hubs.download("hf://owner/new")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with socket.socket() as taken:  # nobody listens on its port
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setattr(constants, "ENDPOINT", url)
        assert hubs.download(f"hf://{name}") == first
        with refused("owner/new: .*check your .*connection"):
            hubs.download("hf://owner/new")
    assert not hub.requests


def test_an_interrupted_download_is_resumed_and_never_taken_for_a_model(
    hub, name, monkeypatch
):
    hub.cut.add("model.safetensors")
    with refused("Server error.*run it again; complete files"):
        hubs.download(f"hf://{name}")
    with monkeypatch.context() as patch, refused("is incomplete: .*safetensors.*off"):
        patch.setattr(constants, "HF_HUB_OFFLINE", True)
        hubs.download(f"hf://{name}")
    hub.cut.clear()
    hub.requests.clear()
    folder = pathlib.Path(hubs.download(f"hf://{name}").folder)
    assert names_in(folder) == set(SAFE)
    assert (folder / "model.safetensors").read_bytes() == SAFE["model.safetensors"]
    assert hub.asked("model.safetensors")["GET"] == 1
    assert not hub.asked("config.json")["GET"]


@pytest.mark.slow
def test_a_model_by_name_is_the_model_of_its_folder(hub, name, model_folder):
    folder = model_folder("masked_lm")
    hub.repositories[name]["main"] = read(folder) | PROGRAMS
    hub.repositories[name]["theirs"] = read(HF)
    for place, path in ((folder, f"hf://{name}"), (HF, f"hf://{name}@theirs")):
        with load.open_checkpoint(place) as one, load.open_checkpoint(path) as other:
            assert (other.format, other.digest()) == (one.format, one.digest())
            assert other.path == path
            commit = hub.commit_of(name, "theirs" if place is HF else "main")
            assert other.origin == f"hf://{name}@{commit}"
    # A damaged file is named as the user named it, not by its place in the cache.
    hub.repositories[name]["main"]["model.safetensors"] += b"\0"
    with refused(f"^hf://{name}/model.safetensors: is not the"):
        load.open_checkpoint(f"hf://{name}")
    # Without the prefix, a name is a folder, which nobody looks up.
    hub.requests.clear()
    with refused(f"^{name}: no such file or folder"):
        load.open_checkpoint(name)
    assert not hub.requests


@pytest.mark.slow
def test_an_uploaded_model_loads_again(hub, tmp_path):
    folder, name = tmp_path / "model", "owner/uploaded"
    make_model("masked_lm").save_pretrained(folder)
    (folder / "run.json").write_text('{"kind": "finetune", "finished": true}')
    (folder / "metrics.json").write_text('{"dev_accuracy": 0.925, "labels": ["a"]}')
    hub.repositories[name] = {"main": {"notes.txt": b"", "tokenizer.json": b""}}
    hub.visibility[name] = "public"
    model = albert_tf.from_pretrained(folder)
    model.save_pretrained(tmp_path / "written", push_to=f"hf://{name}")
    files = hub.repositories[name]["main"]
    # What an earlier model had there is gone; what is not a model's stays.
    assert set(files) == names_in(tmp_path / "written") | {"notes.txt"}
    assert hub.visibility[name] == "public"
    card = files["README.md"].decode()
    assert card.startswith("---\nlibrary_name: albert_tf\n---\n\n# uploaded\n")
    assert "| dev_accuracy | 0.9250 |" in card
    assert f'from_pretrained("hf://{name}")' in card
    files["README.md"] += b"edited on the page"
    with load.open_checkpoint(folder) as one, load.open_checkpoint(f"hf://{name}") as b:
        assert one.digest() == b.digest()


def test_a_new_repository_is_private_and_one_commit(hub, tmp_path, monkeypatch):
    folder = tmp_path / "upload"
    folder.mkdir()
    for file, content in SAFE.items():
        (folder / file).write_bytes(content)
    origin = hubs.upload(str(folder), "hf://owner/new", "a message")
    assert origin == f"hf://owner/new@{hub.commit_of('owner/new', 'main')}"
    assert hub.repositories["owner/new"]["main"] == SAFE
    assert hub.visibility["owner/new"] == "private"
    assert hub.asked("owner/new/commit")["POST"] == 1
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with refused("set HF_TOKEN to a token that may do this"):
        hubs.upload(str(folder), "hf://owner/other", "a message")


@pytest.mark.slow
def test_a_kaggle_preset_by_name(hub, tmp_path, tokenizer, monkeypatch, capsys):
    preset = tmp_path / "preset"
    model = make_model("masked_lm")
    albert_tf.save_pretrained(model, preset, "keras_hub", tokenizer=tokenizer)
    handle = "keras/albert/keras/tiny_en"
    # The reader of presets has no use for a torch file, even a harmless one.
    hub.kaggle[f"{handle}/1"] = {"config.json": b"{}"}
    hub.kaggle[f"{handle}/2"] = read(preset) | {"pytorch_model.bin": b"a pickle"}
    with load.open_checkpoint(preset) as expected:
        digest = expected.digest()
    for name in (f"kaggle://{handle}", f"kaggle://{handle}/2"):
        with load.open_checkpoint(name) as checkpoint:
            assert checkpoint.digest() == digest
            assert checkpoint.make_tokenizer().sha256 == tokenizer.sha256
            assert checkpoint.path == name
            assert checkpoint.origin == f"kaggle://{handle}/2"
    assert {token for _, _, token in hub.requests} == {hub_server.TOKEN}
    assert not capsys.readouterr().out
    # A version in the cache needs no network; the newest one does.
    hub.requests.clear()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{taken.getsockname()[1]}")
        load.open_checkpoint(f"kaggle://{handle}/2").resources.close()
        with refused("cannot be reached.*with a version needs"):
            load.open_checkpoint(f"kaggle://{handle}")
    with pytest.raises(UsageError, match="format must be keras_hub"):
        load.open_checkpoint(f"kaggle://{handle}/2", format="huggingface")
    assert not hub.requests


@pytest.mark.slow
def test_what_kaggle_refuses_or_damages(hub):
    with refused("no such model or version, or one that asks"):
        hubs.download("kaggle://keras/albert/keras/absent")
    name = "kaggle://keras/albert/keras/damaged/1"
    files = {"config.json": b"{}", "model.weights.h5": bytes(4096)}
    hub.kaggle[name.removeprefix("kaggle://")] = files
    hub.damaged.add("model.weights.h5")
    with refused("damaged on its way"):
        hubs.download(name)
    hub.damaged.clear()
    hub.cut.add("model.weights.h5")
    with refused("cannot be reached.*run it again"):
        hubs.download(name)
    hub.cut.clear()
    assert read(hubs.download(name).folder) == files
