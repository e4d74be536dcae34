"""Averages are the same on every kind of device, and survive in checkpoints."""

import json

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.models.base import weight_names
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.optimizers.create import create_optimizer
from albert_tf.training.tensorflow.checkpoints import (
    TrainingCheckpoints,
    WeightAverages,
)
from tests.training.tensorflow import checkpoints_test

# A process of its own, because devices can only be split before TensorFlow starts.
PROGRAM = r"""
import json, sys
import numpy as np
import tensorflow as tf
from albert_tf import AlbertConfig, AlbertPretrainer, create_optimizer
from albert_tf.objectives.pretraining import ALBERT
from albert_tf.training.tensorflow.checkpoints import WeightAverages
from albert_tf.training.tensorflow.step import TrainStep, distribute
from albert_tf.training.tensorflow.strategy import create_strategy

rng = np.random.default_rng(0)
rows, length, predictions = 8 * 6, 7, 3
batch = {
    "token_ids": rng.integers(0, 53, (rows, length)).astype("int32"),
    "segment_ids": rng.integers(0, 2, (rows, length)).astype("int32"),
    "padding_mask": np.ones((rows, length), "int32"),
    "mask_positions": rng.integers(0, length, (rows, predictions)).astype("int32"),
    "mask_ids": rng.integers(0, 53, (rows, predictions)).astype("int32"),
    "mask_weights": np.ones((rows, predictions), "float32"),
    "sentence_order_labels": rng.integers(0, 2, rows).astype("int32"),
}
config = AlbertConfig(
    vocab_size=53, embedding_size=6, hidden_size=12, num_hidden_layers=1,
    num_attention_heads=2, intermediate_size=20, max_position_embeddings=16,
)

def run(kind, optimizer="lamb", schedule="original", compiled=False, **options):
    ema_decay = 0.8
    strategy = strategies[kind]
    with strategy.scope():
        model = AlbertPretrainer(config, seed=3)
        optimizer = create_optimizer(
            optimizer, learning_rate=0.05, num_train_steps=20, num_warmup_steps=2,
            ema_decay=ema_decay, learning_rate_schedule=schedule,
        )
    step = TrainStep(model, ALBERT, optimizer, strategy, seed=1, **options)
    make = lambda n, i: tf.data.Dataset.from_tensor_slices(batch).batch(8, True)
    iterator = iter(distribute(strategy, make))
    replica = lambda batch: strategy.run(step._replica_step, (batch,))
    if compiled:  # everything that a replica does, as for a TPU
        replica = tf.function(replica, jit_compile=True)
    history, rates = [], []
    for _ in range(6):
        rates.append(float(optimizer.learning_rate))
        if compiled:
            replica(next(iterator))
        else:
            assert float(step.train(iterator, 1)["learning_rate"]) == rates[-1]
        history.append(model.get_weights())
    averages = WeightAverages(model, optimizer)
    last = history[-1]
    with averages.in_place():
        inside = model.get_weights()
        first = next(iter(distribute(strategy, make)))
        loss = float(step.evaluate(first)["mlm_loss_sum"])
    parts = ema_decay ** np.arange(5, -1, -1)
    for values in zip(inside, *history, strict=True):
        mean = np.tensordot(parts, np.stack(values[1:]).astype("float64"), 1)
        np.testing.assert_allclose(values[0], mean / parts.sum(), atol=1e-5)
    for one, other in zip(last, model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    if kind == "mirrored":
        for variable in model.trainable_variables:
            one, other = strategy.experimental_local_results(variable.value)
            np.testing.assert_array_equal(one, other)
    return last, inside, loss, rates

def difference(one, other):
    pairs = zip(one, other, noise, strict=True)
    return max(np.abs(a - b).max() for a, b, is_noise in pairs if not is_noise)

strategies = {"mirrored": create_strategy("mirrored")}
strategies["one_device"] = create_strategy("one_device")
# The key bias has no gradient in exact arithmetic, so what moves it is rounding noise.
noise = [w.path.endswith("key/bias") for w in AlbertPretrainer(config).weights]
for schedule, others in json.loads(sys.argv[1]).items():
    last, inside, loss, rates = run("one_device", schedule=schedule)
    assert difference(last, inside) > 0.01
    for options in others:
        found = run(schedule=schedule, **options)
        assert difference(found[0], last) < 5e-5, difference(found[0], last)
        assert difference(found[1], inside) < 5e-5, difference(found[1], inside)
        assert abs(found[2] - loss) < 1e-3, (found[2], loss)
        assert found[3] == rates
    print(schedule, json.dumps(rates))
for options in json.loads(sys.argv[2]):
    run(**options)
print("the same averages")
"""
REPLICAS = {"kind": "mirrored", "accumulation": 2}
COMPILED = {"kind": "one_device", "compiled": True}


