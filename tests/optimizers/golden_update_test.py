"""The LAMB update against two recorded steps of the original, without a model.

The recorded run moves nothing at step 0 (rate 0), so its slots give the clipped
gradients of the first two steps: m1 = 0.1 g0 and m2 = 0.9 m1 + 0.1 g1. Multiplied by
the logged norm they are the gradients before clipping.
"""

import contextlib
import json
import pathlib

import keras
import numpy as np
import pytest

from albert_tf.optimizers.create import create_optimizer

GOLDEN = pathlib.Path(__file__).parents[1] / "golden/tf1_train/lamb_ordered"
SLOTS = ("/adam_m", "/adam_v")


@pytest.fixture(scope="module")
def log():
    return json.loads((GOLDEN / "log.json").read_text())


@pytest.fixture(scope="module")
def snapshots():
    return [dict(np.load(GOLDEN / f"after{n:02d}.npz")) for n in (1, 2)]


def make_variables(snapshot):
    """Keras variables under the original's names."""
    variables = {}
    for path, value in snapshot.items():
        if path.endswith(SLOTS):
            continue
        *scopes, name = path.split("/")
        with contextlib.ExitStack() as stack:
            for scope in scopes:
                stack.enter_context(keras.name_scope(scope))
            variables[path] = keras.Variable(value, name=name)
        assert variables[path].path == path
    return variables


def make_lamb(log):
    return create_optimizer(
        "lamb",
        learning_rate=log["init_lr"],
        num_train_steps=log["num_train_steps"],
        num_warmup_steps=log["num_warmup_steps"],
        weight_decay_rate=log["weight_decay_rate"],
        clip_norm=log["clip_norm"],
        poly_power=log["poly_power"],
        start_warmup_step=log["start_warmup_step"],
    )


def test_two_steps_equal_the_original(log, snapshots):
    first, second = snapshots
    variables = make_variables(first)
    optimizer = make_lamb(log)
    for step, after in enumerate(snapshots):
        gradients = []
        for path in variables:
            before = 0.9 * first[path + "/adam_m"].astype("float64") if step else 0.0
            clipped = (after[path + "/adam_m"] - before) / 0.1
            gradients.append((clipped * log["grad_norm_before_clip"][step]).astype("f"))
        gradients = [keras.ops.convert_to_tensor(g) for g in gradients]
        assert float(optimizer.learning_rate) == pytest.approx(
            log["lr_effective"][step], rel=1e-6
        )
        optimizer.apply(gradients, list(variables.values()))
        # The recorded gradients have norm 1 after clipping, so this also checks that
        # nothing was lost in recovering them.
        assert float(optimizer.last_global_norm) == pytest.approx(
            log["grad_norm_before_clip"][step], rel=2e-6
        )
        for path, variable in variables.items():
            np.testing.assert_allclose(variable, after[path], atol=1e-6, err_msg=path)
            for suffix, slot in zip(SLOTS, "mv", strict=True):
                np.testing.assert_allclose(
                    optimizer.slot(variable, slot),
                    after[path + suffix],
                    rtol=2e-5,
                    atol=1e-9,
                    err_msg=path + suffix,
                )
    # Every variable took part; the gradient of the key's bias is rounding noise.
    moved = [np.abs(second[p] - first[p]).max() for p in variables if "key" not in p]
    assert min(moved) > 1e-4
