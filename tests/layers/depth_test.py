"""Layers in a loop are the same function as layers one after another."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.errors import UsageError
from albert_tf.layers.attention import Readers
from albert_tf.layers.depth import Stretch, check_depth, depth_form, stretches
from albert_tf.layers.dropout import StepSeeds
from albert_tf.layers.encoder import SharedEncoder
from tests.tiny import tiny_config

B, T, E = 2, 7, 6
# Layers shared by groups of different sizes; by inner blocks; by groups of those.
GROUPS = {"num_hidden_layers": 3, "num_hidden_groups": 2}
INNER = {"num_hidden_layers": 2, "inner_group_num": 2}
# Layers that share all but what they have of their own.
OWN = {
    "depth_rank": 2,
    "depth_embedding": True,
    "depth_matrices": ["key", "ffn_output"],
}
BOTH = {"num_hidden_layers": 4, "num_hidden_groups": 2, "inner_group_num": 2}
LOOPS = ("loop", "loop_remat")
DROPOUT = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.1}


@pytest.mark.parametrize(
    "rows, found",
    [
        ("aaaa", [(0, 1, 4)]),
        ("ababab", [(0, 2, 3)]),
        ("aabbb", [(0, 1, 2), (2, 1, 3)]),
        ("ababcdcd", [(0, 2, 2), (4, 2, 2)]),
        ("abcdd", [(0, 1, 1), (1, 1, 1), (2, 1, 1), (3, 1, 2)]),
        ("aaabaaab", [(0, 4, 2)]),
    ],
)
def test_stretches(rows, found):
    assert stretches(rows) == [Stretch(*one) for one in found]
    assert stretches("") == []


@pytest.mark.parametrize("sharing", ["none", "attention", "ffn"])
def test_what_does_not_repeat_is_refused(sharing):
    check_depth("unrolled", tiny_config(sharing=sharing))
    with pytest.raises(UsageError, match=f"--depth=loop: .* sharing='{sharing}', num"):
        check_depth("loop", tiny_config(sharing=sharing))
    check_depth("loop_remat", tiny_config())
    with pytest.raises(UsageError, match="num_hidden_groups=2 does not have"):
        check_depth("loop_remat", tiny_config(num_hidden_groups=2))
    with pytest.raises(UsageError, match="share_layer_norm=False does not"):
        check_depth("loop", tiny_config(share_layer_norm=False))


def make(dtype=None, **changes):
    config = tiny_config(**{"initializer_range": 0.2, **DROPOUT, **changes})
    encoder = SharedEncoder(config, 3, dtype=dtype)
    encoder.build()
    rng = np.random.default_rng(1)
    for weight in encoder.trainable_weights:  # norms and biases, too
        weight.assign(weight + 0.1 * rng.normal(size=weight.shape))
    return encoder


def train(encoder, form, *, jit_compile=False, readers=False):
    """Returns the number of nodes, the output and the gradients of a step."""
    rng, dtype = np.random.default_rng(0), encoder.variable_dtype
    x = rng.normal(size=(B, T, E)).astype(dtype)
    mask = np.ones((B, T), "int32")
    mask[1, 4:] = 0
    goal = rng.normal(size=(B, T, encoder.config.hidden_size)).astype(dtype)
    goal = goal[:, :1] if readers else goal

    def step(x, mask):
        with tf.GradientTape() as tape, depth_form(form):
            out = encoder(
                x,
                padding_mask=None if readers else mask,
                pack_ids=1 + tf.cumsum(mask, -1) // 4 if readers else None,
                training=True,
                seeds=StepSeeds(3, 5),
                readers=Readers(tf.range(B) * T) if readers else None,
                every_layer=False,
            ).sequence_output
            loss = tf.reduce_sum(tf.cast(out, dtype) * goal)
        return [out, *tape.gradient(loss, encoder.trainable_weights)]

    shape = (B, T) if jit_compile else (None, None)
    signature = [tf.TensorSpec([*shape, E], dtype), tf.TensorSpec(shape, tf.int32)]
    step = tf.function(step, signature, autograph=False, jit_compile=jit_compile)
    values = [tf.cast(v, dtype).numpy() for v in step(x, mask)]
    graph = step.get_concrete_function().graph.as_graph_def()
    nodes = len(graph.node) + sum(len(f.node_def) for f in graph.library.function)
    return nodes, *values


def assert_same(one, other, rate):
    (_, *one), (_, *other) = one, other
    most = max(np.abs(v).max() for v in other)
    assert most > 1
    for a, b in zip(one, other, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, atol=rate * most, rtol=0)


@contextlib.contextmanager
def as_written():
    """Lets TensorFlow compute the graph as it is, without its own optimizations."""
    switch = tf.config.optimizer.set_experimental_options
    switch({"disable_meta_optimizer": True})
    yield
    switch({"disable_meta_optimizer": False})


@pytest.mark.parametrize(
    ("table", "readers"),
    [(GROUPS, False), pytest.param({**INNER, **OWN}, True, marks=pytest.mark.slow)],
)
def test_loops_give_the_same_bits(table, readers):
    encoder = make(**table)
    with as_written():
        unrolled = train(encoder, "unrolled", readers=readers)
        # The remat form has the other one's loop; `loop` with these is broad, below.
        for form in LOOPS[1:] if readers else LOOPS:
            found = train(encoder, form, readers=readers)
            np.testing.assert_array_equal(found[1], unrolled[1])
            # The readers' layer is outside: other sums of the same gradients.
            assert_same(found, unrolled, 1e-6 if readers else 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "table", "dtype", "rate", "jit_compile"),
    [
        ("loop_remat", BOTH, "float64", 1e-14, False),
        ("loop_remat", {**GROUPS, **OWN}, "mixed_bfloat16", 0.02, False),
        pytest.param(
            *("loop", {**INNER, **OWN}, "float32", 1e-6, True), marks=pytest.mark.broad
        ),
    ],
)
def test_optimized_and_compiled_loops(form, table, dtype, rate, jit_compile):
    encoder = make(dtype=dtype, **table)
    unrolled = train(encoder, "unrolled", jit_compile=jit_compile)
    assert_same(train(encoder, form, jit_compile=jit_compile), unrolled, rate)


@pytest.mark.slow
def test_the_graph_does_not_grow_with_depth():
    few, many = (train(make(num_hidden_layers=n), "loop_remat")[0] for n in (3, 24))
    assert many <= 1.02 * few


def test_what_a_loop_cannot_give_is_refused():
    encoder = make()
    x = np.zeros((B, T, E), "float32")
    with depth_form("loop"):
        with pytest.raises(UsageError, match="keep no layer but the last"):
            encoder(x)
        with pytest.raises(UsageError, match="needs StepSeeds"):
            encoder(x, training=True, every_layer=False)
        found = encoder(x, every_layer=False)
    assert found.hidden_states == found.attentions == ()
    last = encoder(x).sequence_output
    np.testing.assert_allclose(found.sequence_output, last, atol=1e-6)
