import json
import os
import pathlib
import shutil

import numpy as np
import pytest
import safetensors.numpy

from albert_tf.converters import load, parity
from albert_tf.converters.convert import convert_checkpoint
from albert_tf.errors import DataError, UsageError
from albert_tf.storage import hubs
from tests.tiny import SPIECE

ROOT = pathlib.Path(__file__).parents[2]
GOLDEN = ROOT / "tests/golden"
BASE = GOLDEN / "tf1_tiny/base"
HF = GOLDEN / "hf_tiny/AlbertForPreTraining"
PARTS = ["embeddings", "projection", *(f"layer {i}" for i in range(1, 5)), "pooler"]


def test_report(tmp_path):
    report = convert_checkpoint(BASE, tmp_path / "hf", "huggingface")
    assert report.head == "pretraining"
    assert len(report.matched) == 32
    assert all(row["equal"] for row in report.matched)
    assert report.parameters == 28858
    assert set(report.outputs) == {*PARTS, "mlm_logits", "sop_logits"}
    assert all(row["reload"] == 0 for row in report.outputs.values())
    written = json.loads((tmp_path / "hf/parity.json").read_text())
    assert written["outputs"] == report.outputs
    text = (tmp_path / "hf/parity.txt").read_text()
    assert "tensors matched: 32, equal bit for bit: 32" in text
    assert "sop_logits" in text


def test_a_model_by_name_is_reported_with_its_commit(tmp_path, monkeypatch):
    found = hubs.Download(str(HF), "hf://owner/name@0123")
    monkeypatch.setattr(hubs, "download", {"hf://owner/name": found}.get)
    asked = []
    peer = parity.Peer((), lambda _, path, batch: asked.append(path) or {}, None)
    monkeypatch.setattr(parity, "find_peer", {"huggingface": peer}.get)
    out = str(tmp_path / "out")
    report = convert_checkpoint("hf://owner/name", out, "albert_tf", verify="peer")
    assert report.source == found.origin
    # Another library reads the files, which it would not find by that name.
    assert asked == [str(HF)]
    assert report.notes == ["albert_tf: no library to compare with"]


def test_every_pair_of_formats_keeps_every_bit(tmp_path):
    first = safetensors.numpy.load_file(HF / "model.safetensors")
    source = HF
    for step, format in enumerate(("tf1", "albert_tf", "huggingface")):
        target = tmp_path / str(step)
        convert_checkpoint(source, target, format, verify="none")
        source = target
    last = safetensors.numpy.load_file(source / "model.safetensors")
    assert first.keys() == last.keys()
    for name, value in first.items():
        np.testing.assert_array_equal(value, last[name], err_msg=name)


def test_leftovers_are_an_error_unless_named(tmp_path):
    target = tmp_path / "m"
    arguments = (HF, target, "huggingface")
    with pytest.raises(DataError, match="only the source has backbone/pooler/bias"):
        convert_checkpoint(*arguments, head="masked_lm")
    assert os.listdir(tmp_path) == []
    report = convert_checkpoint(*arguments, head="masked_lm", ignore="pooler")
    assert report.only_in_source


def test_the_encoder_alone_keeps_nothing_of_its_head(tmp_path):
    source, target = tmp_path / "source", tmp_path / "m"
    model = load.from_pretrained(HF, head="text_classifier", num_labels=1)
    model.max_seq_length, model.problem_type = 5, "regression"
    load.save_pretrained(model, source)
    report = convert_checkpoint(source, target, "albert_tf", head=None)
    assert report.only_in_source == ["classifier/bias", "classifier/kernel"]
    encoder = load.from_pretrained(target)
    # Else texts are cut to a length that the encoder was not asked to have.
    assert encoder.max_seq_length is None
    assert encoder.problem_type is encoder.task is None


def test_unknown_tensor(tmp_path):
    source = shutil.copytree(HF, tmp_path / "source")
    tensors = safetensors.numpy.load_file(source / "model.safetensors")
    tensors["other_head.weight"] = np.zeros((2, 2), np.float32)
    safetensors.numpy.save_file(tensors, source / "model.safetensors")
    with pytest.raises(DataError, match=r"unknown tensor other_head\.weight"):
        convert_checkpoint(source, tmp_path / "m", "tf1")
    report = convert_checkpoint(source, tmp_path / "m", "tf1", ignore="^other_head")
    assert report.dropped == ["other_head.weight"]


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"format": "onnx"}, UsageError, "format must be one of"),
        ({"head": "ner"}, UsageError, "head must be one of"),
        ({"verify": "maybe"}, UsageError, "verify must be one of"),
        ({"ignore": "("}, UsageError, "not a regular expression"),
        ({"tokenizer": SPIECE}, DataError, "30000 pieces.*vocab_size is 1000"),
        ({"head": "text_classifier"}, DataError, "holds no classifier, which a text_"),
    ],
)
def test_what_is_refused_leaves_nothing(changes, kind, message, tmp_path):
    arguments = {"format": "albert_tf", **changes}
    with pytest.raises(kind, match=message):
        convert_checkpoint(HF, tmp_path / "m", **arguments)
    assert os.listdir(tmp_path) == []


def test_command(tmp_path, run_python):
    tool = ROOT / "tools/convert_checkpoint.py"
    arguments = [f"--init_checkpoint={BASE}", f"--output={tmp_path}/m", "--to=tf1"]
    result = run_python(tool, *arguments)
    assert (result.returncode, result.stderr) == (0, "")
    assert "equal bit for bit: 32" in result.stdout
    assert (tmp_path / "m/model.ckpt-best.index").exists()
    result = run_python(tool, *arguments)
    assert result.returncode == 2
    assert result.stderr.startswith("error: ")
    assert "exists already" in result.stderr
    assert run_python(tool, *arguments, "--overwrite").returncode == 0
    result = run_python(tool, f"--input={tmp_path}", "--output=x", "--format=tf1")
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
