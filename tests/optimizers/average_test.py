"""The average of the weights against the mean it is defined as."""

import keras
import numpy as np
import pytest

from albert_tf.errors import UsageError
from albert_tf.optimizers.create import create_optimizer

STEPS = 9


def train(name, **arguments):
    """Returns the weights after every update, the optimizer and its variables."""
    rng = np.random.default_rng(4)
    variables = [
        keras.Variable(rng.normal(size=shape), dtype="float32", name=path)
        for shape, path in (((3, 5), "kernel"), ((5,), "bias"))
    ]
    optimizer = create_optimizer(
        name, learning_rate=0.1, num_train_steps=2 * STEPS, **arguments
    )
    history = []
    for _ in range(STEPS):
        gradients = [rng.normal(size=v.shape).astype("float32") for v in variables]
        gradients = [keras.ops.convert_to_tensor(g) for g in gradients]
        optimizer.apply(gradients, variables)
        history.append([v.numpy() for v in variables])
    return history, optimizer, variables


@pytest.mark.parametrize("decay", [0.5, 0.9, 0.9999])
@pytest.mark.parametrize("name", ["lamb", "adamw"])
def test_average_is_the_weighted_mean_of_the_weights(name, decay):
    history, optimizer, variables = train(name, ema_decay=decay)
    parts = decay ** np.arange(STEPS - 1, -1, -1, dtype="float64")
    for index, variable in enumerate(variables):
        past = np.stack([weights[index] for weights in history]).astype("float64")
        expected = np.tensordot(parts, past, 1) / parts.sum()
        found = optimizer.slot(variable, "average").numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        assert np.abs(found - variable.numpy()).max() > 1e-3


@pytest.mark.parametrize("name", ["lamb", "adamw"])
def test_the_updates_are_those_without_an_average(name):
    plain, optimizer, variables = train(name)
    averaged, *_ = train(name, ema_decay=0.9)
    for one, other in zip(plain[-1], averaged[-1], strict=True):
        np.testing.assert_array_equal(one, other)
    # And nothing is kept that nobody asked for.
    assert not [v for v in optimizer.variables if "average" in v.path]
    with pytest.raises(UsageError, match="slot must be one of m, v, received"):
        optimizer.slot(variables[0], "average")
