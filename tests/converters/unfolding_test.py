"""In other formats, the weights of single layers are merged into unshared layers."""

import numpy as np
import pytest

import albert_tf
from albert_tf.converters.convert import convert_checkpoint
from albert_tf.converters.keras_model import from_model
from albert_tf.converters.unfolding import for_format
from albert_tf.errors import DataError, UsageError
from tests.converters.as_electra_test import batch_of, convert
from tests.models.base_test import assert_equal_outputs
from tests.tiny import make_model, randomize

CLOSE = {"atol": 1e-5, "rtol": 1e-5}
OWN = {"vocab_size": 41, "depth_rank": 2, "depth_embedding": True}
SQUARE = {**OWN, "embedding_size": 12, "hidden_act": "gelu"}
ELECTRA = {**OWN, "family": "electra", "hidden_act": "gelu"}
ROBERTA = {**SQUARE, "family": "roberta", "position_offset": 2, "sharing": "attention"}


@pytest.mark.parametrize(
    ("format", "head", "changes", "family"),
    [
        ("huggingface", "pretraining", OWN, "albert"),
        ("huggingface", "masked_lm", SQUARE, "bert"),
        ("huggingface", "masked_lm", ROBERTA, "roberta"),
        ("keras_hub", "text_classifier", {**OWN, "sharing": "ffn"}, "albert"),
        ("tf1", None, {**OWN, "inner_group_num": 2}, "albert"),
        ("tf1", "discriminator", {**ELECTRA, "share_layer_norm": False}, "electra"),
        ("electra", "token_classifier", {**OWN, "depth_matrices": ["key"]}, "electra"),
    ],
)
def test_unshared_layers_compute_the_same(format, head, changes, family, tmp_path):
    model = randomize(make_model(head, **changes))
    albert_tf.save_pretrained(model, tmp_path / "ours")
    command = convert if format == "huggingface" else convert_checkpoint
    report = command(tmp_path / "ours", tmp_path / "m", format)
    again = albert_tf.from_pretrained(tmp_path / "m")
    assert type(again) is type(model) and again.untrained_weights == []
    config = again.config
    assert (config.family, config.has_depth_weights) == (family, False)
    count = {row.attention for row in config.layer_table()}
    assert len(count) == len(model.config.layer_table())
    batch = batch_of() | {"mask_positions": np.array([[1], [3], [0]], np.int32)}
    assert_equal_outputs(again(batch), model(batch), **CLOSE)
    assert any("layers with weights of their own" in note for note in report.notes)
    assert any("so only the last layer's states are" in note for note in report.notes)
    if head is None:  # a model in memory is unfolded by the same function
        albert_tf.save_pretrained(model, tmp_path / "n", format=format)
        again = albert_tf.from_pretrained(tmp_path / "n")
        assert_equal_outputs(again(batch), model(batch), **CLOSE)


@pytest.mark.parametrize("vectors", [False, True])
def test_without_vectors_every_state_is_compared(tmp_path, vectors):
    model = randomize(make_model(**SQUARE | {"depth_embedding": vectors}))
    albert_tf.save_pretrained(model, tmp_path / "ours")
    report = convert_checkpoint(tmp_path / "ours", tmp_path / "m", "huggingface")
    between = set() if vectors else {"embeddings", "projection", "layer 1"}
    assert report.outputs.keys() == {"layer 2", "pooler"} | between
    assert all(row["reload"] < 1e-5 for row in report.outputs.values())


def test_what_a_format_cannot_hold_is_refused(tmp_path):
    model = make_model(**ROBERTA | {"embedding_size": 6})
    albert_tf.save_pretrained(model, tmp_path / "m")
    with pytest.raises(UsageError, match="needs embedding_projection=False"):
        convert_checkpoint(tmp_path / "m", tmp_path / "n", "huggingface")
    assert not (tmp_path / "n").exists()
    source = from_model(model)
    source.config = model.config.replace(depth_rank=3)
    with pytest.raises(DataError, match=r"_a must have shape \(12, 3\), received"):
        for_format(source, "tf1")
