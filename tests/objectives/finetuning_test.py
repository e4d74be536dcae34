"""Objectives of fine-tuning against NumPy and Keras, whole and in parts."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.errors import UsageError
from albert_tf.heads import HEADS
from albert_tf.objectives.finetuning import (
    BeamSpan,
    Choice,
    MultiLabel,
    Regression,
    SingleLabel,
    Span,
    Tagging,
    for_task,
    with_exits,
)

U, C, K, L, T = 6, 5, 4, 7, 9
WEIGHTS = (0.5, 2.0, 0.0, 1.25, 3.0)


def log_softmax(x):
    x = x.astype("float64")
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def nll(logits, labels):
    return -np.take_along_axis(log_softmax(logits), labels[..., None], -1)[..., 0]


def sigmoid_nll(logits, labels):
    logits = logits.astype("float64")
    return np.logaddexp(0, logits) - logits * labels


def smoothed(logits, labels, smoothing):
    target = np.eye(logits.shape[-1])[labels] * (1 - smoothing)
    target += smoothing / logits.shape[-1]
    return -(target * log_softmax(logits)).sum(-1)


@pytest.fixture
def rng():
    return np.random.default_rng(11)


def examples(rng, scale=3.0):
    """Returns an objective, outputs and a batch for every objective, by name."""

    def normal(*shape):
        return rng.normal(0, scale, shape).astype("float32")

    def integers(high, *shape):
        return rng.integers(0, high, shape).astype("int32")

    tags = integers(C, U, L)
    tags[rng.random((U, L)) < 0.4] = -1
    tags[1] = -1  # a part without any label
    choices = (rng.random((U, K)) < 0.7).astype("int32")
    choices[:, 0] = 1
    padding = (np.arange(T) < integers(T - 3, U)[:, None] + 4).astype("int32")
    spans = {"start_positions": integers(4, U), "end_positions": integers(4, U)}
    logits = {"start_logits": normal(U, T), "end_logits": normal(U, T)}
    beam = {**{k: np.where(padding, v, -1e30) for k, v in logits.items()}}
    beam = {k: v.astype("float32") for k, v in beam.items()}
    labels = integers(C, U)
    return {
        "single": (SingleLabel(), normal(U, C), {"labels": labels}),
        "weighted": (SingleLabel(WEIGHTS, 0.1), normal(U, C), {"labels": labels}),
        "tags": (Tagging(), normal(U, L, C), {"labels": tags}),
        "weighted tags": (Tagging(WEIGHTS, 0.1), normal(U, L, C), {"labels": tags}),
        "multi": (
            MultiLabel(),
            normal(U, C),
            {"labels": integers(2, U, C).astype("float32")},
        ),
        "regression": (Regression(), normal(U, 1), {"labels": normal(U)}),
        "choice": (
            Choice(),
            normal(U, K),
            {"labels": np.zeros(U, "int32"), "choice_mask": choices},
        ),
        "span": (Span(), logits, {**spans, "padding_mask": padding}),
        "whole span": (
            Span(mask_padding=False),
            logits,
            {**spans, "padding_mask": padding},
        ),
        "beam": (
            BeamSpan(),
            {**beam, "cls_logits": normal(U)},
            {**spans, "is_impossible": integers(2, U), "padding_mask": padding},
        ),
    }


NAMES = list(examples(np.random.default_rng(0)))


def span_loss(outputs, batch):
    start = nll(outputs["start_logits"], batch["start_positions"])
    return 0.5 * (start + nll(outputs["end_logits"], batch["end_positions"]))


def expected_loss(name, outputs, batch):
    """The formula of each loss in NumPy, in float64."""
    labels = batch.get("labels")
    if name == "single":
        return nll(outputs, labels).mean()
    if name == "weighted":
        return (np.array(WEIGHTS)[labels] * smoothed(outputs, labels, 0.1)).mean()
    if name == "tags":
        return nll(outputs, labels)[labels >= 0].mean()
    if name == "weighted tags":
        losses = np.array(WEIGHTS)[labels] * smoothed(outputs, labels, 0.1)
        return losses[labels >= 0].mean()
    if name == "multi":
        return sigmoid_nll(outputs, labels).mean()
    if name == "regression":
        return ((outputs[:, 0].astype("float64") - labels) ** 2).mean()
    if name == "choice":
        # The first choice, which is always there, is the right one.
        masked = np.where(batch["choice_mask"], outputs, -np.inf)
        return nll(masked, labels).mean()
    if name == "span":
        mask = batch["padding_mask"]
        masked = {k: np.where(mask, v, -np.inf) for k, v in outputs.items()}
        return span_loss(masked, batch).mean()
    if name == "whole span":
        return span_loss(outputs, batch).mean()
    answerability = sigmoid_nll(outputs["cls_logits"], batch["is_impossible"])
    return (span_loss(outputs, batch) + 0.5 * answerability).mean()


def metrics_of(objective, outputs, batch):
    sums = objective.sums(outputs, batch)
    assert tuple(sums) == objective.sum_names
    return objective.metrics({k: np.float32(v) for k, v in sums.items()})


def part_of(values, rows):
    if isinstance(values, dict):
        return {k: v[rows] for k, v in values.items()}
    return values[rows]


@pytest.mark.parametrize("name", NAMES)
def test_the_loss_is_the_formula(name, rng):
    objective, outputs, batch = examples(rng)[name]
    metrics = metrics_of(objective, outputs, batch)
    expected = expected_loss(name, outputs, batch)
    assert metrics["loss"] == pytest.approx(expected, rel=1e-6)
    loss = objective.loss(objective.sums(outputs, batch), objective.weights(batch))
    assert float(loss) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("cuts", [(1,), (2, 4), (1, 2, 5)])
def test_parts_add_up_to_the_whole(name, cuts, rng):
    objective, outputs, batch = examples(rng)[name]
    whole = objective.sums(outputs, batch)
    weights = objective.weights(batch)
    edges = [0, *cuts, U]
    total, loss, count = dict.fromkeys(objective.sum_names, 0.0), 0.0, 0.0
    for first, last in itertools.pairwise(edges):
        rows = slice(first, last)
        sums = objective.sums(part_of(outputs, rows), part_of(batch, rows))
        total = {k: total[k] + float(v) for k, v in sums.items()}
        loss += float(objective.loss(sums, weights))
        count += float(objective.weights(part_of(batch, rows)))
    for key, value in whole.items():
        assert total[key] == pytest.approx(float(value), rel=1e-5), key
    assert count == float(weights)
    assert loss == pytest.approx(float(objective.loss(whole, weights)), rel=1e-5)


def gradients(objective, outputs, batch):
    tensors = tf.nest.map_structure(tf.constant, outputs)
    with tf.GradientTape() as tape:
        tape.watch(tf.nest.flatten(tensors))
        sums = objective.sums(tensors, batch)
        loss = objective.loss(sums, objective.weights(batch))
    found = tape.gradient(loss, tf.nest.flatten(tensors))
    return float(loss), [tf.convert_to_tensor(gradient).numpy() for gradient in found]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4, 1e15])
def test_gradients_are_finite_at_any_logits(name, scale, rng):
    objective, outputs, batch = examples(rng, scale)[name]
    loss, found = gradients(objective, outputs, batch)
    assert np.isfinite(loss)
    for gradient in found:
        assert np.isfinite(gradient).all()
        assert np.any(gradient) or scale != 1


@pytest.mark.parametrize("name", NAMES)
def test_half_precision_outputs_are_summed_in_float32(name, rng):
    objective, outputs, batch = examples(rng)[name]
    half = tf.nest.map_structure(lambda x: tf.cast(x, tf.bfloat16), outputs)
    full = tf.nest.map_structure(lambda x: tf.cast(x, tf.float32), half)
    sums, expected = objective.sums(half, batch), objective.sums(full, batch)
    for key, value in sums.items():
        assert keras.backend.standardize_dtype(value.dtype) == "float32"
        assert float(value) == pytest.approx(float(expected[key]), rel=1e-6), key


def test_class_weights_are_one_per_class(rng):
    objective = SingleLabel((1.0, 2.0))
    with pytest.raises(ValueError, match="class_weights: expected 5, .* received 2"):
        objective.sums(np.zeros((U, C), "float32"), {"labels": np.zeros(U, "int32")})


def test_a_batch_without_any_tag_costs_nothing(rng):
    batch = {"labels": np.full((U, L), -1, "int32")}
    outputs = rng.normal(size=(U, L, C)).astype("float32")
    loss, (gradient,) = gradients(Tagging(), outputs, batch)
    assert loss == 0.0
    assert not np.any(gradient)


def test_metrics_count_hits():
    logits = np.eye(C, dtype="float32")[[0, 1, 2, 3]]
    labels = np.array([0, 1, 2, 4])
    assert metrics_of(SingleLabel(), logits, {"labels": labels})["accuracy"] == 0.75
    tags = {"labels": np.array([[0, -1], [2, 4]])}
    found = metrics_of(Tagging(), logits.reshape(2, 2, C), tags)
    assert found["accuracy"] == pytest.approx(2 / 3)
    batch = {"labels": np.array([[1.0, 0, 1]])}
    found = metrics_of(MultiLabel(), np.array([[2.0, 3.0, -1.0]], "float32"), batch)
    assert found["accuracy"] == pytest.approx(1 / 3)
    outputs = {
        "start_logits": np.eye(4, dtype="float32")[[1, 2]],
        "end_logits": np.eye(4, dtype="float32")[[3, 3]],
        "cls_logits": np.array([-1.0, 1.0], "float32"),
    }
    batch = {
        "start_positions": np.array([1, 3]),
        "end_positions": np.array([3, 3]),
        "is_impossible": np.array([0, 0]),
    }
    found = metrics_of(BeamSpan(), outputs, batch)
    assert (found["start_accuracy"], found["end_accuracy"]) == (0.5, 1.0)
    assert found["answerability_accuracy"] == 0.5
    parts = found["span_loss"] + 0.5 * found["answerability_loss"]
    assert found["loss"] == pytest.approx(parts)


@pytest.mark.parametrize("name", NAMES)
def test_lines_for_people(name, rng):
    objective, outputs, batch = examples(rng)[name]
    metrics = metrics_of(objective, outputs, batch)
    assert set(objective.shown) <= set(metrics)
    line = objective.describe(30, metrics)
    assert line.startswith(f"step 30: eval loss {metrics['loss']:.3f}")
    assert "\n" not in line


def test_every_head_that_is_fine_tuned_has_an_objective():
    pretrained = {"pretraining", "masked_lm"}
    kinds = {head: type(for_task(head)) for head in set(HEADS) - pretrained}
    assert kinds == {
        "text_classifier": SingleLabel,
        "token_classifier": Tagging,
        "multiple_choice": Choice,
        "question_answering": Span,
        "beam_question_answering": BeamSpan,
    }
    assert type(for_task("text_classifier", "regression")) is Regression
    kind = type(for_task("text_classifier", "multi_label_classification"))
    assert kind is MultiLabel
    options = {"class_weights": [1, 2], "label_smoothing": 0.1}
    tagging = for_task("token_classifier", **options)
    assert tagging == Tagging((1.0, 2.0), 0.1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("pretraining",), "head must be one of text_classifier, .* 'pretraining'"),
        (("text_classifier", "ranking"), "problem_type must be one of .* 'ranking'"),
        (("text_classifier", None, (), 1.0), r"label_smoothing must be in \[0, 1\)"),
        (("text_classifier", None, (), float("nan")), "label_smoothing must be in"),
        (("text_classifier", None, (1, -1)), "class_weights must be finite .* -1.0"),
        (("text_classifier", None, (float("nan"),)), "class_weights must be finite"),
        (("text_classifier", "regression", (1,)), "class_weights: regression has no"),
        (("multiple_choice", None, (), 0.1), "label_smoothing: multiple_choice has no"),
        (("beam_question_answering", None, (1,)), "class_weights: beam_question"),
    ],
)
def test_what_has_no_objective(arguments, message):
    with pytest.raises(UsageError, match=message):
        for_task(*arguments)


@pytest.mark.parametrize("mode", ["joint", "frozen"])
@pytest.mark.parametrize("name", ["single", "multi", "regression"])
def test_losses_of_exits(name, mode, rng):
    task, first, batch = examples(rng)[name]
    layers = [first, *(rng.normal(size=(2, *first.shape)).astype("float32"))]
    outputs = {"logits": layers[2], "exit_logits": tuple(layers[:2])}
    found = metrics_of(with_exits(task, 2, mode), outputs, batch)
    losses = [expected_loss(name, x, batch) for x in layers]
    weights = {"joint": [1, 2, 3], "frozen": [1, 1, 0]}[mode]
    assert found["loss"] == pytest.approx(np.average(losses, weights=weights), rel=1e-5)
    names = ("exit_1_loss", "exit_2_loss", "final_loss")
    np.testing.assert_allclose([found[n] for n in names], losses, rtol=1e-5)
    alone = metrics_of(task, layers[2], batch)
    assert found | alone | {"loss": found["loss"]} == found
    assert with_exits(task, 2, "none") is task
