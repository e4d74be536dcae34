"""The files that servers start with: what the servers' own parsers read in them."""

import json
import pathlib
import re
import uuid

import pytest
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
    wrappers_pb2,
)

from albert_tf.errors import UsageError
from albert_tf.export import server_files

TOOL = pathlib.Path(__file__).parents[2] / "tools/export.py"
FIELD = descriptor_pb2.FieldDescriptorProto
# The fields that the files may use, as tensorflow_serving/config/
# model_server_config.proto and servables/tensorflow/session_bundle_config.proto define
# them: name, number, type, repeated.
MESSAGES = {
    "Latest": [("num_versions", 1, FIELD.TYPE_UINT32, False)],
    "VersionPolicy": [("latest", 100, "Latest", False)],
    "ModelConfig": [
        ("name", 1, FIELD.TYPE_STRING, False),
        ("base_path", 2, FIELD.TYPE_STRING, False),
        ("model_platform", 4, FIELD.TYPE_STRING, False),
        ("model_version_policy", 7, "VersionPolicy", False),
    ],
    "ModelConfigList": [("config", 1, "ModelConfig", True)],
    "ModelServerConfig": [("model_config_list", 1, "ModelConfigList", False)],
    "BatchingParameters": [
        ("max_batch_size", 1, "google.protobuf.Int64Value", False),
        ("batch_timeout_micros", 2, "google.protobuf.Int64Value", False),
        ("max_enqueued_batches", 3, "google.protobuf.Int64Value", False),
        ("num_batch_threads", 4, "google.protobuf.Int64Value", False),
        ("allowed_batch_sizes", 6, FIELD.TYPE_INT64, True),
        ("pad_variable_length_inputs", 7, FIELD.TYPE_BOOL, False),
    ],
}


@pytest.fixture(scope="module")
def messages():
    """The classes of `MESSAGES`."""
    file = descriptor_pb2.FileDescriptorProto(
        name="small_serving.proto",
        package="small",
        syntax="proto3",
        dependency=[wrappers_pb2.DESCRIPTOR.name],
    )
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind, repeated in fields:
            label = FIELD.LABEL_REPEATED if repeated else FIELD.LABEL_OPTIONAL
            added = message.field.add(name=field, number=number, label=label)
            if isinstance(kind, str):
                added.type = FIELD.TYPE_MESSAGE
                added.type_name = f".{kind}" if "." in kind else f".small.{kind}"
            else:
                added.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f"small.{name}")
        )
        for name in MESSAGES
    }


@pytest.fixture
def base(tmp_path):
    """A folder with a model and the files beside it."""
    model = tmp_path / "served/Film_reviews"
    (model / "1").mkdir(parents=True)
    (model / "1/saved_model.pb").touch()
    paths = server_files.write_server_files(f"{model}/")
    assert {pathlib.Path(path).parent for path in paths} == {model.parent}
    return model.parent


@pytest.mark.parametrize("official", [False, True])
def test_models(base, messages, official):
    kind = messages["ModelServerConfig"]
    if official:
        pytest.importorskip("tensorflow_serving")
        from tensorflow_serving.config import model_server_config_pb2

        kind = model_server_config_pb2.ModelServerConfig
    text = (base / "models.config").read_text()
    (config,) = text_format.Parse(text, kind()).model_config_list.config
    assert config.name == "Film_reviews"
    assert config.base_path == "/models/Film_reviews"
    assert config.model_platform == "tensorflow"
    assert config.model_version_policy.latest.num_versions == 1


def test_batching(base, messages):
    text = (base / "batching.config").read_text()
    found = text_format.Parse(text, messages["BatchingParameters"]())
    # Larger requests are refused.
    assert found.max_batch_size.value == 10_000
    # Their last one would have to be the maximum, and batches be padded to them.
    assert not found.allowed_batch_sizes
    assert not found.pad_variable_length_inputs
    assert found.batch_timeout_micros.value > 0
    assert found.num_batch_threads.value > 0
    assert found.max_enqueued_batches.value > 0


def test_the_small_messages_are_strict(messages):
    with pytest.raises(text_format.ParseError, match="max_batch"):
        text_format.Parse("max_batch: 3", messages["BatchingParameters"]())


def test_dockerfile(base):
    text = (base / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [x.split(" ", 1) for x in text.splitlines() if not x.startswith("#")]
    assert [line[0] for line in lines] == ["FROM", "COPY", "COPY", "ENTRYPOINT"]
    assert lines[0][1] == f"tensorflow/serving:{server_files.SERVING_VERSION}"
    copied = {}
    for _, arguments in lines[1:3]:
        *sources, target = arguments.split()
        assert all((base / source).exists() for source in sources)
        for source in sources:
            copied[target + source if target.endswith("/") else target] = source
    program, *given = json.loads(lines[3][1])
    assert program == "tensorflow_model_server"
    named = dict(flag.partition("=")[::2] for flag in given)
    assert copied[named["--model_config_file"]] == "models.config"
    assert copied[named["--batching_parameters_file"]] == "batching.config"
    assert "--enable_batching" in named
    # Where models.config looks for the model.
    assert copied["/models/Film_reviews"] == "Film_reviews"


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


def test_in_a_bucket(messages):
    base = f"ram://{uuid.uuid4().hex}"
    made = server_files.make_server_files(f"{base}/m/")
    texts = {path.removeprefix(f"{base}/"): text for path, text in made.items()}
    kind = messages["ModelServerConfig"]
    config = text_format.Parse(texts["models.config"], kind()).model_config_list
    assert config.config[0].base_path == f"{base}/m"
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


def test_the_command_needs_a_version(run_python):
    done = run_python(TOOL, "--model=m", "--output_dir=o/a", "--server_files")
    assert done.returncode == 2
    assert "--server_files: needs --version" in done.stderr
