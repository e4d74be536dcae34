"""The forward of exported models computes what the backbone computes."""

import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.config import ACTIVATIONS
from albert_tf.errors import UsageError
from albert_tf.models.backbone import AlbertBackbone
from albert_tf.models.classifiers import AlbertTextClassifier
from albert_tf.models.tensorflow import fast_forward, packed_blocks
from tests import tiny

EQUAL = {"embedding_size": 12}
OWN = {"depth_rank": 4, "depth_embedding": True}
SKIPPED = {"num_hidden_groups": 14, "group_rule": "original"}
# Each activation with another way of sharing or of projecting.
CONFIGS = [
    {},
    {"inner_group_num": 2, "num_hidden_groups": 2, "layer_norm_eps": 0.1},
    {"num_hidden_layers": 18, **SKIPPED},
    {"hidden_act": "gelu", "num_hidden_layers": 5, "num_hidden_groups": 2, **OWN},
    {"hidden_act": "relu", "sharing": "attention", "num_attention_heads": 1}
    | {"depth_rank": 2, "depth_matrices": ("query", "value", "ffn_output")},
    {"hidden_act": "tanh", "sharing": "ffn", **EQUAL},
    {"hidden_act": "silu", "share_layer_norm": False},
    {"hidden_act": "linear", "sharing": "none", **EQUAL}
    | {"embedding_projection": "always"},
]


def make_backbone(changes=None, scale=0.2, **kwargs):
    """Returns a backbone whose biases and layer norms have no initial values either."""
    config = tiny.CONFIG.replace(**{"vocab_size": 900, **(changes or {})})
    model = AlbertBackbone(config, seed=3, **kwargs)
    rng = np.random.default_rng(3)
    for weight in model.weights:
        noise = rng.normal(0, scale, weight.shape).astype("float32")
        weight.assign(weight.numpy() + noise)
    return model


def make_inputs():
    rng = np.random.default_rng(5)
    rows, length = 4, 9
    lengths = [9, 5, 1, 2]
    return {
        "token_ids": tf.constant(rng.integers(0, 900, (rows, length)), tf.int32),
        "segment_ids": tf.constant(rng.integers(0, 2, (rows, length)), tf.int32),
        "padding_mask": tf.sequence_mask(lengths, length, tf.int32),
    }


def assert_close(got, expected, *names, atol=1e-5):
    """Compares these outputs, or all."""
    for name in names or expected:
        np.testing.assert_allclose(got[name], expected[name], atol=atol, err_msg=name)


def traced(model, forward):
    """Returns a function that calls the model while the forward stands in for it."""
    specs = {name: tf.TensorSpec([None, None], tf.int32) for name in make_inputs()}
    function = tf.function(lambda inputs: model(inputs), input_signature=[specs])
    with fast_forward.replacing(model, forward):
        function.get_concrete_function()
    return function


def test_every_activation_is_compared():
    assert {c.get("hidden_act", "gelu_new") for c in CONFIGS} == set(ACTIVATIONS)


@pytest.mark.parametrize("changes", CONFIGS, ids=str)
def test_equals_the_backbone(changes):
    model = make_backbone(changes)
    forward = fast_forward.choose(model, "float32")
    inputs = make_inputs()
    got, expected = (f(inputs, output_hidden_states=True) for f in (forward, model))
    assert got.keys() == expected.keys()
    states = got.pop("hidden_states"), expected.pop("hidden_states")
    for made, wanted in zip(*states, strict=True):
        np.testing.assert_allclose(made, wanted, atol=1e-5)
    assert_close(got, expected)
    assert all(got[name].shape == value.shape for name, value in expected.items())
    assert forward(inputs).keys() == model(inputs).keys()
    only = forward(inputs, pooled_only=True)
    assert only.keys() == {"pooled_output"}
    assert_close(only, expected, "pooled_output")
    assert fast_forward.describe(forward) == "fast"


def test_takes_what_the_backbone_takes():
    its, own = (
        list(inspect.signature(one).parameters.items())
        for one in (AlbertBackbone.call, fast_forward.FastForward.__call__)
    )
    assert its == own
    model, inputs = make_backbone(), make_inputs()
    forward = fast_forward.choose(model, "float32")
    options = {"pooled_only": True, "before_pooler": lambda x: 2.0 * x}
    for given in (inputs, inputs | {"places": tf.constant([1, 9])}):  # not, and left
        assert_close(forward(given, **options), model(given, **options))


def test_other_inputs():
    model = make_backbone(add_pooler=False)
    forward = fast_forward.choose(model, "float32")
    inputs = make_inputs()
    tokens = inputs["token_ids"]
    ends = tf.concat([tokens[:, :6], tf.ones([4, 3], tf.int32)], 1)
    positions = tf.tile(tf.range(9)[None, ::-1], [4, 1])
    many = (tokens, {"token_ids": ends}, inputs | {"position_ids": positions})
    for given in many:
        for pad_id in (None, 1):
            model.pad_id = pad_id
            got, expected = forward(given), model(given)
            assert got.keys() == expected.keys() == {"sequence_output"}
            assert_close(got, expected)
    with pytest.raises(UsageError, match="needs a model with add_pooler=True"):
        forward(inputs, pooled_only=True)


def test_lora_counts():
    model = make_backbone()
    attention = model.encoder.attentions[0].dense
    for layer in (attention["key"], attention["output"]):
        layer.enable_lora(2)
        layer.lora_kernel_b.assign(np.ones_like(layer.lora_kernel_b))
    got = fast_forward.choose(model, "float32")(make_inputs())
    assert_close(got, model(make_inputs()), "sequence_output")


