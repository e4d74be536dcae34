import json
import pathlib

import pytest

import albert_tf
from albert_tf.converters import huggingface_tokenizer as tokenizer
from albert_tf.converters import load
from albert_tf.text.sentencepiece import AlbertTokenizer
from tests.tiny import CONFIG, SPIECE

tokenizers = pytest.importorskip("tokenizers")

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"
STRINGS = [
    item["text"]
    for item in json.loads((GOLDEN / "tokenization/strings.json").read_text())
]
SPECIAL = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
PROSE = (GOLDEN / "tf1_data/input.txt").read_text().splitlines()
TEXTS = [
    "ΟΔΥΣΣΕΥΣ ΟΔΟΣ, ΣΑΣ. Σ",  # final sigma
    "In 1990, 1,000,000 of 10,000 people; 9, 8,7",
    "don't `quote'' ''this``",
    "e\u0301te\u0301 naïve 1\ufe0f\u20e3 ﬁne Ⅷ ½",
    "tab\tline\nfeed\x0bvertical\x1cfile\x85next\u2003wide\u200bzero",
    "한국어 日本語 العربية हिन्दी",
    "[mask] [cls] <PAD> < pad >",
    "    ",
    "",
    "trailing space ",
    '(a) - b – c. £5 €6 "x"',
]


def pair(**options):
    ours = AlbertTokenizer(SPIECE, **options)
    text = json.dumps(tokenizer.to_json(ours))
    return ours, tokenizers.Tokenizer.from_str(text)


@pytest.fixture(scope="module")
def tokenizer_pair():
    return pair()


def ids(theirs, text):
    return theirs.encode(text, add_special_tokens=False).ids


def test_golden_strings_and_prose(tokenizer_pair):
    ours, theirs = tokenizer_pair
    texts = [text for text in STRINGS if not any(s in text for s in SPECIAL)]
    assert len(texts) >= 110
    assert len(PROSE) > 100
    for text in texts + TEXTS + PROSE:
        assert ids(theirs, text) == ours.encode(text), repr(text)


@pytest.mark.parametrize(
    "options",
    [{"do_lower_case": False}, {"keep_accents": True}, {"digit_comma_rule": False}],
    ids=str,
)
def test_options(options):
    ours, theirs = pair(**options)
    for text in TEXTS + PROSE[:100]:
        assert ids(theirs, text) == ours.encode(text), repr(text)


def test_special_pieces_in_the_text_are_special(tokenizer_pair):
    """Fill-mask pipelines need it; ours wants them to be named."""
    ours, theirs = tokenizer_pair
    for text in ("The cat is so [MASK] .", "[MASK].", "a [MASK] b[MASK]c [MASK]"):
        expected = ours.encode_masked(text)
        assert ids(theirs, text) == expected, text


def test_special_tokens_around(tokenizer_pair):
    ours, theirs = tokenizer_pair
    a, b = ours.encode("one text"), ours.encode("another")
    encoded = theirs.encode("one text", "another")
    cls, sep = ours.cls_id, ours.sep_id
    assert encoded.ids == [cls, *a, sep, *b, sep]
    assert encoded.type_ids == [0] * (len(a) + 2) + [1] * (len(b) + 1)
    assert theirs.decode(encoded.ids) == "one text another"


def test_the_same_tokenizer_is_made_of_the_json_alone(tmp_path, tokenizer_pair):
    model = albert_tf.AlbertBackbone(CONFIG, seed=1)
    ours, _ = tokenizer_pair
    albert_tf.save_pretrained(
        model, tmp_path / "m", format="huggingface", tokenizer=ours
    )
    assert load.load_tokenizer(tmp_path / "m").sha256 == ours.sha256
    (tmp_path / "m/spiece.model").unlink()
    again = load.load_tokenizer(tmp_path / "m")
    assert again.get_config() == ours.get_config()
    assert again.special_ids == ours.special_ids
    for text in STRINGS + TEXTS + PROSE[:100]:
        assert again.encode(text) == ours.encode(text), repr(text)
