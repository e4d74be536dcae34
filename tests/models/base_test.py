"""What all models have in common: names, seeds, saving, input checks."""

import keras
import numpy as np
import pytest
from keras import ops

from albert_tf import features
from albert_tf.heads import HEADS, all_rows, find
from albert_tf.models.backbone import AlbertBackbone
from albert_tf.models.base import as_inputs, weight_names
from tests import tiny

GOLDEN = tiny.GOLDEN / "weight_names.txt"
SIZES = dict(
    vocab_size=53,
    num_hidden_groups=2,
    num_attention_heads=2,
    max_position_embeddings=11,
    type_vocab_size=3,
    hidden_dropout_prob=0.1,
    attention_probs_dropout_prob=0.1,
)
MODELS = [row.name for row in all_rows()]


def make_model(head, **changes):
    return tiny.make_model(head, **{**SIZES, **changes})


def make_inputs(head):
    B, T, P = 2, 7, 3
    rng = np.random.default_rng(0)
    shape = (B, 4, T) if head == "multiple_choice" else (B, T)
    mask = np.ones(shape, "int32")
    mask[1, ..., 5:] = 0
    inputs = {
        "token_ids": rng.integers(0, 53, shape).astype("int32"),
        "segment_ids": rng.integers(0, 3, shape).astype("int32"),
        "padding_mask": mask,
    }
    if head in ("pretraining", "span_boundary"):
        inputs["mask_positions"] = rng.integers(0, T, (B, P)).astype("int32")
    if head == "span_boundary":
        inputs["mask_weights"] = np.ones((B, P), "float32")
    return inputs


def flat(outputs):
    return {
        str(k): ops.convert_to_numpy(ops.cast(v, "float32"))
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
        for name, weight in weight_names(make_model("pretraining", name="any")).items()
    ]
    assert lines == GOLDEN.read_text().splitlines()


@pytest.mark.parametrize("head", MODELS[1:])
def test_weight_names_do_not_depend_on_the_model(head):
    model = make_model(head, name="some_name")
    names = weight_names(model)
    backbone = {n for n in names if n.startswith("backbone/")}
    own = weight_names(tiny.shared_model(None, name="other", **SIZES))
    missing = {f"backbone/{n}" for n in own} - backbone
    assert missing in (set(), {"backbone/pooler/kernel", "backbone/pooler/bias"})
    heads = {n.partition("/")[0] for n in set(names) - backbone}
    assert heads == set(HEADS[head].parts)
    assert len(names) == len(model.trainable_weights)


@pytest.mark.parametrize("head", MODELS)
def test_seeds_half_precision_and_saving(head, tmp_path):
    # The encoder alone has several layers.
    sizes = {"num_hidden_layers": 1, "num_hidden_groups": 1} if head else {}
    sizes["initializer_range"] = 0.05
    half = make_model(head, dtype="mixed_bfloat16", **sizes)
    full = make_model(head, **sizes)
    one, two = weight_names(half), weight_names(full)
    other = weight_names(make_model(head, seed=4, **sizes))
    for name in one:
        a, b, c = (ops.convert_to_numpy(w[name]) for w in (one, two, other))
        np.testing.assert_array_equal(a, b)
        if a.ndim == 2:
            assert np.abs(a - c).max() > 0.01, name
    inputs = make_inputs(head)
    outputs = half(inputs)
    assert_equal_outputs(outputs, full(inputs), atol=0.1)
    assert {w.dtype for w in half.weights} == {"float32"}
    values = outputs if isinstance(outputs, dict) else {"": outputs}
    for name, value in values.items():
        special = {"output": "bfloat16", "index": "int32"}
        expected = special.get(name.rpartition("_")[2], "float32")
        assert keras.backend.standardize_dtype(value.dtype) == expected, name
    half.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded) is find(head).load_class()
    assert loaded.config == half.config
    assert loaded.dtype_policy.name == half.dtype_policy.name
    policies = {layer.dtype_policy.name for layer in loaded._flatten_layers()}
    # The beam head computes in float32 whatever the policy.
    is_beam = head == "beam_question_answering"
    assert policies == {"mixed_bfloat16"} | ({"float32"} if is_beam else set())
    assert_equal_outputs(outputs, loaded(inputs), atol=0)


