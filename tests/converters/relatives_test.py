"""RoBERTa's, ELECTRA's and BERT's old folders, as transformers wrote and ran them."""

import json
import shutil

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

import albert_tf
from albert_tf.config import AlbertConfig
from albert_tf.converters.detect import open_checkpoint
from albert_tf.errors import DataError
from albert_tf.heads import find
from albert_tf.models.tensorflow import fast_forward
from tests import tiny
from tests.converters.as_electra_test import convert
from tests.tiny import load_golden, make_model, randomize

GOLDEN = tiny.GOLDEN / "hf_relatives"
FOLDERS = {
    "BertForMaskedLM": "masked_lm",
    "RobertaModel": None,
    "RobertaForMaskedLM": "masked_lm",
    "RobertaForSequenceClassification": "text_classifier",
    "ElectraForPreTraining": "discriminator",
    "ElectraForMaskedLM": "masked_lm",
    "ElectraForSequenceClassification": "text_classifier",
    "ElectraForMultipleChoice": "multiple_choice",
}
ALBERTS = ("../hf_tiny/AlbertForPreTraining", "../hf_tiny/AlbertForQuestionAnswering")
CLOSE = {"atol": 1e-5, "rtol": 1e-5}


def outputs_of(model, batch):
    """Every hidden state and the answer, by the names in the golden files."""
    flat = {k: v.reshape(-1, v.shape[-1]) for k, v in batch.items()}
    backbone = getattr(model, "backbone", model)
    out = backbone(flat, output_hidden_states=True)
    found = {"hidden_states": np.stack(out["hidden_states"])}
    if model is backbone:
        found["last_hidden_state"] = out["sequence_output"]
        found["pooler_output"] = out.get("pooled_output")
    else:
        found["logits"] = model(batch)
    return found


@pytest.mark.parametrize("name", FOLDERS)
def test_every_output_padded_positions_included(name, tmp_path):
    model = albert_tf.from_pretrained(GOLDEN / name)
    assert type(model) is find(FOLDERS[name]).load_class()
    assert model.untrained_weights == []
    folder = edited(tmp_path, name, architectures=None)
    with open_checkpoint(folder) as checkpoint:
        assert checkpoint.head == FOLDERS[name]
    assert name.lower().startswith(model.config.family)
    stored, batch = load_golden(GOLDEN / name)
    found = outputs_of(model, batch)
    names = [key[4:] for key in stored if key.startswith("out/")]
    assert "hidden_states" in names and len(names) > 1
    for k in names:
        np.testing.assert_allclose(found[k], stored[f"out/{k}"], err_msg=k, **CLOSE)


@pytest.mark.parametrize("name", [*FOLDERS, *ALBERTS])
def test_both_ways_bit_for_bit(name, tmp_path):
    convert(GOLDEN / name, tmp_path / "ours", "albert_tf")
    convert(tmp_path / "ours", tmp_path / "m", "huggingface")
    first = safetensors.numpy.load_file(GOLDEN / name / "model.safetensors")
    second = safetensors.numpy.load_file(tmp_path / "m/model.safetensors")
    with safetensors.safe_open(tmp_path / "m/model.safetensors", "np") as file:
        assert file.metadata() == {"format": "pt"}
    new = {"gamma": "weight", "beta": "bias"}
    for old in list(first):
        stem, _, part = old.rpartition(".")
        first[f"{stem}.{new.get(part, part)}"] = first.pop(old)
    tied = {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}
    kept = {key: value for key, value in first.items() if key not in tied}
    np.testing.assert_equal(second, kept)
    before = json.loads((GOLDEN / name / "config.json").read_text())
    after = json.loads((tmp_path / "m/config.json").read_text())
    for key in (before.keys() & after.keys()) - {"transformers_version"}:
        if before[key] is not None:
            assert after[key] == before[key], key
    config = AlbertConfig.from_json(tmp_path / "m/config.json")
    assert after["model_type"] == config.family


@pytest.mark.parametrize("name", ["RobertaForMaskedLM", "ElectraForPreTraining"])
def test_the_forward_of_exported_models(name):
    model = albert_tf.from_pretrained(GOLDEN / name)
    forward = fast_forward.choose(model, "float32")
    stored, batch = load_golden(GOLDEN / name)
    with fast_forward.replacing(model, forward):
        found = outputs_of(model, batch)
    assert not forward.left_to_keras
    for key, value in found.items():
        np.testing.assert_allclose(value, stored[f"out/{key}"], **CLOSE)


def test_packed_rows_restart_at_the_offset():
    model = albert_tf.from_pretrained(GOLDEN / "RobertaModel")
    rng = np.random.default_rng(1)
    first, second = rng.integers(2, 29, (1, 4)), rng.integers(2, 29, (1, 5))
    batch = {
        "token_ids": np.hstack([first, second, np.ones((1, 2), int)]),
        "padding_mask": np.array([[1] * 9 + [0] * 2]),
        "pack_ids": np.array([[1] * 4 + [2] * 5 + [0] * 2]),
        "position_ids": np.array([[*range(4), *range(5), 0, 0]]),
    }
    packed = model({k: v.astype("int32") for k, v in batch.items()})
    for ids, part in ((first, slice(0, 4)), (second, slice(4, 9))):
        alone = model(ids.astype("int32"))["sequence_output"]
        np.testing.assert_allclose(packed["sequence_output"][:, part], alone, **CLOSE)


