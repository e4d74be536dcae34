"""Data sets are made and read in remote folders as they are in local ones."""

import pytest

from albert_tf.data.corpus.corpus import Corpus
from albert_tf.data.prepare.blocks import RecordConfig
from albert_tf.data.prepare.create import create_pretraining_data
from albert_tf.data.prepare.pairs import PairConfig
from albert_tf.data.records import tfrecord
from albert_tf.errors import UsageError
from albert_tf.storage import files
from tests.tiny import TEXT


def make(source, output, tokenizer, **kwargs):
    config = RecordConfig(PairConfig("clean", 64, 0.1, 5), eval_fraction=0.2)
    return create_pretraining_data(
        Corpus(source), output, tokenizer, config, 2, 1, progress=False, **kwargs
    )


@pytest.mark.parametrize("scheme", ["file", "ram"])
def test_a_remote_data_set_has_the_bytes_of_a_local_one(
    scheme, tmp_path, tokenizer, bucket
):
    folder = bucket if scheme == "ram" else f"file://{tmp_path}"
    source = files.join(folder, "input.txt")
    files.write_bytes(source, TEXT.read_bytes())
    output = files.join(folder, "out")
    make(source, files.join(output, "t"), tokenizer)
    make(str(TEXT), str(tmp_path / "local/t"), tokenizer)
    names = files.list_folder(tmp_path / "local")
    assert files.list_folder(output) == names
    assert sum(name.endswith(".tfrecord") for name in names) == 3
    for name in names:
        if name.endswith((".tfrecord", ".idx", ".png")):
            content = (tmp_path / "local" / name).read_bytes()
            assert files.read_bytes(files.join(output, name)) == content
    records = tfrecord.RecordSet(files.join(output, "t"))
    assert records.read([3, 1]) == [records[3], records[1]]
    with pytest.raises(UsageError, match="give --overwrite"):
        make(source, files.join(output, "t"), tokenizer)
    make(source, files.join(output, "t"), tokenizer, overwrite=True)
    assert files.list_folder(output) == names