def train_alike(run_python, cases, alone=()):
    """Trains on one device and in other ways; returns the rates by the schedule."""
    done = run_python("-c", PROGRAM, json.dumps(cases), json.dumps(alone))
    assert done.returncode == 0, done.stderr[-3000:]
    *lines, last = done.stdout.splitlines()
    assert last == "the same averages"
    found = (line.partition(" ") for line in lines)
    return {name: json.loads(rates) for name, _, rates in found}


@pytest.mark.slow
def test_replicas_and_micro_batches_average_the_same(run_python):
    rates = train_alike(run_python, {"cosine": [REPLICAS]})["cosine"]
    expected = [0.05 * (1 + np.cos(np.pi * n / 18)) / 2 for n in range(4)]
    np.testing.assert_allclose(rates, [0, 0.025, *expected], rtol=1e-5)


@pytest.mark.broad
@pytest.mark.parametrize("schedule", ["original", "linear", "cosine", "trapezoid"])
def test_every_schedule_trains_the_same_everywhere(run_python, schedule):
    rates = train_alike(run_python, {schedule: [REPLICAS, COMPILED]})
    # Only the trapezoid stays at the peak.
    assert (rates[schedule][-1] == rates[schedule][2]) == (schedule == "trapezoid")


@pytest.mark.broad
def test_replicas_average_the_weights_of_adamw(run_python):
    options = {"kind": "mirrored", "optimizer": "adamw", "schedule": "linear"}
    assert train_alike(run_python, {}, [options]) == {}


def make_run(ema_decay, seed=1):
    model = AlbertPretrainer(checkpoints_test.CONFIG, seed=seed)
    optimizer = create_optimizer(
        "adamw", learning_rate=0.1, num_train_steps=5, ema_decay=ema_decay
    )
    optimizer.build(model.trainable_variables)
    gradients = [tf.ones(v.shape) for v in model.trainable_variables]
    for _ in range(3):
        optimizer.apply(gradients)
    return {"model": model, "optimizer": optimizer, "seed": 3}


def test_a_checkpoint_holds_them_only_if_there_are_any(tmp_path):
    plain, averaged = make_run(0.0), make_run(0.9)
    TrainingCheckpoints(tmp_path / "plain", **plain).save()
    TrainingCheckpoints(tmp_path / "averaged", **averaged).save()

    def groups(name):
        keys = tf.train.load_checkpoint(
            str(tmp_path / name)
        ).get_variable_to_shape_map()
        return {key.partition("/")[0] for key in keys}

    assert groups("averaged") - groups("plain") == {"averages"}
    assert groups("plain") >= {"weights", "slots", "step", "seed"}


def test_restored_averages_are_the_same_bits(tmp_path):
    run = make_run(0.9)
    TrainingCheckpoints(tmp_path, **run).save()
    other = make_run(0.9, seed=2)
    checkpoints = TrainingCheckpoints(tmp_path, **other)
    assert "averages" in checkpoints.facts()
    checkpoints.restore(tmp_path)
    expected = WeightAverages(run["model"], run["optimizer"]).averages
    averages = WeightAverages(other["model"], other["optimizer"])
    for name, value in expected.items():
        np.testing.assert_array_equal(value, averages.averages[name])
    averages.replace_weights()
    for name, value in weight_names(other["model"]).items():
        np.testing.assert_array_equal(value, expected[name])


def test_without_averages_nothing_is_replaced():
    run = make_run(0.0)
    averages = WeightAverages(run["model"], run["optimizer"])
    assert not averages
    before = run["model"].get_weights()
    with averages.in_place():
        averages.replace_weights()
    for one, other in zip(before, run["model"].get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
