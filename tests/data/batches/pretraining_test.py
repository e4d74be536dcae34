"""Batches for pretraining: order, resume, slices, evaluation, the original's files."""

import json
import pathlib
import types

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import features
from albert_tf.data import keyed_random
from albert_tf.data.batches.reader import ExampleReader
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


def join(batches):
    return {name: np.concatenate([b[name] for b in batches]) for name in batches[0]}


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, name)


def test_order_and_masks_are_functions_of_seed_and_step(pattern, rows):
    """Against the definition, evaluated one example at a time."""
    seed, config = 19, MaskingConfig(max_predictions_per_seq=5)
    batches = join(take(make(pattern), 15))
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
        n, length = len(positions), len(ids)
        expected = {
            "token_ids": (ids, LENGTH),
            "segment_ids": (row["segment_ids"], LENGTH),
            "padding_mask": (np.ones(length), LENGTH),
            "mask_positions": (positions, 5),
            "mask_ids": (labels, 5),
            "mask_weights": (np.ones(n), 5),
        }
        for name, (values, width) in expected.items():
            padded = np.pad(values, (0, width - len(values)))
            np.testing.assert_array_equal(batches[name][g], padded, name)
        assert batches["sentence_order_labels"][g] == row["next_sentence_labels"]
    assert sorted(seen[:NUM]) == sorted(seen[NUM : 2 * NUM]) == list(range(NUM))
    assert seen[:NUM] != seen[NUM : 2 * NUM]


def test_shapes_are_static(pattern):
    for training in (True, False):
        spec = make(pattern, is_training=training).element_spec
        for name, one in spec.items():
            width = {"mask": [5], "sentence": []}.get(name.split("_")[0], [LENGTH])
            assert one.shape == [6, *width], name
            is_float = name.endswith("weights")
            assert one.dtype == (tf.float32 if is_float else tf.int32)


@pytest.mark.parametrize("packing", [False, True])
def test_resume_equals_continuing(pattern, packing):
    # Steps 5 to 8 hold the turn of an epoch, packed or not.
    whole = take(make(pattern, packing=packing), 9)
    resumed = take(make(pattern, packing=packing, start_step=4), 5)
    for found, expected in zip(resumed, whole[4:], strict=True):
        assert_equal(found, expected)


@pytest.mark.parametrize("training", [True, False])
def test_pipelines_share_each_global_batch(pattern, training):
    def part(**changes):
        changes |= {"is_training": training, "packing": not training}
        return take(make(pattern, global_batch_size=4, **changes), 12)

    parts = [part(num_input_pipelines=2, input_pipeline_id=j) for j in range(2)]
    for expected, *shares in zip(part(), *parts, strict=True):
        assert_equal(join(shares), expected)


def test_rows_do_not_depend_on_the_batch_size(pattern):
    small = join(take(make(pattern, global_batch_size=4), 30))
    # One batch of 120 holds four epochs.
    assert_equal(join(take(make(pattern, global_batch_size=120), 1)), small)


def test_draws_of_samples_belong_to_examples(pattern):
    key, plain = "sample_draws", make(pattern)
    assert key not in plain.element_spec
    batch = join(take(make(pattern, sample_draws=True), 18))
    expected = join(take(plain, 18))
    # Nothing else changes, and an example has other numbers in the next epoch.
    draws = batch.pop(key)
    assert_equal(batch, expected)
    assert draws.dtype == np.float32 and draws.min() >= 0 and draws.max() < 1
    used = draws[batch["mask_weights"] > 0]
    assert len(set(used)) > 0.99 * len(used)
    assert abs(used.mean() - 0.5) < 4 * 12**-0.5 / len(used) ** 0.5
    many = join(take(make(pattern, sample_draws=True, global_batch_size=108), 1))
    np.testing.assert_array_equal(many[key], draws)
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
    assert found == sorted(one[key][one["mask_weights"] > 0])
    static = take(make_original(sample_draws=True), 1)[0]
    assert static[key].shape == static["mask_ids"].shape


def test_evaluation_is_one_pass_with_fixed_masks(pattern, rows):
    batches = take(make(pattern, is_training=False))
    assert len(batches) == 7
    batch = join(batches)
    weights = batch["sentence_order_weights"]
    np.testing.assert_array_equal(weights, np.arange(42) < NUM)
    for name, values in batch.items():
        assert not values[NUM:].any(), name
    ids, positions, _ = mask_example(
        rows[20], MaskingConfig(max_predictions_per_seq=5), (19, 0, 20)
    )
    np.testing.assert_array_equal(batch["token_ids"][20, : len(ids)], ids)
    np.testing.assert_array_equal(
        batch["mask_positions"][20, : len(positions)], positions
    )
    assert_equal(join(take(make(pattern, is_training=False))), batch)


def test_original_file_is_read_as_it_is():
    batch = join(take(make_original(is_training=False, global_batch_size=13)))
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


