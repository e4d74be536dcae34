"""The step computes the same on one device, two replicas, and in micro-batches."""

import json
import os
import subprocess

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
from tests import forked, tiny

# A process of its own, because devices can only be split before TensorFlow starts.
PROGRAM = r"""
import hashlib, json, sys
import numpy as np
import tensorflow as tf
from albert_tf import AlbertConfig, create_optimizer
from albert_tf.heads import find
from albert_tf.layers.ops import Dropout
from albert_tf.models.base import weight_names
from albert_tf.objectives.pretraining import OBJECTIVES
from albert_tf.training.weights import WeightAverages, mark_trained
from albert_tf.training.tensorflow.step import TrainStep, distribute
from albert_tf.training.tensorflow.strategy import create_strategy

rng = np.random.default_rng(0)
rows, length, predictions = 8 * 6, 7, 3
weights = np.ones((rows, predictions), "float32")
weights[::3, -1] = 0  # replicas have different numbers of predictions
batch = {
    "token_ids": rng.integers(0, 53, (rows, length)).astype("int32"),
    "segment_ids": rng.integers(0, 2, (rows, length)).astype("int32"),
    "padding_mask": np.ones((rows, length), "int32"),
    "mask_positions": rng.integers(0, length, (rows, predictions)).astype("int32"),
    "mask_ids": rng.integers(0, 53, (rows, predictions)).astype("int32"),
    "mask_weights": weights,
    "sentence_order_labels": rng.integers(0, 2, rows).astype("int32"),
}

drop = Dropout.call
masks = {}  # of each replica, as digests

def drop_and_record(self, x, training=False, seeds=None):
    mask = drop(self, tf.ones_like(x), training, seeds)
    def record(replica, mask):
        digest = hashlib.sha256(np.packbits(mask != 0).tobytes()).hexdigest()
        masks.setdefault(int(replica), []).append([*map(int, mask.shape), digest])
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    tf.numpy_function(record, [replica, mask], [])
    return x * mask

def run(
    kind="one_device", dropout=0.0, calls=(1,) * 6, clip_norm=0.5, name="lamb",
    read=batch, schedule="original", on_tpu=False, records_masks=False,
    learns="albert", rate=0.05, steps=20, dtype="float32", loss_scale=None, **options
):
    Dropout.call = drop_and_record if records_masks else drop
    strategy, objective = strategies[kind], OBJECTIVES[learns]
    config = AlbertConfig(
        vocab_size=53, embedding_size=6, hidden_size=12, num_hidden_layers=2,
        num_attention_heads=2, intermediate_size=20, max_position_embeddings=16,
        hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
    )
    with strategy.scope():
        model = find(objective.head).load_class()(config, seed=3, dtype=dtype)
        optimizer = create_optimizer(
            name, learning_rate=rate, num_train_steps=steps, num_warmup_steps=2,
            clip_norm=clip_norm, ema_decay=0.9, learning_rate_schedule=schedule,
        )
    model.mark_untrained(weight_names(model))
    step = TrainStep(model, objective, optimizer, strategy, seed=1, **options)
    if loss_scale:
        optimizer.loss_scale.value.assign(loss_scale)
    first = {k: v.numpy() for k, v in weight_names(model).items()}
    make = lambda n, i: tf.data.Dataset.from_tensor_slices(
        {k: batch[k] for k in read}
    ).batch(8, True).repeat()
    iterator = iter(distribute(strategy, make))
    rates = []
    if on_tpu:  # everything that a replica does is compiled
        replica = lambda batch: strategy.run(step._replica_step, (batch,))
        compiled = tf.function(replica, jit_compile=True)
        for _ in calls:
            rates.append(float(optimizer.learning_rate))
            compiled(next(iterator))
        return {**values_of(model, optimizer), "rates": rates}
    sums, losses, norms, scales = None, [], [], []
    for count in calls:
        sums = step.train(iterator, count, sums)
        losses += sums["losses"].tolist()
        norms += sums["grad_norms"].tolist()
        scales += list(map(float, sums.get("loss_scales", ())))
        rates.append(float(sums["learning_rate"]))
    mark_trained(step.model, step.optimizer)
    left = {  # what nothing has touched: the weight, its average, its moments
        k for k, v in weight_names(model).items()
        if all(
            np.array_equal(x, first[k]) for x in (v, optimizer.slot(v, "average"))
        ) and not any(np.any(optimizer.slot(v, x)) for x in "mv")
    }
    if kind == "mirrored":
        for variable in model.trainable_variables:
            one, other = strategy.experimental_local_results(variable.value)
            np.testing.assert_array_equal(one, other)
    ratios = {k: float(v) for k, v in sums.get("trust_ratios", {}).items()}
    return {
        **values_of(model, optimizer),
        "sums": {k: float(sums[k]) for k in step.sum_names}, "trust_ratios": ratios,
        "losses": losses, "grad_norms": norms, "rates": rates, "scales": scales,
        "skipped": sums.get("skipped_steps"),
        "iterations": int(optimizer.iterations.numpy()),
        "left": sorted(left), "untrained": model.untrained_weights, "masks": masks,
    }

def values_of(model, optimizer):
    # The weights and their averages.
    last = {k: v.numpy() for k, v in weight_names(model).items()}
    with WeightAverages(model, optimizer).in_place():
        inside = {k: v.numpy() for k, v in weight_names(model).items()}
    for name, value in weight_names(model).items():
        np.testing.assert_array_equal(value, last[name])
    lists = [{k: v.tolist() for k, v in x.items()} for x in (last, inside)]
    return {"weights": lists[0], "averages": lists[1]}

# First, because it splits the CPU in two; one device is then the first half.
strategies = {"mirrored": create_strategy("mirrored")}
strategies["one_device"] = create_strategy("one_device")
cases = json.load(sys.stdin)
print(json.dumps({name: run(**case) for name, case in cases.items()}))
"""

