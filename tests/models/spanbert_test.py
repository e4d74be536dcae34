"""SpanBERT's second head and its loss, against the formulas of arXiv:1907.10529."""

import math

import keras
import numpy as np
import pytest

from albert_tf.models.base import weight_names
from albert_tf.objectives.pretraining import SPANBERT
from albert_tf.objectives.terms import SpanTargets
from tests.tiny import make_model, randomize

T, P, V = 20, 9, 41
# Of the original, its published head has the same shapes.
SHAPES = {
    "position_embeddings": (20, 200),
    "dense_0/kernel": (2 * 12 + 200, 12),
    "layer_norm_0/gamma": (12,),
    "dense/kernel": (12, 6),
    "layer_norm/gamma": (6,),
    "output_bias": (V,),
}


def batch_of(rows, lengths, packed=None):
    """Returns a batch with these masked positions.

    Args:
        rows: list of list of int.
        lengths: list of int. Tokens of each row that are no padding.
        packed: list of list of int or None. The starts of the examples in each row.
    """
    rng = np.random.default_rng(3)
    positions, weights = np.zeros((2, len(rows), P))
    for row, (found, n) in enumerate(zip(rows, lengths, strict=True)):
        assert all(0 < p < n - 1 for p in found)
        positions[row, : len(found)], weights[row, : len(found)] = found, 1
    mask = np.arange(T) < np.array(lengths)[:, None]
    batch = {
        "token_ids": np.where(mask, rng.integers(1, V, (len(rows), T)), 0),
        "segment_ids": np.zeros((len(rows), T)),
        "padding_mask": mask,
        "mask_positions": positions,
        "mask_ids": rng.integers(0, V, (len(rows), P)) * weights,
    }
    if packed:
        begins = np.zeros((len(rows), T), int)
        for row, starts in enumerate(packed):
            begins[row, starts] = 1
        batch["pack_ids"] = np.cumsum(begins, 1) * mask
        last = np.maximum.accumulate(begins * np.arange(T), 1)
        batch["position_ids"] = (np.arange(T) - last) * mask
        batch["cls_positions"] = np.zeros((len(rows), 1))
    batch = {k: v.astype("int32") for k, v in batch.items()}
    return {**batch, "mask_weights": weights.astype("float32")}


# [CLS] is token 0 and [SEP] the last one, so the text is from 1 to length - 2.
MASKED = [[1, 2, 6, 8, 9, 10, 11], [3, 4, 5, 6, 7, 8, 12, 13, 14], [2], []]
SINGLE = batch_of(MASKED, [T, 16, 4, 5])
# The same in one row: 0..7 and 8..19.
MASKED = [[1, 3, 4, 6, 9, 10, 12, 13, 18], [2, 5, 6, 9, 10]]
PACKED = batch_of(MASKED, [T, 15], packed=[[0, 8], [0, 12]])
BATCHES = {"single": SINGLE, "packed": PACKED}


def runs_of(batch, row):
    """Yields (entry, first, last position of its run, place) of every masked token."""
    used = batch["mask_weights"][row] > 0
    found = batch["mask_positions"][row][used].tolist()
    for entry, position in enumerate(found):
        first = last = position
        while first - 1 in found:
            first -= 1
        while last + 1 in found:
            last += 1
        yield entry, first, last, position - first


def targets_of(batch, max_span, edges):
    """Returns the weights of the targets, float32 `[B, P]`, found token by token."""
    weights = np.zeros_like(batch["mask_weights"])
    for row in range(len(weights)):
        examples = batch.get("pack_ids", batch["padding_mask"])[row]
        for entry, first, last, place in runs_of(batch, row):
            inside = np.flatnonzero(examples == examples[first])
            at_edge = first - 1 == inside[0] or last + 1 == inside[-1]
            fits = place < max_span and not (at_edge and edges == "original")
            weights[row, entry] = fits
    return weights


def gelu(x):
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def layer_norm(x, gamma, beta, epsilon=1e-12):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * gamma + beta


