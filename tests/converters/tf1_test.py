import errno
import json
import os
import re
import shutil
import tarfile

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf.config import AlbertConfig
from albert_tf.converters import load, tf1
from albert_tf.converters.keras_model import from_model
from albert_tf.errors import DataError
from albert_tf.heads import HEADS
from albert_tf.objectives.finetuning import BeamSpan, SingleLabel
from albert_tf.objectives.terms import cross_entropy
from albert_tf.storage import calls, files
from tests import tiny
from tests.tf1_weights import golden_batch, save_tensors, stored_tensors
from tests.tiny import GOLDEN, assert_same_weights, randomize

BASE = GOLDEN / "tf1_tiny/base"
CLASSIFIER = GOLDEN / "tf1_finetune/classifier3"
SQUAD_2 = GOLDEN / "tf1_finetune/squad_v2"
PREFIX = BASE / "albert_model.ckpt"
ORIGINAL = AlbertConfig.from_json(BASE / "albert_config.json")
CONFIG = tiny.CONFIG.replace(vocab_size=41, num_hidden_layers=4)


def write_folder(path, tensors, name="model.ckpt"):
    """Writes a checkpoint next to the original's config."""
    shutil.copy(BASE / "albert_config.json", path)
    save_tensors(path / name, tensors)


@pytest.fixture(scope="module")
def pretrainer():
    return albert_tf.from_pretrained(BASE, head="pretraining")


def test_prefix_archive_and_scope_before_the_names(pretrainer, tmp_path):
    archive = tmp_path / "albert_base.tar.gz"
    with tarfile.open(archive, "w:gz") as f:
        for name in os.listdir(BASE):
            if not name.endswith("npz"):
                f.add(BASE / name, f"albert_base/{name}")
    for path in (PREFIX, archive):
        model = albert_tf.from_pretrained(path, head="auto")
        assert_same_weights(pretrainer, model)
        assert model.config == pretrainer.config
    assert os.listdir(tmp_path) == ["albert_base.tar.gz"]
    tensors = stored_tensors(PREFIX)
    write_folder(tmp_path, {f"module/{name}": v for name, v in tensors.items()})
    assert_same_weights(pretrainer, albert_tf.from_pretrained(tmp_path))


@pytest.mark.parametrize("prefix", [PREFIX, SQUAD_2 / "model.ckpt"])
def test_optimizer_slots_and_counters_are_left_out(prefix, tmp_path):
    tensors = stored_tensors(prefix)
    write_folder(tmp_path, tensors)
    plain = albert_tf.from_pretrained(tmp_path)
    slots = {
        f"{k}/{kind}": v for k, v in tensors.items() for kind in ("adam_m", "adam_v")
    }
    slots["global_step"] = np.int64(125000)
    save_tensors(tmp_path / "model.ckpt", tensors | slots)
    with load.open_checkpoint(tmp_path) as checkpoint:
        assert checkpoint.dropped == sorted(slots)
        assert checkpoint.unknown == []
    assert_same_weights(plain, albert_tf.from_pretrained(tmp_path))


def test_several_checkpoints(tmp_path):
    for step in (10, 20):
        write_folder(tmp_path, stored_tensors(PREFIX), f"model.ckpt-{step}")
    with pytest.raises(DataError, match="2 checkpoints"):
        albert_tf.from_pretrained(tmp_path, head=None)
    assert albert_tf.from_pretrained(tmp_path / "model.ckpt-10", head=None)
    line = 'model_checkpoint_path: "/elsewhere/model.ckpt-20"\n'
    (tmp_path / "checkpoint").write_text(line)
    assert albert_tf.from_pretrained(tmp_path, head=None)


def test_hub_export_has_no_sentence_order(tmp_path):
    (tmp_path / "variables").mkdir()
    (tmp_path / "assets").mkdir()
    (tmp_path / "saved_model.pb").write_bytes(b"never read")
    shutil.copy(BASE / "albert_config.json", tmp_path / "assets")
    tensors = stored_tensors(PREFIX)
    tensors = {k: v for k, v in tensors.items() if "seq_relationship" not in k}
    save_tensors(tmp_path / "variables/variables", tensors)
    model = albert_tf.from_pretrained(tmp_path, head="auto")
    assert isinstance(model, albert_tf.AlbertMaskedLM)
    assert model.untrained_weights == []
    assert model.backbone.pooler is not None  # kept, though unused
    model = albert_tf.from_pretrained(tmp_path, head="pretraining")
    assert model.untrained_weights == ["sop_head/bias", "sop_head/kernel"]


