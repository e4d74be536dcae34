"""Objectives of embeddings against sentence-transformers, and with duplicates."""

import keras
import numpy as np
import pytest

import albert_tf
from albert_tf.errors import UsageError
from albert_tf.objectives.embedding import (
    AdaptiveLayer,
    Contrastive,
    CoSent,
    CosineMse,
    Distill,
    Matryoshka,
)
from tests.backends.differentiate import value_and_gradients
from tests.documents import ROOT

GOLDEN = ROOT / "tests/golden/sentence_transformers/losses.npz"
U, E = 4, 4
COSINES = Matryoshka(CosineMse(), (2, 4))
# The objective, and the number of texts of an example.
CASES = {
    "one direction": (Contrastive(), 2),
    "both directions": (Contrastive(directions="both"), 2),
    "negatives": (Contrastive(), 3),
    "negatives, both directions": (Contrastive(5.0, "both"), 3),
    "cosent": (CoSent(), 2),
    "cosine": (CosineMse(), 2),
    "distill, cosine": (Distill(), 1),
    "distill, mse": (Distill("mse"), 1),
    "matryoshka": (Matryoshka(Contrastive(), (2, 4), (0.5, 2.0)), 2),
    "matryoshka, distill": (Matryoshka(Distill("mse"), (2, 4)), 1),
    "layers": (AdaptiveLayer(CosineMse(), (1, 2, 3)), 2),
    "layers, matryoshka": (AdaptiveLayer(COSINES, (1, 2, 3)), 2),
}


def inputs(case):
    """Returns the vectors of each layer that a case reads, and its labels."""
    rng = np.random.default_rng(0)
    layers = rng.normal(size=(3, U, CASES[case][1], E)).astype("float32")
    scores = np.array([0.25, 1.0, 1.0, 0.5], "float32")
    labels = rng.normal(size=(U, E)).astype("float32") if "distill" in case else scores
    return layers if "layers" in case else layers[:1], labels


def batch_of(texts, labels=None):
    """Returns a batch of text ids `[U, K]`, 0 where there is no text."""
    texts = np.array(texts, "int32")
    exist = (texts > 0).astype("int32")
    batch = {"text_ids": texts, "choice_mask": exist}
    return batch if labels is None else {**batch, "labels": labels}


def differentiate(objective, layers, batch):
    """Returns loss and gradients, of a tuple of vectors if there are several."""
    variables = [keras.Variable(vectors) for vectors in layers]

    def loss():
        outputs = [v + 0 for v in variables]
        sums = objective.sums(outputs if len(outputs) > 1 else outputs[0], batch)
        return objective.loss(sums, objective.weights(batch))

    loss, *gradients = value_and_gradients(loss, variables)
    # It differentiates the loss times a number that it draws.
    factor = np.random.default_rng(7).normal(size=())
    return loss, np.stack(gradients) / factor


@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradients_of_sentence_transformers(case):
    objective, texts = CASES[case]
    layers, labels = inputs(case)
    batch = batch_of(1 + np.arange(U * texts).reshape(U, texts), labels)
    loss, gradients = differentiate(objective, layers, batch)
    golden = np.load(GOLDEN)
    np.testing.assert_allclose(loss, golden[f"{case}/loss"], 1e-5, 1e-5)
    np.testing.assert_allclose(gradients, golden[f"{case}/gradients"], 1e-5, 1e-5)


def test_equal_texts_are_not_negatives_of_each_other():
    # The last example has no positive; others lack a negative.
    texts = [[1, 2, 9], [1, 3, 2], [4, 2, 0], [5, 5, 4], [7, 0, 0]]
    # Of positives 0 to 4 and negatives 5 to 9; the own positive comes first.
    compared = [[0, 3, 5, 8], [1, 3, 5, 8], [2, 1, 3, 5], [3, 0, 1, 2, 5, 6, 8]]
    vectors = np.random.default_rng(2).normal(size=(5, 3, E)).astype("float32")
    unit = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    candidates = np.concatenate([unit[:, 1], unit[:, 2]])
    scores = 20 * unit[:, 0] @ candidates.T
    rows = [scores[i, columns] for i, columns in enumerate(compared)]
    forwards = [np.log(np.exp(row).sum()) - row[0] for row in rows]
    sums = Contrastive().sums(vectors, batch_of(texts))
    assert float(sums["count"]) == Contrastive().weights(batch_of(texts)) == 4
    np.testing.assert_allclose(sums["loss_sum"], sum(forwards), 1e-5)
    assert float(sums["accuracy_sum"]) == sum(row[0] == row.max() for row in rows)
    # Of each positive, the anchors that are compared with it.
    rows = [scores[[j, *others], j] for j, others in enumerate([[3], [2, 3], [3], []])]
    rows[3] = scores[[3, 0, 1, 2], 3]
    backwards = [np.log(np.exp(row).sum()) - row[0] for row in rows]
    both = Contrastive(directions="both").sums(vectors, batch_of(texts))
    right = (sum(forwards) + sum(backwards)) / 2
    np.testing.assert_allclose(both["loss_sum"], right, 1e-5)


def test_what_is_missing_does_not_count():
    layers, labels = inputs("layers")
    whole = batch_of(1 + np.arange(2 * U).reshape(U, 2), labels)
    part = {**whole, "choice_mask": np.array([[1, 1], [1, 1], [0, 0], [0, 0]])}
    first = {name: value[:2] for name, value in whole.items()}
    for objective in (CoSent(), CASES["layers"][0]):
        found, right = (
            differentiate(objective, x if "layers" in repr(objective) else x[:1], batch)
            for x, batch in ((layers, part), (layers[:, :2], first))
        )
        np.testing.assert_allclose(found[0], right[0], 1e-5)
        np.testing.assert_allclose(found[1][:, :2], right[1], 1e-5, 1e-6)
        assert not found[1][:, 2:].any()


def test_a_zero_vector_has_a_gradient():
    layers, _ = inputs("one direction")
    layers[0, 1, 1] = 0
    batch = batch_of(1 + np.arange(2 * U).reshape(U, 2))
    assert np.isfinite(differentiate(Contrastive(), layers, batch)[1]).all()


@pytest.mark.parametrize(
    ("case", "loss"),
    [
        ("negatives", albert_tf.ContrastiveLoss()),
        ("negatives, both directions", albert_tf.ContrastiveLoss(5.0, "both")),
        ("cosent", albert_tf.CoSentLoss()),
        ("cosine", albert_tf.CosineSimilarityLoss()),
    ],
)
def test_losses_of_keras(case, loss):
    layers, labels = inputs(case)
    again = keras.losses.deserialize(keras.losses.serialize(loss))
    for one in (loss, again):
        value = keras.ops.convert_to_numpy(one(labels, layers[0]))
        np.testing.assert_allclose(value, np.load(GOLDEN)[f"{case}/loss"], 1e-5)
    with pytest.raises(UsageError, match=r"2 texts or more, received \(4, 4\)"):
        loss(labels, layers[0][:, 0])


def test_arguments_outside_their_limits():
    for objective in (Contrastive, CoSent):
        with pytest.raises(UsageError, match="scale: must be above 0"):
            objective(0.0)
    with pytest.raises(UsageError, match="must be of one, both, received 'two'"):
        Contrastive(directions="two")
    with pytest.raises(UsageError, match="must be of cosine, mse, received 'l2'"):
        Distill("l2")
