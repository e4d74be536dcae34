"""A folder that was edited after its export is refused, and the file is named."""

import json
import pathlib
import shutil

import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from albert_tf.errors import DataError, UsageError
from albert_tf.export import manifest
from albert_tf.storage import files, folders, protobuf
from tests.commands import run_command


def write(path):
    """Writes a small model the way `export_saved_model` does."""
    module = tf.Module()
    spec = tf.TensorSpec([None], tf.string, name="text")
    module.answer = tf.function(lambda text: {"answer": tf.strings.strip(text)}, [spec])
    signatures = {"serving_default": module.answer}
    with folders.writing(path, last=manifest.MODEL_FILE) as out:
        tf.saved_model.save(module, out.path, signatures=signatures)
        content = {
            "operations": sorted(manifest.check_operations(out.path)),
            "signatures": {"serving_default": {"text": "string [None]"}},
        }
        manifest.write_manifest(out, content)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    path = tmp_path_factory.mktemp("export") / "1"
    write(str(path))
    return path


@pytest.fixture
def folder(original, tmp_path):
    return pathlib.Path(shutil.copytree(original, tmp_path / "1"))


def edit(folder, **changes):
    """Changes entries of the manifest."""
    file = folder / manifest.FILE
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, **changes}))


def test_what_was_exported(folder):
    content = manifest.verify(folder)
    assert "saved_model.pb" in content["files"]
    assert manifest.verify(folder, files.digest_of(folder / manifest.FILE)["sha256"])
    assert manifest.describe(folder) == [
        "serving_default(text: string [None]) -> answer: string [None]"
    ]


def test_in_a_bucket(bucket):
    path = f"{bucket}/1"
    write(path)
    manifest.verify(f"{path}/")
    files.make_folder(f"{path}/more")
    files.write_text(f"{path}/more/new.py", "import os")
    with pytest.raises(DataError, match=r"1: not what .*: more/new.py was added$"):
        manifest.verify(path)
    files.write_text(f"{path}/{folders.INCOMPLETE}", "[]")
    with pytest.raises(DataError, match="1: incomplete"):
        manifest.verify(path)


def test_every_edited_file_is_named(folder):
    (folder / "variables/variables.index").write_bytes(b"x")
    (folder / "fingerprint.pb").unlink()
    (folder / "assets.extra/more").write_bytes(b"x")
    with pytest.raises(DataError) as raised:
        manifest.verify(folder)
    assert str(raised.value) == (
        f"{folder}: not what was exported: assets.extra/more was added; "
        "fingerprint.pb is missing; variables/variables.index was changed"
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("saved_model.pb", "saved_model.pb is a link"),
        ("variables", "variables/variables.index is missing"),
        ("assets.extra", "assets.extra/manifest.json is a link"),
    ],
)
def test_a_link(folder, tmp_path, name, message):
    (folder / name).rename(tmp_path / "elsewhere")
    (folder / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DataError, match=message):
        manifest.verify(folder)


@pytest.mark.parametrize(
    "name",
    ["../x", "assets/../../x", "/etc/passwd", "gs://a/b", "a\\..\\..\\b"],
)
def test_a_name_that_leaves_the_folder(folder, name):
    listed = json.loads((folder / manifest.FILE).read_text())["files"]
    listed[name] = {"size": 1, "sha256": "0" * 64}
    edit(folder, files=listed)
    with pytest.raises(DataError, match="manifest.json: names a file outside"):
        manifest.verify(folder)


def add_asset(meta_graph, name):
    meta_graph.asset_file_def.add(filename=name)


def add_tokenizer(meta_graph, in_function):
    graph = meta_graph.graph_def
    nodes = graph.library.function[0].node_def if in_function else graph.node
    piece = protobuf.delimited(1, b"a" * 400_000)
    nodes.add(op="SentencepieceOp").attr["model"].s = protobuf.delimited(1, piece)


def add_operation(meta_graph, name):
    meta_graph.graph_def.node.add(op=name)


def jit_compile(meta_graph, name):
    function = meta_graph.graph_def.library.function[0]
    function.attr[name].b = True


@pytest.mark.parametrize(
    ("change", "value", "message"),
    [
        (add_asset, "../../etc/passwd", "not in the manifest: '.*passwd'"),
        (add_asset, "/etc/passwd", "not in the manifest: '.*passwd'"),
        (add_asset, "unlisted", "not in the manifest: 'unlisted'"),
        (add_tokenizer, False, "_model.pb: not a Sent.* received 400000$"),
        (add_tokenizer, True, "_model.pb: not a Sent.* received 400000$"),
        (add_operation, "ReadFile", "not allowed: ReadFile$"),
        (jit_compile, "_XlaMustCompile", "is jit-compiled"),
    ],
)
def test_a_program_that_could_do_harm(folder, change, value, message):
    """Also if whoever edited the model has edited the manifest."""
    file = folder / "saved_model.pb"
    saved_model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    change(saved_model.meta_graphs[0], value)
    file.write_bytes(saved_model.SerializeToString())
    found = files.digests_of(folder)
    del found[manifest.FILE]
    edit(folder, files=found)
    with pytest.raises(DataError, match=message):
        manifest.verify(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"operations": ["Const"]}, "lists other operations than saved_model.pb"),
        ({"operations": None}, "lists other operations than saved_model.pb"),
        ({"signatures": {}}, "lists other signatures than saved_model.pb"),
        ({"files": None}, "not the manifest of an exported model"),
        ({"files": {"a": {"size": "x"}}}, "not the manifest of an exported model"),
    ],
)
def test_a_manifest_that_does_not_match(folder, changes, message):
    edit(folder, **changes)
    with pytest.raises(DataError, match=f"manifest.json: {message}"):
        manifest.verify(folder)


def test_a_manifest_that_was_exchanged(folder):
    sha256 = files.digest_of(folder / manifest.FILE)["sha256"]
    edit(folder, labels=["good", "bad"])
    manifest.verify(folder)
    with pytest.raises(DataError, match=f"expected sha256 {sha256}, found"):
        manifest.verify(folder, sha256)
    with pytest.raises(UsageError, match="64 hexadecimal digits, received 12"):
        manifest.verify(folder, "12")


@pytest.mark.parametrize("content", [None, "[]", "[" * 100_000])
def test_no_manifest(folder, content):
    file = folder / manifest.FILE
    file.unlink()
    if content is not None:
        file.write_text(content)
    with pytest.raises(DataError, match="manifest.json: "):
        manifest.verify(folder)


def test_the_command(folder):
    done = run_command("verify_export", model=folder)
    assert done.code == 0, done.err
    sha256 = files.digest_of(folder / manifest.FILE)["sha256"]
    lines = done.out.splitlines()
    assert lines[0] == f"sha256 {sha256}"
    assert lines[-1].startswith("serving_default(text: string [None]) -> ")
    (folder / "fingerprint.pb").unlink()
    done = run_command("verify_export", model=folder, sha256=sha256)
    assert (done.code, len(done.err.splitlines())) == (1, 1)
    assert done.error.endswith("fingerprint.pb is missing")
