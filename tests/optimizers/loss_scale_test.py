"""The loss scale adapts itself, and an overflow changes nothing but the scale."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.optimizers import loss_scale
from albert_tf.optimizers.adamw import AdamW
from albert_tf.optimizers.lamb import Lamb
from albert_tf.optimizers.loss_scale import LossScale

GOOD, BAD = tf.constant(True), tf.constant(False)


@pytest.fixture
def scale(monkeypatch):
    monkeypatch.setattr(loss_scale, "GROWTH_STEPS", 3)
    return LossScale(AdamW(0.1))


def follow(scale, *steps):
    """Returns the scale after each step."""
    found = []
    for finite in steps:
        scale.update(finite)
        found.append(scale.describe()["loss_scale"])
    return found


def test_it_is_halved_at_an_overflow_and_doubled_after_many_steps(scale):
    first = 2.0**15
    steps = GOOD, BAD, GOOD, GOOD, BAD, GOOD, GOOD, GOOD, GOOD
    expected = [1, 1 / 2, 1 / 2, 1 / 2, 1 / 4, 1 / 4, 1 / 4, 1 / 2, 1 / 2]
    assert follow(scale, *steps) == [first * part for part in expected]
    assert scale.describe()["skipped_steps"] == 2
    expected = {"value": first / 2, "finite_steps": 1, "skipped_steps": 2}
    assert {k: float(v) for k, v in scale.state.items()} == expected


def test_it_stays_between_1_and_2_to_the_24(scale):
    scale.value.assign(4.0)
    assert follow(scale, *[BAD] * 4) == [2, 1, 1, 1]
    scale.value.assign(2.0**23)
    assert set(follow(scale, *[GOOD] * 9)) == {2.0**23, 2.0**24}


RNG = np.random.default_rng(5)
SHAPES = {"kernel": (5, 3), "bias": (3,)}
GRADIENTS = [[RNG.normal(size=s) for s in SHAPES.values()] for _ in range(5)]


def train(name, gradients, scaled, **options):
    """Returns weights, slots, ratios and norm after updates with some gradients."""
    rng = np.random.default_rng(3)
    variables = [keras.Variable(rng.normal(size=s), name=n) for n, s in SHAPES.items()]
    optimizer = KINDS[name](0.1, ema_decay=0.9, **options)
    if scaled:
        optimizer.scale_losses()
    optimizer.build(variables)
    for step in gradients:
        factor = float(optimizer.loss_scale.value) if scaled else 1.0
        step = [tf.constant(g * factor, tf.float32) for g in step]
        optimizer.apply(step, variables)
    state = [v.numpy() for v in variables]
    for name in ("m", "v", "average"):
        state += [optimizer.slot(v, name).numpy() for v in variables]
    if hasattr(optimizer, "last_trust_ratios"):
        state.append(optimizer.last_trust_ratios.numpy())
    return state, optimizer


OVERFLOWS = (
    [np.inf * GRADIENTS[0][0], GRADIENTS[0][1]],
    [np.nan * g for g in GRADIENTS[0]],
)
KINDS = {"lamb": Lamb, "adamw": AdamW}


WAYS = pytest.mark.parametrize(("name", "clip_norm"), [("lamb", 0.7), ("adamw", None)])


@WAYS
def test_a_scaled_loss_trains_the_same(name, clip_norm):
    options = {"clip_norm": clip_norm, "learning_rate_multipliers": {"bias": 0.5}}
    plain, one = train(name, GRADIENTS, scaled=False, **options)
    scaled, other = train(name, GRADIENTS, scaled=True, **options)
    for a, b in zip(plain, scaled, strict=True):
        np.testing.assert_allclose(b, a, rtol=2e-5, atol=1e-6)
    norm = np.sqrt(sum((g**2).sum() for g in GRADIENTS[-1]))
    assert float(other.last_global_norm) == pytest.approx(norm, rel=1e-5)
    expected = float(other.last_global_norm) if clip_norm else 0
    assert float(one.last_global_norm) == expected


@WAYS
def test_an_overflow_changes_nothing_to_the_bit(name, clip_norm):
    a, b, c, d, e = GRADIENTS
    infinite, undefined = OVERFLOWS
    # One of the first step, too, which the average must not begin with.
    steps = [infinite, a, b, undefined, infinite, c, d, e, undefined]
    plain, _ = train(name, GRADIENTS, scaled=True, clip_norm=clip_norm)
    skipped, optimizer = train(name, steps, scaled=True, clip_norm=clip_norm)
    for one, other in zip(plain, skipped, strict=True):
        np.testing.assert_array_equal(one, other)
    # The next step reads the next batch.
    assert int(optimizer.iterations) == len(steps)
    assert not np.isfinite(float(optimizer.last_global_norm))
    expected = {"loss_scale": 2.0**11, "skipped_steps": 4}
    assert optimizer.loss_scale.describe() == expected


# A process of its own, because devices can only be split before TensorFlow starts.
FIT = """
import keras
import numpy as np
import tensorflow as tf
from albert_tf.optimizers.lamb import Lamb

cpu = tf.config.list_physical_devices("CPU")[0]
parts = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, parts)
x = np.random.default_rng(1).normal(size=(64, 5)).astype("float32")
y = np.argmax(x[:, :3], 1)
x[31] = 1e9  # only the second device reads it
keras.mixed_precision.set_global_policy("mixed_float16")
with tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"]).scope():
    top = keras.layers.Dense(3, dtype="float32")
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(7), top])
    optimizer = Lamb(0.03)
    optimizer.scale_losses()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, auto_scale_loss=False, jit_compile=False)
model.fit(x, y, batch_size=8, epochs=10, shuffle=False, verbose=0)
x[31] = 0
assert optimizer.loss_scale.describe()["skipped_steps"] == 10
assert model.evaluate(x, y, verbose=0) < 0.6
"""


@pytest.mark.slow
def test_fit_skips_what_overflows_on_any_device(run_forked):
    done = run_forked("-c", FIT)
    assert done.returncode == 0, done.stderr[-2000:]
