"""Folders that transformers wrote, read without it; tests/peers runs it for real."""

import json
import shutil

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

import albert_tf
from albert_tf.converters.detect import open_checkpoint
from albert_tf.converters.huggingface import name_table
from albert_tf.errors import DataError
from albert_tf.models.base import weight_names
from tests import tiny
from tests.tiny import assert_same_weights, load_golden

GOLDEN = tiny.GOLDEN / "hf_tiny"
PRETRAINING = GOLDEN / "AlbertForPreTraining"
ANSWERING = GOLDEN / "AlbertForQuestionAnswering"
CONFIG = tiny.CONFIG.replace(vocab_size=41, num_hidden_layers=4)


@pytest.mark.parametrize("folder", [PRETRAINING, ANSWERING], ids=lambda p: p.name)
def test_every_hidden_state_and_attention(folder):
    model = albert_tf.from_pretrained(folder)
    stored, batch = load_golden(folder)
    out = model.backbone(batch, output_hidden_states=True, output_attentions=True)
    found = {f"hidden_states_{i:02d}": x for i, x in enumerate(out["hidden_states"])}
    found |= {f"attentions_{i:02d}": x for i, x in enumerate(out["attentions"])}
    rows, length = batch["token_ids"].shape
    if folder is PRETRAINING:
        batch["mask_positions"] = np.tile(np.arange(length), (rows, 1))
    found |= model(batch)
    found["prediction_logits"] = found.pop("mlm_logits", None)
    names = [
        name[4:] for name in stored if name.startswith("out/") and "loss" not in name
    ]
    for name in names:
        expected = stored[f"out/{name}"]
        np.testing.assert_allclose(found[name], expected, atol=1e-5, err_msg=name)
    assert len(names) > 10


@pytest.mark.parametrize("names", [{"0": "a", "2": "b"}, {"0": 1, "1": "1"}, ["a"]])
def test_labels_need_different_names(names, tmp_path):
    for name in ("RobertaForSequenceClassification", "RobertaModel"):
        shutil.copytree(GOLDEN.with_name("hf_relatives") / name, tmp_path / name)
        path = tmp_path / name / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"id2label": names}))
    with pytest.raises(DataError, match="config.json: id2label must give different"):
        open_checkpoint(tmp_path / "RobertaForSequenceClassification")
    assert open_checkpoint(tmp_path / "RobertaModel").labels is None  # an encoder


def test_gradients_of_every_weight():
    model = albert_tf.from_pretrained(PRETRAINING, head="auto")
    stored, batch = load_golden(PRETRAINING)
    labels, order = stored["in/labels"], stored["in/sentence_order_label"]
    rows, length = labels.shape
    batch["mask_positions"] = np.tile(np.arange(length), (rows, 1))
    weights = weight_names(model)
    with tf.GradientTape() as tape:
        out = model(batch)
        counted = tf.cast(labels != -100, "float32")
        nll = tf.nn.sparse_softmax_cross_entropy_with_logits(
            np.maximum(labels, 0), out["mlm_logits"]
        )
        loss = tf.reduce_sum(nll * counted) / tf.reduce_sum(counted)
        loss += tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(order, out["sop_logits"])
        )
    np.testing.assert_allclose(loss, stored["out/loss"], rtol=1e-6)
    gradients = tape.gradient(loss, [v.value for v in weights.values()])
    ours = dict(zip(weights, map(tf.convert_to_tensor, gradients), strict=True))
    theirs = np.load(PRETRAINING / "grads.npz")
    rows = name_table(model.config, "pretraining", is_bare=False)
    rows = [row for row in rows if row.theirs in theirs]
    assert len(rows) >= 30
    for row in rows:
        expected = row.turn(theirs[row.theirs])
        received = ours[row.ours].numpy()
        if row.ours.endswith("word_embeddings"):
            # Theirs gives the padding token no gradient.
            expected, received = expected[1:], received[1:]
        error = np.abs(received - expected).max()
        # The exact gradient of the key's bias is zero.
        assert error < 1e-4 * max(np.abs(expected).max(), 1e-2), row.ours


def edited(tmp_path, tensors=None, **config):
    """The golden folder with other tensors and config values."""
    folder = shutil.copytree(PRETRAINING, tmp_path / "m")
    values = json.loads((folder / "config.json").read_text())
    values = {k: v for k, v in {**values, **config}.items() if v is not None}
    (folder / "config.json").write_text(json.dumps(values))
    if tensors is not None:
        safetensors.numpy.save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.fixture
