"""From unusual languages and conditions to records."""

import json
import os
import pathlib
import sys

import pytest

from albert_tf.data.corpus.corpus import Corpus
from albert_tf.data.prepare.blocks import RecordConfig
from albert_tf.data.prepare.create import create_pretraining_data
from albert_tf.data.prepare.pairs import PairConfig
from albert_tf.data.records import tfrecord
from albert_tf.errors import DataError
from albert_tf.text.byte_bpe import ByteBPETokenizer
from albert_tf.text.sentencepiece import AlbertTokenizer
from albert_tf.text.train import train_tokenizer
from tests.conftest import ROOT
from tests.data.synthetic_records import parse
from tests.tiny import SPIECE, TEXT

# Made up for this test; no spaces, full-width punctuation.
CHINESE = (
    "今天早上，港口的船很多。老船长数了三遍，还是数错了！他问：“有人看见那条红船吗？”"
    "没有人回答。海风很大，天色渐渐暗了下来。孩子们跑到岸边去看灯塔。"
)


def _make(corpus, output, tokenizer, pairs=None, **settings):
    config = RecordConfig(pairs=pairs or PairConfig("clean", 64, 0.1, 5), **settings)
    return create_pretraining_data(
        corpus, str(output), tokenizer, config, num_processes=1, progress=False
    )


def _bytes(folder):
    return {p.name: p.read_bytes() for p in sorted(folder.glob("*.tfrecord*"))}


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
    record = parse(tfrecord.RecordSet(str(tmp_path / "t"))[0])
    starts = record["token_boundary"].tolist()
    for token, start in zip(record["input_ids"].tolist(), starts, strict=True):
        piece = tokenizer.id_to_token(token)
        assert start or not any("\u4e00" <= c <= "\u9fff" for c in piece), piece


@pytest.mark.parametrize("change", ["cut", "grown", "rewritten", "gone"])
def test_a_file_that_changes_while_it_is_read(tokenizer, tmp_path, change):
    text = TEXT.read_text() * 4
    path = tmp_path / "a.txt"
    path.write_text(text)
    corpus = Corpus(str(path))
    message = "a.txt: changed while it was read"
    if change == "gone":
        path.unlink()
        message = "a.txt: cannot be read: No such file"
    elif change == "rewritten":  # of the same size
        path.write_text(text.replace("harbour", "habrour"))
        os.utime(path, ns=(1, 1))
    else:
        path.write_text(text[:5000] if change == "cut" else text + "More.")
    with pytest.raises(DataError, match=message):
        _make(corpus, tmp_path / "o/t", tokenizer)
    assert not [*tmp_path.rglob("*.tfrecord"), *tmp_path.rglob("dataset.json")]


def test_byte_level_bpe_keeps_the_space_between_sentences(tmp_path):
    pytest.importorskip("tokenizers")
    text = "The ship sank. Nobody was hurt. It was late.\n"
    data = train_tokenizer(
        [TEXT.read_text()], model_type="byte_bpe", vocab_size=400, progress=False
    )
    tokenizer = ByteBPETokenizer(data)
    (tmp_path / "a.txt").write_text(text)
    corpus = Corpus(str(tmp_path / "a.txt"), "paragraphs")
    _make(corpus, tmp_path / "o/t", tokenizer, PairConfig("none", 128))
    record = parse(tfrecord.RecordSet(str(tmp_path / "o/t"))[0])
    # The end of the document is a [SEP] as well.
    assert tokenizer.decode(record["input_ids"]) == text.strip()
    assert "next_sentence_labels" not in record


def test_the_environment_does_not_change_a_byte(records, tmp_path, run_python):
    expected = _bytes(pathlib.Path(records(max_seq_length=64)))
    flags = [f"--input_file={TEXT}", f"--output_file={tmp_path}/x", "--overwrite"]
    flags += [f"--spm_model_file={SPIECE}", "--max_seq_length=64", "--num_processes=1"]
    for variables in (
        {"PYTHONHASHSEED": "1", "LC_ALL": "C", "PYTHONUTF8": "0"},
        {"PYTHONHASHSEED": "77", "LC_ALL": "tr_TR.UTF-8", "TZ": "Asia/Tokyo"},
    ):
        tool = ROOT / "tools/create_pretraining_data.py"
        done = run_python(tool, *flags, **variables)
        assert done.returncode == 0, done.stderr
        assert _bytes(tmp_path) == expected
    assert sys.byteorder == "little"  # the index is stored so on any machine
