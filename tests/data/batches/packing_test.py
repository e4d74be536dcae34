"""Packed rows: the plan, the batches, and taking them apart again."""

import concurrent.futures
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from albert_tf.data.batches.packing import PackPlan, make_plan
from albert_tf.data.batches.pretraining import PretrainingData
from albert_tf.data.masking.config import MaskingConfig
from tests.data.synthetic_records import LENGTH, VOCAB, make, make_example, take, write

NUM = 83
CONFIG = MaskingConfig(max_predictions_per_seq=4)
SIZES = {"max_seq_length": LENGTH, "max_predictions_per_seq": 4, "seed": 23}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(8)
    return [make_example(rng, length) for length in rng.integers(5, 40, NUM)]


@pytest.fixture(scope="module")
def pattern(rows, tmp_path_factory):
    return write(tmp_path_factory.mktemp("records"), rows)


@pytest.fixture(scope="module")
def data(pattern):
    return PretrainingData(pattern, tokenizer=VOCAB, packing=True, **SIZES)


@pytest.fixture(scope="module")
def epochs(data):
    """Two batches, each with the rows of an epoch."""
    return take(data.batches(data.num_rows), 2)


def unpack_batch(batch: dict[str, np.ndarray]) -> list[tuple]:
    """Separates packed rows; the inverse of `packing.pack_batch`.

    Returns:
        list. For each example its token ids, segment ids, mask positions (in the
        example), mask ids, and label.
    """
    examples = []
    for b, row in enumerate(batch["pack_ids"]):
        for slot in range(row.max(initial=0)):
            inside = row == slot + 1
            positions = batch["mask_positions"][b]
            masked = (batch["mask_weights"][b] > 0) & inside[positions]
            start = batch["cls_positions"][b, slot]
            values = (
                batch["token_ids"][b][inside],
                batch["segment_ids"][b][inside],
                positions[masked] - start,
                batch["mask_ids"][b][masked],
            )
            label = int(batch["sentence_order_labels"][b, slot])
            examples.append((*map(tuple, values), label))
    return examples


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    lengths=st.lists(st.integers(1, 31), min_size=1, max_size=80),
    most=st.integers(1, 9),
    epoch=st.integers(0, 3),
)
def test_plan_holds_every_example_once(lengths, most, epoch):
    lengths = np.array(lengths, np.int32)
    plan = make_plan(lengths, CONFIG, 31, most)
    examples = plan.assignment(5, epoch)
    assert sorted(examples.tolist()) == list(range(len(lengths)))
    np.testing.assert_array_equal(lengths[examples], plan.slots)
    sizes = np.diff(plan.row_starts)
    assert sizes.min() >= 1 and sizes.max() <= most
    filled = np.add.reduceat(plan.slots, plan.row_starts[:-1])
    assert filled.max() <= 31
    budgets = np.array([CONFIG.num_to_predict(int(n)) for n in plan.slots])
    in_row = np.add.reduceat(budgets, plan.row_starts[:-1])
    assert in_row.max() == plan.max_predictions_per_row
    # No two rows that could be one: best fit leaves at most one row half empty.
    if most >= len(lengths):
        assert (filled * 2 <= 31).sum() <= 1


def test_best_fit_finds_the_obvious_packing():
    lengths = np.array([7] * 10 + [3] * 10 + [10] * 2, np.int32)
    plan = make_plan(lengths, CONFIG, 10, 4)
    assert plan.num_rows == 12
    assert plan.useful_token_rate == 1.0


@pytest.mark.parametrize("mean", [8, 12, 16, 40])
def test_very_short_documents_fill_long_rows(mean):
    lengths = np.maximum(np.random.default_rng(4).poisson(mean, 20_000), 3)
    plan = make_plan(lengths.astype(np.int32), CONFIG, 512)
    assert plan.useful_token_rate >= 0.98
    assert plan.max_examples_per_row <= 256


def test_examples_of_equal_length_change_places_each_epoch():
    plan = make_plan(np.full(40, 5, np.int32), CONFIG, 20, 4)
    first, second = plan.assignment(1, 0), plan.assignment(1, 1)
    assert (first != second).any()
    assert (first != plan.assignment(2, 0)).any()
    np.testing.assert_array_equal(first, plan.assignment(1, 0))


def test_packed_evaluation_holds_what_the_unpacked_does(pattern):
    """The same examples with the same masks, each once."""
    plain = []
    for batch in take(make(pattern, is_training=False, global_batch_size=NUM)):
        for i in np.flatnonzero(batch["sentence_order_weights"]):
            length = batch["padding_mask"][i].sum()
            count = int(batch["mask_weights"][i].sum())
            names = {"token_ids": length, "segment_ids": length}
            names |= {"mask_positions": count, "mask_ids": count}
            values = (tuple(batch[name][i, :size]) for name, size in names.items())
            plain.append((*values, int(batch["sentence_order_labels"][i])))
    made = take(make(pattern, packing=True, is_training=False, global_batch_size=NUM))
    packed = [one for batch in made for one in unpack_batch(batch)]
    assert len(plain) == NUM
    assert sorted(packed) == sorted(plain)


def test_rows_are_well_formed(epochs):
    for batch in epochs:
        real = batch["padding_mask"] > 0
        np.testing.assert_array_equal(batch["pack_ids"] > 0, real)
        counts = batch["sentence_order_weights"].sum(1)
        np.testing.assert_array_equal(batch["pack_ids"].max(1), counts)
        assert counts.min() >= 1
        for b in range(len(real)):
            packs, places = batch["pack_ids"][b], batch["position_ids"][b]
            assert (np.diff(packs[real[b]]) >= 0).all()
            for k in range(int(counts[b])):
                inside = np.flatnonzero(packs == k + 1)
                assert inside[0] == batch["cls_positions"][b, k]
                tokens = batch["token_ids"][b, inside]
                assert (tokens[0], tokens[-1]) == (VOCAB.cls_id, VOCAB.sep_id)
                np.testing.assert_array_equal(places[inside], range(len(inside)))
            positions = batch["mask_positions"][b][batch["mask_weights"][b] > 0]
            assert real[b][positions].all() and len(set(positions)) == len(positions)
        for name in ("token_ids", "segment_ids", "position_ids"):
            assert not batch[name][~real].any()


def test_epoch_visits_every_example_once_with_new_masks(epochs, rows):
    texts = []
    for batch in epochs:
        restored = []
        for tokens, _, positions, ids, _ in unpack_batch(batch):
            tokens = np.array(tokens)
            tokens[list(positions)] = ids
            restored.append(tokens.tolist())
        texts.append(restored)
    expected = sorted(row["input_ids"].tolist() for row in rows)
    assert sorted(texts[0]) == sorted(texts[1]) == expected
    assert texts[0] != texts[1]


def test_the_order_of_an_epoch_is_computed_once_for_all_threads(data, monkeypatch):
    assignment, epochs = PackPlan.assignment, []

    def slow(self, seed, epoch):
        epochs.append(int(epoch))
        time.sleep(0.05)
        return assignment(self, seed, epoch)

    monkeypatch.setattr(PackPlan, "assignment", slow)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        where = np.zeros(1, np.int64), np.full(1, 9, np.int64)
        batches = [pool.submit(data._rows, *where) for _ in range(4)]
        tokens = [batch.result()["token_ids"].numpy().tolist() for batch in batches]
    assert epochs == [9]
    assert tokens == [tokens[0]] * 4
