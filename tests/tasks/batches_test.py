"""Training batches of every kind of task: order, padding, packing, shares."""

import dataclasses
import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from albert_tf import features
from albert_tf.errors import UsageError
from albert_tf.layers.dropout import StepSeeds
from albert_tf.objectives.distillation import Taught
from albert_tf.objectives.finetuning import for_task
from albert_tf.tasks import batches as task_batches
from albert_tf.tasks.batches import (
    BatchMaker,
    BatchShape,
    make_training_dataset,
    useful_token_rate,
)
from albert_tf.tasks.task import EncodedExamples
from albert_tf.text.inputs import EncodedTexts
from tests import tiny

NUM_UNITS = 11
PAD = 7


def encoded_rows(count, seed=0):
    """Row i is `2 (i + 100) * n 3`; its last third is in segment 1."""
    lengths = np.random.default_rng(seed).integers(4, 23, count)
    rows = [[2, *[i % 190 + 100] * (n - 2), 3] for i, n in enumerate(lengths)]
    return EncodedTexts(
        np.array(sum(rows, []), np.int32),
        np.concatenate([[0], np.cumsum(lengths)]),
        (lengths - lengths // 3).astype(np.int32),
    )


def examples_of(head):
    rng = np.random.default_rng(1)
    counts = np.ones(NUM_UNITS, int)
    if head == "multiple_choice":
        counts = rng.integers(2, 5, NUM_UNITS)
    splits = np.concatenate([[0], np.cumsum(counts)])
    rows = encoded_rows(int(splits[-1]))
    kwargs = {}
    if head == "question_answering":
        targets = {
            features.START_POSITIONS: rng.integers(0, 4, NUM_UNITS).astype(np.int32),
            features.END_POSITIONS: rng.integers(0, 4, NUM_UNITS).astype(np.int32),
        }
    elif head == "token_classifier":
        words = [rng.permutation(n - 2)[: (n - 1) // 2] + 1 for n in rows.lengths]
        words = [np.sort(places) for places in words]
        kwargs["place_splits"] = np.cumsum([0, *map(len, words)])
        kwargs["places"] = np.concatenate(words).astype(np.int32)
        count = len(kwargs["places"])
        targets = {features.LABELS: rng.integers(-1, 3, count).astype(np.int32)}
    else:
        targets = {features.LABELS: rng.integers(0, 2, NUM_UNITS).astype(np.int32)}
    shapes = {
        "question_answering": (len(rows.ids), 2),
        "multiple_choice": (NUM_UNITS, counts.max()),
        "token_classifier": (len(kwargs.get("places", ())), 3),
    }
    shape = shapes.get(head, (NUM_UNITS, 3))
    targets[features.TEACHER_LOGITS] = rng.normal(size=shape).astype(np.float32)
    truncated = np.zeros(NUM_UNITS, bool)
    return EncodedExamples(rows, splits, targets, truncated, **kwargs)


@functools.cache
def model_of(head):
    changes = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    changes |= {"num_hidden_layers": 1, "max_position_embeddings": 64}
    return tiny.make_model(head, **changes)


def loss_and_gradients(model, head, batch):
    objective = Taught(for_task(head, None), 0.5, 2.0)
    batch = {name: tf.constant(value) for name, value in batch.items()}
    with tf.GradientTape() as tape:
        outputs = model(batch, training=True, seeds=StepSeeds(3, 4))
        loss = objective.loss(objective.sums(outputs, batch), objective.weights(batch))
    gradients = tape.gradient(loss, model.trainable_variables)
    return float(loss), [tf.convert_to_tensor(g) for g in gradients if g is not None]


HEADS = ["text_classifier", "multiple_choice", "token_classifier"]


@pytest.mark.parametrize("head", HEADS)
def test_packing_changes_neither_loss_nor_gradients(head):
    encoded = examples_of(head)
    numbers = np.array([3, 0, 7, 9, 1, 10, 4, 4])

    def batch(**changes):
        return BatchMaker(encoded, BatchShape(head, 32, 64, PAD, **changes))(numbers)

    plain, packed = batch(), batch(packing=True)
    assert packed["token_ids"].size < plain["token_ids"].size
    model = model_of(head)
    loss, gradients = loss_and_gradients(model, head, plain)
    loss_packed, gradients_packed = loss_and_gradients(model, head, packed)
    assert loss_packed == pytest.approx(loss, abs=1e-5)
    assert len(gradients) > 10
    for a, b in zip(gradients, gradients_packed, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    fixed, _ = loss_and_gradients(model, head, batch(fixed_length=True))
    assert fixed == pytest.approx(loss, abs=1e-5)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("packing", [False, True])
def test_shares_are_the_parts_of_a_batch(head, packing):
    encoded = examples_of(head)
    numbers = np.array([3, 0, 7, 9, 1, 10, 4, 2])
    shape = BatchShape(head, 32, 64, PAD, packing=packing)
    whole = BatchMaker(encoded, shape)
    cut = BatchMaker(encoded, dataclasses.replace(shape, parts=2))(numbers)
    model = model_of(head)
    for i in range(2):
        share = {k: v[i * len(v) // 2 : (i + 1) * len(v) // 2] for k, v in cut.items()}
        expected = whole(numbers[4 * i : 4 * i + 4])
        got = model({k: tf.constant(v) for k, v in share.items()}).numpy()
        known = model({k: tf.constant(v) for k, v in expected.items()}).numpy()
        got = got[:, : known.shape[1]] if got.ndim > 1 else got
        counted = expected.get(features.CHOICE_MASK, np.ones(known.shape[:2]))
        if head == "token_classifier":
            counted = expected[features.LABELS] >= 0
        np.testing.assert_allclose(got[counted > 0], known[counted > 0], atol=1e-5)


def test_a_batch_in_rows():
    encoded = examples_of("text_classifier")
    numbers = np.array([2, 5])
    batch = BatchMaker(encoded, BatchShape("text_classifier", 32, 64, PAD))(numbers)
    lengths, ids = encoded.rows.lengths[numbers], batch["token_ids"]
    assert ids.shape == (2, -(-lengths.max() // 16) * 16)
    assert batch["padding_mask"].sum(1).tolist() == lengths.tolist()
    assert set(ids[0, lengths[0] :].tolist()) == {PAD}
    assert batch["segment_ids"].sum(1).tolist() == (lengths // 3).tolist()
    assert batch["places"].tolist() == [0, ids.shape[1]]
    assert batch["labels"].tolist() == encoded.targets["labels"][numbers].tolist()
    assert batch.pop("teacher_logits").dtype == np.float32
    assert all(value.dtype == np.int32 for value in batch.values())


def test_question_answering_is_never_packed():
    encoded = examples_of("question_answering")
    shape = BatchShape("question_answering", 32, 64, PAD, packing=True)
    batch = BatchMaker(encoded, shape)(np.array([1, 2, 3]))
    assert batch["token_ids"].shape[0] == 3 and "pack_ids" not in batch
    first, length = encoded.rows.first_lengths[1], encoded.rows.lengths[1]
    mask = batch["p_mask"][0]
    assert mask[0] == 0 and mask[1:first].all() and not mask[first : length - 1].any()
    assert mask[length - 1 :].all()
    # A teacher's logits are where their tokens are.
    logits = encoded.targets["teacher_logits"][encoded.rows.splits[1] :][:length]
    np.testing.assert_array_equal(batch["teacher_logits"][0, :length], logits)
    assert not batch["teacher_logits"][0, length:].any()


def batches(count=9, shape=None, **kwargs):
    shape = shape or BatchShape("text_classifier", 32, 64, PAD, packing=True)
    values = {"batch_size": 4, "seed": 3, **kwargs}
    dataset = make_training_dataset(examples_of(shape.head), shape, **values)
    return list(itertools.islice(dataset.as_numpy_iterator(), count))


def test_every_epoch_is_another_permutation():
    def seen(**changes):
        found = batches(count=11, **changes)
        # Token 100 + i tells the example.
        tokens = [batch["token_ids"].flat[batch["places"] + 1] for batch in found]
        return np.concatenate(tokens).reshape(4, NUM_UNITS).tolist()

    epochs = seen()
    assert all(sorted(epoch) == list(range(100, 111)) for epoch in epochs)
    assert len(set(map(tuple, epochs))) == 4
    assert seen(seed=4) != epochs


def test_starting_at_a_step_skips_what_came_before():
    for a, b in zip(batches()[5:], batches(count=4, start_step=5), strict=True):
        assert a.keys() == b.keys()
        for name in a:
            np.testing.assert_array_equal(a[name], b[name])


def test_pipelines_share_the_batch():
    shape = BatchShape("text_classifier", 32, 64, PAD)
    given = {"shape": shape, "batch_size": 6}
    whole = batches(**given)
    parts = [batches(**given, num_pipelines=2, pipeline=i) for i in range(2)]
    for batch, first, second in zip(whole, *parts, strict=True):
        joined = np.concatenate([first["labels"], second["labels"]])
        np.testing.assert_array_equal(batch["labels"], joined)


@pytest.mark.parametrize("head", HEADS)
def test_few_lengths_hold_the_same_examples(head):
    encoded, lengths = examples_of(head), task_batches.halved(64)
    one = BatchShape(head, 64, 64, PAD, packing=True, fixed_length=True)
    few = dataclasses.replace(one, lengths=lengths)
    spec_of, few_of = (
        make_training_dataset(encoded, shape, batch_size=4, seed=1).element_spec
        for shape in (one, few)
    )
    assert all(None not in spec.shape for spec in spec_of.values())
    assert spec_of["token_ids"].shape[1] == 64
    assert few_of["token_ids"].shape[0] is not None
    for numbers in ([3, 0, 7, 9], [5, 5, 5, 5]):
        whole, short = (BatchMaker(encoded, s)(np.array(numbers)) for s in (one, few))
        rows, length = short["token_ids"].shape
        assert (len(whole["token_ids"]), length) == (rows, 32)
        assert (whole["token_ids"][:, length:] == PAD).all()
        for name in ("token_ids", "segment_ids", "padding_mask"):
            np.testing.assert_array_equal(short[name], whole[name][:, :length])
        if "places" in whole:
            row, column = np.divmod(whole["places"], 64)
            np.testing.assert_array_equal(short["places"], row * length + column)


def test_lengths_are_halved():
    assert task_batches.halved(512) == (32, 64, 128, 256, 512)
    assert task_batches.halved(384) == (48, 96, 192, 384)
    assert task_batches.halved(101) == (51, 101)
    assert task_batches.halved(40) == (40,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 0}, "multiple of 1"),
        ({"batch_size": 3, "num_pipelines": 2}, "multiple of 2"),
        ({"shape": BatchShape("text_classifier", 9, 64, PAD)}, "max_seq_length"),
    ],
)
def test_refusals(change, message):
    with pytest.raises(UsageError, match=message):
        batches(**change)


def test_useful_token_rate():
    plain = BatchShape("text_classifier", 32, 64, PAD)
    packed = dataclasses.replace(plain, packing=True)
    encoded = examples_of("text_classifier")
    assert useful_token_rate(encoded, plain, 8, 0) < 0.8
    assert 0.8 < useful_token_rate(encoded, packed, 8, 0) <= 1


@given(st.lists(st.integers(1, 60), min_size=1, max_size=50))
def test_examples_share_rows_without_overlapping(lengths):
    lengths = np.array(lengths)
    layout = task_batches.packed(lengths, 128)
    taken = np.zeros((layout.num_rows, layout.length), int)
    for i, length in enumerate(lengths):
        assert layout.starts[i] + length <= layout.length
        taken[layout.rows[i], layout.starts[i] : layout.starts[i] + length] += 1
    assert taken.max() == 1 and taken.sum() == lengths.sum()
    assert taken.any(axis=1).all()
    assert layout.length <= 128
    for row in range(layout.num_rows):
        slots = sorted(layout.slots[layout.rows == row].tolist())
        assert slots == list(range(len(slots)))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=60), st.integers(40, 130))
def test_each_goes_into_the_first_row_with_room(lengths, length):
    layout = task_batches._first_fit(np.array(lengths), length)
    used = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        rooms = [r for r, tokens in enumerate(used) if tokens + lengths[i] <= length]
        row = min(rooms, default=len(used))
        used += [0] * (row == len(used))
        assert (layout.rows[i], layout.starts[i]) == (row, used[row])
        used[row] += lengths[i]
    assert layout.num_rows == len(used)


def test_an_example_as_long_as_the_model_allows():
    layout = task_batches.packed(np.array([100, 7, 93]), 100)
    assert layout.length == 100 and layout.num_rows == 2