def test_hub_export_without_config_is_recognized_by_its_sizes(tmp_path):
    (tmp_path / "variables").mkdir()
    block = "bert/encoder/transformer/group_0/inner_group_0/ffn_1/intermediate/dense"
    tensors = {
        "bert/embeddings/word_embeddings": np.zeros((30000, 128), np.float32),
        f"{block}/kernel": np.zeros((768, 3072), np.float32),
    }
    save_tensors(tmp_path / "variables/variables", tensors)
    with load.open_checkpoint(tmp_path) as checkpoint:
        assert checkpoint.config == AlbertConfig.from_preset("albert_base_v2")
    tensors[f"{block}/kernel"] = np.zeros((70, 30), np.float32)
    save_tensors(tmp_path / "variables/variables", tensors)
    with pytest.raises(DataError, match=r"no albert_config\.json"):
        albert_tf.from_pretrained(tmp_path, head=None)


def test_classifier_of_the_original():
    model = albert_tf.from_pretrained(CLASSIFIER, config=ORIGINAL)
    assert isinstance(model, albert_tf.AlbertTextClassifier)
    stored = dict(np.load(CLASSIFIER / "io.npz"))
    batch = golden_batch(stored)
    logits = model(batch)
    np.testing.assert_allclose(logits, stored["out/logits"], atol=1e-5)
    labels = stored["in/label_ids"]
    losses = cross_entropy(logits, labels)
    np.testing.assert_allclose(losses, stored["out/per_example_loss"], atol=1e-5)
    objective, batch = SingleLabel(), {**batch, "labels": labels}
    loss = objective.metrics(objective.sums(logits, batch))["loss"]
    np.testing.assert_allclose(loss, stored["out/loss"], atol=1e-5)


def test_beam_of_the_original():
    config = ORIGINAL.replace(classifier_dropout_prob=0.0)
    sizes = {"start_n_top": 3, "end_n_top": 2}
    model = albert_tf.from_pretrained(SQUAD_2, config=config, **sizes)
    assert isinstance(model, albert_tf.AlbertBeamQuestionAnswering)
    assert model.untrained_weights == []
    stored = dict(np.load(SQUAD_2 / "io.npz"))
    batch = {**golden_batch(stored), "p_mask": stored["in/p_mask"]}
    without = {name: value for name, value in batch.items() if name != "p_mask"}
    for given in (batch, without):  # the mask follows from the segments
        out = model(given)
        for name in ("start", "end"):
            index, expected = out[f"{name}_index"], stored[f"out/{name}_top_index"]
            np.testing.assert_array_equal(index, expected)
            values = out[f"{name}_log_probs"], stored[f"out/{name}_top_log_probs"]
            np.testing.assert_allclose(*values, atol=1e-5)
        expected = stored["out/cls_logits"]
        np.testing.assert_allclose(out["cls_logits"], expected, atol=1e-5)
    # The branch that training takes.
    names = ("start_positions", "end_positions", "is_impossible")
    batch = batch | {name: stored[f"in/{name}"] for name in names}
    stored = dict(np.load(SQUAD_2 / "io_train_branch.npz"))
    out = model(batch, training=True)
    for name in ("start", "end"):
        log_probs = tf.nn.log_softmax(out[f"{name}_logits"])
        expected = stored[f"out/{name}_log_probs"]
        np.testing.assert_allclose(log_probs, expected, atol=1e-5, rtol=1e-6)
    np.testing.assert_allclose(out["cls_logits"], stored["out/cls_logits"], atol=1e-5)
    objective = BeamSpan()
    metrics = objective.metrics(objective.sums(out, batch))
    for name in ("loss", "span_loss", "answerability_loss"):
        np.testing.assert_allclose(metrics[name], stored[f"out/{name}"], atol=1e-5)


