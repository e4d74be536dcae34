"""Batches for pretraining: order, resume, slices, evaluation, the original's files."""

import functools
import json
import pathlib
import types

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_equal

from albert_tf import features
from albert_tf.data.batches.pretraining import PretrainingData
from albert_tf.data.batches.reader import ExampleReader, data_errors
from albert_tf.data.masking import keyed_random
from albert_tf.data.masking.config import MaskingConfig, VocabInfo
from albert_tf.data.masking.ops import NUMPY
from albert_tf.data.records import tfrecord
from albert_tf.errors import DataError, UsageError
from tests.data import synthetic_records
from tests.data.synthetic_records import (
    VOCAB,
    make_example,
    mask_example,
    parse,
    take,
    write,
)
from tests.tiny import GOLDEN

ORIGINAL = str(GOLDEN / "tf1_data/seq128_pred20.tfrecord")
ORIGINAL_VOCAB = VocabInfo(30000, 0, 2, 3, 4, (0, 1, 2, 3, 4))
NUM, LENGTH = 37, 29


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(2)
    return [make_example(rng, length) for length in rng.integers(7, 30, NUM)]


@pytest.fixture(scope="module")
def pattern(rows, tmp_path_factory):
    return write(tmp_path_factory.mktemp("records"), rows)


def make(pattern, **changes):
    sizes = {"max_seq_length": LENGTH, "max_predictions_per_seq": 5}
    given = {"global_batch_size": 6, "seed": 19, **sizes}
    return synthetic_records.make(pattern, **(given | changes))


def make_original(**changes):
    sizes = {"max_seq_length": 128, "max_predictions_per_seq": 20}
    return make(ORIGINAL, **({"tokenizer": ORIGINAL_VOCAB, **sizes} | changes))


@pytest.fixture(scope="module")
def training(pattern):
    return make(pattern)


@pytest.fixture(scope="module")
def evaluation(pattern):
    return make(pattern, is_training=False)


@pytest.fixture(scope="module")
def first_rows(training):
    """The first 120 rows of training: three epochs and more."""
    return join(take(training, 20))


def join(batches):
    return {name: np.concatenate([b[name] for b in batches]) for name in batches[0]}


def read(pattern, number, **options):
    """Reads a record as data sets do."""
    reader = ExampleReader(pattern, VOCAB, LENGTH, 5, **options)
    with data_errors():
        return reader.read(tf.constant([number], tf.int64))


def test_order_and_masks_are_functions_of_seed_and_step(first_rows, rows):
    """Against the definition, evaluated one example at a time."""
    seed, config = 19, MaskingConfig(max_predictions_per_seq=5)
    seen = []
    for g in range(90):
        epoch = g // NUM
        number = int(
            tf.random.experimental.index_shuffle(
                tf.constant(g % NUM, tf.int64),
                tf.constant([seed, epoch], tf.int64),
                tf.constant(NUM - 1, tf.int64),
            )
        )
        seen.append(number)
        row = rows[number]
        ids, positions, labels = mask_example(row, config, (seed, epoch, number))
        expected = {
            "token_ids": (ids, LENGTH),
            "segment_ids": (row["segment_ids"], LENGTH),
            "padding_mask": (np.ones(len(ids)), LENGTH),
            "mask_positions": (positions, 5),
            "mask_ids": (labels, 5),
            "mask_weights": (np.ones(len(positions)), 5),
        }
        for name, (values, width) in expected.items():
            padded = np.pad(values, (0, width - len(values)))
            np.testing.assert_array_equal(first_rows[name][g], padded, name)
        assert first_rows["sentence_order_labels"][g] == row["next_sentence_labels"]
    assert sorted(seen[:NUM]) == sorted(seen[NUM : 2 * NUM]) == list(range(NUM))
    assert seen[:NUM] != seen[NUM : 2 * NUM]


def test_shapes_are_static(training, evaluation):
    for dataset in (training, evaluation):
        for name, one in dataset.element_spec.items():
            width = {"mask": [5], "sentence": []}.get(name.split("_")[0], [LENGTH])
            assert one.shape == [6, *width], name
            assert one.dtype == (tf.float32 if name.endswith("weights") else tf.int32)


@pytest.mark.parametrize("changes", [{"packing": True}, {"is_training": False}])
def test_pipelines_share_each_global_batch_from_any_step(pattern, evaluation, changes):
    part = functools.partial(make, pattern, **changes)
    # The packed steps 4 to 8 hold the turn of an epoch.
    expected = take(part() if "packing" in changes else evaluation, 9)[4:]
    shares = [
        take(part(start_step=4, num_input_pipelines=2, input_pipeline_id=j), 5)
        for j in range(2)
    ]
    for whole, *parts in zip(expected, *shares, strict=True):
        assert_equal(join(parts), whole)