def test_records_without_labels(rows, tmp_path):
    bare = [{k: v for k, v in row.items() if "labels" not in k} for row in rows]
    dataset = make(write(tmp_path, bare), is_training=False)
    assert "sentence_order_labels" not in join(take(dataset, 9))


def bad_file(tmp_path, rows, number, **changes):
    """The rows with one changed; the number avoids those looked at on opening."""
    changed = [dict(row) for _ in range(3) for row in rows]
    changed[number] |= changes
    return write(tmp_path, changed, num_shards=2)


ROW = {name: np.ones(9, int) for name in ("segment_ids", "token_boundary")}
LONG = make_example(np.random.default_rng(0), LENGTH + 4)


@pytest.mark.parametrize(
    ("number", "changes", "message"),
    [
        (0, LONG, "must have 1 to max_seq_length=29 tokens .*, received 33"),
        (60, LONG, "must have 1 to max_seq_length=29 tokens .*, received 33"),
        (
            60,
            {"segment_ids": np.zeros(2, int)},
            "(segment_ids must have as many|'segment_ids': 2)",
        ),
        (
            60,
            {"next_sentence_labels": np.array([2])},
            r"must be in \[0, 2\), received 2",
        ),
        (
            0,
            {"input_ids": np.array([2**40] * 9), **ROW},
            r"input_ids must be in \[0, 131\)",
        ),
    ],
)
def test_bad_record_is_named(rows, tmp_path, number, changes, message):
    files = bad_file(tmp_path, rows, number, **changes)
    shard, within = divmod(number, 56)
    where = f"set-0000{shard}-of-00002.tfrecord: (record {within}: )?.*{message}"
    with pytest.raises(DataError, match=where) as caught:
        take(make(files, is_training=False))
    assert "\n" not in str(caught.value)


def test_records_and_their_card(rows, tmp_path):
    files = write(tmp_path, rows, num_shards=1)
    shard = {"path": "set-00000-of-00001.tfrecord", "records": NUM}
    card = {"tokenizer": {"sha256": "abc"}, "splits": {"train": {"shards": [shard]}}}
    (tmp_path / "dataset.json").write_text(json.dumps(card))
    # Any object with the attributes is a tokenizer.
    values = vars(VOCAB) | {"sha256": "abc"}
    make(files, tokenizer=types.SimpleNamespace(**values))
    with pytest.raises(DataError, match="dataset.json: .* sha256 abc, received def"):
        make(files, tokenizer=types.SimpleNamespace(**values | {"sha256": "def"}))
    shard["records"] += 1
    (tmp_path / "dataset.json").write_text(json.dumps(card))
    with pytest.raises(DataError, match=r"00001.tfrecord: contains 37 .*json lists 38"):
        make(files)


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
        take(make(path))


def test_as_many_predictions_as_there_can_be(pattern):
    (batch,) = take(make(pattern, max_predictions_per_seq=None), 1)
    (wide,) = take(make(pattern, max_predictions_per_seq=LENGTH), 1)
    number = round(0.15 * LENGTH)
    for name, values in batch.items():
        if name.startswith("mask_"):
            assert values.shape[1] == number
            assert not wide[name][:, number:].any()
            wide[name] = wide[name][:, :number]
    assert_equal(batch, wide)
    (original,) = take(make_original(max_predictions_per_seq=None), 1)
    assert original["mask_weights"].shape[1] == 20


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
    ],
)
def test_arguments_that_do_not_fit(changes, message):
    with pytest.raises((DataError, UsageError), match=message):
        make_original(**changes)


def test_segments_without_an_embedding(rows, tmp_path):
    """Record 0 is read at once, record 1 with the others of its batch."""
    for number in (0, 1):
        changed = [{**row, "segment_ids": 0 * row["segment_ids"]} for row in rows]
        changed[number]["segment_ids"][-1] = 1
        (folder := tmp_path / str(number)).mkdir()
        pattern = write(folder, changed)
        message = rf"record {number}: segment_ids must be in \[0, 1\), .*, received 1$"
        with pytest.raises(DataError, match=message):
            take(make(pattern, type_vocab_size=1), 7)
    for known in (None, 2):
        take(make(pattern, type_vocab_size=known), 7)


def test_segments_of_the_originals_records():
    with pytest.raises(DataError, match=r"segment_ids must be in \[0, 1\), .* 1$"):
        make_original(type_vocab_size=1)


def test_no_predictions_do_not_fit_records_with_masks():
    with pytest.raises(DataError, match="max_predictions_per_seq=20, .* received 0"):
        ExampleReader(ORIGINAL, ORIGINAL_VOCAB, 128, 0)


def test_batches_are_made_ahead_when_operations_are_deterministic(pattern, run_forked):
    """TensorFlow then gives up prefetching for data sets with stateful operations."""
    script = pathlib.Path(__file__).with_name("deterministic_check.py")
    done = run_forked(script, pattern)
    assert done.stdout.split() == ["True", "True"], done.stderr
