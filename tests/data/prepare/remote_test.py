"""Data sets are made and read in remote folders as they are in local ones."""

import pathlib
import uuid

import pytest
import tensorflow as tf

from albert_tf.data.corpus.corpus import Corpus
from albert_tf.data.masking.config import MaskingConfig
from albert_tf.data.prepare.blocks import RecordConfig
from albert_tf.data.prepare.create import create_pretraining_data
from albert_tf.data.prepare.pairs import PairConfig
from albert_tf.data.records import tfrecord
from albert_tf.errors import UsageError
from albert_tf.storage import files

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "golden"
INPUT = GOLDEN / "tf1_data/input.txt"


@pytest.fixture(params=["file://", "ram://"])
def folder(request, tmp_path):
    """An empty folder on the route that `gs://` takes."""
    path = f"{request.param}{tmp_path / 'remote'}"
    if request.param == "ram://":
        path = f"ram://{uuid.uuid4().hex}"
    tf.io.gfile.makedirs(path)
    return path


def make(source, output, tokenizer, **kwargs):
    config = RecordConfig(
        PairConfig("clean", 64, 0.1, 5),
        MaskingConfig(max_predictions_per_seq=10),
        eval_fraction=0.2,
    )
    return create_pretraining_data(
        Corpus(source), output, tokenizer, config, 2, 1, progress=False, **kwargs
    )


def test_a_remote_data_set_has_the_bytes_of_a_local_one(folder, tmp_path, tokenizer):
    source = files.join(folder, "input.txt")
    files.write_bytes(source, INPUT.read_bytes())
    output = files.join(folder, "out")
    make(source, files.join(output, "t"), tokenizer)
    make(str(INPUT), str(tmp_path / "local/t"), tokenizer)
    names = files.list_folder(tmp_path / "local")
    assert files.list_folder(output) == names
    assert sum(name.endswith(".tfrecord") for name in names) == 3
    for name in names:
        if name.endswith((".tfrecord", ".idx", ".png")):
            content = (tmp_path / "local" / name).read_bytes()
            assert files.read_bytes(files.join(output, name)) == content
    records = tfrecord.RecordSet(files.join(output, "t"))
    assert records.read([3, 1]) == [records[3], records[1]]


def test_a_remote_data_set_is_replaced_only_if_asked(folder, tokenizer):
    output = files.join(folder, "t")
    make(str(INPUT), output, tokenizer)
    with pytest.raises(UsageError, match="give --overwrite"):
        make(str(INPUT), output, tokenizer)
    make(str(INPUT), output, tokenizer, overwrite=True)
    assert len(tfrecord.RecordSet(output))