def test_draws_of_samples_belong_to_examples(pattern, training, evaluation, first_rows):
    key = "sample_draws"
    assert key not in training.element_spec
    # In one batch of several epochs.
    (batch,) = take(make(pattern, sample_draws=True, global_batch_size=120), 1)
    draws = batch.pop(key)
    # Nothing else changes, and an example has other numbers in the next epoch.
    assert_equal(batch, first_rows)
    assert draws.dtype == np.float32 and draws.min() >= 0 and draws.max() < 1
    used = draws[batch["mask_weights"] > 0]
    assert len(set(used)) > 0.99 * len(used)
    assert abs(used.mean() - 0.5) < 4 * 12**-0.5 / len(used) ** 0.5
    # The same in NumPy, and in packed rows.
    held_out = {"is_training": False, "sample_draws": True, "global_batch_size": NUM}
    one, packed = (
        take(make(pattern, packing=packing, **held_out), 1)[0]
        for packing in (False, True)
    )
    keys = keyed_random.row_keys(19, np.zeros(NUM, int), np.arange(NUM), NUMPY)
    drawn = keyed_random.draws(keys, keyed_random.SAMPLE, one["mask_positions"], NUMPY)
    np.testing.assert_array_equal(keyed_random.fractions(drawn, NUMPY), one[key])
    found = sorted(packed[key][packed["mask_weights"] > 0])
    assert found == sorted(one.pop(key)[one["mask_weights"] > 0])
    assert_equal({k: v[:NUM] for k, v in join(take(evaluation)).items()}, one)


def test_evaluation_is_one_pass_with_fixed_masks(evaluation, rows):
    batches = take(evaluation)
    assert len(batches) == 7
    batch = join(batches)
    np.testing.assert_array_equal(batch["sentence_order_weights"], np.arange(42) < NUM)
    for name, values in batch.items():
        assert not values[NUM:].any(), name
    config = MaskingConfig(max_predictions_per_seq=5)
    ids, positions, _ = mask_example(rows[20], config, (19, 0, 20))
    np.testing.assert_array_equal(batch["token_ids"][20, : len(ids)], ids)
    found = batch["mask_positions"][20, : len(positions)]
    np.testing.assert_array_equal(found, positions)


def test_original_file_is_read_as_it_is():
    changes = {"max_predictions_per_seq": None, "sample_draws": True}
    data = make_original(is_training=False, global_batch_size=13, **changes)
    batch = join(take(data))
    stored = tfrecord.RecordSet(ORIGINAL)
    assert len(stored) == 130
    for number in range(130):
        example = parse(stored[number])
        for name, original in features.RECORD_NAMES.items():
            np.testing.assert_array_equal(batch[name][number], example[original], name)
    statistics = json.loads((GOLDEN / "tf1_data/seq128_pred20.stats.json").read_text())
    assert batch["mask_weights"].sum() == statistics["masked_tokens"]
    assert batch["padding_mask"].sum() == statistics["total_tokens_in_instances"]
    share = statistics["sop_label_1_fraction"]
    assert batch["sentence_order_labels"].mean() == pytest.approx(share)
    assert batch["sample_draws"].shape == batch["mask_ids"].shape == (130, 20)


def test_records_without_labels(rows, tmp_path):
    bare = [{k: v for k, v in row.items() if "labels" not in k} for row in rows]
    (batch,) = take(make(write(tmp_path, bare), is_training=False), 1)
    assert "sentence_order_labels" not in batch


ROW = {name: np.ones(9, int) for name in ("segment_ids", "token_boundary")}
LONG = make_example(np.random.default_rng(0), LENGTH + 4)
TOO_LONG = "must have 1 to max_seq_length=29 tokens .*, received 33"
SEGMENTS = "(segment_ids must have as many|'segment_ids': 2)"
WRONG_LABEL = {"next_sentence_labels": np.array([2])}


@pytest.mark.parametrize(
    ("number", "changes", "message"),
    [
        (0, LONG, TOO_LONG),
        (60, LONG, TOO_LONG),  # not looked at on opening
        (60, {"segment_ids": np.zeros(2, int)}, SEGMENTS),
        (60, WRONG_LABEL, r"must be in \[0, 2\), received 2"),
        (0, {"input_ids": np.array([2**40] * 9), **ROW}, r"input_ids .* in \[0, 131\)"),
    ],
)
def test_bad_record_is_named(rows, tmp_path, number, changes, message):
    changed = [dict(row) for _ in range(3) for row in rows]
    changed[number] |= changes
    files = write(tmp_path, changed, num_shards=2)
    shard, within = divmod(number, 56)
    where = f"set-0000{shard}-of-00002.tfrecord: (record {within}: )?.*{message}"
    with pytest.raises(DataError, match=where) as caught:
        read(files, number)
    assert "\n" not in str(caught.value)


