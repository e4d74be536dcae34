"""The measurement of the data engine counts what was made."""

import pathlib

from albert_tf.data.prepare.blocks import RecordConfig
from albert_tf.data.prepare.pairs import PairConfig
from albert_tf.text.sentencepiece import AlbertTokenizer
from benchmarks import measure

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"


def test_measures():
    tokenizer = AlbertTokenizer(str(GOLDEN / "tokenization/spiece.model"))
    config = RecordConfig(pairs=PairConfig(max_seq_length=128))
    source = str(GOLDEN / "tf1_data/input.txt")
    speed = measure.measure_records(source, tokenizer, config, 1)
    assert 6000 < speed.num_tokens < 8500
    assert speed.tokens_per_second == speed.num_tokens / speed.seconds > 0
