"""TFRecord files: framing, index, random access, and what is said of damaged ones."""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data.records import tf_example, tfrecord
from albert_tf.errors import DataError, UsageError

GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "tf1_data"
ORIGINAL = GOLDEN / "seq128_pred20.tfrecord"


def _make(folder, sizes, name="a"):
    paths = []
    for k, size in enumerate(sizes):
        path = str(folder / f"{name}-{k:05d}-of-{len(sizes):05d}.tfrecord")
        tfrecord.write_shard(path, (b"%d-%d" % (k, n) * (n + 1) for n in range(size)))
        paths.append(path)
    return paths


def test_written_files_are_read_by_tensorflow(tmp_path):
    paths = _make(tmp_path, [5, 3])
    expected = [r.numpy() for r in tf.data.TFRecordDataset(paths)]
    assert expected[3] == b"0-3" * 4
    for pattern in (paths, str(tmp_path), ",".join(reversed(paths)), f"{tmp_path}/a-*"):
        records = tfrecord.RecordSet(pattern)
        assert records.paths == paths and records.read(range(8)) == expected
    with pytest.raises(UsageError, match=r"\[0, 8\), received 8"):
        records.read([0, 8])


def test_reads_the_originals_file_in_any_order():
    found = tfrecord.RecordSet(str(ORIGINAL))
    expected = [r.numpy() for r in tf.data.TFRecordDataset([str(ORIGINAL)])]
    assert len(found) == len(expected) == 130
    order = np.random.default_rng(3).permutation(130)
    assert found.read(order) == [expected[k] for k in order]


def test_describes_the_originals_file():
    stats = json.loads((GOLDEN / "seq128_pred20.stats.json").read_text())
    found = tfrecord.RecordSet(str(ORIGINAL))
    assert found.describe() == {
        "form": "static",
        "sequence_length": stats["flags"]["max_seq_length"],
        "num_predictions": stats["flags"]["max_predictions_per_seq"],
    }
    total = sum(int(found.example(k)["input_mask"].sum()) for k in range(130))
    assert total == stats["total_tokens_in_instances"]


def test_a_missing_index_is_replaced_by_a_scan(tmp_path):
    (path,) = _make(tmp_path, [6])
    with_index = tfrecord.load_index(path)
    pathlib.Path(tfrecord.index_path(path)).unlink()
    np.testing.assert_array_equal(tfrecord.load_index(path), with_index)


def test_an_index_of_another_file_is_not_used(tmp_path):
    short, long = _make(tmp_path, [2, 6])
    pathlib.Path(tfrecord.index_path(short)).replace(tfrecord.index_path(long))
    assert len(tfrecord.load_index(long)) == 6


def test_a_file_cut_inside_a_record_is_named(tmp_path):
    (path,) = _make(tmp_path, [4])
    offset = tfrecord.load_index(path)[3]
    data = pathlib.Path(path).read_bytes()
    pathlib.Path(path).write_bytes(data[:-3])
    with pytest.raises(DataError, match=rf"{path}: record 3 at byte {offset}: .*ends"):
        tfrecord.RecordSet(path)


def test_a_file_cut_between_records_is_noticed(tmp_path):
    (path,) = _make(tmp_path, [4])
    data = pathlib.Path(path).read_bytes()
    pathlib.Path(path).write_bytes(data[: tfrecord.load_index(path)[3]])
    with pytest.raises(DataError, match="contains only 3 of the 4 records"):
        tfrecord.RecordSet(path)


def test_a_flipped_bit_is_noticed(tmp_path):
    (path,) = _make(tmp_path, [4])
    offset = int(tfrecord.load_index(path)[2])
    data = bytearray(pathlib.Path(path).read_bytes())
    data[offset + 13] ^= 1
    pathlib.Path(path).write_bytes(bytes(data))
    found = tfrecord.RecordSet(path)
    assert found.read([1]) == [b"0-1" * 2]
    with pytest.raises(DataError, match=rf"record 2 at byte {offset}: checksum"):
        found.read([2])


def test_a_text_file_is_refused(tmp_path):
    path = tmp_path / "x.tfrecord"
    path.write_text("This is plain text and no record file at all.")
    with pytest.raises(DataError, match="record 0 at byte 0: .*not a TFRecord file"):
        tfrecord.RecordSet(str(path))


def test_empty_and_missing_files_are_refused(tmp_path):
    (tmp_path / "x.tfrecord").touch()
    with pytest.raises(DataError, match="hold no records"):
        tfrecord.RecordSet(str(tmp_path / "x.tfrecord"))
    with pytest.raises(DataError, match="no record file matches"):
        tfrecord.RecordSet(str(tmp_path / "y.tfrecord"))


def test_a_failing_source_leaves_no_file(tmp_path):
    def broken():
        yield b"x"
        raise RuntimeError("lost")

    with pytest.raises(RuntimeError, match="lost"):
        tfrecord.write_shard(str(tmp_path / "x.tfrecord"), broken())
    assert not list(tmp_path.iterdir())


def test_other_messages_are_refused(tmp_path):
    path = str(tmp_path / "x.tfrecord")
    one = np.array([1])
    (payload,) = tf_example.serialize_batch({"label": (one, one)})
    tfrecord.write_shard(path, [payload])
    with pytest.raises(DataError, match="needs the feature 'input_ids'"):
        tfrecord.RecordSet(path).describe()
    tfrecord.write_shard(path, [b"\xff\xff\xff"])
    with pytest.raises(DataError, match="record 0: not a tf.train.Example"):
        tfrecord.RecordSet(path).describe()