def test_records_and_their_card(rows, tmp_path):
    files = write(tmp_path, rows, num_shards=1)
    shard = {"path": "set-00000-of-00001.tfrecord", "records": NUM}
    card = {"tokenizer": {"sha256": "abc"}, "splits": {"train": {"shards": [shard]}}}

    def open_records(sha256):
        (tmp_path / "dataset.json").write_text(json.dumps(card))
        # Any object with the attributes is a tokenizer.
        tokenizer = types.SimpleNamespace(**vars(VOCAB) | {"sha256": sha256})
        PretrainingData(files, tokenizer=tokenizer, max_seq_length=LENGTH, seed=1)

    open_records("abc")
    with pytest.raises(DataError, match="dataset.json: .* sha256 abc, received def"):
        open_records("def")
    shard["records"] += 1
    with pytest.raises(DataError, match=r"00001.tfrecord: contains 37 .*json lists 38"):
        open_records("abc")


@pytest.mark.parametrize(
    ("number", "payload", "message"),
    [
        (0, b"\xff\xfe nonsense", "record 0: must be a tf.train.Example"),
        (1, b"\xff\xfe nonsense", "record 1: must be a tf.train.Example"),
        (0, tf.train.Example().SerializeToString(), "'input_ids', this one has none"),
    ],
)
def test_other_messages_are_refused(tmp_path, rows, number, payload, message):
    payloads = tfrecord.RecordSet(write(tmp_path, rows)).read(range(NUM))
    payloads[number] = payload
    path = str(tmp_path / "other.tfrecord")
    tfrecord.write_shard(path, payloads)
    with pytest.raises(DataError, match=message):
        read(path, number)


def test_as_many_predictions_as_there_can_be(pattern, first_rows):
    (batch,) = take(make(pattern, max_predictions_per_seq=None), 1)
    number, wide = round(0.15 * LENGTH), {k: v[:6] for k, v in first_rows.items()}
    for name, values in batch.items():
        if name.startswith("mask_"):
            assert values.shape[1] == number
            assert not wide[name][:, number:].any()
            wide[name] = wide[name][:, :number]
    assert_equal(batch, wide)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_seq_length": 64}, "max_seq_length=128, which cannot .* received 64"),
        ({"max_predictions_per_seq": 19}, "max_predictions_per_seq=20, .* received 19"),
        ({"num_input_pipelines": 4}, "multiple of num_input_pipelines=4, received 6"),
        ({"global_batch_size": 0}, "global_batch_size must .* received 0"),
        ({"input_pipeline_id": 1}, r"id must be in \[0, 1\), received 1"),
        ({"start_step": -1}, "start_step must not be negative, received -1"),
        ({"packing": True}, "already contains masks"),
        ({"type_vocab_size": 1}, r"segment_ids must be in \[0, 1\), .* 1$"),
    ],
)
def test_arguments_that_do_not_fit(changes, message):
    with pytest.raises((DataError, UsageError), match=message):
        make_original(**changes)


def test_no_predictions_do_not_fit_records_with_masks():
    with pytest.raises(DataError, match="max_predictions_per_seq=20, .* received 0"):
        ExampleReader(ORIGINAL, ORIGINAL_VOCAB, 128, 0)


def test_segments_without_an_embedding(pattern, rows, tmp_path):
    """Record 0 is read at once, record 1 with the others of its batch."""
    for number in (0, 1):
        changed = [{**row, "segment_ids": 0 * row["segment_ids"]} for row in rows]
        changed[number]["segment_ids"][-1] = 1
        (folder := tmp_path / str(number)).mkdir()
        files = write(folder, changed)
        message = rf"record {number}: segment_ids must be in \[0, 1\), .*, received 1$"
        with pytest.raises(DataError, match=message):
            take(make(files, type_vocab_size=1), 7)
    assert read(pattern, 1, type_vocab_size=2)["segment_ids"].numpy().any()


def test_batches_are_made_ahead_when_operations_are_deterministic(pattern, run_forked):
    """TensorFlow then gives up prefetching for data sets with stateful operations."""
    script = pathlib.Path(__file__).with_name("deterministic_check.py")
    done = run_forked(script, pattern)
    assert done.stdout.split() == ["True"], done.stderr
