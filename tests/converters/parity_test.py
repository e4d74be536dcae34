import pytest

from albert_tf.converters.checkpoint import Checkpoint
from albert_tf.converters.parity import TEXTS, Report, compare_texts
from albert_tf.text.sentencepiece import AlbertTokenizer
from tests.tiny import CONFIG, SPIECE


def _checkpoint(**options):
    return Checkpoint(
        "tf1", "m", CONFIG, {}, tokenizer=lambda: AlbertTokenizer(SPIECE, **options)
    )


@pytest.mark.parametrize("lower", [False, True])
def test_texts_that_differ_are_counted_and_shown(lower):
    texts = compare_texts(_checkpoint(), _checkpoint(do_lower_case=lower))
    differ = texts["differ"]["reload"]
    assert ("MiXeD CaSe iPhone NASA" in differ) == (not lower)
    assert "" not in differ
    line = Report("a", "b", "tf1", "tf1", None, texts=texts).to_text().split("\n")[-1]
    assert line.startswith(
        f"texts with other ids, re-loaded: {len(differ)} of {len(TEXTS)}"
    )
    assert (", such as 'The" in line) == (not lower)


def test_without_tokenizers_nothing_is_said():
    bare = _checkpoint()
    bare.tokenizer = None
    assert compare_texts(bare, bare) == {}
    assert "texts" not in Report("a", "b", "tf1", "tf1", None).to_text()
