"""From unusual sources, languages and conditions to records."""

import io
import json
import os
import pathlib
import sys

import pyarrow
import pytest
from pyarrow import parquet

from albert_tf.data.batches.pretraining import PretrainingData
from albert_tf.data.corpus.corpus import Corpus
from albert_tf.data.masking.config import MaskingConfig
from albert_tf.data.prepare.config import RecordConfig
from albert_tf.data.prepare.create import create_pretraining_data
from albert_tf.data.prepare.pairs import PairConfig
from albert_tf.data.records import tfrecord
from albert_tf.errors import DataError
from albert_tf.storage import files
from albert_tf.tables import text_stream
from albert_tf.text.byte_bpe import ByteBPETokenizer
from albert_tf.text.sentencepiece import AlbertTokenizer
from albert_tf.text.train import train_tokenizer

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"
INPUT = GOLDEN / "tf1_data/input.txt"
MODEL = GOLDEN / "tokenization/spiece.model"
# Made up for this test; no spaces, full-width punctuation.
CHINESE = (
    "今天早上，港口的船很多。老船长数了三遍，还是数错了！他问：“有人看见那条红船吗？”"
    "没有人回答。海风很大，天色渐渐暗了下来。孩子们跑到岸边去看灯塔。"
)


def _make(corpus, output, tokenizer, length=64, **settings):
    return create_pretraining_data(
        corpus,
        str(output),
        tokenizer,
        RecordConfig(
            pairs=PairConfig("clean", length, 0.1, 5),
            mask=MaskingConfig(max_predictions_per_seq=10),
            **settings,
        ),
        num_shards=2,
        num_processes=1,
        progress=False,
    )


def _bytes(folder):
    return {p.name: p.read_bytes() for p in sorted(folder.glob("*.tfrecord*"))}


def _documents():
    return [part.split("\n") for part in INPUT.read_text().strip().split("\n\n")]


def test_parquet_and_tfds_make_the_records_of_the_same_text_in_jsonl(
    tokenizer, tmp_path
):
    import tensorflow_datasets as tfds

    texts = ["\n".join(document) for document in _documents()]
    table = pyarrow.table({"id": list(range(len(texts))), "body": texts})
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=7)
    lines = [json.dumps({"body": text}) for text in texts]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    tfds.dataset_builders.store_as_tfds_dataset(
        name="tiny_text",
        version="1.0.0",
        features=tfds.features.FeaturesDict({"body": tfds.features.Text()}),
        split_datasets={"train": list(enumerate({"body": text} for text in texts))},
        data_dir=tmp_path / "tfds",
        disable_shuffling=True,
    )
    folders = []
    for name in (f"{tmp_path}/a.jsonl", f"{tmp_path}/a.parquet", "tfds:tiny_text"):
        corpus = Corpus(name, text_field="body", tfds_data_dir=str(tmp_path / "tfds"))
        folders.append(tmp_path / str(len(folders)))
        card = _make(corpus, folders[-1] / "t", tokenizer)
        assert card["corpus"]["documents"] == 33
        assert _bytes(folders[-1]) == _bytes(folders[0])


def test_chinese_text_without_spaces(tmp_path):
    documents = [CHINESE[k % 7 :] for k in range(40)]
    path = tmp_path / "zh.jsonl"
    path.write_text("\n".join(json.dumps({"text": text}) for text in documents))
    model = train_tokenizer(
        documents * 5, vocab_size=71, character_coverage=1.0, progress=False
    )
    tokenizer = AlbertTokenizer(model)
    card = _make(Corpus(str(path)), tmp_path / "t", tokenizer, language="zh")
    assert card["corpus"]["sentences"] >= 6 * len(documents)
    assert card["corpus"]["unknown_rate"] == 0
    assert abs(card["examples"]["label_1_rate"] - 0.5) < 0.05
    record = tfrecord.RecordSet(str(tmp_path / "t")).example(0)
    for token, starts in zip(
        record["input_ids"], record["token_boundary"], strict=True
    ):
        piece = tokenizer.id_to_token(int(token))
        if any("\u4e00" <= character <= "\u9fff" for character in piece):
            assert starts == 1, piece
    data = PretrainingData(
        str(tmp_path / "t"),
        tokenizer=tokenizer,
        max_seq_length=64,
        max_predictions_per_seq=10,
        seed=1,
    )
    batch = next(data.batches(8).as_numpy_iterator())
    lengths = batch["padding_mask"].sum(1)
    budget = [min(10, max(1, round(0.15 * n))) for n in lengths.tolist()]
    assert batch["mask_weights"].sum(1).tolist() == budget


