"""What all models have in common: names, seeds, saving, input checks."""

import pathlib

import keras
import numpy as np
import pytest

from albert_tf.heads import HEADS, all_rows
from albert_tf.models.backbone import AlbertBackbone
from albert_tf.models.base import as_inputs, weight_names
from albert_tf.models.classifiers import (
    AlbertMultipleChoice,
    AlbertTextClassifier,
    AlbertTokenClassifier,
)
from albert_tf.models.masked_lm import AlbertMaskedLM, AlbertPretrainer
from albert_tf.models.question_answering import AlbertBeamQuestionAnswering
from tests.tiny import tiny_config

GOLDEN = pathlib.Path(__file__).parents[1] / "golden/weight_names.txt"
CONFIG = tiny_config(
    vocab_size=53,
    num_hidden_layers=3,
    num_hidden_groups=2,
    num_attention_heads=2,
    max_position_embeddings=11,
    type_vocab_size=3,
    hidden_dropout_prob=0.1,
    attention_probs_dropout_prob=0.1,
)
MODELS = [row.load_class() for row in all_rows()]


def make_model(model_class, config=CONFIG, **kwargs):
    if model_class is AlbertTokenClassifier:
        kwargs["num_labels"] = 5
    return model_class(config, **kwargs)


def make_inputs(model_class):
    B, T, P = 2, 7, 3
    rng = np.random.default_rng(0)
    shape = (B, 4, T) if model_class is AlbertMultipleChoice else (B, T)
    mask = np.ones(shape, "int32")
    mask[1, ..., 5:] = 0
    inputs = {
        "token_ids": rng.integers(0, 53, shape).astype("int32"),
        "segment_ids": rng.integers(0, 3, shape).astype("int32"),
        "padding_mask": mask,
    }
    if model_class is AlbertPretrainer:
        inputs["mask_positions"] = rng.integers(0, T, (B, P)).astype("int32")
    return inputs


def flat(outputs):
    return {
        str(k): keras.ops.convert_to_numpy(keras.ops.cast(v, "float32"))
        for k, v in (outputs if isinstance(outputs, dict) else {0: outputs}).items()
    }


def assert_equal_outputs(one, other, **tolerance):
    one, other = flat(one), flat(other)
    assert set(one) == set(other)
    for name in one:
        np.testing.assert_allclose(one[name], other[name], err_msg=name, **tolerance)


def test_weight_names_are_those_of_the_golden_file():
    # Checkpoints, converters and the optimizers' exclusions depend on them.
    lines = [
        f"{name} {list(weight.shape)}"
        for name, weight in weight_names(AlbertPretrainer(CONFIG, name="any")).items()
    ]
    assert lines == GOLDEN.read_text().splitlines()


@pytest.mark.parametrize("model_class", MODELS[1:])
def test_weight_names_do_not_depend_on_the_model(model_class):
    names = weight_names(make_model(model_class, name="some_name"))
    backbone = {n for n in names if n.startswith("backbone/")}
    own = weight_names(AlbertBackbone(CONFIG, name="other"))
    missing = {f"backbone/{n}" for n in own} - backbone
    assert missing in (set(), {"backbone/pooler/kernel", "backbone/pooler/bias"})
    heads = {n.partition("/")[0] for n in set(names) - backbone}
    known = {row.load_class(): set(row.parts) for row in HEADS.values()}
    assert heads == known[model_class]
    assert len(names) == len(make_model(model_class).trainable_weights)


@pytest.mark.parametrize("model_class", MODELS)
def test_seeds_decide_the_initial_weights(model_class):
    one, two, other = (weight_names(make_model(model_class, seed=s)) for s in (3, 3, 4))
    for name in one:
        a, b, c = (weights[name].numpy() for weights in (one, two, other))
        np.testing.assert_array_equal(a, b)
        if a.ndim == 2:
            assert np.abs(a - c).max() > 0.1, name


@pytest.mark.parametrize("model_class", MODELS)
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_a_saved_model_computes_the_same(model_class, policy, tmp_path):
    model = make_model(model_class, seed=3, dtype=policy)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded) is model_class
    assert loaded.config == CONFIG
    assert loaded.dtype_policy.name == policy
    names = {layer.dtype_policy.name for layer in loaded._flatten_layers()}
    # The beam head computes in float32 whatever the policy.
    is_beam = model_class is AlbertBeamQuestionAnswering
    assert names == {policy} | ({"float32"} if is_beam else set())
    inputs = make_inputs(model_class)
    assert_equal_outputs(model(inputs), loaded(inputs), atol=0)


@pytest.mark.parametrize("model_class", MODELS)
def test_half_precision(model_class):
    config = CONFIG.replace(initializer_range=0.05)
    half = make_model(model_class, config, seed=3, dtype="mixed_bfloat16")
    full = make_model(model_class, config, seed=3)
    inputs = make_inputs(model_class)
    outputs = half(inputs)
    assert_equal_outputs(outputs, full(inputs), atol=0.1)
    assert {w.dtype for w in half.weights} == {"float32"}
    for name, value in (
        outputs if isinstance(outputs, dict) else {"": outputs}
    ).items():
        special = {"output": "bfloat16", "index": "int32"}
        expected = special.get(name.rpartition("_")[2], "float32")
        assert keras.backend.standardize_dtype(value.dtype) == expected, name


