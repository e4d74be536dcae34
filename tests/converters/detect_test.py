"""Paths that are no checkpoint, or are one that wants to do harm."""

import io
import json
import os
import pickle
import shutil
import tarfile
import zipfile

import h5py
import numpy as np
import pytest

import albert_tf
from albert_tf.converters import detect, load
from albert_tf.errors import DataError, UsageError
from tests.tiny import CONFIG as TINY
from tests.tiny import GOLDEN

BASE = GOLDEN / "tf1_tiny/base"
HF = GOLDEN / "hf_tiny/AlbertForPreTraining"
CONFIG = TINY.replace(vocab_size=41)


class Evil:
    """Writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


def refused(path, message=None):
    """Loads a path that must give one line, and returns it."""
    with pytest.raises(DataError, match=message) as error:
        albert_tf.from_pretrained(path, head=None)
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)


def test_nothing_to_read(tmp_path):
    refused(tmp_path / "absent", "no such file or folder$")
    refused("albert/albert-base-v2", "model of .* is called hf://albert/albert-base-v2")
    refused(tmp_path, "none of its files is of a known format")
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter/adapter_config.json").touch()
    refused(tmp_path / "adapter", "a PEFT adapter; give a folder of the merged model")
    refused(tmp_path, "none of its files is of a known format")


@pytest.mark.parametrize("name", ["model.pkl", "model.keras", "model.h5", "x.npy"])
def test_programs_are_not_opened(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(pickle.dumps(Evil(tmp_path / "made")))
    refused(path, "may contain code")
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("config", [False, True])
def test_pickle_as_torch_file(tmp_path, config):
    if config:
        shutil.copy(HF / "config.json", tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps(Evil(tmp_path / "made")))
    refused(tmp_path, "torch" if config else r"no config\.json")
    assert not (tmp_path / "made").exists()


def test_several_formats(tmp_path):
    folder = shutil.copytree(HF, tmp_path / "m")
    for name in os.listdir(BASE):
        shutil.copy(BASE / name, folder)
    refused(folder, r"several formats \(huggingface, tf1\)")
    for format in ("huggingface", "tf1"):
        assert albert_tf.from_pretrained(folder, format=format, head=None)
    with pytest.raises(UsageError, match="format must be one of"):
        albert_tf.from_pretrained(folder, format="onnx", head=None)


BROKEN = ["", "{", "[]", '"x"', "3", "[" * 100_000, '{"a": NaN', "\x00"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *((text, r"config\.json") for text in BROKEN),
        ({"vocab_size": 999}, r"word_embeddings.weight must have shape \(999, 16\)"),
        ({"vocab_size": 2**30}, "must have shape"),
        ({"intermediate_size": 65}, r"must have shape \(32, 65\)"),
        ({"max_position_embeddings": 2**30}, "must have shape"),
        ({"intermediate_size": 2**30}, "must have shape"),
        ({"num_hidden_layers": 2**30}, "must be at most 4096"),
        ({"hidden_size": 36}, "must have shape"),
        ({"hidden_size": 33}, "multiple of num_attention_heads"),
        ({"hidden_size": "32"}, "hidden_size must be a positive integer"),
        ({"hidden_size": 10**30}, "hidden_size must be a positive integer"),
        ({"hidden_act": "mish"}, "hidden_act must be one of"),
        ({"model_type": "deberta"}, "model_type must be albert or bert"),
        ({"num_hidden_groups": 2}, "no tensor for encoder/attention_1"),
        ({"is_decoder": True}, "is_decoder must be False"),
    ],
)
def test_config_that_does_not_fit(tmp_path, changes, message):
    folder = shutil.copytree(HF, tmp_path / "m")
    where = folder / "config.json"
    is_text = isinstance(changes, str)
    text = changes if is_text else json.dumps(json.loads(where.read_text()) | changes)
    where.write_text(text)
    refused(folder, message)


def make_tar(path, name, content, **fields):
    """Writes an archive of one member."""
    member = tarfile.TarInfo(name)
    for field, value in {"size": len(content), **fields}.items():
        setattr(member, field, value)
    with tarfile.open(path, "w:gz") as f:
        f.addfile(member, io.BytesIO(content))


@pytest.mark.parametrize(
    "name", ["../outside", "/tmp/outside", "a/../../outside", "..\\outside", "c:/x"]
)
@pytest.mark.parametrize("ending", [".tar.gz", ".zip"])
def test_archive_with_a_path_outside(tmp_path, name, ending):
    path = tmp_path / f"x{ending}"
    if ending == ".zip":
        with zipfile.ZipFile(path, "w") as f:
            f.writestr(name, b"x")
    else:
        make_tar(path, name, b"x")
    refused(path, "outside of the folder")
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (tarfile.SYMTYPE, "neither a file nor a folder"),
        (tarfile.LNKTYPE, "neither a file nor a folder"),
        (tarfile.FIFOTYPE, "neither a file nor a folder"),
        (tarfile.CHRTYPE, "neither a file nor a folder"),
        (tarfile.REGTYPE, "more than"),
    ],
)
def test_archive_with_links_or_too_large(tmp_path, monkeypatch, kind, message):
    monkeypatch.setattr(detect, "MAX_BYTES", 1000)
    path = tmp_path / "x.tar.gz"
    content = bytes(1001) if kind == tarfile.REGTYPE else b""
    make_tar(path, "m/config.json", content, type=kind, linkname="/etc/passwd")
    refused(path, message)


@pytest.mark.parametrize("ending", [".tar.gz", ".tar", ".zip", "cut.tar.gz"])
def test_damaged_archive(tmp_path, ending):
    path = tmp_path / f"x{ending}"
    make_tar(path, "m/model.safetensors", np.random.default_rng(0).bytes(5000))
    content = path.read_bytes()[:3000]
    path.write_bytes(content if "cut" in ending else b"PK\x03\x04 nonsense" * 9)
    refused(path, "damaged archive")


def test_zip_of_a_folder(tmp_path):
    path = tmp_path / "model.zip"
    with zipfile.ZipFile(path, "w") as f:
        for name in ("config.json", "model.safetensors"):
            f.write(HF / name, f"albert/{name}")
    model = albert_tf.from_pretrained(path, head="auto")
    assert isinstance(model, albert_tf.AlbertPretrainer)


@pytest.fixture(scope="module")
def made_preset(tmp_path_factory):
    model = albert_tf.AlbertBackbone(CONFIG, seed=1)
    path = tmp_path_factory.mktemp("presets") / "preset"
    albert_tf.save_pretrained(model, path, format="keras_hub")
    return path


@pytest.fixture
def preset(made_preset, tmp_path):
    return shutil.copytree(made_preset, tmp_path / "preset")


@pytest.mark.parametrize(
    "change", [lambda content: b"nonsense" * 100, lambda content: content[:4000]]
)
def test_damaged_hdf5(preset, change):
    path = preset / "model.weights.h5"
    path.write_bytes(change(path.read_bytes()))
    refused(preset, "not a usable HDF5 file")


@pytest.mark.parametrize("kind", ["external", "soft", "storage"])
def test_hdf5_with_links(preset, tmp_path, kind):
    secret = tmp_path / "secret.h5"
    with h5py.File(secret, "w") as f:
        f["x"] = np.zeros((41, 6), np.float32)
    with h5py.File(preset / "model.weights.h5", "a") as f:
        del f["layers/reversible_embedding/vars/0"]
        group = f["layers/reversible_embedding/vars"]
        if kind == "external":
            group["0"] = h5py.ExternalLink(str(secret), "x")
        elif kind == "soft":
            group["0"] = h5py.SoftLink("/layers/embedding/vars/0")
        else:
            group.create_dataset(
                "0", (41, 6), "f4", external=[(str(secret), 0, 41 * 6 * 4)]
            )
    refused(preset, "link, which is not allowed|lies in another file")


def test_hdf5_with_one_dataset_under_two_names_and_groups_in_groups(preset):
    with h5py.File(preset / "model.weights.h5", "a") as f:
        f["layers/dense_1/vars/2"] = f["layers/dense_1/vars/0"]
    refused(preset, "unknown tensor layers/dense_1/vars/2")
    with h5py.File(preset / "model.weights.h5", "a") as f:
        f.create_group("/".join("a" * 2000))
    refused(preset, "nested too deeply")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("AlbertBackbone", "BertBackbone", "expected a preset of keras_hub>AlbertBack"),
        ("num_heads", "heads", "no 'num_heads'"),
    ],
)
def test_preset_of_another_model(preset, old, new, message):
    path = preset / "config.json"
    path.write_text(path.read_text().replace(old, new))
    refused(preset, message)


@pytest.mark.parametrize("text", ["{", "[]", '{"model": {}}', '{"model": 3}', "{}"])
def test_broken_tokenizer_json(tmp_path, text):
    folder = shutil.copytree(HF, tmp_path / "m")
    (folder / "tokenizer.json").write_text(text)
    with pytest.raises(DataError, match=r"tokenizer\.json"):
        load.load_tokenizer(folder)


def test_a_half_uploaded_folder_is_refused(tmp_path):
    folder = shutil.copytree(HF, tmp_path / "m")
    (folder / "INCOMPLETE").write_text("[]")
    refused(folder, "incomplete, its upload was interrupted")
