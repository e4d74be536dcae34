"""Element-wise chains that XLA compiles inside an ordinary graph."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.layers.activations import gelu_tanh
from albert_tf.layers.fusion import fused_elementwise, fusible


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
