"""The losses of an objective add up over parts; baselines, metrics, lines of text."""

import numpy as np
import pytest
from scipy import stats

from albert_tf.objectives.pretraining import ALBERT, ELECTRA, ROBERTA, pretraining_loss

B, P, V = 3, 5, 11


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture
def outputs(rng):
    return {
        "mlm_logits": rng.normal(size=(B, P, V)).astype("float32") * 3,
        "sop_logits": rng.normal(size=(B, 2)).astype("float32"),
    }


@pytest.fixture
def batch(rng):
    weights = np.ones((B, P), "float32")
    weights[1, 3:] = 0
    return {
        "mask_ids": rng.integers(0, V, (B, P)).astype("int32"),
        "mask_weights": weights,
        "sentence_order_labels": np.array([0, 1, 1], "int32"),
    }


def log_softmax(x):
    x = x.astype("float64")
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def sums_of(objective, outputs, batch, rows):
    return objective.sums(
        *({k: v[rows] for k, v in x.items()} for x in (outputs, batch))
    )


def numbers(values):
    return {k: float(v) for k, v in values.items()}


def test_means_are_those_of_the_original(outputs, batch):
    """`golden_tf1_test` has its losses."""
    weights, labels = batch["mask_weights"], batch["sentence_order_labels"]
    hits = (outputs["mlm_logits"].argmax(-1) == batch["mask_ids"]) * weights
    means = numbers(pretraining_loss(outputs, batch))
    assert means["loss"] == pytest.approx(means["mlm_loss"] + means["sop_loss"])
    assert means["mlm_accuracy"] == pytest.approx(hits.sum() / weights.sum(), abs=1e-6)
    sop_hits = outputs["sop_logits"].argmax(-1) == labels
    assert means["sop_accuracy"] == pytest.approx(sop_hits.mean())


def test_a_model_may_give_the_logits_of_masks_alone(outputs, batch):
    means = numbers(ROBERTA.means(ROBERTA.sums(outputs["mlm_logits"], batch)))
    assert means == numbers(ROBERTA.means(ROBERTA.sums(outputs, batch)))
    expected = numbers(pretraining_loss(outputs, batch))
    assert means["loss"] == means["mlm_loss"] == expected["mlm_loss"]
    assert list(means) == ["loss", "mlm_loss", "mlm_accuracy"]


def test_the_loss_about_pairs_has_a_weight(outputs, batch):
    objective = ALBERT.with_pair_weight(0.25)
    sums = objective.sums(outputs, batch)
    means = numbers(objective.means(sums))
    expected = means["mlm_loss"] + 0.25 * means["sop_loss"]
    assert means["loss"] == pytest.approx(expected, rel=1e-6)
    loss = float(objective.loss(sums, objective.weights(batch)))
    assert loss == pytest.approx(expected, rel=1e-6)
    assert means["sop_loss"] == numbers(pretraining_loss(outputs, batch))["sop_loss"]


def test_a_teacher_has_a_share_of_the_masked_tokens(rng, outputs, batch):
    objective = ALBERT.with_teacher(0.7, 2.5, states=True)
    batch["padding_mask"] = np.array([[1] * 6, [1] * 4 + [0] * 2, [1] * 5 + [0]])
    teacher = rng.normal(size=(B, P, V)).astype("float32") * 2
    states = rng.normal(size=(2, 2, B, 6, 4)).astype("float32")
    outputs |= {"teacher_logits": teacher, "states": states}
    student = outputs["mlm_logits"]
    goal, own = (log_softmax(x / 2.5) for x in (teacher, student))
    losses = 2.5**2 * (np.exp(goal) * (goal - own)).sum(-1)
    hits = teacher.argmax(-1) == student.argmax(-1)
    own, goal = states.astype("float64").swapaxes(0, 1)
    errors = np.square(own - goal).mean((0, -1))
    mask, real = batch["mask_weights"], batch["padding_mask"]
    expected = {
        "teacher_loss": np.average(losses, weights=mask),
        "states_loss": np.average(errors, weights=real),
        "teacher_accuracy": np.average(hits, weights=mask),
    }
    sums = objective.sums(outputs, batch)
    means = objective.metrics({name: np.float32(x) for name, x in sums.items()})
    assert {n: means[n] for n in expected} == pytest.approx(expected, rel=1e-6)
    loss = 0.3 * means["mlm_loss"] + means["sop_loss"]
    loss += 0.7 * (means["teacher_loss"] + means["states_loss"])
    assert means["loss"] == pytest.approx(loss, rel=1e-6)
    found = float(objective.loss(sums, objective.weights(batch)))
    assert found == pytest.approx(loss, rel=1e-6)
    assert "states_accuracy" not in means
    assert list(objective.baselines([batch])) == ["mlm_baseline", "sop_baseline"]


def test_parts_add_up_to_the_whole(outputs, batch):
    whole, weights = ALBERT.sums(outputs, batch), ALBERT.weights(batch)
    np.testing.assert_array_equal(weights, [batch["mask_weights"].sum(), B])
    parts = [sums_of(ALBERT, outputs, batch, slice(*ends)) for ends in ((1,), (1, 3))]
    for name, value in numbers(whole).items():
        assert sum(float(p[name]) for p in parts) == pytest.approx(value, rel=1e-6)
    loss = sum(float(ALBERT.loss(sums, weights)) for sums in parts)
    assert loss == pytest.approx(float(pretraining_loss(outputs, batch)["loss"]))