@pytest.mark.parametrize("head", ["span_boundary", "multiple_choice"])
def test_ids_may_be_floats(head):
    # bfloat16 has no 259.
    sizes = {"vocab_size": 300, "initializer_range": 0.05}
    model = make_model(head, **sizes, dtype="mixed_bfloat16")
    inputs = make_inputs(head)
    inputs["token_ids"] = inputs["token_ids"] + 247
    floats = {name: value.astype("float32") for name, value in inputs.items()}
    assert_equal_outputs(model(floats), model(inputs), atol=0)


# Outputs of every kind; those of other heads are like the classifier's.
KINDS = (None, "span_boundary", "multiple_choice", "beam_question_answering")


@pytest.mark.slow
@pytest.mark.parametrize(
    "head",
    [h if h in KINDS else pytest.param(h, marks=pytest.mark.broad) for h in MODELS],
)
def test_a_functional_model_around_it(head):
    # PyTorch gets numbers for unknown lengths from Keras: 83 and 83 * 83.
    model, inputs = make_model(head, max_position_embeddings=89), make_inputs(head)
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


def test_negative_inputs_are_refused():
    wrong, model = np.array([[-1, 0]]), tiny.shared_model(None)
    with pytest.raises(ValueError, match="token_ids must not be negative, received -1"):
        model.predict(wrong)
    for name in features.ROWS:
        batch = {"token_ids": np.array([[2, 3]]), name: wrong}
        with pytest.raises(ValueError, match=f"{name} must not be negative"):
            model.predict(batch)


def test_what_a_model_needs_is_named():
    with pytest.raises(ValueError, match="must have 'mask_positions', received"):
        tiny.shared_model("pretraining", **SIZES)(
            {"token_ids": np.ones((1, 4), "int32")}
        )


@pytest.mark.parametrize(
    ("head", "nested"), [("pretraining", False), *((head, True) for head in MODELS)]
)
def test_summary_shows_every_shape(head, nested):
    lines = []
    model = tiny.shared_model(head, **SIZES)
    model.summary(print_fn=lines.append, expand_nested=nested)
    text = "\n".join(map(str, lines))
    assert ("encoder" in text) == (nested or head is None)
    assert f"(None, None, {model.config.hidden_size})" in text
    assert "?" not in text
    shapes = getattr(model, "backbone", model).compute_output_shape((None, 7))
    assert shapes["sequence_output"] == (None, 7, model.config.hidden_size)


@pytest.mark.parametrize("frozen", ["", "backbone/embeddings"])
def test_what_is_frozen_stays_frozen(frozen, tmp_path):
    model = make_model("text_classifier")
    part = model
    for name in filter(None, frozen.split("/")):
        part = getattr(part, name)
    part.trainable = False
    count = len(model.trainable_weights)
    assert count < len(model.weights)
    model.save(tmp_path / "m.keras")
    again = keras.saving.load_model(tmp_path / "m.keras")
    found, expected = ([v.path for v in m.trainable_weights] for m in (again, model))
    assert found == expected and len(found) == count


def test_the_pad_id_belongs_to_the_backbone_and_is_saved(tmp_path):
    model = make_model("text_classifier")
    assert model.pad_id is model.backbone.pad_id is None
    assert "pad_id" not in model.get_config()
    for pad_id in (0, 1):
        model.pad_id = pad_id
        model.save(tmp_path / "m.keras")
        again = keras.saving.load_model(tmp_path / "m.keras")
        assert again.pad_id == again.backbone.pad_id == pad_id


@pytest.mark.parametrize("labels", [None, []])
def test_a_config_may_have_labels_without_names(labels):
    model = tiny.shared_model("text_classifier", **SIZES)
    config = {**model.get_config(), "labels": labels}
    assert type(model).from_config(config).labels is None


def test_masked_lm_is_the_pretrainer_without_its_other_head():
    pretrainer, model = make_model("pretraining"), make_model("masked_lm", seed=None)
    inputs, theirs = make_inputs("pretraining"), weight_names(pretrainer)
    for name, weight in weight_names(model).items():
        weight.assign(theirs[name])
    assert_equal_outputs(model(inputs), pretrainer(inputs)["mlm_logits"], atol=1e-6)