def logits_of(model, x, batch):
    """Returns y_i = f(x_{s-1}, x_{e+1}, p_{i-s+1}) of every masked token."""
    named = weight_names(model).items()
    w = {name: v.numpy().astype("float64") for name, v in named}
    part = lambda name: w[f"sbo_head/{name}"]  # noqa: E731
    logits = np.zeros((*batch["mask_positions"].shape, V))
    for row in range(len(logits)):
        for entry, first, last, place in runs_of(batch, row):
            p = part("position_embeddings")[min(place, model.max_span - 1)]
            h = np.concatenate([x[row, first - 1], x[row, last + 1], p])
            for i, name in (("_0", "dense_0"), ("", "dense")):
                h = gelu(h @ part(f"{name}/kernel") + part(f"{name}/bias"))
                norms = (part(f"layer_norm{i}/{one}") for one in ("gamma", "beta"))
                h = layer_norm(h, *norms)
            table = w["backbone/embeddings/word_embeddings"]
            logits[row, entry] = table @ h + part("output_bias")
    return logits


@pytest.mark.parametrize(
    ("kind", "size", "max_span", "edges"),
    [
        ("single", 6, 4, "original"),
        ("packed", 12, 4, "original"),
        ("packed", 6, 2, "all"),
    ],
)
def test_logits_and_loss_are_those_of_the_formula(kind, size, max_span, edges):
    batch = BATCHES[kind]
    options = {"vocab_size": V, "embedding_size": size, "position_size": 5}
    # The activation of the encoder is another one.
    model = make_model("span_boundary", max_span=max_span, **options)
    outputs = randomize(model)(batch)
    outputs = {k: keras.ops.convert_to_numpy(v) for k, v in outputs.items()}
    expected = logits_of(model, outputs["sequence_output"].astype("float64"), batch)
    used = batch["mask_weights"] > 0
    found = outputs["sbo_logits"][used]
    assert np.abs(found - expected[used]).max() < 1e-5 < expected[used].std()
    objective = SPANBERT.with_span_targets(SpanTargets(max_span, edges))
    targets = targets_of(batch, max_span, edges)
    assert 0 < targets.sum() < used.sum() or edges == "all"
    log_probs = expected - np.log(np.exp(expected).sum(-1, keepdims=True))
    picked = np.take_along_axis(log_probs, batch["mask_ids"][..., None], -1)[..., 0]
    sums = objective.sums(outputs, batch)
    means = {k: float(v) for k, v in objective.means(sums).items()}
    loss = -(picked * targets).sum() / (targets.sum() + 1)
    assert means["sbo_loss"] == pytest.approx(loss, abs=1e-5)
    hits = (expected.argmax(-1) == batch["mask_ids"]) * targets
    assert means["sbo_accuracy"] == pytest.approx(hits.sum() / targets.sum())
    assert means["loss"] == pytest.approx(means["mlm_loss"] + loss, abs=1e-5)
    whole = objective.loss(sums, objective.weights(batch))
    assert float(whole) == pytest.approx(means["loss"], abs=1e-5)


@pytest.mark.parametrize("edges", ["original", "all"])
@pytest.mark.parametrize("kind", BATCHES)
def test_targets_are_the_first_tokens_of_spans_inside_the_text(kind, edges):
    for max_span in (1, 3, 15):
        found = SpanTargets(max_span, edges)(BATCHES[kind])
        expected = targets_of(BATCHES[kind], max_span, edges)
        np.testing.assert_array_equal(found, expected)
    if kind == "single" and edges == "original":
        # 1 and 2 touch the first token of the text, 12 to 14 the last one, 2 both.
        assert expected.tolist()[0] == [0, 0, 1, 1, 1, 1, 1, 0, 0]
        assert expected.tolist()[1] == [1] * 6 + [0] * 3
        assert not expected[2:].any()


def test_names_shapes_and_number_of_parameters():
    model = make_model("span_boundary", vocab_size=V, max_span=20)
    shapes = {name: tuple(v.shape) for name, v in weight_names(model).items()}
    for name, shape in SHAPES.items():
        assert shapes[f"sbo_head/{name}"] == shape
    config = model.config.replace(hidden_size=768, embedding_size=768, vocab_size=28996)
    config = config.replace(num_attention_heads=12)
    more = config.num_parameters("span_boundary") - config.num_parameters("masked_lm")
    assert more == 1_956_676 + 15 * 200
    with pytest.raises(ValueError, match="max_span must be a positive integer, rec"):
        make_model("span_boundary", max_span=0)


def test_without_weights_only_the_masked_lm_is_computed():
    model = make_model("span_boundary", vocab_size=V)
    inputs = {k: v for k, v in SINGLE.items() if k != "mask_weights"}
    found = model(inputs)
    assert sorted(found) == ["mlm_logits", "sequence_output"]
    np.testing.assert_array_equal(found["mlm_logits"], model(SINGLE)["mlm_logits"])
