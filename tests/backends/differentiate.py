"""Differentiates a function of variables with the current backend."""

from collections.abc import Callable, Sequence

import keras
import numpy as np
from keras import ops


def value_and_gradients(
    function: Callable, variables: Sequence[keras.Variable]
) -> list[np.ndarray]:
    """Returns what a function computes, then the gradients of its weighted sum.

    Args:
        function: callable. Without arguments, to a tensor.
        variables: sequence. What it is differentiated by.
    """

    def loss():
        y = ops.cast(function(), "float32")
        weights = np.random.default_rng(7).normal(size=tuple(y.shape))
        return ops.sum(y * ops.convert_to_tensor(weights, "float32")), y

    value, gradients = globals()[f"_{keras.backend.backend()}"](loss, variables)
    arrays = [ops.convert_to_numpy(x) for x in (value, *gradients)]
    return [a.astype("float32") for a in arrays]


def _jax(loss, variables):
    import jax

    def of_values(values):
        mapping = zip(variables, values, strict=True)
        with keras.StatelessScope(state_mapping=list(mapping)):
            return loss()

    run = jax.jit(jax.value_and_grad(of_values, has_aux=True))
    (_, y), gradients = run([v.value for v in variables])
    return y, gradients


def _tensorflow(loss, variables):
    import tensorflow as tf

    with tf.GradientTape() as tape:
        total, y = loss()
    return y, tape.gradient(total, variables, unconnected_gradients="zero")


def _torch(loss, variables):
    import torch

    total, y = loss()
    values = [v.value for v in variables]
    found = torch.autograd.grad(total, values, allow_unused=True)
    pairs = zip(found, values, strict=True)
    return y, [torch.zeros_like(v) if g is None else g for g, v in pairs]


def assert_close(found: list, right: list, value: float, gradients: float) -> None:
    """Compares what `value_and_gradients` returns.

    Args:
        found, right: list of arrays.
        value: float. Most difference of the value.
        gradients: float. Most difference of gradients, relative to the largest of all.
    """
    rounding = 2**-8 if value > 1e-3 else 0  # of bfloat16
    np.testing.assert_allclose(found[0], right[0], atol=value, rtol=rounding)
    most = max(np.abs(g).max() for g in right[1:])
    assert most > 0.1
    for a, b in zip(found[1:], right[1:], strict=True):
        np.testing.assert_allclose(a, b, atol=gradients * most, rtol=0)
