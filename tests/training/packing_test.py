"""Packed rows train to the same weights as the same examples one a row."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data.batches.pretraining import PretrainingData
from albert_tf.models.base import weight_names
from albert_tf.models.masked_lm import AlbertPretrainer
from albert_tf.objectives.pretraining import ALBERT, pretraining_loss
from albert_tf.optimizers.create import create_optimizer
from albert_tf.training.tensorflow.step import TrainStep, distribute
from tests import tiny
from tests.data.synthetic_records import VOCAB, make_example, write

NUM, LENGTH = 41, 31
CONFIG = tiny.tiny_config(
    vocab_size=VOCAB.vocab_size,
    num_hidden_layers=1,
    max_position_embeddings=LENGTH,
    initializer_range=0.3,
)


@pytest.fixture(scope="module")
def pattern(tmp_path_factory):
    rng = np.random.default_rng(4)
    rows = [make_example(rng, length) for length in rng.integers(5, 17, NUM)]
    return write(tmp_path_factory.mktemp("records"), rows)


def _data(pattern, **changes):
    settings = {"max_seq_length": LENGTH, "max_predictions_per_seq": 5, "seed": 3}
    return PretrainingData(pattern, tokenizer=VOCAB, **(settings | changes))


@pytest.fixture(scope="module")
def batches(pattern):
    """All examples in one batch, packed and not; the last rows are empty."""
    ways = (_data(pattern, packing=packing) for packing in (True, False))
    return [batch for way in ways for batch in way.batches(48, is_training=False)]


def _model():
    return AlbertPretrainer(CONFIG, seed=2)


def _means_and_gradients(batch):
    model = _model()
    with tf.GradientTape() as tape:
        means = pretraining_loss(model(batch), batch)
    variables = weight_names(model)
    found = tape.gradient(means["loss"], list(variables.values()))
    gradients = [tf.convert_to_tensor(g).numpy() for g in found]
    means = {name: float(value) for name, value in means.items()}
    return means, dict(zip(variables, gradients, strict=True))


def test_loss_and_gradients_equal_those_of_unpacked_rows(batches):
    packed, single = batches
    assert packed["mask_weights"].shape[1] > single["mask_weights"].shape[1]
    rows = int(np.count_nonzero(packed["pack_ids"].numpy()[:, 0]))
    assert rows < 0.5 * NUM  # else nothing is shown
    means, gradients = _means_and_gradients(packed)
    expected_means, expected = _means_and_gradients(single)
    assert means == pytest.approx(expected_means, abs=1e-5)
    assert expected_means["loss"] > 1
    for name, value in expected.items():
        assert np.abs(gradients[name] - value).max() < 1e-5, name
    # The comparison can fail: without pack_ids examples see each other. Position ids
    # restart, and both losses have their share.
    for name, part in (
        ("pack_ids", "loss"),
        ("position_ids", "mlm_loss"),
        ("sentence_order_weights", "sop_loss"),
    ):
        mixed = {k: v for k, v in packed.items() if k != name}
        other = float(pretraining_loss(_model()(mixed), mixed)[part])
        assert abs(other - means[part]) > 1e-4, name


def _train(batch, accumulation=1):
    strategy = tf.distribute.get_strategy()
    model = _model()
    lengths = {"num_train_steps": 10, "num_warmup_steps": 0}
    optimizer = create_optimizer("adamw", learning_rate=0.01, **lengths)
    step = TrainStep(model, ALBERT, optimizer, strategy, accumulation=accumulation)
    dataset = tf.data.Dataset.from_tensors(batch).repeat(2)
    sums = step.train(iter(distribute(strategy, lambda n, i: dataset)), 2)
    values = {k: v.numpy() for k, v in weight_names(model).items()}
    found = {name: float(sums[name]) for name in (*step.sum_names, "learning_rate")}
    return values, found | {"grad_norm": float(sums["grad_norms"][-1])}


@pytest.mark.slow
def test_the_step_counts_and_accumulates_packed_rows(batches):
    packed, single = batches
    weights, sums = _train(packed)
    assert sums["tokens"] == 2 * float(tf.reduce_sum(single["padding_mask"]))
    assert sums["tokens"] == 2 * np.count_nonzero(packed["pack_ids"])
    assert sums["sop_weight"] == 2 * NUM
    assert sums["mlm_weight"] == 2 * float(tf.reduce_sum(single["mask_weights"]))
    for other in (_train(single), _train(packed, accumulation=3)):
        assert other[1] == pytest.approx(sums, rel=1e-4)
        for name, value in weights.items():
            # Softmax ignores the key bias: only rounding noise moves it.
            if not name.endswith("key/bias"):
                assert np.abs(other[0][name] - value).max() < 1e-4, name


def test_baselines_are_those_of_unpacked_rows(pattern):
    found = [
        ALBERT.baselines(
            _data(pattern, packing=packing)
            .batches(8, is_training=False)
            .as_numpy_iterator()
        )
        for packing in (True, False)
    ]
    assert found[0] == pytest.approx(found[1])
    assert set(found[0]) == {"mlm_baseline", "sop_baseline"}