@pytest.mark.parametrize("model_class", MODELS)
def test_ids_may_be_floats(model_class):
    # bfloat16 has no 259.
    config = CONFIG.replace(vocab_size=300, initializer_range=0.05)
    model = make_model(model_class, config, seed=3, dtype="mixed_bfloat16")
    inputs = make_inputs(model_class)
    inputs["token_ids"] = inputs["token_ids"] + 247
    floats = {name: value.astype("float32") for name, value in inputs.items()}
    assert_equal_outputs(model(floats), model(inputs), atol=0)


@pytest.mark.parametrize("model_class", MODELS)
def test_a_functional_model_around_it(model_class):
    model = make_model(model_class, seed=3)
    inputs = make_inputs(model_class)
    symbolic = {
        name: keras.Input((None,) * (value.ndim - 1), dtype="int32", name=name)
        for name, value in inputs.items()
    }
    outer = keras.Model(symbolic, model(symbolic))
    assert_equal_outputs(outer(inputs), model(inputs), atol=1e-6)
    shorter = {k: v if k == "mask_positions" else v[..., :5] for k, v in inputs.items()}
    shorter["mask_positions"] = inputs.get("mask_positions", np.zeros((2, 1))) % 5
    shorter = {k: v.astype("int32") for k, v in shorter.items() if k in symbolic}
    assert_equal_outputs(outer(shorter), model(shorter), atol=1e-6)


def test_a_config_must_be_one():
    with pytest.raises(ValueError, match="must be an AlbertConfig, received dict"):
        AlbertBackbone({"vocab_size": 53})


@pytest.mark.parametrize(
    "inputs, message",
    [
        ({"segment_ids": 0}, "inputs must have 'token_ids', received segment_ids"),
        ({"input_ids": 0}, "has the key 'input_ids', which is 'token_ids' here"),
        ({"token_ids": 0, "attention_mask": 0}, "which is 'padding_mask' here"),
        ({"token_ids": 0, "token_type_ids": 0}, "which is 'segment_ids' here"),
        ([0, 0], "must be a dict or one tensor, received a list"),
    ],
)
def test_inputs_of_other_packages_are_refused(inputs, message):
    with pytest.raises(ValueError, match=message):
        as_inputs(inputs)


def test_what_a_model_needs_is_named():
    with pytest.raises(ValueError, match="must have 'mask_positions', received"):
        AlbertPretrainer(CONFIG)({"token_ids": np.ones((1, 4), "int32")})


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("kind", MODELS)
def test_summary_shows_every_shape(kind, nested):
    lines = []
    model = make_model(kind, seed=1)
    model.summary(print_fn=lines.append, expand_nested=nested)
    text = "\n".join(map(str, lines))
    assert ("encoder" in text) == (nested or kind is AlbertBackbone)
    assert f"(None, None, {CONFIG.hidden_size})" in text
    assert "?" not in text
    shapes = getattr(model, "backbone", model).compute_output_shape((None, 7))
    assert shapes["sequence_output"] == (None, 7, CONFIG.hidden_size)


@pytest.mark.parametrize("frozen", ["", "backbone", "backbone/embeddings"])
def test_what_is_frozen_stays_frozen(frozen, tmp_path):
    model = AlbertTextClassifier(CONFIG, num_labels=3, seed=1)
    part = model
    for name in filter(None, frozen.split("/")):
        part = getattr(part, name)
    part.trainable = False
    count = len(model.trainable_weights)
    assert count < len(model.weights)
    model.save(tmp_path / "m.keras")
    again = keras.saving.load_model(tmp_path / "m.keras")
    assert len(again.trainable_weights) == count
    assert [v.path for v in again.trainable_weights] == [
        v.path for v in model.trainable_weights
    ]


def test_the_pad_id_belongs_to_the_backbone_and_is_saved(tmp_path):
    model = AlbertTextClassifier(CONFIG, num_labels=2, seed=1)
    assert model.pad_id is model.backbone.pad_id is None
    assert "pad_id" not in model.get_config()
    for pad_id in (0, 1):
        model.pad_id = pad_id
        model.save(tmp_path / "m.keras")
        again = keras.saving.load_model(tmp_path / "m.keras")
        assert again.pad_id == again.backbone.pad_id == pad_id


@pytest.mark.parametrize("labels", [None, []])
def test_a_config_may_have_labels_without_names(labels):
    config = AlbertTextClassifier(CONFIG, num_labels=2).get_config()
    assert AlbertTextClassifier.from_config({**config, "labels": labels}).labels is None


def test_masked_lm_is_the_pretrainer_without_its_other_head():
    pretrainer, model = AlbertPretrainer(CONFIG, seed=3), AlbertMaskedLM(CONFIG)
    inputs, theirs = make_inputs(AlbertPretrainer), weight_names(pretrainer)
    for name, weight in weight_names(model).items():
        weight.assign(theirs[name])
    expected = pretrainer(inputs)["mlm_logits"]
    np.testing.assert_allclose(model(inputs), expected, atol=1e-6)
