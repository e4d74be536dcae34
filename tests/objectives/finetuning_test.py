"""Objectives of fine-tuning against NumPy and Keras, whole and in parts."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.errors import UsageError
from albert_tf.heads import HEADS
from albert_tf.objectives.distillation import Taught
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
SHARE, TEMPERATURE = 0.7, 2.5  # of a teacher
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
    choices[:, 0] = 1  # the right one
    padding = (np.arange(T) < integers(T - 3, U)[:, None] + 4).astype("int32")
    spans = {"start_positions": integers(4, U), "end_positions": integers(4, U)}
    spans["padding_mask"] = padding
    logits = {"start_logits": normal(U, T), "end_logits": normal(U, T)}
    beam = {k: np.where(padding, v, np.float32(-1e30)) for k, v in logits.items()}
    beam["cls_logits"] = normal(U)
    one, several = {"labels": integers(C, U)}, normal(U, L, C)
    cells = {"labels": integers(2, U, C).astype("float32")}
    choice = {"labels": np.zeros(U, "int32"), "choice_mask": choices}
    cases = {
        "single": (SingleLabel(), normal(U, C), one),
        "weighted": (SingleLabel(WEIGHTS, 0.1), normal(U, C), one),
        "tags": (Tagging(), several, {"labels": tags}),
        "weighted tags": (Tagging(WEIGHTS, 0.1), several, {"labels": tags}),
        "multi": (MultiLabel(), normal(U, C), cells),
        "regression": (Regression(), normal(U, 1), {"labels": normal(U)}),
        "choice": (Choice(), normal(U, K), choice),
        "span": (Span(), logits, spans),
        "whole span": (Span(mask_padding=False), logits, spans),
        "beam": (BeamSpan(), beam, {**spans, "is_impossible": integers(2, U)}),
    }
    for name in ("weighted", "tags", "multi", "regression", "choice", "span"):
        task, outputs, batch = cases[name]
        shape = (U, T, 2) if name == "span" else outputs.shape
        batch = {**batch, "teacher_logits": normal(*shape)}
        cases[f"taught {name}"] = (Taught(task, SHARE, TEMPERATURE), outputs, batch)
    return cases


NAMES = list(examples(np.random.default_rng(0)))


def weighted(logits, labels):
    return np.array(WEIGHTS)[labels] * smoothed(logits, labels, 0.1)


def span_loss(outputs, batch, mask=1):
    starts, ends = (
        nll(np.where(mask, outputs[f"{n}_logits"], -np.inf), batch[f"{n}_positions"])
        for n in ("start", "end")
    )
    return 0.5 * (starts + ends)


# The losses of the answers in NumPy, in float64.
FORMULAS = {
    "single": lambda x, b: nll(x, b["labels"]),
    "weighted": lambda x, b: weighted(x, b["labels"]),
    "tags": lambda x, b: nll(x, b["labels"])[b["labels"] >= 0],
    "weighted tags": lambda x, b: weighted(x, b["labels"])[b["labels"] >= 0],
    "multi": lambda x, b: sigmoid_nll(x, b["labels"]),
    "regression": lambda x, b: (x[:, 0].astype("float64") - b["labels"]) ** 2,
    "choice": lambda x, b: nll(np.where(b["choice_mask"], x, -np.inf), b["labels"]),
    "span": lambda x, b: span_loss(x, b, b["padding_mask"]),
    "whole span": span_loss,
    "beam": lambda x, b: (
        span_loss(x, b) + 0.5 * sigmoid_nll(x["cls_logits"], b["is_impossible"])
    ),
}


def divergence(teacher, student, mask=1):
    pair = (
        np.where(mask, x.astype("f8"), -1e9) / TEMPERATURE for x in (teacher, student)
    )
    teacher, student = map(log_softmax, pair)
    return TEMPERATURE**2 * (np.exp(teacher) * (teacher - student)).sum(-1)


def of_spans(outputs, batch):
    teacher = np.moveaxis(batch["teacher_logits"], -1, 0)
    students = (outputs["start_logits"], outputs["end_logits"])
    pairs = zip(teacher, students, strict=True)
    return sum(divergence(*pair, batch["padding_mask"]) for pair in pairs) / 2


def of_cells(outputs, batch):
    pair = (np.stack([x, 0 * x], -1) for x in (batch["teacher_logits"], outputs))
    return divergence(*pair)


# The losses of a teacher in NumPy.
OF_TEACHER = {
    "weighted": lambda x, b: divergence(b["teacher_logits"], x),
    "tags": lambda x, b: divergence(b["teacher_logits"], x)[b["labels"] >= 0],
    "multi": of_cells,
    "regression": lambda x, b: (x - b["teacher_logits"]).astype("f8") ** 2,
    "choice": lambda x, b: divergence(b["teacher_logits"], x, b["choice_mask"]),
    "span": of_spans,
}


def expected_loss(name, outputs, batch):
    if name.startswith("taught "):
        name = name.removeprefix("taught ")
        loss = OF_TEACHER[name](outputs, batch).mean()
        return (1 - SHARE) * expected_loss(name, outputs, batch) + SHARE * loss
    return FORMULAS[name](outputs, batch).mean()


def metrics_of(objective, outputs, batch):
    sums = objective.sums(outputs, batch)
    assert tuple(sums) == objective.sum_names
    return objective.metrics({k: np.float32(v) for k, v in sums.items()})


def part_of(values, rows):
    if isinstance(values, dict):
        return {k: v[rows] for k, v in values.items()}
    return values[rows]


@pytest.mark.parametrize("name", NAMES)
def test_the_loss_is_the_formula_and_is_said(name, rng):
    objective, outputs, batch = examples(rng)[name]
    metrics = metrics_of(objective, outputs, batch)
    expected = expected_loss(name, outputs, batch)
    assert metrics["loss"] == pytest.approx(expected, rel=1e-6)
    assert set(objective.shown) <= set(metrics)
    line = objective.describe(30, metrics)
    assert line.startswith(f"step 30: eval loss {metrics['loss']:.3f}")
    assert "\n" not in line
    loss = objective.loss(objective.sums(outputs, batch), objective.weights(batch))
    assert float(loss) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_parts_add_up_to_the_whole(name, rng):
    objective, outputs, batch = examples(rng)[name]
    whole = objective.sums(outputs, batch)
    weights = objective.weights(batch)
    edges = [0, 1, 2, 5, U]
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
        loss = objective.loss(objective.sums(tensors, batch), objective.weights(batch))
    found = tape.gradient(loss, tf.nest.flatten(tensors))
    return float(loss), [tf.convert_to_tensor(gradient).numpy() for gradient in found]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e15])
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


def test_a_batch_without_any_tag_costs_nothing(rng):
    batch = {"labels": np.full((U, L), -1, "int32")}
    outputs = rng.normal(size=(U, L, C)).astype("float32")
    loss, (gradient,) = gradients(Tagging(), outputs, batch)
    assert loss == 0.0
    assert not np.any(gradient)


def test_metrics_count_hits():
    logits = np.eye(C, dtype="float32")[[0, 1, 2, 3]]
    several = {"start_logits": logits, "end_logits": logits[[1, 1, 2, 3]]}
    several["cls_logits"] = np.array([-1, 1, 1, 1], "float32")
    places = np.array([0, 1, 2, 4])
    spans = {"start_positions": places, "end_positions": places}
    spans["is_impossible"] = 0 * places
    cells = {"labels": np.array([[1.0, 0, 1]])}
    for objective, outputs, batch, expected in (
        (SingleLabel(), logits, {"labels": places}, [0.75]),
        (Tagging(), logits[None], {"labels": np.array([[0, -1, 2, 4]])}, [2 / 3]),
        (MultiLabel(), np.array([[2.0, 3.0, -1.0]], "float32"), cells, [1 / 3]),
        (BeamSpan(), several, spans, [0.75, 0.5, 0.25]),
    ):
        found = metrics_of(objective, outputs, batch)
        accuracies = [v for name, v in found.items() if name.endswith("accuracy")]
        assert accuracies == pytest.approx(expected)


def test_every_head_that_is_fine_tuned_has_an_objective():
    # Vectors have objectives of their own, by the form of their examples.
    others = {"pretraining", "masked_lm", "discriminator", "span_boundary"}
    others.add("text_embedder")
    assert {head: type(for_task(head)) for head in set(HEADS) - others} == {
        "text_classifier": SingleLabel,
        "token_classifier": Tagging,
        "multiple_choice": Choice,
        "question_answering": Span,
        "beam_question_answering": BeamSpan,
    }
    assert type(for_task("text_classifier", "regression")) is Regression
    assert type(for_task("text_classifier", "multi_label_classification")) is MultiLabel
    options = {"class_weights": [1, 2], "label_smoothing": 0.1}
    assert for_task("token_classifier", **options) == Tagging((1.0, 2.0), 0.1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("pretraining",), "objective: must be of single_label_.* 'pretraining'"),
        (("text_classifier", "ranking"), "objective: must be of .* 'ranking'"),
        (("text_classifier", "regression", (1,)), "regression has no exclusive"),
        (("multiple_choice", None, (), 0.1), "multiple_choice has no exclusive"),
    ],
)
def test_what_has_no_objective(arguments, message):
    with pytest.raises(UsageError, match=message):
        for_task(*arguments)


@pytest.mark.parametrize("mode", ["joint", "frozen"])
@pytest.mark.parametrize("name", ["single", "multi", "regression", "taught multi"])
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
