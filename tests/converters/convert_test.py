import json
import os
import shutil
import tarfile

import numpy as np
import pytest
import safetensors.numpy

from albert_tf.converters import load, parity
from albert_tf.converters.checkpoint import Checkpoint
from albert_tf.converters.convert import convert_checkpoint
from albert_tf.errors import DataError, UsageError
from albert_tf.storage import hubs
from albert_tf.text.sentencepiece import AlbertTokenizer
from tests.commands import run_command
from tests.converters.as_electra_test import convert
from tests.openings import count_openings
from tests.tiny import CONFIG, GOLDEN, SPIECE

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


def test_heads_that_are_there_are_compared_without_those_that_are_not(tmp_path):
    source = shutil.copytree(HF, tmp_path / "source")
    tensors = safetensors.numpy.load_file(source / "model.safetensors")
    tensors = {name: value for name, value in tensors.items() if "sop" not in name}
    safetensors.numpy.save_file(tensors, source / "model.safetensors")
    arguments = {"head": "pretraining", "ignore": "sop_head"}
    report = convert_checkpoint(source, tmp_path / "m", "albert_tf", **arguments)
    assert {*report.outputs} == {*PARTS[:-1], "mlm_logits"}


def test_a_batch_of_choices_lies_in_one_piece_as_transformers_needs_it():
    checkpoint = Checkpoint("huggingface", "x", CONFIG, {}, head="multiple_choice")
    batch = parity.make_batch(checkpoint)
    assert all(value.flags.c_contiguous for value in batch.values())


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
    report = convert(source, target, "albert_tf", head=None)
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
    report = convert(source, tmp_path / "m", "tf1", ignore="^other_head")
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


def test_command(tmp_path):
    arguments = [f"--init_checkpoint={BASE}", f"--output={tmp_path}/m", "--to=tf1"]
    result = run_command("convert_checkpoint", *arguments)
    assert (result.code, result.err) == (0, "")
    assert "equal bit for bit: 32" in result.out
    assert (tmp_path / "m/model.ckpt-best.index").exists()
    refused = run_command("convert_checkpoint", *arguments)
    assert refused.code == 2 and "exists already" in refused.error
    again = (*arguments, "--overwrite", "--verify=none")
    assert run_command("convert_checkpoint", *again).code == 0
    arguments = [f"--input={tmp_path}", "--output=x", "--format=tf1"]
    refused = run_command("convert_checkpoint", *arguments)
    assert refused.code == 1 and len(refused.err.splitlines()) == 1


def test_each_checkpoint_is_opened_once(model_folder, tmp_path, monkeypatch):
    """Archives are large, and so are digests."""
    source = str(tmp_path / "mlm.tar.gz")
    with tarfile.open(source, "w:gz") as f:
        f.add(model_folder("masked_lm"), "mlm")
    out = str(tmp_path / "out")
    for command, paths in (  # a conversion opens what it has written, too
        (lambda: convert_checkpoint(source, out, "huggingface"), 2),
        (lambda: load.from_pretrained(source), 1),
    ):
        with monkeypatch.context() as patch:
            counts = count_openings(patch)
            command()
        assert set(counts.values()) == {1}
        opened = [path for what, path in counts if what == "open"]
        assert source in opened and len(opened) == paths
        assert ("extract", source) in counts


@pytest.mark.parametrize("lower", [False, True])
def test_texts_that_differ_are_counted_and_shown(lower):
    other = AlbertTokenizer(SPIECE, do_lower_case=lower)
    ids = {"reload": other.encode_batch(parity.TEXTS)}
    texts = parity.compare_texts(AlbertTokenizer(SPIECE), ids)
    differ = texts["differ"]["reload"]
    assert ("MiXeD CaSe iPhone NASA" in differ) == (not lower)
    assert "" not in differ
    report = parity.Report("a", "b", "tf1", "tf1", None, texts=texts)
    line = report.to_text().split("\n")[-1]
    count = f"{len(differ)} of {len(parity.TEXTS)}"
    assert line.startswith(f"texts with other ids, re-loaded: {count}")
    assert (", such as 'The" in line) == (not lower)
