"""Models by name, from hubs that run in a thread of this process."""

import pathlib
import socket
import sys

import pytest

import albert_tf
from albert_tf.converters import load
from albert_tf.errors import DataError, UsageError
from tests.conftest import ROOT
from tests.storage import hub_server
from tests.storage.hub_client import Client
from tests.storage.hub_server import names_in, read
from tests.tiny import CONFIG, SPIECE

HF = ROOT / "tests/golden/hf_tiny/AlbertForPreTraining"
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
def hub():
    with hub_server.serve() as hub:
        yield hub


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("hub")


@pytest.fixture(scope="module")
def client(hub, home):
    """A process with a token, whose cache all tests share."""
    client = Client(home, HF_ENDPOINT=hub.url, HF_TOKEN=hub_server.TOKEN)
    yield client
    client.close()


@pytest.fixture
def name(hub, request):
    """The name of a repository of its own for each test."""
    name = f"owner/{request.node.name.replace('test_', '')[:40]}"
    hub.repositories[name] = {"main": SAFE | PROGRAMS}
    hub.requests.clear()
    return name


@pytest.mark.parametrize(
    "name",
    [
        "hf://albert-base-v2",
        "hf://owner/",
        "hf:///name",
        "hf://owner/name@",
        "hf://owner/na me",
        "hf://owner/..",
        "hf://../name",
        "hf://owner/name@../main",
        "hf://owner/name@v1@v2",
        "hf://owner/name/folder",
        "hf://owner/name\nmore",
        "kaggle://keras/albert",
        "kaggle://keras/albert/keras",
        "kaggle://keras/albert/tensorFlow1/base",
        "kaggle://keras/albert/keras/base/0",
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


def test_nothing_is_imported_before_it_is_used(hub, name, home):
    client = Client(home, HF_ENDPOINT=hub.url)
    try:
        with pytest.raises(UsageError):
            client("download", name="hf://owner")
        assert client("heavy") == []
        client("download", name=f"hf://{name}")
        assert client("heavy") == ["huggingface_hub"]
    finally:
        stderr = client.close()
    # Nor is a line logged for each request.
    assert "HTTP Request" not in stderr


def test_only_files_that_cannot_run_are_downloaded(hub, client, name):
    found = client("download", name=f"hf://{name}")
    assert names_in(found["folder"]) == set(SAFE)
    for file in PROGRAMS:
        assert not hub.asked(f"/{file}"), file
    commit = hub.commit_of(name, "main")
    assert found["origin"] == f"hf://{name}@{commit}"
    assert {token for _, _, token in hub.requests} == {hub_server.TOKEN}


def test_sharded_weights_are_downloaded(hub, client, name):
    shards = {f"model-0000{i}-of-00002.safetensors": bytes(9) for i in (1, 2)}
    index = {"model.safetensors.index.json": b"{}", "config.json": b"{}"}
    hub.repositories[name]["main"] = shards | index | PROGRAMS
    found = client("download", name=f"hf://{name}")
    assert names_in(found["folder"]) == {*shards, *index}


def test_a_revision_is_a_branch_a_tag_or_a_commit(hub, client, name):
    hub.repositories[name]["v1.0"] = {**SAFE, "README.md": b"# the first"}
    commit = hub.commit_of(name, "v1.0")
    for revision in ("v1.0", commit):
        found = client("download", name=f"hf://{name}@{revision}")
        assert pathlib.Path(found["folder"], "README.md").read_text() == "# the first"
        assert found["origin"] == f"hf://{name}@{commit}"
    with pytest.raises(DataError, match=f"{name}@v2: Revision Not Found"):
        client("download", name=f"hf://{name}@v2")


def test_a_repository_without_a_safe_file_says_so(hub, client, name, home):
    hub.repositories[name]["main"] = {"config.json": b"{}"} | PROGRAMS
    with pytest.raises(DataError, match="no model.safetensors; files such as pytorch"):
        client("download", name=f"hf://{name}")
    assert not hub.asked("pytorch_model.bin")
    # Nor is one taken that another program has put into the cache.
    (config,) = home.rglob(f"models--{name.replace('/', '--')}/**/config.json")
    (config.parent / "pytorch_model.bin").write_bytes(b"a pickle")
    with pytest.raises(DataError, match="no model.safetensors"):
        client("download", name=f"hf://{name}")


def test_what_is_missing_or_private(hub, client, name, home):
    with pytest.raises(DataError, match="owner/absent: Repository Not Found"):
        client("download", name="hf://owner/absent")
    hub.private.add(name)
    stranger = Client(home / "..", HF_ENDPOINT=hub.url, HF_HOME=str(home / "stranger"))
    try:
        with pytest.raises(DataError, match="Repository Not Found.*set HF_TOKEN"):
            stranger("download", name=f"hf://{name}")
    finally:
        stranger.close()
    assert client("download", name=f"hf://{name}")["folder"]
    gated = f"{name}-gated"
    hub.repositories[gated] = {"main": {**SAFE, "README.md": b"# gated"}}
    hub.gated.add(gated)
    with pytest.raises(DataError, match="gated: Cannot access.*set HF_TOKEN"):
        client("download", name=f"hf://{gated}")


def test_the_cache_serves_without_a_network(hub, client, name, home):
    first = client("download", name=f"hf://{name}")
    hub.requests.clear()
    offline = Client(home, HF_ENDPOINT=hub.url, HF_HUB_OFFLINE="1")
    taken = socket.socket()  # nobody listens on its port
    taken.bind(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    unreachable = Client(home, HF_ENDPOINT=url)
    try:
        for other in (offline, unreachable):
            assert other("download", name=f"hf://{name}") == first
        with pytest.raises(DataError, match="owner/new: Cannot find.*HF_HUB_OFFLINE=0"):
            offline("download", name="hf://owner/new")
        with pytest.raises(DataError, match="owner/new: .*check your .*connection"):
            unreachable("download", name="hf://owner/new")
    finally:
        offline.close()
        unreachable.close()
        taken.close()
    assert not hub.requests


def test_an_interrupted_download_is_resumed_and_never_taken_for_a_model(
    hub, client, name
):
    hub.cut.add("model.safetensors")
    with pytest.raises(DataError, match="Server error.*run it again; complete files"):
        client("download", name=f"hf://{name}")
    client("offline", value=True)
    try:
        with pytest.raises(
            DataError, match="is incomplete: .*model.safetensors.*offline"
        ):
            client("download", name=f"hf://{name}")
    finally:
        client("offline", value=False)
        hub.cut.clear()
        hub.requests.clear()
    found = client("download", name=f"hf://{name}")
    assert names_in(found["folder"]) == set(SAFE)
    whole = pathlib.Path(found["folder"], "model.safetensors").read_bytes()
    assert whole == SAFE["model.safetensors"]
    assert hub.asked("model.safetensors")["GET"] == 1
    assert not hub.asked("config.json")["GET"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model folder with a masked LM and a tokenizer."""
    path = tmp_path_factory.mktemp("models") / "mlm"
    model = albert_tf.AlbertMaskedLM(CONFIG, seed=1)
    albert_tf.save_pretrained(model, path, tokenizer=SPIECE)
    return path


@pytest.mark.slow
def test_a_model_by_name_is_the_model_of_its_folder(hub, client, name, folder, home):
    hub.repositories[name]["main"] = read(folder) | PROGRAMS
    found = client("load", path=f"hf://{name}")
    with load.open_checkpoint(folder) as checkpoint:
        assert found == {
            "path": f"hf://{name}",
            "origin": f"hf://{name}@{hub.commit_of(name, 'main')}",
            "digest": checkpoint.digest(),
            "format": "albert_tf",
            "vocabulary": checkpoint.make_tokenizer().sha256,
        }
    hub.repositories[name]["theirs"] = read(HF)
    found = client("load", path=f"hf://{name}@theirs")
    with load.open_checkpoint(HF) as checkpoint:
        assert found["digest"] == checkpoint.digest()
    assert found["format"] == "huggingface"
    # A damaged file is named as the user named it, not by its place in the cache.
    hub.repositories[name]["main"]["model.safetensors"] += b"\0"
    with pytest.raises(DataError, match=f"^hf://{name}/model.safetensors: is not the"):
        client("load", path=f"hf://{name}")
    # Without the prefix, a name is a folder, which nobody looks up.
    hub.requests.clear()
    with pytest.raises(DataError, match=f"^{name}: no such file or folder"):
        client("load", path=name)
    assert not hub.requests


@pytest.mark.slow
def test_an_uploaded_model_loads_again(hub, client, folder, home):
    (folder / "run.json").write_text('{"kind": "finetune", "finished": true}')
    (folder / "metrics.json").write_text('{"dev_accuracy": 0.925, "labels": ["a"]}')
    name = "owner/uploaded"
    hub.repositories[name] = {"main": {"vocab.txt": b"", "tokenizer.json": b""}}
    hub.visibility[name] = "public"
    before = client(
        "load", path=str(folder), push=f"hf://{name}", to=str(home / "written")
    )
    files = hub.repositories[name]["main"]
    # What an earlier model had there is gone; what is not a model's stays.
    assert set(files) == names_in(home / "written") | {"vocab.txt"}
    assert hub.visibility[name] == "public"
    card = files["README.md"].decode()
    assert card.startswith("---\nlibrary_name: albert_tf\n---\n\n# uploaded\n")
    assert "| dev_accuracy | 0.9250 |" in card
    assert f'from_pretrained("hf://{name}")' in card
    files["README.md"] += b"edited on the page"
    after = client("load", path=f"hf://{name}")
    assert after["digest"] == before["digest"]
    assert after["vocabulary"] == before["vocabulary"]


def test_a_new_repository_is_private_and_one_commit(hub, client, tmp_path, home):
    for file, content in SAFE.items():
        (tmp_path / file).write_bytes(content)
    origin = client("upload", folder=str(tmp_path), name="hf://owner/new")
    assert origin == f"hf://owner/new@{hub.commit_of('owner/new', 'main')}"
    assert hub.repositories["owner/new"]["main"] == SAFE
    assert hub.visibility["owner/new"] == "private"
    assert hub.asked("owner/new/commit")["POST"] == 1
    stranger = Client(home, HF_ENDPOINT=hub.url, HF_TOKEN="hf_wrong")
    try:
        with pytest.raises(DataError, match="set HF_TOKEN to a token that may do this"):
            stranger("upload", folder=str(tmp_path), name="hf://owner/other")
    finally:
        stranger.close()