def test_a_file_that_vanishes_after_it_was_found(tokenizer, tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(INPUT.read_text())
    corpus = Corpus(f"{tmp_path}/*.txt")
    (tmp_path / "b.txt").unlink()
    with pytest.raises(DataError, match=r"b.txt: cannot be read: No such file"):
        _make(corpus, tmp_path / "o/t", tokenizer)
    assert not list(tmp_path.rglob("*.tfrecord"))
    (tmp_path / "b.txt").write_text(INPUT.read_text())
    _make(Corpus(f"{tmp_path}/*.txt"), tmp_path / "o/t", tokenizer)  # goes on
    assert not (tmp_path / "o/t.partial").exists()


@pytest.mark.parametrize("change", ["cut", "grown", "rewritten"])
def test_a_file_that_changes_while_it_is_read(tokenizer, tmp_path, change):
    text = INPUT.read_text() * 4
    path = tmp_path / "a.txt"
    path.write_text(text)
    corpus = Corpus(str(path))
    if change == "rewritten":  # of the same size
        path.write_text(text.replace("harbour", "habrour"))
        os.utime(path, ns=(1, 1))
    else:
        path.write_text(text[:5000] if change == "cut" else text + "More.")
    with pytest.raises(DataError, match="a.txt: changed while it was read"):
        _make(corpus, tmp_path / "o/t", tokenizer)
    assert not list(tmp_path.rglob("*.tfrecord"))
    assert "dataset.json" not in [path.name for path in tmp_path.rglob("*")]


def test_byte_level_bpe_keeps_the_space_between_sentences(tmp_path):
    pytest.importorskip("tokenizers")
    text = "The ship sank. Nobody was hurt. It was late.\n"
    data = train_tokenizer(
        [INPUT.read_text()], model_type="byte_bpe", vocab_size=400, progress=False
    )
    tokenizer = ByteBPETokenizer(data)
    (tmp_path / "a.txt").write_text(text)
    corpus = Corpus(str(tmp_path / "a.txt"), "paragraphs")
    create_pretraining_data(
        corpus,
        str(tmp_path / "o/t"),
        tokenizer,
        RecordConfig(pairs=PairConfig("none", 128)),
        num_processes=1,
        progress=False,
    )
    record = tfrecord.RecordSet(str(tmp_path / "o/t")).example(0)
    # The end of the document is a [SEP] as well.
    assert tokenizer.decode(record["input_ids"]) == text.strip()
    assert "next_sentence_labels" not in record


def test_a_disk_that_fails_while_reading(tokenizer, tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text(INPUT.read_text() * 4)
    corpus = Corpus(str(path))
    monkeypatch.setattr(text_stream, "_BLOCK", 1 << 12)
    real = files.open_binary

    class Failing(io.BufferedReader):
        calls = 0

        def read(self, count=-1):
            self.calls += 1
            if self.calls > 3:
                raise OSError(5, "Input/output error")
            return super().read(count)

    def opened(name, mode="rb"):
        file = real(name, mode)
        return Failing(file.detach()) if name == str(path) else file

    monkeypatch.setattr(files, "open_binary", opened)
    with pytest.raises(DataError, match="a.txt: cannot be read: Input/output error"):
        _make(corpus, tmp_path / "o/t", tokenizer)
    assert not list(tmp_path.rglob("*.tfrecord"))


_BUILD = """
import sys
from albert_tf.data.prepare.create import create_pretraining_data
from albert_tf.data.prepare.config import RecordConfig
from albert_tf.data.corpus.corpus import Corpus
from albert_tf.data.masking.config import MaskingConfig
from albert_tf.data.prepare.pairs import PairConfig
from albert_tf.text.sentencepiece import AlbertTokenizer
config = RecordConfig(
    PairConfig("clean", 64, 0.1, 5), MaskingConfig(max_predictions_per_seq=10)
)
source, model, output = sys.argv[1:]
create_pretraining_data(
    Corpus(source), output, AlbertTokenizer(model), config, 2, 1, progress=False
)
"""


def test_the_environment_does_not_change_a_byte(tokenizer, tmp_path, run_python):
    _make(Corpus(str(INPUT)), tmp_path / "here/t", tokenizer)
    for number, variables in enumerate(
        (
            {"PYTHONHASHSEED": "1", "LC_ALL": "C", "PYTHONUTF8": "0"},
            {"PYTHONHASHSEED": "77", "LC_ALL": "tr_TR.UTF-8", "TZ": "Asia/Tokyo"},
        )
    ):
        folder = tmp_path / str(number)
        arguments = (INPUT, MODEL, folder / "t")
        done = run_python("-c", _BUILD, *map(str, arguments), **variables)
        assert done.returncode == 0, done.stderr
        assert _bytes(folder) == _bytes(tmp_path / "here")
    assert sys.byteorder == "little"  # the index is stored so on any machine