MASKED_WORDS_ALONE = [
    *("token_ids", "segment_ids", "padding_mask"),
    *("mask_positions", "mask_ids", "mask_weights"),
]
SCHEDULES = ("linear", "cosine", "trapezoid")
BROAD = {
    f"{schedule}, {way}": {"schedule": schedule, **options}
    for schedule in SCHEDULES
    for way, options in {
        "one device": {},
        "two replicas": {"kind": "mirrored", "accumulation": 2},
        "compiled": {"on_tpu": True},
    }.items()
}
BROAD["adamw, two replicas"] = {"kind": "mirrored", "name": "adamw"}
ALL = {"kind": "mirrored", "accumulation": 2, "jit_compile": True}
SAME = {
    "accumulation": {"accumulation": 4},
    "fused": {"fuse": True},
    "two replicas": ALL,
    "a loop, two replicas": {**ALL, "depth": "loop_remat"},
    "a loop, fused": {"fuse": True, "accumulation": 2, "depth": "loop"},
}
# The masks of 48 rows are one, two or three spans each, some of them at the edges.
SPANS = {"learns": "spanbert", "rate": 0.01, "steps": 60, "calls": [50]}
CASES = SAME | {
    "one device": {},
    "spans": SPANS,
    "spans, accumulation": {**SPANS, "accumulation": 4},
    "spans, two replicas": {**SPANS, **ALL},
    "no pairs": {"read": MASKED_WORDS_ALONE, **ALL, "kind": "one_device"},
    "no pairs, adamw": {"read": MASKED_WORDS_ALONE, "calls": [4, 2], "name": "adamw"},
    "dropout": {"dropout": 0.3},
    "dropout, joined": {"dropout": 0.3, "calls": [2, 1, 3]},
    "not clipped": {"calls": [1], "clip_norm": 0},
    "masks": {"kind": "mirrored", "dropout": 0.3, "calls": [1], "records_masks": True},
}


HALF = {"dtype": "mixed_float16", "calls": [20], "rate": 0.01}
HALVES = {
    "float32": {**HALF, "dtype": "float32"},
    "float16": HALF,
    "float16, two replicas": {**HALF, **ALL, "depth": "loop_remat"},
    "overflow": {**HALF, "loss_scale": 2.0**22},
    "overflow, joined": {**HALF, "loss_scale": 2.0**22, "calls": [1, 6, 13]},
    "overflow, two replicas": {**HALF, **ALL, "loss_scale": 2.0**22},
}


