"""Operations and norms equal the plain ones, with their gradients."""

import functools
import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.config import ACTIVATIONS
from albert_tf.layers.context import fused_elementwise, fusible
from albert_tf.layers.gradients import LayerNorm, gelu_tanh, get_activation, linear

X = np.linspace(-4, 4, 33).astype("float32")
EXPECTED = {
    "gelu": [x * (1 + math.erf(x / math.sqrt(2))) / 2 for x in X],
    "gelu_new": 0.5 * X * (1 + np.tanh(math.sqrt(2 / math.pi) * (X + 0.044715 * X**3))),
    "relu": np.maximum(X, 0),
    "tanh": np.tanh(X),
    "silu": X / (1 + np.exp(-X)),
    "linear": X,
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_values(name):
    np.testing.assert_allclose(get_activation(name)(X), EXPECTED[name], atol=2e-6)


def test_the_gradient_of_gelu_equals_the_derived_one():
    x = tf.constant(np.linspace(-12, 12, 481), tf.float32)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        mine = get_activation("gelu_new")(x)
        theirs = tf.nn.gelu(x, approximate=True)
    mine, theirs = (tape.gradient(y, x) for y in (mine, theirs))
    np.testing.assert_allclose(mine, theirs, atol=6e-6)


RNG = np.random.default_rng(0)


def _run(function, x, kernel, bias, upstream):
    with tf.GradientTape() as tape:
        tape.watch([x, kernel, bias])
        y = function(x, kernel, bias)
    return [y, *tape.gradient(y, [x, kernel, bias], output_gradients=upstream)]


def _tensors(dtype, *shapes):
    return [tf.cast(RNG.normal(size=shape), dtype) for shape in shapes]


@pytest.mark.parametrize("dtype, atol", [("float32", 1e-5), ("bfloat16", 0.1)])
@pytest.mark.parametrize("compiled", [False, True])
def test_equals_the_plain_product(dtype, atol, compiled):
    given = _tensors(dtype, (3, 5, 8), (8, 6), (6,), (3, 5, 6))
    plain = _run(lambda x, k, b: tf.matmul(x, k) + b, *given)
    run = tf.function(_run) if compiled else _run
    for mine, theirs in zip(run(linear, *given), plain, strict=True):
        assert mine.shape == theirs.shape and mine.dtype == theirs.dtype
        np.testing.assert_allclose(
            tf.cast(mine, tf.float32), tf.cast(theirs, tf.float32), atol=atol
        )


def test_a_shared_kernel_is_transposed_once():
    """The graph of several applications holds one transposition after optimization."""
    x, kernel, bias = _tensors("float32", (2, 7, 8), (8, 8), (8,))

    @tf.function
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = linear(linear(linear(x, kernel, bias), kernel, bias), kernel, bias)
        return tape.gradient(y, x)

    options = tf.compat.v1.RunOptions(output_partition_graphs=True)
    concrete = gradient.get_concrete_function(x)
    with tf.compat.v1.Session(graph=tf.Graph()) as session:
        tf.compat.v1.import_graph_def(concrete.graph.as_graph_def(), name="")
        metadata = tf.compat.v1.RunMetadata()
        feeds = {concrete.inputs[0].name: x.numpy()}
        captured = zip(concrete.inputs[1:], concrete.captured_inputs, strict=True)
        feeds |= {inner.name: outer.numpy() for inner, outer in captured}
        session.run(
            concrete.outputs[0].name, feeds, options=options, run_metadata=metadata
        )
    ran = [node.op for graph in metadata.partition_graphs for node in graph.node]
    # With oneDNN, it is called `_MklEinsum`.
    assert sum(op.endswith("Einsum") for op in ran) == 1
    assert any("MatMul" in op for op in ran)


@functools.cache
def compile_chain(function):
    return tf.function(function, jit_compile=True, autograph=False)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gelu_and_its_gradient_are_the_same(dtype):
    x = tf.constant(np.linspace(-6, 6, 1001), dtype)
    upstream = tf.constant(np.linspace(2, -1, 1001), dtype)

    def both():
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = gelu_tanh(x)
        return y, tape.gradient(y, x, upstream)

    plain = both()
    with fused_elementwise(compile_chain):
        fused = both()
    # Far to the left, both lose digits where a tanh near -1 is added to 1.
    tolerance = 8e-6 if dtype == "float32" else 0.04
    for a, b in zip(plain, fused, strict=True):
        assert a.dtype == b.dtype == dtype
        np.testing.assert_allclose(
            tf.cast(a, tf.float32), tf.cast(b, tf.float32), rtol=0, atol=tolerance
        )


def test_compiles_only_where_it_is_asked():
    compiled = []

    @fusible
    def double(x):
        return 2 * x

    def recording(function):
        compiled.append(function)
        return function

    assert double(1) == 2
    with fused_elementwise(recording):
        assert double(2) == 4
        with fused_elementwise(None):
            assert double(3) == 6
    assert double(4) == 8
    assert [function(5) for function in compiled] == [10]


def _norms(dtype, size):
    made = []
    for kind in (LayerNorm, keras.layers.LayerNormalization):
        layer = kind(epsilon=1e-12, dtype=dtype)
        layer.build((None, size))
        made.append(layer)
    values = [RNG.normal(size=size), RNG.normal(size=size)]
    for layer in made:
        layer.set_weights(values)
    return made


def _normalize(layer, x, upstream):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x)
    sources = [x, *(v.value for v in layer.trainable_variables)]
    return [y, *tape.gradient(y, sources, output_gradients=upstream)]


@pytest.mark.parametrize(
    ("dtype", "atol", "shape"),
    [
        ("float32", 1e-4, (4, 16)),
        ("float32", 1e-4, (2, 3, 4, 16)),
        ("float64", 1e-9, (3, 5, 16)),
        ("mixed_bfloat16", 0.06, (2, 3, 4, 16)),
        ("bfloat16", 0.1, (3, 5, 16)),
    ],
)
def test_values_and_gradients_equal_those_of_keras(dtype, atol, shape):
    mine, theirs = _norms(dtype, shape[-1])
    x, upstream = (
        tf.cast(RNG.normal(size=shape) * 2 + 1, mine.compute_dtype) for _ in range(2)
    )
    for ours, expected in zip(
        _normalize(mine, x, upstream), _normalize(theirs, x, upstream), strict=True
    ):
        assert ours.shape == expected.shape and ours.dtype == expected.dtype
        np.testing.assert_allclose(
            tf.cast(ours, tf.float32), tf.cast(expected, tf.float32), atol=atol
        )


def test_a_constant_row_is_finite():
    mine, _ = _norms("float32", 16)
    y, gradient, *_ = _normalize(mine, tf.ones((1, 16)), tf.ones((1, 16)))
    assert np.isfinite(y).all() and np.isfinite(gradient).all()


def test_second_derivatives_equal_those_of_keras():
    mine, theirs = _norms("float64", 8)
    x = tf.constant(RNG.normal(size=(3, 8)))

    def penalty(layer):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                loss = tf.reduce_sum(layer(x) ** 3)
            loss = tf.reduce_sum(inner.gradient(loss, x) ** 2)
        return outer.gradient(loss, x)

    np.testing.assert_allclose(penalty(mine), penalty(theirs), rtol=1e-6)