def test_one_output_may_be_a_choice(tmp_path):
    model = randomize(albert_tf.AlbertTextClassifier(CONFIG, num_labels=1))
    albert_tf.save_pretrained(model, tmp_path / "m", format="tf1")
    for head in ("text_classifier", "multiple_choice"):
        again = albert_tf.from_pretrained(tmp_path / "m", head=head)
        assert again.untrained_weights == []
        kernel = again.classifier.kernel.numpy()
        np.testing.assert_array_equal(kernel, model.classifier.kernel.numpy())


def test_labels_of_several_lines_and_the_length_are_kept(tmp_path):
    model = randomize(albert_tf.AlbertTokenClassifier(CONFIG, num_labels=3))
    model.max_seq_length = 7
    names = ["a", "b\nc", "d"]
    albert_tf.save_pretrained(model, tmp_path / "m", format="tf1", labels=names)
    again = albert_tf.from_pretrained(tmp_path / "m")
    assert list(again.labels) == names
    assert again.max_seq_length == 7
    with pytest.warns(albert_tf.UntrainedWeightsWarning, match="classifier/kernel"):
        albert_tf.from_pretrained(tmp_path / "m", head="text_classifier", num_labels=9)


def test_nothing_is_written_that_the_names_show(tmp_path):
    for head in ("text_classifier", "question_answering", "pretraining"):
        model = randomize(HEADS[head].load_class()(CONFIG))
        albert_tf.save_pretrained(model, tmp_path / head, format="tf1")
        assert not (tmp_path / head / "head.json").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "expected a JSON object"),
        ('{"head": "masked_lm"}', "head must be one of text_classifier, .*'masked_lm'"),
        ('{"head": ["x"]}', "head must be one of"),
        ('{"head": "multiple_choice"}', "multiple_choice has 1 outputs, the .* 3"),
        ('{"head": "token_classifier", "labels": ["a"]}', "labels must be 3 strings"),
        ('{"head": "token_classifier", "labels": "abc"}', "labels must be 3 strings"),
        ('{"head": "text_classifier", "max_seq_length": 0}', "positive integer"),
        ('{"head": "text_classifier", "problem_type": 1}', "must be a string"),
    ],
)
def test_a_damaged_head_file(content, message, tmp_path):
    model = randomize(albert_tf.AlbertTextClassifier(CONFIG, num_labels=3))
    albert_tf.save_pretrained(model, tmp_path / "m", format="tf1")
    (tmp_path / "m/head.json").write_text(content)
    with pytest.raises(DataError, match=message):
        albert_tf.from_pretrained(tmp_path / "m")


def test_a_beam_head_is_complete_or_refused(tmp_path):
    tensors = stored_tensors(SQUAD_2 / "model.ckpt")
    del tensors["end_logits/LayerNorm/gamma"]
    write_folder(tmp_path, tensors)
    with pytest.raises(DataError, match="unknown tensor answer_class/dense_0/bias"):
        albert_tf.from_pretrained(tmp_path)


def test_other_head_is_refused_unless_not_asked_for(tmp_path):
    tensors = stored_tensors(PREFIX)
    tensors["start_logits/dense/kernel"] = np.zeros((32, 1), np.float32)
    write_folder(tmp_path, tensors)
    with pytest.raises(DataError, match="unknown tensor start_logits/dense/kernel"):
        albert_tf.from_pretrained(tmp_path, head="auto")
    assert albert_tf.from_pretrained(tmp_path, head="auto", ignore="^start_logits")
    assert albert_tf.from_pretrained(tmp_path, head="masked_lm")
    tensors["bert/encoder/extra/kernel"] = np.zeros((32, 1), np.float32)
    save_tensors(tmp_path / "model.ckpt", tensors)
    with pytest.raises(DataError, match="unknown tensor bert/encoder/extra/kernel"):
        albert_tf.from_pretrained(tmp_path, head=None)


@pytest.mark.parametrize("prefix", [PREFIX, SQUAD_2 / "model.ckpt"])
def test_written_like_the_original_writes(prefix, tmp_path):
    model = albert_tf.from_pretrained(prefix, config=ORIGINAL)
    albert_tf.save_pretrained(model, tmp_path / "m", format="tf1")
    ours, theirs = stored_tensors(tmp_path / "m" / tf1.PREFIX), stored_tensors(prefix)
    np.testing.assert_equal(ours, theirs)
    assert all(ours[name].dtype == value.dtype for name, value in theirs.items())
    config = json.loads((tmp_path / "m/albert_config.json").read_text())
    original = json.loads((BASE / "albert_config.json").read_text())
    assert config == {k: v for k, v in original.items() if k != "down_scale_factor"}