def test_no_prediction_at_all_is_zero(outputs, batch):
    batch["mask_weights"][:] = 0
    means = numbers(pretraining_loss(outputs, batch))
    assert means["mlm_loss"] == means["mlm_accuracy"] == 0.0
    assert np.isfinite(means["loss"])


def test_without_sentence_order_labels(outputs, batch):
    del batch["sentence_order_labels"], outputs["sop_logits"]
    means = numbers(pretraining_loss(outputs, batch))
    assert means["sop_loss"] == means["sop_accuracy"] == 0.0
    assert means["loss"] == means["mlm_loss"] > 0


def test_packed_rows_count_their_real_examples(rng, batch):
    logits = rng.normal(size=(2, 3, 2)).astype("float32")
    packed = {
        **{k: v[:2] for k, v in batch.items()},
        "sentence_order_labels": np.array([[0, 1, 0], [1, 0, 0]], "int32"),
        "sentence_order_weights": np.array([[1, 1, 0], [1, 0, 0]], "int32"),
    }
    mlm_logits = rng.normal(size=(2, P, V)).astype("float32")
    outputs = {"mlm_logits": mlm_logits, "sop_logits": logits}
    means = numbers(pretraining_loss(outputs, packed))
    log_probs = log_softmax(logits)
    expected = -(log_probs[0, 0, 0] + log_probs[0, 1, 1] + log_probs[1, 0, 1]) / 3
    assert means["sop_loss"] == pytest.approx(expected, rel=1e-6)


def test_metrics_leave_out_what_was_not_measured(outputs, batch):
    full = ALBERT.metrics(ALBERT.sums(outputs, batch))
    assert " ".join(full) == "loss mlm_loss sop_loss mlm_accuracy sop_accuracy"
    del batch["sentence_order_labels"]
    fewer = ALBERT.metrics(ALBERT.sums(outputs, batch))
    assert list(fewer) == ["loss", "mlm_loss", "mlm_accuracy"]


def test_baselines_are_those_of_the_most_frequent_labels():
    batches = [
        {
            "mask_ids": np.array([[5, 5, 7], [7, 7, 0]]),
            "mask_weights": np.array([[1, 1, 1], [1, 0, 0]], "float32"),
            "sentence_order_labels": np.array([[0, 1], [1, 1]]),
            "sentence_order_weights": np.array([[1, 1], [1, 0]], "float32"),
        },
        {"mask_ids": np.array([[5]]), "mask_weights": np.array([[1.0]])},
    ]
    expected = {"mlm_baseline": 3 / 5, "sop_baseline": 2 / 3}
    assert ALBERT.baselines(batches) == pytest.approx(expected)
    assert ALBERT.baselines(batches, 1)["mlm_baseline"] == 2 / 4
    assert ALBERT.baselines(batches[1:]) == {"mlm_baseline": 1.0}


def test_an_evaluation_is_one_line():
    values = {"loss": 3.0, "mlm_accuracy": 0.5, "mlm_baseline": 0.25}
    line = "step 7: eval loss 3.000, MLM accuracy 0.500 (trivial baseline 0.250)"
    assert ALBERT.describe(7, values) == line
    values = {"loss": 3.0, "mlm_accuracy": 0.5, "sop_accuracy": 0.75}
    line = "step 7: eval loss 3.000, MLM accuracy 0.500, SOP accuracy 0.750"
    assert ALBERT.describe(7, values) == line


def test_what_is_said_of_a_detection(rng):
    rows, length = 40, 25
    labels = (rng.random((rows, length)) < 0.15).astype("int32")
    mask = (rng.random((rows, length)) < 0.8).astype("int32")
    logits = (rng.normal(-2, 1.5, labels.shape) + 2 * labels).astype("float32")
    logits[0, :3] = 40, -40, 0
    outputs = {
        "generator_logits": rng.normal(size=(rows, P, V)).astype("float32"),
        "discriminator_logits": logits,
        "replaced": labels,
    }
    batch = {
        "mask_ids": rng.integers(0, V, (rows, P)).astype("int32"),
        "mask_weights": np.ones((rows, P), "float32"),
        "padding_mask": mask,
    }
    whole = numbers(ELECTRA.sums(outputs, batch))
    assert tuple(whole) == ELECTRA.sum_names
    total = dict.fromkeys(whole, 0.0)
    for part in (slice(0, 7), slice(7, rows)):
        more = numbers(sums_of(ELECTRA, outputs, batch, part))
        total = {k: v + more[k] for k, v in total.items()}
    assert total == pytest.approx(whole, rel=1e-5)
    found = ELECTRA.metrics({k: np.float32(v) for k, v in total.items()})
    x, y = logits[mask > 0], labels[mask > 0]
    right = np.sum((x > 0) & (y > 0))
    assert found["rtd_precision"] == pytest.approx(right / np.sum(x > 0))
    assert found["rtd_recall"] == pytest.approx(right / y.sum())
    assert found["rtd_baseline"] == pytest.approx(1 - y.mean())
    auc = stats.mannwhitneyu(x[y > 0], x[y == 0]).statistic / (y.sum() * (1 - y).sum())
    assert found["rtd_auc"] == pytest.approx(auc, abs=0.01)
    assert 0.7 < auc < 0.95
    # What is right is known only with the model.
    assert list(ELECTRA.baselines([batch])) == ["generator_baseline"]
