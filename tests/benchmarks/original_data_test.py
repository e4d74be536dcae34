"""The baseline of the benchmark does what the original's files show."""

import numpy as np
import pytest

from albert_tf.data.records.tfrecord import RecordSet
from albert_tf.text.sentencepiece import AlbertTokenizer
from benchmarks import original_data
from benchmarks.original_data import OriginalPipeline
from tests.data.synthetic_records import parse
from tests.tiny import GOLDEN, SPIECE, TEXT

MODEL = str(SPIECE)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("out") / "o.tfrecord")
    tokens = OriginalPipeline(MODEL, 128, 20, dupe_factor=2).run(str(TEXT), path)
    found = RecordSet(path)
    return tokens, [parse(record) for record in found.read(range(len(found)))]


def test_its_records_have_the_originals_form_and_statistics(made):
    tokens, rows = made
    golden = RecordSet(str(GOLDEN / "tf1_data/seq128_pred20.tfrecord"))
    reference = [parse(record) for record in golden.read(range(len(golden)))]
    sizes, expected = (
        {name: len(values) for name, values in some[0].items()}
        for some in (rows, reference)
    )
    assert sizes == expected
    lengths = np.array([row["input_mask"].sum() for row in rows])
    assert lengths.sum() == tokens
    assert abs(len(rows) / 2 - len(reference) / 2) < 0.2 * len(reference)
    shares = [
        sum(r["masked_lm_weights"].sum() for r in some)
        / sum(r["input_mask"].sum() for r in some)
        for some in (rows, reference)
    ]
    assert shares[0] == pytest.approx(shares[1], abs=0.01)
    for row, length in zip(rows, lengths, strict=True):
        wanted = min(20, max(1, round(0.15 * int(length))))
        assert wanted - 2 <= row["masked_lm_weights"].sum() <= wanted


def test_its_word_starts_and_tokens_are_ours(made):
    tokenizer = AlbertTokenizer(MODEL)
    table = tokenizer.word_start_table()
    for row in made[1][:20]:
        used = row["masked_lm_weights"] > 0
        ids = row["input_ids"].copy()
        ids[row["masked_lm_positions"][used]] = row["masked_lm_ids"][used]
        real = row["input_mask"] > 0
        np.testing.assert_array_equal(row["token_boundary"][real], table[ids[real]])
    pipeline = OriginalPipeline(MODEL)
    for line in TEXT.read_text().split("\n")[:60]:
        pieces = pipeline._tokenize(line)
        assert [tokenizer.token_to_id(p) for p in pieces] == tokenizer.encode(line)


def test_its_two_ways_to_find_word_starts_agree():
    tokenizer = AlbertTokenizer(MODEL)
    pieces = [tokenizer.id_to_token(i) for i in range(tokenizer.vocab_size)]
    pieces += ["", "<s>", "a€", "€", "AB", "1", ".,"]
    for piece in pieces:
        quick = original_data._starts_word_quick(piece)
        assert quick == original_data._starts_word(piece), piece
