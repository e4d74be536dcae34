import pathlib

from albert_tf.config import AlbertConfig
from albert_tf.converters.checkpoint.checkpoint import Checkpoint
from albert_tf.converters.parity_texts import TEXTS, compare_texts, text_lines
from albert_tf.text.sentencepiece import AlbertTokenizer

MODEL = pathlib.Path(__file__).parents[1] / "golden/tokenization/spiece.model"


def _checkpoint(**options):
    config = AlbertConfig(embedding_size=6, hidden_size=12, num_attention_heads=2)
    return Checkpoint(
        "tf1", "m", config, {}, tokenizer=lambda: AlbertTokenizer(MODEL, **options)
    )


def test_texts_that_differ_are_counted_and_shown():
    cased = _checkpoint(do_lower_case=False)
    texts = compare_texts(_checkpoint(), cased, "a", "b", with_peers=False)
    differ = texts["differ"]["reload"]
    assert "MiXeD CaSe iPhone NASA" in differ and "" not in differ
    (line,) = text_lines(texts, {"reload": "re-loaded"})
    assert line.startswith(
        f"texts with other ids, re-loaded: {len(differ)} of {len(TEXTS)}, such as "
    )
    same = compare_texts(_checkpoint(), _checkpoint(), "a", "b", with_peers=False)
    assert text_lines(same, {"reload": "re-loaded"})[0].endswith(f"0 of {len(TEXTS)}")


def test_without_tokenizers_nothing_is_said():
    bare = _checkpoint()
    bare.tokenizer = None
    assert compare_texts(bare, bare, "a", "b", with_peers=True) == {}
    assert text_lines({}, {}) == []
