"""The measurement of the data engine counts what was made."""

from albert_tf.data.prepare.blocks import RecordConfig
from albert_tf.data.prepare.pairs import PairConfig
from albert_tf.text.sentencepiece import AlbertTokenizer
from benchmarks import measure
from tests.tiny import SPIECE, TEXT


def test_measures():
    tokenizer = AlbertTokenizer(SPIECE)
    config = RecordConfig(pairs=PairConfig(max_seq_length=128))
    speed = measure.measure_records(str(TEXT), tokenizer, config, 1)
    assert 6000 < speed.num_tokens < 8500
    assert speed.tokens_per_second == speed.num_tokens / speed.seconds > 0
