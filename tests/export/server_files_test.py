"""The files that servers start with: what the servers' own parsers read in them."""

import json
import pathlib
import re
import uuid

import pytest

from albert_tf.errors import UsageError
from albert_tf.export import server_files


def fields(text):
    """The numbers, strings and names of a text proto, by the name of the field."""
    text = re.sub("#.*", "", text)
    found = re.findall(r'(\w+)(?: *\{ *value)?: *("[^"]*"|\w+)', text)
    return {name: value.strip('"') for name, value in found}


@pytest.fixture
def base(tmp_path):
    """A folder with a model and the files beside it."""
    model = tmp_path / "served/Film_reviews"
    (model / "1").mkdir(parents=True)
    (model / "1/saved_model.pb").touch()
    paths = server_files.write_server_files(f"{model}/")
    assert {pathlib.Path(path).parent for path in paths} == {model.parent}
    return model.parent


def test_models(base):
    text = (base / "models.config").read_text()
    assert fields(text) == {
        "name": "Film_reviews",
        "base_path": "/models/Film_reviews",
        "model_platform": "tensorflow",
        "num_versions": "1",
    }


@pytest.mark.runtimes
def test_models_as_the_server_reads_them(base):
    text = (base / "models.config").read_text()
    from google.protobuf import text_format
    from tensorflow_serving.config import model_server_config_pb2

    parsed = text_format.Parse(text, model_server_config_pb2.ModelServerConfig())
    assert parsed.model_config_list.config[0].model_version_policy.latest.num_versions


def test_batching(base):
    found = fields((base / "batching.config").read_text())
    # Larger requests are refused. With allowed sizes, batches would be padded to them.
    assert found.pop("max_batch_size") == "10000"
    names = {"batch_timeout_micros", "num_batch_threads", "max_enqueued_batches"}
    assert found.keys() == names and all(int(value) > 0 for value in found.values())


def test_dockerfile(base):
    text = (base / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert lines[:-1] == [
        f"FROM tensorflow/serving:{server_files.SERVING_VERSION}",
        # Where models.config looks for the model.
        "COPY Film_reviews /models/Film_reviews",
        "COPY models.config batching.config /models/",
    ]
    program, *given = json.loads(lines[-1].removeprefix("ENTRYPOINT "))
    assert program == "tensorflow_model_server" and "--enable_batching" in given
    named = {flag.partition("=")[2] for flag in given}
    assert named >= {"/models/models.config", "/models/batching.config"}
    assert all(
        (base / source).exists() for line in lines[1:3] for source in line.split()[1:-1]
    )


def test_kserve(base):
    yaml = pytest.importorskip("yaml")
    found = yaml.safe_load((base / "kserve.yaml").read_text())
    assert found["kind"] == "InferenceService"
    assert found["metadata"]["name"] == "film-reviews"
    model = found["spec"]["predictor"]["model"]
    assert model["modelFormat"] == {"name": "tensorflow"}
    assert model["runtimeVersion"] == server_files.SERVING_VERSION
    assert model["storageUri"] == "pvc://models/Film_reviews"


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("123", "model-123"),
        ("2films", "model-2films"),
        ("on", "on"),
        ("A_.b-", "a-b"),
        (47 * "a" + "-b", 47 * "a"),
    ],
)
def test_names_that_kubernetes_takes(tmp_path, folder, name):
    yaml = pytest.importorskip("yaml")
    made = server_files.make_server_files(tmp_path / folder)
    found = yaml.safe_load(made[str(tmp_path / "kserve.yaml")])["metadata"]["name"]
    assert found == name and re.fullmatch("[a-z]([-a-z0-9]*[a-z0-9])?", found)


@pytest.mark.parametrize(("path", "parent"), [("a/m", "a/"), ("./m/", ""), ("m", "")])
def test_paths_are_as_they_were_given(path, parent, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = server_files.make_server_files(path)
    names = ("models.config", "batching.config", "Dockerfile", "kserve.yaml")
    assert list(made) == [f"{parent}{name}" for name in names]


def test_in_a_bucket():
    base = f"ram://{uuid.uuid4().hex}"
    made = server_files.make_server_files(f"{base}/m/")
    texts = {path.removeprefix(f"{base}/"): text for path, text in made.items()}
    assert fields(texts["models.config"])["base_path"] == f"{base}/m"
    assert f'storageUri: "{base}/m"' in texts["kserve.yaml"]
    assert re.findall("^COPY.*", texts["Dockerfile"], re.M) == [
        "COPY models.config batching.config /models/"
    ]


def test_an_edited_file_is_kept(base):
    server_files.write_server_files(base / "Film_reviews")  # for the next version
    file = base / "batching.config"
    file.write_text("max_batch_size { value: 8 }")
    with pytest.raises(UsageError, match="batching.config: exists already with anoth"):
        server_files.write_server_files(base / "Film_reviews")
    assert file.read_text() == "max_batch_size { value: 8 }"


@pytest.mark.parametrize("name", ['a"b', "a b", ".a", "ä"])
def test_a_name_that_no_server_takes(tmp_path, name):
    with pytest.raises(UsageError, match="output_dir: expected a last name"):
        server_files.write_server_files(tmp_path / name)
