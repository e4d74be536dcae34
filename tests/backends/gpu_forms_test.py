"""What layers compute in another form on a GPU is the same as elsewhere."""

import keras
import numpy as np
import pytest
from keras import ops

from albert_tf.kernels.device import Device, compiling_for, is_cuda
from albert_tf.layers.embedding import FactorizedEmbedding
from albert_tf.layers.gradients import LayerNorm, gelu_tanh
from albert_tf.objectives.terms import cross_entropy
from tests.backends.differentiate import assert_close, value_and_gradients
from tests.tiny import CONFIG

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "jax", reason="Only JAX has forms for a GPU"
)
RNG = np.random.default_rng(0)


def _embedding():
    layer = FactorizedEmbedding(CONFIG, 3)
    layer.build()
    ids, segments = RNG.integers(0, 20, (2, 3, 7)).astype("int32")
    segments = (segments % 2).astype("int32")
    return lambda: layer(ids, segments), layer.trainable_variables


def _layer_norm():
    layer = LayerNorm(1e-12, dtype="mixed_bfloat16")
    layer.build((None, 16))
    layer.gamma.assign(RNG.normal(size=16))
    x = keras.Variable(2 * RNG.normal(size=(3, 5, 16)) + 1)
    return lambda: layer(ops.cast(x, "bfloat16")), [x, *layer.trainable_variables]


def _of_numbers(function):
    x = keras.Variable(3 * RNG.normal(size=(3, 5, 9)))
    return lambda: function(x.value), [x]


LABELS = RNG.integers(0, 9, (3, 5)).astype("int32")
CASES = {
    "embedding": (_embedding, 1e-6),
    "layer norm": (_layer_norm, 0.02),
    "gelu": (lambda: _of_numbers(gelu_tanh), 1e-6),
    "loss": (lambda: _of_numbers(lambda x: cross_entropy(x, LABELS)), 1e-6),
}


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients(case):
    make, tolerance = CASES[case]
    function, variables = make()
    right = value_and_gradients(function, variables)
    with compiling_for(Device(9)):
        assert is_cuda()
        found = value_and_gradients(function, variables)
    assert not is_cuda()
    assert_close(found, right, tolerance, tolerance)
