"""Steps of a drawn number of layers, and what both passes of a step learn."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.errors import UsageError
from albert_tf.layers.depth import limit_layers
from albert_tf.layers.dropout import StepSeeds
from albert_tf.models.masked_lm import AlbertPretrainer
from albert_tf.objectives.any_depth import both_passes, with_short_pass
from albert_tf.objectives.pretraining import ALBERT
from albert_tf.optimizers.create import create_optimizer
from albert_tf.training.pretrain_settings import PretrainSettings
from albert_tf.training.random_depth import RandomDepth
from albert_tf.training.start import check_layers
from albert_tf.training.tensorflow.step import TrainStep
from benchmarks.rows import random_batch
from tests import tiny

BATCH = {k: tf.constant(v) for k, v in random_batch(tiny.CONFIG, 4, 12).items()}


def test_layers_are_a_function_of_seed_and_step():
    drawn = RandomDepth(3, 2, 5)
    steps = [drawn.of_step(step) for step in range(400)]
    counts = np.bincount(steps)[2:]
    assert set(steps) == {2, 3, 4, 5} and counts.min() > 70
    assert steps[:8] == [2, 4, 2, 4, 3, 3, 5, 4]  # on every machine
    assert steps != [RandomDepth(4, 2, 5).of_step(step) for step in range(400)]
    # A run that was killed after 7 steps draws what it would have drawn.
    again = RandomDepth(3, 2, 5)._stretches(7, 9)
    assert [n for n, count in again for _ in range(count)] == steps[7:16]


def batches():
    return iter(tf.data.Dataset.from_tensors(BATCH).repeat())


pytestmark = pytest.mark.usefixtures("eager")


def make_step(layers, **options):
    config = tiny.tiny_config(num_hidden_layers=layers, hidden_dropout_prob=0.1)
    model = AlbertPretrainer(config, seed=1)
    optimizer = create_optimizer("adamw", learning_rate=1e-2, num_train_steps=9)
    return TrainStep(model, ALBERT, optimizer, tf.distribute.get_strategy(), **options)


def test_a_step_computes_the_drawn_layers_alone():
    deep, shallow = make_step(3, random_depth=RandomDepth(1, 1, 1)), make_step(1)
    results = [one.train(batches(), 2) for one in (deep, shallow)]
    for name in ("losses", "grad_norms", "learning_rate", "tokens"):
        np.testing.assert_array_equal(results[0][name], results[1][name])
    tiny.assert_same_weights(deep.model, shallow.model)


def test_calls_do_not_change_what_steps_of_different_layers_train():
    drawn = RandomDepth(11, 1, 2)
    assert [drawn.of_step(i) for i in range(4)] == [2, 2, 1, 1]
    at_once, one_by_one = (make_step(2, random_depth=drawn) for _ in range(2))
    iterator, totals, losses = batches(), None, []
    for count in (1, 2, 1):
        totals = one_by_one.train(iterator, count, totals)
        losses += [*totals["losses"]]
    results = at_once.train(batches(), 4)
    np.testing.assert_array_equal(results["losses"], losses)
    assert {n: results[n] for n in at_once.sum_names} == {
        n: totals[n] for n in at_once.sum_names
    }
    tiny.assert_same_weights(at_once.model, one_by_one.model)


def test_the_short_pass_approaches_the_full_one():
    """Restated with both passes apart, the full one's states being numbers."""
    config = tiny.tiny_config(num_hidden_layers=3, hidden_dropout_prob=0.1)
    model = AlbertPretrainer(config, seed=1)
    objective = with_short_pass(ALBERT, 0.25)
    weights = objective.weights(BATCH)
    np.testing.assert_array_equal(weights[:-1], ALBERT.weights(BATCH))

    def gradients(loss_of):
        with tf.GradientTape() as tape:
            loss = loss_of()
        return [loss.numpy()] + [
            tf.convert_to_tensor(g).numpy()
            for g in tape.gradient(loss, model.trainable_variables)
        ]

    def answers(layers):
        with limit_layers(layers):
            return model(BATCH, training=True, seeds=StepSeeds(3, 5))

    def as_defined():
        with limit_layers(2):
            passes = both_passes(model, BATCH, training=True, seeds=StepSeeds(3, 5))
        sums = objective.sums(passes, BATCH)
        assert sums.keys() == set(objective.sum_names)
        told.update(objective.metrics(sums))
        return objective.loss(sums, weights)

    def as_restated():
        full, short = answers(None), answers(2)
        losses = [ALBERT.loss(ALBERT.sums(x, BATCH), weights) for x in (full, short)]
        mask = keras.ops.cast(BATCH["padding_mask"], "float32")
        squares = (short["sequence_output"] - full["sequence_output"].numpy()) ** 2
        size = tf.reduce_sum(mask) * config.hidden_size
        distance = tf.reduce_sum(squares * mask[..., None]) / size
        told["distance"] = float(distance)
        return losses[0] + 0.25 * (losses[1] + distance)

    told = {}
    for one, other in zip(gradients(as_defined), gradients(as_restated), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-6, rtol=1e-5)
    assert told["depth_distance"] == pytest.approx(told["distance"], rel=1e-5)
    assert told["distance"] > 0.1
    assert 0 < told["short_loss"] != told["loss"]
    # All layers are one pass, as in an evaluation.
    whole = both_passes(model, BATCH)
    values = objective.metrics(objective.sums(whole, BATCH))
    assert values == ALBERT.metrics(ALBERT.sums(whole, BATCH))


GIVEN = {"input_file": "a", "output_dir": "b", "spm_model_file": "c", "preset": "d"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"depth_range": ("3",)}, "two rising numbers of layers, such as 3,12, rec.*3"),
        ({"depth_range": ("0", "3")}, "rising numbers .*received '0,3'"),
        ({"depth_range": ("3", "2")}, "rising numbers"),
        ({"depth_range": ("1", "x")}, "rising numbers"),
        ({"depth_consistency": 0.1}, "_consistency requires --depth_range, .*0.1"),
        ({"depth_range": ("1", "2"), "objective": "electra"}, "not fit the two nets"),
    ],
)
def test_what_no_model_has_is_refused(given, message):
    with pytest.raises(UsageError, match=message):
        PretrainSettings(**GIVEN, **given)


def test_the_model_must_have_the_layers():
    settings = PretrainSettings(**GIVEN, depth_range=("2", "13"))
    with pytest.raises(UsageError, match="--depth_range must be within 1,12, the lay"):
        check_layers(settings, AlbertConfig())
    check_layers(settings, AlbertConfig(num_hidden_layers=13))
