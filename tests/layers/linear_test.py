"""The product and its own gradient equal what TensorFlow derives."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.layers.linear import linear

RNG = np.random.default_rng(0)
SHAPES = {"kernel": (8, 6), "bias": (6,)}


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


def test_unknown_sizes():
    x, kernel, bias = _tensors("float32", (2, 7, 8), (8, 6), (6,))
    spec = tf.TensorSpec([None, None, 8])
    graph = tf.function(lambda x: linear(x, kernel, bias), input_signature=[spec])
    np.testing.assert_allclose(graph(x), linear(x, kernel, bias), atol=1e-6)


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
