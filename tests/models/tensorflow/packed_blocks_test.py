"""Packed blocks compute what Keras's layers compute, and oneDNN fuses them."""

import collections
import subprocess

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import features
from albert_tf.export import cpu
from albert_tf.models.tensorflow import fast_forward, packed_blocks
from tests import forked
from tests.models.tensorflow import fast_forward_test
from tests.models.tensorflow.fast_forward_test import make_inputs

UNEQUAL_GROUPS = {"num_hidden_layers": 5, "num_hidden_groups": 2}
HEADS_OF_16 = {"hidden_size": 48, "num_attention_heads": 3}


def make_backbone(**changes):
    changes = {"num_hidden_layers": 4, "initializer_range": 0.1, **changes}
    return fast_forward_test.make_backbone(changes, scale=0.1)


@pytest.mark.parametrize(
    ("changes", "with_mask"),
    [
        ({}, False),
        ({}, True),
        ({"hidden_act": "gelu", **UNEQUAL_GROUPS}, True),
        ({"hidden_act": "relu", "layer_norm_eps": 0.1, **HEADS_OF_16}, True),
    ],
)
def test_equals_keras(changes, with_mask):
    model = make_backbone(**changes)
    inputs = make_inputs()
    is_token = inputs[features.PADDING_MASK].numpy().astype(bool)
    if not with_mask:
        del inputs[features.PADDING_MASK]
        is_token = np.ones_like(is_token)
    forward = fast_forward.choose(model, "bfloat16")
    got, expected = forward(inputs), model(inputs)
    error = (got["sequence_output"] - expected["sequence_output"])[is_token].numpy()
    scale = np.std(expected["sequence_output"][is_token])
    # A bfloat16 has 8 bits, so what is rounded is wrong by up to 0.002.
    assert 1e-5 < np.sqrt(np.mean(error**2)) / scale < 0.02


def test_graph_holds_weights_once():
    model = make_backbone()
    forward = fast_forward.choose(model, "bfloat16")
    specs = {name: tf.TensorSpec([None, None], tf.int32) for name in make_inputs()}

    @tf.function(input_signature=[specs])
    def twice(inputs):
        pooled = forward(inputs, pooled_only=True)["pooled_output"]
        return pooled, forward(inputs)["sequence_output"]

    graph = twice.get_concrete_function().graph.as_graph_def()
    bodies = [function.node_def for function in graph.library.function]
    found = collections.Counter(
        tuple(dim.size for dim in node.attr["value"].tensor.tensor_shape.dim)
        for nodes in (graph.node, *bodies)
        for node in nodes
        if node.op == "Const"
        and node.attr["dtype"].type == tf.bfloat16.as_datatype_enum
    )
    D, F = model.config.hidden_size, model.config.intermediate_size
    kernels = {(D, 3 * D): 1, (D, D): 1, (D, F): 1, (F, D): 1}
    assert found == {(): found[()], **kernels}


@pytest.mark.parametrize(
    "changes, options, expected",
    [
        ({}, {}, 1),
        ({}, {"pooled_only": True}, 1),
        # Each call would have a rearranged copy of the weights.
        ({}, {"output_hidden_states": True}, 0),
        ({"inner_group_num": 2}, {}, 0),
        ({"sharing": "none"}, {}, 0),
        ({"share_layer_norm": False}, {}, 0),
        ({"num_hidden_groups": 2}, {}, 2),
        ({"num_hidden_layers": 1}, {}, 0),
    ],
)
def test_one_copy_for_each_run_of_layers(changes, options, expected, monkeypatch):
    calls = []
    original = packed_blocks.PackedBlocks.__call__

    def counted(self, x, count, *args):
        calls.append(count)
        return original(self, x, count, *args)

    monkeypatch.setattr(packed_blocks.PackedBlocks, "__call__", counted)
    model = make_backbone(**changes)
    fast_forward.choose(model, "bfloat16")(make_inputs(), **options)
    assert len(calls) == expected


def test_large_blocks_stay_variables(monkeypatch):
    model = make_backbone()
    D, F = model.config.hidden_size, model.config.intermediate_size
    size = 2 * (4 * D * D + 2 * D * F)
    activation = tf.nn.relu
    monkeypatch.setattr(packed_blocks, "MAX_BYTES", size)
    (row,) = set(model.config.layer_table())
    assert set(packed_blocks.pack(model, activation)) == {row}
    monkeypatch.setattr(packed_blocks, "MAX_BYTES", size - 1)
    assert packed_blocks.pack(model, activation) == {}
    monkeypatch.setattr(packed_blocks, "MAX_BYTES", size)
    assert packed_blocks.pack(make_backbone(num_hidden_groups=2), activation) == {}


KINDS = """
import tensorflow as tf

from benchmarks.operations import profile_operations
from tests.models.tensorflow import packed_blocks_test as test

model = test.make_backbone()
forward = test.fast_forward.choose(model, "bfloat16")
inputs = test.make_inputs()
specs = {name: tf.TensorSpec([None, None], tf.int32) for name in inputs}
call = tf.function(lambda inputs: forward(inputs), input_signature=[specs])
call(inputs)
for found in profile_operations(lambda: call(inputs), top=100):
    print(found.name, found.count)
"""


@pytest.mark.skipif(not cpu.has_bfloat16(), reason="a CPU without bfloat16")
def test_onednn_fuses_them(monkeypatch):
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "1")
    done = subprocess.run(
        [*forked.PYTHON, "-c", KINDS], capture_output=True, text=True, check=True
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    counts = {kind: int(count) for kind, count in lines}
    num_layers = 4
    assert counts["_MklFusedBatchMatMulV2"] == num_layers  # with scale and mask
    assert counts["_MklLayerNorm"] == 2 * num_layers
    # Four per layer; the projection and the pooler may be, too.
    assert counts["_MklNativeFusedMatMul"] >= 4 * num_layers
    assert counts.get("Tanh", 0) <= 1  # the pooler's, not the activation's