def test_groups_that_the_original_never_uses(tmp_path):
    """Its floating point skips group 15 of 22; no checkpoint has its variables."""
    sizes = {"num_hidden_layers": 22, "num_hidden_groups": 22}
    config = CONFIG.replace(group_rule="original", **sizes)
    assert 15 not in config.group_numbers()
    model = randomize(albert_tf.AlbertBackbone(config))
    assert config.num_parameters() == model.count_params()
    albert_tf.save_pretrained(model, tmp_path / "m", format="tf1")
    names = stored_tensors(tmp_path / "m" / tf1.PREFIX)
    assert not any("/group_15/" in name for name in names)
    assert any("/group_21/" in name for name in names)
    with load.open_checkpoint(tmp_path / "m") as again:
        assert again.config.group_rule == "original"
        assert again.digest() == from_model(model).digest()


def test_names_of_own_layer_norms():
    config = CONFIG.replace(num_hidden_layers=12, share_layer_norm=False)
    names = {row.theirs for row in tf1.name_table(config)}
    stem = "bert/encoder/transformer/"
    # Listed in google-research/albert issue 241.
    for name in (
        "group_0_7/layer_7/inner_group_0/layer_normalization_15/gamma",
        "group_0_7/layer_7/inner_group_0/layer_normalization_16/beta",
        "group_0_8/layer_8/inner_group_0/layer_normalization_17/beta",
        "group_0_2/layer_2/inner_group_0/layer_normalization_5/beta",
    ):
        assert stem + name in names
    assert not any("LayerNorm" in name for name in names)


@pytest.mark.parametrize("numbers", [lambda n: n + 5, lambda n: 3 * n + n // 4])
def test_own_layer_norms_are_told_apart_by_the_order_of_their_numbers(
    tmp_path, numbers
):
    config = CONFIG.replace(share_layer_norm=False)
    model = randomize(albert_tf.AlbertPretrainer(config))
    albert_tf.save_pretrained(model, tmp_path / "m", format="tf1")
    prefix = tmp_path / "m" / tf1.PREFIX

    def renumbered(name):
        norm = re.fullmatch(r"(.*/layer_normalization)(?:_(\d+))?(/\w+)", name)
        return f"{norm[1]}_{numbers(int(norm[2] or 0))}{norm[3]}" if norm else name

    tensors = {renumbered(k): v for k, v in stored_tensors(prefix).items()}
    assert len(tensors.keys() - stored_tensors(prefix).keys()) >= 8
    save_tensors(prefix, tensors)
    assert_same_weights(model, albert_tf.from_pretrained(tmp_path / "m", head="auto"))


def flipped(content):
    return content[:100] + bytes([content[100] ^ 1]) + content[101:]


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("data-00000-of-00001", lambda content: content[:5000], ""),
        ("data-00000-of-00001", flipped, "cannot be read"),
        ("data-00000-of-00001", None, "0 of its data files"),
        ("index", lambda content: b"", "not a TensorFlow checkpoint"),
        ("index", lambda content: b"nonsense" * 20, "not a TensorFlow checkpoint"),
    ],
)
def test_damaged_files(name, change, message, tmp_path):
    folder = shutil.copytree(BASE, tmp_path / "m[1]")  # no pattern
    path = folder / f"albert_model.ckpt.{name}"
    content = path.read_bytes()
    path.unlink()
    if change:
        path.write_bytes(change(content))
    with pytest.raises(DataError, match=message) as error:
        albert_tf.from_pretrained(folder, head=None)
    assert "\n" not in str(error.value)
    assert "ram://" not in str(error.value)


def test_a_read_that_fails_is_no_damage(monkeypatch):
    def fail(*args):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(calls, "WAITS", ())
    monkeypatch.setattr(files, "open_binary", fail)
    with pytest.raises(DataError, match="cannot be read: Input/output error"):
        tf1.read_tensors(str(PREFIX))