def test_rows_that_are_too_long_and_segments_that_are_not_there():
    model = albert_tf.from_pretrained(GOLDEN / "RobertaModel")
    with pytest.raises(ValueError, match="max_position_embeddings=12, received 13"):
        model(np.full((1, 13), 5))
    batch = {"token_ids": np.full((1, 4), 5), "segment_ids": np.eye(4, dtype=int)[:1]}
    for compute in (model, model.predict, model.evaluate, model.fit):
        with pytest.raises(ValueError, match="below type_vocab_size=1, received 1"):
            compute(batch)


@pytest.mark.slow
def test_segments_that_are_not_there_in_a_data_set():
    config = AlbertConfig.from_pretrained(GOLDEN / "RobertaModel")
    config = config.replace(num_hidden_layers=1)
    model = albert_tf.AlbertTextClassifier(config, num_labels=2, seed=1)
    model.compile(jit_compile=True)

    def rows(segments, has_labels=True):
        ids = np.full((4, 4), 5)
        batch = {"token_ids": ids, "segment_ids": np.array([segments] * 4)}
        data = (batch, np.eye(4)[:, :2]) if has_labels else batch
        return tf.data.Dataset.from_tensor_slices(data).batch(2)

    with pytest.raises(tf.errors.InvalidArgumentError, match="type_vocab_size=1"):
        model.predict(rows([0, 1, 0, 0], has_labels=False))
    model.compile(loss="mse", run_eagerly=True)
    for compute in (model.predict, model.evaluate, model.fit):
        with pytest.raises(tf.errors.InvalidArgumentError, match="type_vocab_size=1"):
            compute(rows([0, 1, 0, 0]))
        compute(rows([0] * 4))
    with pytest.raises(tf.errors.InvalidArgumentError, match="type_vocab_size=1"):
        model.fit(rows([0] * 4), validation_data=rows([0, 0, 0, 1]))
    by_place = (None, None, 1, 0, None, 0.0, rows([0, 0, 0, 1]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="type_vocab_size=1"):
        model.fit(rows([0] * 4), *by_place)
    # As in arrays, they may have any type.
    for dtype in ("bool", "uint8", "float32"):
        ids = np.full((2, 4), 5)
        batch = {"token_ids": ids, "segment_ids": np.zeros((2, 4), dtype)}
        model.predict(tf.data.Dataset.from_tensors(batch))


def edited(tmp_path, name, tensors=None, **config):
    folder = shutil.copytree(GOLDEN / name, tmp_path / "edited")
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**values, **config}))
    if tensors:
        path = folder / "model.safetensors"
        tensors = {**safetensors.numpy.load_file(path), **tensors}
        safetensors.numpy.save_file(tensors, path)
    return folder


DECODERS = {
    "RobertaForMaskedLM": ("lm_head.decoder.weight", 16),
    "ElectraForMaskedLM": ("generator_lm_head.weight", 8),
}


@pytest.mark.parametrize("name", DECODERS)
def test_tied_and_untied_outputs(name, tmp_path):
    decoder, size = DECODERS[name]
    stem = name.partition("For")[0].lower()
    stored = safetensors.numpy.load_file(GOLDEN / name / "model.safetensors")
    table = stored[f"{stem}.embeddings.word_embeddings.weight"]
    buffer = {f"{stem}.embeddings.position_ids": np.arange(12)[None]}
    folder = edited(tmp_path, name, {decoder: table, **buffer})
    assert albert_tf.from_pretrained(folder).untrained_weights == []
    shutil.rmtree(folder)
    assert table.shape == (29, size)
    folder = edited(tmp_path, name, {decoder: table + 1})
    with pytest.raises(DataError, match="output is not tied|whose output is not tied"):
        albert_tf.from_pretrained(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pad_token_id": None}, "pad_token_id must be an integer"),
        ({"pad_token_id": 13}, "max_position_embeddings must be an integer above 14"),
        ({"pad_token_id": 4}, "must have shape"),
        ({"summary_activation": "tanh"}, "summary_activation must be 'gelu'"),
        ({"model_type": "deberta"}, "model_type must be albert or bert or roberta"),
    ],
)
def test_config_files_of_other_models(tmp_path, changes, message):
    # With another padding id, the same table has room for rows of another length.
    folder = edited(tmp_path, "RobertaModel", **changes)
    if changes == {"pad_token_id": 4}:
        config = AlbertConfig.from_json(folder / "config.json")
        assert (config.position_offset, config.max_position_embeddings) == (5, 9)
        return
    with pytest.raises(DataError, match=message):
        albert_tf.from_pretrained(folder)


def test_architectures_without_a_model_type(tmp_path):
    folder = edited(tmp_path, "RobertaForMaskedLM")
    values = json.loads((folder / "config.json").read_text())
    del values["model_type"]
    (folder / "config.json").write_text(json.dumps(values))
    assert albert_tf.from_pretrained(folder).config.family == "roberta"


def test_layers_of_groups_of_their_own_are_plain_layers(tmp_path):
    changes = {"family": "roberta", "position_offset": 2, "num_hidden_groups": 2}
    sizes = {"embedding_size": 12, "vocab_size": 41}
    model = randomize(make_model("masked_lm", **sizes, **changes))
    albert_tf.save_pretrained(model, tmp_path / "m", format="huggingface")
    again = albert_tf.from_pretrained(tmp_path / "m")
    ids = np.arange(3, 12)[None]
    np.testing.assert_allclose(again(ids), model(ids), **CLOSE)