@pytest.mark.parametrize(
    ("inputs", "options", "named"),
    [
        ({}, {"output_attentions": True}, "output_attentions"),
        ({"cls_positions": tf.constant([[0, 2]] * 4)}, {}, "cls_positions"),
        ({"pack_ids": tf.ones([4, 9], tf.int32)}, {}, "pack_ids"),
        ({"places": tf.constant([1, 9])}, {"pooled_only": True}, "places"),
    ],
)
def test_what_it_does_not_know_is_left_to_keras(inputs, options, named, caplog):
    model = make_backbone()
    forward = fast_forward.choose(model, "float32")
    inputs = make_inputs() | inputs
    got, expected = forward(inputs, **options), model(inputs, **options)
    assert got.keys() == expected.keys()
    np.testing.assert_allclose(got["pooled_output"], expected["pooled_output"])
    assert fast_forward.describe(forward) == "fast and keras"
    assert f"['{named}']: computed by Keras's layers" in caplog.text


class _Doubled(AlbertBackbone):
    def call(self, *args, **kwargs):
        return {k: 2.0 * v for k, v in super().call(*args, **kwargs).items()}


@pytest.mark.parametrize(
    ("kind", "dtype", "reason"),
    [
        (AlbertBackbone, "mixed_bfloat16", "the encoder's dtype is mixed_bfloat16"),
        (_Doubled, None, "_Doubled may compute something else"),
    ],
)
def test_falls_back_openly(kind, dtype, reason, caplog):
    model = kind(tiny.CONFIG, seed=3, dtype=dtype)
    forward = fast_forward.choose(model, "float32")
    assert forward is None
    assert fast_forward.describe(forward) == "keras"
    assert f"computed by Keras's layers, which are slower: {reason}" in caplog.text
    with fast_forward.replacing(model, forward):
        assert "call" not in vars(model)
    with pytest.raises(UsageError, match=f"bfloat16 is not available: {reason}"):
        fast_forward.choose(model, "bfloat16")
    with pytest.raises(UsageError, match="one of float32, bfloat16, received 'int8'"):
        fast_forward.choose(model, "int8")


def test_stands_in_for_the_encoder_of_a_head_and_goes_again():
    model = AlbertTextClassifier(tiny.CONFIG, num_labels=3, seed=3)
    calls = []
    forward = fast_forward.choose(model, "float32")

    def recorded(*args, **kwargs):
        calls.append(kwargs)
        return forward(*args, **kwargs)

    function = traced(model, recorded)
    assert len(calls) == 1 and calls[0]["pooled_only"]
    inputs = make_inputs()
    np.testing.assert_allclose(function(inputs), model(inputs), atol=1e-5)
    assert len(calls) == 1
    with (
        pytest.raises(RuntimeError, match="trace"),
        fast_forward.replacing(model, recorded),
    ):
        raise RuntimeError("trace")
    assert "call" not in vars(model.backbone)


def test_the_form_that_is_fused(monkeypatch):
    # What blocks have that are too large to be packed.
    monkeypatch.setattr(packed_blocks, "MAX_BYTES", 0)
    model = make_backbone()
    found = {}
    for precision in fast_forward.PRECISIONS:
        forward = fast_forward.choose(model, precision)
        graph = traced(model, forward).get_concrete_function().graph
        products = [op for op in graph.get_operations() if op.type == "MatMul"]
        read = [op for op in products if op.inputs[1].op.type == "ReadVariableOp"]
        weights = [op for op in read if op.inputs[0].dtype.name == precision]
        assert not any(op.get_attr("transpose_b") for op in weights)
        consumers = [op.outputs[0].consumers() for op in weights]
        followers = [[after.type for after in ops] for ops in consumers]
        found[precision] = [types[0] for types in followers if len(types) == 1]
    # The projection; for two layers query-key-value, output, F1, F2. Before them are
    # the segments, after them the pooler, both Keras's.
    layer = ["BiasAdd"] * 4
    assert found["float32"][1:10] == ["BiasAdd", *layer, *layer]
    layer = ["Reshape", "Cast", "BiasAdd", "Cast"]
    assert found["bfloat16"] == ["Cast", *layer, *layer]


def test_four_axes():
    model = make_backbone(OWN)
    inputs = make_inputs()
    forward = fast_forward.choose(model, "float32", max_rank=4)
    assert_close(forward(inputs), model(inputs), atol=2e-5)
    operations = traced(model, forward).get_concrete_function().graph.get_operations()
    ranks = [tensor.shape.rank for op in operations for tensor in op.outputs]
    assert max(rank for rank in ranks if rank is not None) == 4


@pytest.mark.parametrize("own", [{}, OWN])
def test_bfloat16_is_near_float32(own):
    changes = {"hidden_size": 48, "intermediate_size": 96, "initializer_range": 0.1}
    changes |= own
    model = AlbertBackbone(tiny.CONFIG.replace(num_hidden_layers=4, **changes), seed=3)
    for weight in model.weights:
        if weight.path.endswith("_b"):
            weight.assign(0.1 * np.random.default_rng(5).normal(size=weight.shape))
    forward = fast_forward.choose(model, "bfloat16")
    inputs = make_inputs()
    got, expected = forward(inputs), model(inputs)
    assert np.std(expected["sequence_output"]) == pytest.approx(1, abs=0.1)
    for name, value in expected.items():
        assert got[name].dtype == tf.float32
        assert 1e-5 < np.abs(got[name] - value).max() < 5e-2, name
    pooled = forward(inputs, pooled_only=True)
    assert_close(pooled, expected, "pooled_output", atol=5e-2)
    assert keras.backend.standardize_dtype(model.word_embeddings.dtype) == "float32"