def run_cases(cases):
    result = subprocess.run(
        [*forked.PYTHON, "-c", PROGRAM],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return json.loads(result.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def runs():
    return run_cases(CASES)


@pytest.fixture(scope="module")
def halves():
    return run_cases(HALVES)


def largest_difference(a, b):
    # The key bias has no gradient in exact arithmetic (softmax ignores it), so what
    # moves it is rounding noise, amplified by the optimizer.
    return max(
        float(np.abs(np.subtract(a[group][k], b[group][k])).max())
        for group in ("weights", "averages")
        for k in a[group]
        if not k.endswith("key/bias")
    )


@pytest.mark.broad
def test_every_schedule_trains_the_same_everywhere():
    found = run_cases(BROAD)
    for schedule in SCHEDULES:
        one = found[f"{schedule}, one device"]
        for way in ("two replicas", "compiled"):
            other = found[f"{schedule}, {way}"]
            assert largest_difference(one, other) < 5e-5, (schedule, way)
            assert other["rates"] == one["rates"]
        # Only the trapezoid stays at the peak.
        assert (one["rates"][-1] == one["rates"][2]) == (schedule == "trapezoid")


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
@pytest.mark.parametrize("way", ["accumulation", "two replicas"])
def test_span_boundaries_are_learned_the_same(runs, way):
    one, other = runs["spans"], runs[f"spans, {way}"]
    assert largest_difference(one, other) < 5e-5
    np.testing.assert_allclose(other["losses"], one["losses"], atol=1e-4)
    assert other["sums"] == pytest.approx(one["sums"], rel=1e-4)
    assert 50 < one["sums"]["sbo_weight"] < one["sums"]["mlm_weight"]
    assert one["losses"][-1] < one["losses"][0]


@pytest.mark.slow
@pytest.mark.parametrize("case", SAME)
def test_same_training(runs, case):
    one, other = runs["one device"], runs[case]
    assert largest_difference(one, other) < 5e-5
    assert other["sums"]["tokens"] == one["sums"]["tokens"] == 6 * 8 * 7
    assert other["rates"] == one["rates"]
    # Of the batch, not of a replica's share or a micro-batch.
    for name in ("losses", "grad_norms"):
        assert len(set(other[name])) == 6
        np.testing.assert_allclose(other[name], one[name], atol=1e-4)
    assert other["trust_ratios"] == pytest.approx(one["trust_ratios"], rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["no pairs", "no pairs, adamw"])
def test_what_the_loss_does_not_read_stays_as_it_is(runs, case):
    unread = [
        *("backbone/pooler/bias", "backbone/pooler/kernel"),
        *("sop_head/bias", "sop_head/kernel"),
    ]
    assert runs[case]["left"] == runs[case]["untrained"] == unread
    assert not runs["one device"]["left"] and not runs["one device"]["untrained"]


@pytest.mark.slow
def test_several_steps_in_one_call_are_bitwise_the_same(runs):
    single, joined = runs["dropout"], runs["dropout, joined"]
    assert joined.pop("rates") == [single["rates"][i] for i in (1, 2, 5)]
    assert joined == {name: single[name] for name in joined}


@pytest.mark.slow
def test_float16_learns_as_float32(halves):
    whole, half = halves["float32"], halves["float16"]
    assert half["losses"][-1] < half["losses"][0] - 0.1
    np.testing.assert_allclose(half["losses"], whole["losses"], atol=1e-3)
    assert 0 < largest_difference(half, whole) < 1e-2
    assert set(half["scales"]) == {2.0**15} and half["skipped"] == 0
    assert not whole["scales"] and whole["skipped"] is None
    # Micro-batches, two replicas and XLA, as far as 11 bits tell.
    other = halves["float16, two replicas"]
    np.testing.assert_allclose(other["losses"], half["losses"], atol=1e-4)
    assert largest_difference(other, half) < 5e-3


@pytest.mark.slow
def test_steps_that_overflow_are_skipped_until_the_scale_fits(halves):
    half, over = halves["float16"], halves["overflow"]
    skipped = over["skipped"]
    assert 3 < skipped < 8 and over["iterations"] == 20
    finite = np.isfinite(over["grad_norms"])
    assert finite.tolist() == [False] * skipped + [True] * (20 - skipped)
    scales = [2.0 ** (22 - min(step, skipped)) for step in range(20)]
    assert over["scales"] == scales
    # The first updates are missing.
    assert over["losses"][0] == half["losses"][0]
    assert half["losses"][-1] < over["losses"][-1] < over["losses"][0]
    assert np.isfinite(over["losses"]).all()
    joined = halves["overflow, joined"]
    joined["rates"] = over["rates"]
    assert str(joined) == str(over)  # where NaN equals NaN
    # `run` has compared the replicas.
    assert 3 < halves["overflow, two replicas"]["skipped"] < 8


@pytest.mark.slow
def test_replicas_have_their_own_dropout_masks(runs):
    first, second = runs["masks"]["masks"].values()
    # The same layers drop, in batches of the same shape ...
    assert sorted(m[:-1] for m in first) == sorted(m[:-1] for m in second)
    # ... and no two of all these masks are the same.
    digests = [mask[-1] for mask in first + second]
    assert len(set(digests)) == len(digests) > 8


@pytest.mark.slow
def test_what_a_step_says(runs):
    one = runs["one device"]
    # The norm is measured without clipping too.
    assert one["grad_norms"][0] > 0.5
    found = runs["not clipped"]["grad_norms"]
    assert found == [pytest.approx(one["grad_norms"][0], rel=1e-4)]
    # Warm-up in two steps, then, counted from 0, a linear decay in 20 from 0.05.
    assert one["rates"][0] == 0 and one["rates"][5] == pytest.approx(0.05 * 15 / 20)
    ratios, names = one["trust_ratios"], set(one["weights"])
    assert {name for name in names if "kernel" in name} < set(ratios) < names
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
    assert all(map(tf.is_tensor, step.evaluate(batch).values()))
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