def tensors():
    return safetensors.numpy.load_file(PRETRAINING / "model.safetensors")


def test_buffers_and_second_names_of_tied_weights(tmp_path, tensors):
    table = tensors["albert.embeddings.word_embeddings.weight"]
    tensors["predictions.decoder.weight"] = table
    tensors["predictions.decoder.bias"] = tensors.pop("predictions.bias")
    tensors["albert.embeddings.position_ids"] = np.arange(64)[None]
    model = albert_tf.from_pretrained(edited(tmp_path, tensors), head="auto")
    assert model.untrained_weights == []


def test_names_of_models_that_torch_has_wrapped(tmp_path, tensors):
    wrapped = {f"_orig_mod.module.{name}": x for name, x in tensors.items()}
    wrapped = edited(tmp_path, wrapped)
    with open_checkpoint(wrapped) as one, open_checkpoint(PRETRAINING) as other:
        assert one.digest() == other.digest() and not one.unknown
    both = {**tensors, **{f"module.{name}": x for name, x in tensors.items()}}
    safetensors.numpy.save_file(both, tmp_path / "m/model.safetensors")
    with pytest.raises(DataError, match="holds a tensor under two names"):
        open_checkpoint(tmp_path / "m")


def test_output_that_is_not_tied(tmp_path, tensors):
    table = tensors["albert.embeddings.word_embeddings.weight"]
    tensors["predictions.decoder.weight"] = table + 1
    with pytest.raises(DataError, match="output is not tied"):
        albert_tf.from_pretrained(edited(tmp_path, tensors), head="masked_lm")


def test_a_head_of_next_sentences_alone_is_said_to_be_left_out(
    tmp_path, tensors, caplog
):
    tensors = {k: v for k, v in tensors.items() if not k.startswith("predictions.")}
    folder = edited(tmp_path, tensors, architectures=["AlbertForNextSentence"])
    model = albert_tf.from_pretrained(folder, head="auto")
    assert type(model).__name__ == "AlbertBackbone"
    assert "weights that AlbertBackbone does not use: sop_head (2)" in caplog.text


@pytest.mark.parametrize("kind", ["AlbertModel", "AlbertForMaskedLM"])
def test_files_of_the_hub(tmp_path, tensors, kind):
    if kind == "AlbertModel":
        tensors = {k[7:]: v for k, v in tensors.items() if k.startswith("albert.")}
    else:
        tensors = {k: v for k, v in tensors.items() if "sop" not in k}
    folder = edited(tmp_path, tensors, architectures=[kind])
    model = albert_tf.from_pretrained(folder, head="auto")
    expected = {"AlbertModel": "AlbertBackbone"}.get(kind, "AlbertMaskedLM")
    assert type(model).__name__ == expected
    assert getattr(model, "backbone", model).pooler is not None
    model = albert_tf.from_pretrained(folder, head="pretraining")
    assert {"sop_head/bias", "sop_head/kernel"} <= set(model.untrained_weights)


def test_classifier_without_architectures_may_be_any(tmp_path, tensors):
    tensors = {k: v for k, v in tensors.items() if k.startswith("albert.")}
    tensors["classifier.weight"] = np.ones((1, 32), np.float32)
    tensors["classifier.bias"] = np.ones(1, np.float32)
    folder = edited(tmp_path, tensors, architectures=None)
    for head in ("text_classifier", "token_classifier", "multiple_choice"):
        assert albert_tf.from_pretrained(folder, head=head).untrained_weights == []


BERT = CONFIG.replace(sharing="none", embedding_size=12)


def test_bert_without_model_type(tmp_path):
    """Hugging Face's first files."""
    model = albert_tf.AlbertMaskedLM(BERT, seed=1, add_pooler=False)
    albert_tf.save_pretrained(model, tmp_path / "m", format="huggingface")
    where = tmp_path / "m/config.json"
    values = json.loads(where.read_text())
    assert values.pop("model_type") == "bert"
    where.write_text(json.dumps(values))
    again = albert_tf.from_pretrained(tmp_path / "m", head="auto")
    assert again.config.family == "bert"
    assert_same_weights(model, again)
    for key, value in {"architectures": ["XLNet"], "model_type": "deberta"}.items():
        where.write_text(json.dumps({**values, key: value}))
        with pytest.raises(DataError, match=rf"config\.json: .*'{np.ravel(value)[0]}'"):
            albert_tf.from_pretrained(tmp_path / "m", head="auto")
