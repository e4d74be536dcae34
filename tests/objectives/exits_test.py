"""The losses of exits, against NumPy."""

import numpy as np
import pytest

from albert_tf.objectives.finetuning import for_task, with_exits

RNG = np.random.default_rng(0)
LABELS = np.array([0, 2, 1, 1], "int32")
LOGITS = RNG.normal(size=(3, 4, 3)).astype("float32")
OUTPUTS = {"logits": LOGITS[2], "exit_logits": tuple(LOGITS[:2])}


def cross_entropy(logits):
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return -log_p[np.arange(4), LABELS]


def metrics(objective, outputs=OUTPUTS, labels=LABELS):
    sums = objective.sums(outputs, {"labels": labels})
    assert set(sums) == set(objective.sum_names)
    found = objective.metrics({name: np.array(value) for name, value in sums.items()})
    np.testing.assert_allclose(objective.loss(sums, sums["count"]), found["loss"])
    return found


def test_joint():
    task = for_task("text_classifier")
    found = metrics(with_exits(task, 2, "joint"))
    losses = [cross_entropy(x).mean() for x in LOGITS]
    expected = (1 * losses[0] + 2 * losses[1] + 3 * losses[2]) / 6
    np.testing.assert_allclose(found["loss"], expected, rtol=1e-5)
    names = ("exit_1_loss", "exit_2_loss", "final_loss")
    np.testing.assert_allclose([found[n] for n in names], losses, rtol=1e-5)
    accuracy = (LOGITS[2].argmax(-1) == LABELS).mean()
    assert found["accuracy"] == pytest.approx(accuracy)


def test_frozen():
    found = metrics(with_exits(for_task("text_classifier"), 2, "frozen"))
    losses = [cross_entropy(x).mean() for x in LOGITS[:2]]
    np.testing.assert_allclose(found["loss"], np.mean(losses), rtol=1e-5)


def test_none():
    task = for_task("text_classifier")
    assert with_exits(task, 2, "none") is task


@pytest.mark.parametrize(
    ("kind", "labels"),
    [
        ("regression", np.array([0.5, 1.0, 2.0, 0.0], "float32")),
        ("multi_label_classification", np.eye(4, 3, dtype="float32")),
    ],
)
def test_other_kinds_of_labels(kind, labels):
    task = for_task("text_classifier", kind)
    width = 1 if kind == "regression" else 3
    layers = LOGITS[..., :width]
    outputs = {"logits": layers[2], "exit_logits": tuple(layers[:2])}
    found = metrics(with_exits(task, 2, "joint"), outputs, labels)
    alone = [metrics(task, x, labels)["loss"] for x in layers]
    expected = np.average(alone, weights=[1, 2, 3])
    np.testing.assert_allclose(found["loss"], expected, rtol=1e-5)
