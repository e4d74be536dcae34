"""The step computes the same on one device, two replicas, and in micro-batches."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.models.backbone import AlbertBackbone
from albert_tf.models.base import weight_names
from albert_tf.models.masked_lm import AlbertPretrainer
from albert_tf.objectives.pretraining import ALBERT
from albert_tf.optimizers.create import create_optimizer
from albert_tf.training.loop import evaluate_batches
from albert_tf.training.tensorflow.step import TrainStep
from albert_tf.training.tensorflow.strategy import create_strategy
from albert_tf.training.weights import mark_trained
from benchmarks.rows import random_batch
from tests import tiny
from tests.training.steps import run_cases

TWO = {"kind": "mirrored", "accumulation": 2}
LOOP = {**TWO, "depth": "loop_remat"}
SAME = {"fused micro-batches": {"fuse": True, "accumulation": 4}}
SAME["a loop, two replicas"] = LOOP
FLAT = {"config": {"num_hidden_layers": 1}}  # traced in half the time
SLOWLY = {"name": "adamw", "optimizer": {"learning_rate": 3e-3}, "draws": True}
# `jax/step_test.py` has a loss of every layer, in parts and divided.
VECTORS = {**SLOWLY, "learns": "vectors", "calls": [30], **FLAT}
OF_VECTORS = {
    "vectors, two replicas": {**VECTORS, "kind": "mirrored"},
    "vectors, compiled": {**VECTORS, "accumulation": 2, "jit_compile": True},
}
HALF = {"precision": "mixed_float16", "calls": [40], **FLAT}
HALF["optimizer"] = {"learning_rate": 0.03, "num_train_steps": 40}
OVERFLOW = {**HALF, "loss_scale": 2.0**22}
DROPOUT = {"dropout": 0.3, "name": "adamw", **FLAT}
DROPPED = {**VECTORS, **TWO, "dropout": 0.3, "calls": [3], "undivided": True}
DROPPED["optimizer"] = {**SLOWLY["optimizer"], "clip_norm": 0}
HALF_VECTORS = {**VECTORS, "precision": "mixed_float16", "accumulation": 4}
TAUGHT = {**SLOWLY, "taught": [[1, 3]], "calls": [3], **FLAT}
TAUGHT = {"taught": TAUGHT, "taught, two replicas": {**TAUGHT, **TWO}}
DRAWN = {**SLOWLY, "depths": [1, 2], "calls": [4]}
DRAWN = {"drawn layers": DRAWN, "drawn layers, two replicas": {**DRAWN, **TWO}}
CASES = (
    SAME
    | OF_VECTORS
    | TAUGHT
    | DRAWN
    | {
        "vectors": VECTORS,
        "vectors, dropout": DROPPED,
        "vectors, float16": HALF_VECTORS,
        "one device": {},
        "no pairs": {"pairs": False, "accumulation": 2, "name": "adamw", **FLAT},
        "dropout": DROPOUT,
        "dropout, joined": {**DROPOUT, "calls": [2, 1, 3]},
        "masks": {
            **{**DROPOUT, "config": {}, "kind": "mirrored"},
            **{"calls": [1], "records_masks": True},
        },
        "float32": {**HALF, "precision": "float32"},
        "float16": HALF,
        "overflow": {**OVERFLOW, "calls": [1, 6, 33], "kind": "mirrored"},
    }
)
COMPILED = {
    name: {**options, **LOOP, "jit_compile": True}
    for name, options in {"one device": {}, "float16": HALF}.items()
}
COMPILED["vectors"] = {**VECTORS, **TWO, "jit_compile": True}


@pytest.fixture(scope="module")
def runs(run_forked, tmp_path_factory):
    return run_cases(run_forked, tmp_path_factory.mktemp("steps"), CASES)


def has_learned(run):
    return np.mean(run["losses"][-5:]) < np.mean(run["losses"][:5])


def largest_difference(a, b):
    # The key bias has no gradient in exact arithmetic (softmax ignores it), so what
    # moves it is rounding noise, amplified by the optimizer.
    return max(
        float(np.abs(a[name] - b[name]).max())
        for name in a
        if name.startswith(("weight/", "average/")) and not name.endswith("key/bias")
    )


@pytest.mark.broad
def test_compiled_loops_on_two_replicas_train_the_same(runs, run_forked, tmp_path):
    found = run_cases(run_forked, tmp_path, COMPILED)
    for name in ("one device", "vectors"):
        assert largest_difference(found[name], runs[name]) < 5e-5
    # As far as 11 bits tell.
    half, other = runs["float16"], found["float16"]
    np.testing.assert_allclose(other["losses"], half["losses"], rtol=0, atol=1e-4)
    assert largest_difference(other, half) < 5e-3


def test_several_runs_in_one_process_trace_without_a_warning(caplog):
    caplog.handler.setLevel("WARNING")
    tf.get_logger().addHandler(caplog.handler)
    strategy = create_strategy("one_device")
    for _ in range(5):
        with strategy.scope():
            optimizer = create_optimizer("lamb", learning_rate=0.1, num_train_steps=5)
            model = AlbertBackbone(tiny.CONFIG)
        step = TrainStep(model, ALBERT, optimizer, strategy)
        step.predict({"token_ids": np.ones((2, 3), np.int32)})
    tf.get_logger().removeHandler(caplog.handler)
    assert not [m for m in caplog.messages if "retracing" in m]


@pytest.mark.slow
@pytest.mark.parametrize("case", SAME)
def test_same_training(runs, case):
    one, other = runs["one device"], runs[case]
    assert largest_difference(one, other) < 5e-5
    assert other["sum/tokens"] == one["sum/tokens"] == 6 * 16 * 6
    assert other["rates"].tolist() == one["rates"].tolist()
    # Of the batch, not of a replica's share or a micro-batch.
    for name in ("losses", "norms"):
        assert len(set(other[name])) == 6
        np.testing.assert_allclose(other[name], one[name], rtol=0, atol=1e-4)
    ratios = [name for name in one if name.startswith("ratio/")]
    for name in ratios:
        assert other[name] == pytest.approx(one[name], rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("case", OF_VECTORS)
def test_vectors_are_compared_across_replicas_and_micro_batches(runs, case):
    one, other = runs["vectors"], runs[case]
    assert largest_difference(one, other) < 5e-5
    assert has_learned(one) and 0 < one["sum/count"] == other["sum/count"]
    for name in ("losses", "norms", *(n for n in one if n.startswith("sum/"))):
        np.testing.assert_allclose(other[name], one[name], 1e-5, 1e-5, err_msg=name)
    assert one["left"].tolist() == other["left"].tolist() == one["untrained"].tolist()


@pytest.mark.slow
def test_a_teacher_teaches_the_same_everywhere(runs):
    one, other = (runs[case] for case in TAUGHT)
    assert largest_difference(one, other) < 5e-5
    assert one["weight/projection_1_3/kernel"].shape == (16, 24)
    assert one["sum/states_loss_sum"] > 0 < one["sum/teacher_loss_sum"]
    np.testing.assert_allclose(other["losses"], one["losses"], rtol=1e-5)


@pytest.mark.slow
def test_drawn_numbers_of_layers_are_the_same_everywhere(runs):
    one, other = (runs[case] for case in DRAWN)
    assert largest_difference(one, other) < 5e-5
    np.testing.assert_allclose(other["losses"], one["losses"], rtol=1e-5)


@pytest.mark.slow
def test_micro_batches_drop_the_same_twice(runs):
    found = runs["vectors, dropout"]
    # The norm is measured without clipping too.
    assert found["norms"][0] == pytest.approx(float(found["undivided"]), rel=1e-5)
    half, whole = runs["vectors, float16"], runs["vectors"]
    assert set(half["scales"]) == {2.0**15} and half["skipped"] == 0
    np.testing.assert_allclose(half["losses"], whole["losses"], rtol=0, atol=0.05)


@pytest.mark.slow
def test_what_the_loss_does_not_read_stays_as_it_is(runs):
    unread = [
        *("backbone/pooler/bias", "backbone/pooler/kernel"),
        *("sop_head/bias", "sop_head/kernel"),
    ]
    for name in ("left", "untrained"):
        assert runs["no pairs"][name].tolist() == unread
        assert not runs["one device"][name].size


@pytest.mark.slow
def test_several_steps_in_one_call_are_bitwise_the_same(runs):
    single, joined = runs["dropout"], runs["dropout, joined"]
    assert joined["rates"].tolist() == single["rates"][[1, 2, 5]].tolist()
    for name in single.keys() - {"rates", "skipped"}:
        np.testing.assert_array_equal(single[name], joined[name], err_msg=name)


@pytest.mark.slow
def test_float16_learns_as_float32(runs):
    whole, half = runs["float32"], runs["float16"]
    assert half["losses"][-1] < half["losses"][0] - 0.1
    np.testing.assert_allclose(half["losses"], whole["losses"], rtol=0, atol=1e-3)
    assert 0 < largest_difference(half, whole) < 1e-2
    assert set(half["scales"]) == {2.0**15} and half["skipped"] == 0
    assert not whole["scales"].size and whole["skipped"] == -1  # not counted


@pytest.mark.slow
def test_steps_that_overflow_are_skipped_until_the_scale_fits(runs):
    half, over = runs["float16"], runs["overflow"]
    finite = over["norms"] >= 0
    skipped = np.cumsum(~finite)
    assert not finite[:3].any() and 3 < skipped[-1] < 8 and over["iterations"] == 40
    assert over["skipped"].tolist() == skipped[[0, 6, 39]].tolist()
    # Each of them halves the scale of those after it.
    scales = 2.0 ** (22 - np.array([0, *skipped[:-1]]))
    assert over["scales"].tolist() == scales.tolist()
    # The first updates are missing.
    assert over["losses"][0] == pytest.approx(half["losses"][0], abs=1e-4)
    last, begun = over["losses"][-5:].mean(), over["losses"][:5].mean()
    assert half["losses"][-5:].mean() < last < begun  # of all batches
    # Both replicas have been compared by `train`.
    assert np.isfinite(over["losses"]).all()


@pytest.mark.slow
def test_replicas_have_their_own_dropout_masks(runs):
    first, second = (
        [mask.rpartition(" ") for mask in runs["masks"][f"masks/{replica}"]]
        for replica in range(2)
    )
    # The same layers drop, in batches of the same shape ...
    assert sorted(m[0] for m in first) == sorted(m[0] for m in second)
    # ... and no two of all these masks are the same.
    digests = [mask[-1] for mask in first + second]
    assert len(set(digests)) == len(digests) > 8


@pytest.mark.slow
def test_what_a_step_says(runs):
    one = runs["one device"]
    assert one["norms"][0] > 0.5  # of which the rest is clipped
    # Warm-up in two steps, then, counted from 0, a linear decay in 20 from 0.05.
    assert one["rates"][0] == 0 and one["rates"][5] == pytest.approx(0.05 * 15 / 20)
    names, ratios = (
        {n.removeprefix(kind): float(one[n].max()) for n in one if n.startswith(kind)}
        for kind in ("weight/", "ratio/")
    )
    assert {name for name in names if "kernel" in name} < set(ratios) < set(names)
    assert not any("bias" in name or "layer_norm" in name for name in ratios)
    assert all(0 < ratio < 1e3 for ratio in ratios.values())


def compiled_functions(**options) -> list[str]:
    """Returns the kinds of operations that XLA compiles, of every such function."""
    model = AlbertPretrainer(tiny.CONFIG, seed=1)
    optimizer = create_optimizer("adamw", learning_rate=1e-3, num_train_steps=10)
    strategy = tf.distribute.get_strategy()
    step = TrainStep(model, ALBERT, optimizer, strategy, **options)
    batch = {k: tf.constant(v) for k, v in random_batch(tiny.CONFIG, 2, 12).items()}
    micro = tf.function(step._micro_step)
    graph = micro.get_concrete_function(
        batch, ALBERT.weights(batch), tf.constant(0), tf.constant(0)
    ).graph.as_graph_def()
    return [
        sorted({node.op for node in function.node_def})
        for function in graph.library.function
        if function.attr["_XlaMustCompile"].b
    ]


def test_a_bias_is_trained_with_its_kernel():
    # The bias of all choices has no gradient but rounding errors.
    model = tiny.make_model("multiple_choice")
    model.mark_untrained()
    optimizer = create_optimizer("adamw", learning_rate=1e-3, num_train_steps=9)
    step = TrainStep(model, ALBERT, optimizer, tf.distribute.get_strategy())
    mark_trained(step.model, step.optimizer)
    assert "classifier/bias" in model.untrained_weights
    moment = optimizer.slot(model.classifier.kernel, "m")
    moment.assign(np.ones_like(moment))
    mark_trained(step.model, step.optimizer)
    left = set(weight_names(model)) - {"classifier/kernel", "classifier/bias"}
    assert set(model.untrained_weights) == left


def test_an_evaluation_waits_for_the_device_only_at_its_end():
    model = AlbertPretrainer(tiny.CONFIG, seed=1)
    optimizer = create_optimizer("adamw", learning_rate=1e-3, num_train_steps=10)
    step = TrainStep(model, ALBERT, optimizer, tf.distribute.get_strategy())
    batch = {k: tf.constant(v) for k, v in random_batch(tiny.CONFIG, 2, 12).items()}
    assert tf.is_tensor(step.evaluate(batch))
    once, twice = (evaluate_batches(step, {"": [batch] * n}, 0) for n in (1, 2))
    assert twice == pytest.approx(once, rel=1e-4)
    # Of each named source the loss, and of all together the other metrics.
    other = {k: tf.constant(v) for k, v in random_batch(tiny.CONFIG, 2, 9).items()}
    both = evaluate_batches(step, {"a": [batch], "b": [other]}, 1)
    of_a, of_b = both.pop("source_a_loss"), both.pop("source_b_loss")
    assert of_a == pytest.approx(once["loss"]) and of_a != pytest.approx(of_b)
    assert both == pytest.approx(evaluate_batches(step, {"": [batch, other]}, 0))


def test_only_chains_of_element_wise_operations():
    found = compiled_functions(fuse=True)
    assert len(found) >= 2  # forward and backward
    assert any("Tanh" in kinds for kinds in found)
    assert not [k for kinds in found for k in kinds if "MatMul" in k or "Variable" in k]


@pytest.mark.parametrize("options", [{}, {"fuse": True, "jit_compile": True}])
def test_nothing_where_it_is_not_asked_or_of_no_use(options):
    assert compiled_functions(**options) == []


def test_nothing_on_other_devices_than_cpus(monkeypatch):
    devices = [tf.config.LogicalDevice("/device:GPU:0", "GPU")]
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda: devices)
    assert compiled_functions(fuse=True) == []
