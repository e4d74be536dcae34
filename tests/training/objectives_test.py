"""Every objective through the training step: all sharings, and what must not matter."""

import functools
import itertools
import json

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import heads
from albert_tf.config import SHARING_MODES
from albert_tf.models.base import weight_names
from albert_tf.objectives.pretraining import OBJECTIVES
from albert_tf.optimizers.create import create_optimizer
from albert_tf.training.checkpoints import TrainingCheckpoints
from albert_tf.training.tensorflow.step import TrainStep, distribute
from tests import tiny

ROWS, T, P, V = 8, 11, 3, 53


def choose(often):
    """Returns all objectives; those that are not checked often are broad."""
    broad = {True: (), False: pytest.mark.broad}
    return [pytest.param(name, marks=broad[name in often]) for name in OBJECTIVES]


def make_batch(seed):
    """Replicas and micro-batches have different numbers of tokens and predictions."""
    rng = np.random.default_rng(seed)
    weights = np.ones((ROWS, P), "float32")
    weights[::3, -1] = 0
    mask = np.ones((ROWS, T), "int32")
    mask[1::2, -2:] = 0
    places = np.sort([1 + rng.permutation(T - 3)[:P] for _ in range(ROWS)])
    return {
        "token_ids": rng.integers(5, V, (ROWS, T)).astype("int32") * mask,
        "segment_ids": np.zeros((ROWS, T), "int32"),
        "padding_mask": mask,
        "mask_positions": np.where(weights > 0, places, 0).astype("int32"),
        "mask_ids": rng.integers(5, V, (ROWS, P)).astype("int32"),
        "mask_weights": weights,
        "sample_draws": rng.random((ROWS, P)).astype("float32"),
        "sentence_order_labels": rng.integers(0, 2, ROWS).astype("int32"),
    }


def make_step(
    name,
    sharing="all",
    *,
    layers=1,
    strategy=None,
    dropout=0.0,
    rate=1e-3,
    dtype=None,
    **options,
):
    objective = OBJECTIVES[name]
    config = tiny.tiny_config(
        **{"vocab_size": V, "sharing": sharing, "initializer_range": 0.3},
        **{"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout},
        num_hidden_layers=layers,
    )
    strategy = strategy or tf.distribute.get_strategy()
    more = {"generator_size": 1 / 3} if objective.sample_draws else {}
    with strategy.scope():
        model = heads.find(objective.head).load_class()(
            config, seed=4, dtype=dtype, **more
        )
        # Small, so that rounding does not grow until another token is drawn.
        optimizer = create_optimizer("adamw", learning_rate=rate, num_train_steps=60)
    return TrainStep(model, objective, optimizer, strategy, seed=1, **options)


def train(step, seeds):
    batches = [make_batch(seed) for seed in seeds]
    has_draws = step.objective.sample_draws
    names = [n for n in batches[0] if n != "sample_draws" or has_draws]
    rows = {k: np.concatenate([b[k] for b in batches]) for k in names}
    make = lambda *_: tf.data.Dataset.from_tensor_slices(rows).batch(ROWS, True)  # noqa: E731
    results = step.train(iter(distribute(step.strategy, make)), len(batches))
    weights = {k: v.numpy().tolist() for k, v in weight_names(step.model).items()}
    return {"weights": weights, "losses": results["losses"].tolist()}


def assert_close(one, other):
    np.testing.assert_allclose(other["losses"], one["losses"], rtol=1e-4)
    for name, value in one["weights"].items():
        if not name.endswith("key/bias"):  # moved by rounding alone
            difference = np.abs(np.subtract(value, other["weights"][name])).max()
            assert difference < 5e-5, name


WAYS = """
import json, sys
from albert_tf.training.tensorflow.strategy import create_strategy
from tests.training.objectives_test import make_step, train
two, one = map(create_strategy, ("mirrored", "one_device"))
ways = {
    "one device": {"strategy": one},
    "two replicas": {"strategy": two},
    "micro-batches": {"strategy": one, "accumulation": 4},
}
seeds, name = [0, 1] * 25, sys.argv[1]
found = {way: train(make_step(name, **options), seeds) for way, options in ways.items()}
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def trained(run_forked):
    """What training with an objective leads to in several ways: `trained("bert")`."""

    @functools.cache
    def run(name):
        # A process of its own: devices can only be split before TensorFlow starts.
        done = run_forked("-c", WAYS, name)
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run


def has_learned(losses):
    return np.isfinite(losses).all() and np.mean(losses[-2:]) < np.mean(losses[:2])


# The others have the losses and the model of one of these.
@pytest.mark.slow
@pytest.mark.parametrize("name", choose(["albert", "spanbert", "electra"]))
def test_replicas_and_micro_batches_train_the_same(trained, name):
    one = trained(name)["one device"]
    assert len(set(one["losses"])) == 50 and has_learned(one["losses"])
    for way in ("two replicas", "micro-batches"):
        assert_close(one, trained(name)[way])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sharing"),
    [
        pytest.param(*one, marks=() if one == ("albert", "none") else pytest.mark.broad)
        for one in itertools.product(OBJECTIVES, SHARING_MODES)
    ],
)
def test_the_loss_of_repeated_batches_falls(name, sharing):
    step = make_step(name, sharing, layers=2, rate=0.01)
    assert has_learned(train(step, [0, 1] * 10)["losses"])


@pytest.mark.slow
@pytest.mark.parametrize("name", choose(["electra"]))
def test_layers_in_loops_train_the_same(name):
    one, *others = (
        train(make_step(name, layers=2, dropout=0.2, **depth), range(9))
        for depth in ({}, {"depth": "loop"}, {"depth": "loop_remat"})
    )
    for other in others:
        assert_close(one, other)


@pytest.mark.parametrize("name", choose(["albert"]))
def test_a_restored_run_continues_bitwise(name, tmp_path):
    whole, again = (make_step(name, dropout=0.2) for _ in range(2))
    train(whole, range(3))
    kept = TrainingCheckpoints(tmp_path, whole.model, whole.optimizer, seed=1)
    kept.save(wait=True)
    expected = train(whole, range(3, 6))
    restored = TrainingCheckpoints(tmp_path, again.model, again.optimizer, seed=1)
    restored.restore(tmp_path)
    assert restored.step == 3
    assert train(again, range(3, 6)) == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", choose(["electra"]))
def test_a_compiled_step_and_bfloat16(trained, name):
    expected = trained(name)["one device"]["losses"][:2]
    compiled = train(make_step(name, jit_compile=True), range(2))["losses"]
    assert compiled == pytest.approx(expected, rel=1e-4)
    half = train(make_step(name, dtype="mixed_bfloat16"), range(2))["losses"]
    assert half == pytest.approx(expected, rel=0.1)
