"""Ten steps of the whole training computation against the original's recorded run.

The recorded run is the original's LAMB with the step counter ordered after the update
(step i uses the rate of step i) and dense embedding gradients.
"""

import json

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf import features
from albert_tf.converters.tf1 import name_table
from albert_tf.models.base import weight_names
from albert_tf.objectives.pretraining import pretraining_loss
from albert_tf.optimizers.create import create_optimizer
from tests.tiny import GOLDEN

RUN = GOLDEN / "tf1_train/lamb_ordered"
START = GOLDEN / "tf1_tiny/base"


def read_batches(count):
    stored = np.load(GOLDEN / "tf1_train/batches.npz")
    batches = []
    for step in range(count):
        batch = {
            ours: tf.constant(stored[f"step{step:02d}/{theirs}"])
            for ours, theirs in features.RECORD_NAMES.items()
        }
        labels = batch[features.SENTENCE_ORDER_LABELS]
        batch[features.SENTENCE_ORDER_LABELS] = tf.squeeze(labels, 1)
        batches.append(batch)
    return batches


@pytest.fixture(scope="module")
def trained():
    """Returns (model, optimizer, the run's log, what our run logged)."""
    log = json.loads((RUN / "log.json").read_text())
    model = albert_tf.from_pretrained(START)
    names = ("num_train_steps", "num_warmup_steps", "weight_decay_rate", "clip_norm")
    options = {name: log[name] for name in (*names, "poly_power", "start_warmup_step")}
    optimizer = create_optimizer("lamb", learning_rate=log["init_lr"], **options)
    variables = model.trainable_variables
    optimizer.build(variables)

    @tf.function
    def train_step(batch):
        with tf.GradientTape() as tape:
            losses = pretraining_loss(model(batch, training=True), batch)
        rate = optimizer.learning_rate
        gradients = tape.gradient(losses["loss"], [v.value for v in variables])
        optimizer.apply(gradients, variables)
        return {**losses, "rate": rate, "norm": optimizer.last_global_norm + 0.0}

    ours = []
    for batch in read_batches(len(log["loss"])):
        values = train_step(batch)
        ours.append({name: float(value) for name, value in values.items()})
    return model, optimizer, log, ours


@pytest.mark.parametrize(
    ("theirs", "ours", "rtol", "atol"),
    [
        ("loss", "loss", 0, 1e-5),
        ("mlm_loss", "mlm_loss", 0, 1e-5),
        ("sop_loss", "sop_loss", 0, 1e-5),
        ("grad_norm_before_clip", "norm", 0, 2e-5),
        ("lr_effective", "rate", 1e-6, 0),
    ],
)
def test_every_step_equals_the_original(trained, theirs, ours, rtol, atol):
    _, _, log, steps = trained
    values = [step[ours] for step in steps]
    np.testing.assert_allclose(values, log[theirs], rtol=rtol, atol=atol)


def test_weights_and_slots_equal_the_original(trained):
    model, optimizer, _, _ = trained
    after = np.load(RUN / "after10.npz")
    weights = weight_names(model)
    rows = name_table(model.config)
    assert {row.ours for row in rows} == set(weights)
    for row in rows:
        variable = weights[row.ours]
        # The exact gradient of the key's bias is 0 (softmax ignores it), so its
        # update is rounding noise divided by rounding noise.
        atol = 1e-3 if row.theirs.endswith("key/bias") else 1e-5
        expected = row.turn(after[row.theirs])
        np.testing.assert_allclose(variable, expected, atol=atol, err_msg=row.ours)
        for slot in "mv":
            found = optimizer.slot(variable, slot)
            expected = row.turn(after[f"{row.theirs}/adam_{slot}"])
            name = f"{row.ours}, slot {slot}"
            np.testing.assert_allclose(found, expected, atol=1e-5, err_msg=name)


def test_names_excluded_from_decay_and_adaptation(trained):
    model, optimizer, log, _ = trained
    weights = weight_names(model)
    for row in name_table(model.config):
        variable = weights[row.ours]
        ours = optimizer.uses_weight_decay, optimizer.uses_layer_adaptation
        theirs = log["weight_decay_applied"], log["layer_adaptation_applied"]
        expected = [applied[row.theirs] for applied in theirs]
        assert [uses(variable) for uses in ours] == expected, row.ours
