"""The package runs on the other Keras backends, without TensorFlow."""

import importlib.util

import pytest

PROGRAM = """
import contextlib, sys
import keras, numpy as np
from albert_tf.optimizers.create import create_optimizer
grad = contextlib.nullcontext
if keras.backend.backend() == "torch":
    import torch
    grad = torch.no_grad
rng = np.random.default_rng(4)
for name in ("lamb", "adamw"):
    values = [rng.normal(size=(5, 3)).astype("float32"), np.ones(3, "float32")]
    variables = [
        keras.Variable(v, name=n) for v, n in zip(values, ("kernel", "bias"))
    ]
    optimizer = create_optimizer(
        name, learning_rate=0.1, num_train_steps=7, num_warmup_steps=2
    )
    for _ in range(3):
        grads = [keras.ops.convert_to_tensor(rng.normal(size=v.shape).astype("float32"))
                 for v in values]
        with grad():
            optimizer.apply(grads, variables)
    for variable in variables:
        print(*keras.ops.convert_to_numpy(variable).ravel())
assert keras.backend.backend() == "tensorflow" or "tensorflow" not in sys.modules
"""


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_backend_equals_tensorflow(backend, run_python):
    def run(backend):
        done = run_python("-c", PROGRAM, KERAS_BACKEND=backend)
        assert done.returncode == 0, done.stderr[-3000:]
        return [float(word) for word in done.stdout.split()]

    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    values = run(backend)
    assert len(values) == 36
    assert values == pytest.approx(run("tensorflow"), abs=1e-6)
