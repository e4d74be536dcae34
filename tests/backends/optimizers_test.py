"""The optimizers change weights as with TensorFlow, and without it."""

import os

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

def apply(optimizer, grads, variables):
    if keras.backend.backend() != "jax" or not optimizer.loss_scale:
        return optimizer.apply(grads, variables)
    # As a compiled step does.
    import jax
    state = [[v.value for v in x] for x in (optimizer.variables, variables)]
    found = jax.jit(optimizer.stateless_apply)(state[0], grads, state[1])
    for variable, value in zip([*variables, *optimizer.variables], sum(found, [])):
        variable.assign(value)

for name, scaled in [(n, s) for s in (False, True) for n in ("lamb", "adamw")]:
    values = [rng.normal(size=(5, 3)).astype("float32"), np.ones(3, "float32")]
    variables = [
        keras.Variable(v, name=n) for v, n in zip(values, ("kernel", "bias"))
    ]
    optimizer = create_optimizer(
        name, learning_rate=0.1, num_train_steps=7, num_warmup_steps=2,
        ema_decay=0.9 * scaled, clip_norm=1.0 - scaled,
    )
    if scaled:
        optimizer.scale_losses()
    optimizer.build(variables)
    for step in range(3):
        grads = [rng.normal(size=v.shape).astype("float32") for v in values]
        if scaled and step == 1:
            grads[0][0, 0] = np.inf
        grads = [optimizer.scale_loss(keras.ops.convert_to_tensor(g)) for g in grads]
        with grad():
            apply(optimizer, grads, variables)
    averages = [optimizer.slot(v, "average") for v in variables if scaled]
    for variable in variables + averages:
        print(*keras.ops.convert_to_numpy(variable).ravel())
    if scaled:
        print(*optimizer.loss_scale.describe().values(), int(optimizer.iterations))
assert keras.backend.backend() == "tensorflow" or "tensorflow" not in sys.modules
"""


def test_updates_equal_those_of_tensorflow(run_python):
    def run(backend):
        done = run_python("-c", PROGRAM, KERAS_BACKEND=backend)
        assert done.returncode == 0, done.stderr[-3000:]
        return [float(word) for word in done.stdout.split()]

    values = run(os.environ["KERAS_BACKEND"])
    assert len(values) == 2 * 18 + 2 * (2 * 18 + 3)
    assert values[-3:] == [2**14, 1, 3]
    assert values == pytest.approx(run("tensorflow"), abs=1e-6)
