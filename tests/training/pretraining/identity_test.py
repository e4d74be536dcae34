"""What a run starts from is known by its content, wherever it lies."""

import json
import pathlib
import shutil

import numpy as np
import pytest

import albert_tf
from albert_tf.converters.load import open_checkpoint
from albert_tf.data.records import card
from albert_tf.data.records.tfrecord import RecordSet
from albert_tf.text.load import load_tokenizer
from albert_tf.training.pretrain_inputs import content_of
from tests.data import synthetic_records

GOLDEN = pathlib.Path(__file__).parents[2] / "golden"
CONFIG = albert_tf.AlbertConfig(
    vocab_size=11,
    embedding_size=2,
    hidden_size=4,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=3,
    max_position_embeddings=5,
)


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(GOLDEN / "tokenization/spiece.model")


@pytest.fixture
def rows():
    rng = np.random.default_rng(3)
    return [synthetic_records.make_example(rng, 20) for _ in range(30)]


def describe(folder, tokenizer, init_checkpoint=""):
    records = RecordSet(str(folder))
    if not init_checkpoint:
        return content_of(CONFIG, tokenizer, records)
    with open_checkpoint(init_checkpoint) as checkpoint:
        return content_of(CONFIG, tokenizer, records, checkpoint)


def write(folder, rows, **changes):
    folder.mkdir()
    synthetic_records.write(folder, rows)
    data_card = {
        "form": "dynamic",
        "inputs": [{"name": "/here/a.txt", "bytes": 3, "sha256": "ab"}],
        "flags": {"output_file": str(folder)},
        **changes,
    }
    (folder / card.CARD_NAME).write_text(json.dumps(data_card))


def test_a_copy_of_the_data_is_the_same_data(tmp_path, rows, tokenizer):
    write(tmp_path / "one", rows)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    one = describe(tmp_path / "one", tokenizer)
    assert describe(tmp_path / "two", tokenizer) == one
    write(tmp_path / "again", rows)  # its card names another folder
    assert describe(tmp_path / "again", tokenizer) == one
    json.dumps(one)


def test_other_data_differ(tmp_path, rows, tokenizer):
    write(tmp_path / "one", rows)
    one = describe(tmp_path / "one", tokenizer)["data"]
    changed = [dict(row) for row in rows]
    ids = changed[0]["input_ids"].copy()
    ids[1] = 5 + (ids[1] - 4) % 100  # its size in the file does not change
    changed[0]["input_ids"] = ids
    write(tmp_path / "content", changed)
    other = describe(tmp_path / "content", tokenizer)["data"]
    assert one["records"] != other["records"]
    inputs = [{"name": "/here/a.txt", "bytes": 3, "sha256": "cd"}]
    write(tmp_path / "input", rows, inputs=inputs)
    other = describe(tmp_path / "input", tokenizer)["data"]
    assert one["records"] == other["records"] and one["card"] != other["card"]
    write(tmp_path / "fewer", rows[:-1])
    other = describe(tmp_path / "fewer", tokenizer)["data"]
    assert one["records"] != other["records"]


def test_an_initial_checkpoint_is_known_in_every_format(tmp_path, rows, tokenizer):
    write(tmp_path / "data", rows)
    assert describe(tmp_path / "data", tokenizer)["init_checkpoint"] == ""
    digests = []
    for name, seed, format in (
        ("a", 1, "albert_tf"),
        ("b", 1, "tf1"),
        ("c", 2, "albert_tf"),
    ):
        model = albert_tf.AlbertPretrainer(CONFIG, seed=seed)
        albert_tf.save_pretrained(model, tmp_path / name, format=format)
        content = describe(tmp_path / "data", tokenizer, tmp_path / name)
        digests.append(content["init_checkpoint"])
    assert digests[0] == digests[1] != digests[2]
