"""The package runs on the other Keras backends, without TensorFlow."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]

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


def run(backend):
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    environment.update(CUDA_VISIBLE_DEVICES="", KERAS_BACKEND=backend)
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert process.returncode == 0, process.stderr[-3000:]
    return [float(word) for word in process.stdout.split()]


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_backend_equals_tensorflow(backend):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    values = run(backend)
    assert len(values) == 36
    assert values == pytest.approx(run("tensorflow"), abs=1e-6)
