import json
import pathlib

import pytest
import sentencepiece

import albert_tf
from albert_tf.converters import load
from albert_tf.converters.keras_hub import VOCABULARY
from albert_tf.converters.keras_hub_vocabulary import folded_model
from albert_tf.converters.parity import TEXTS
from albert_tf.text.sentencepiece import AlbertTokenizer
from tests.tiny import CONFIG
from tests.tiny import SPIECE as MODEL

GOLDEN = pathlib.Path(__file__).parents[1] / "golden/tokenization"
STRINGS = [row["text"] for row in json.loads((GOLDEN / "strings.json").read_text())]


def _ids(model, texts):
    processor = sentencepiece.SentencePieceProcessor()
    processor.LoadFromSerializedProto(model)
    return processor.encode(list(texts))


@pytest.mark.parametrize(
    "options", [{}, {"do_lower_case": False}, {"keep_accents": True}]
)
def test_raw_text_gets_our_ids(options):
    tokenizer = AlbertTokenizer(MODEL, **options)
    texts = [text for text in (*STRINGS, *TEXTS) if "Σ" not in text]
    got = _ids(folded_model(tokenizer, "x"), texts)
    ours = tokenizer.encode_batch(texts)
    wrong = [t for t, a, b in zip(texts, ours, got, strict=True) if a != b]
    assert not wrong
    plain = _ids(tokenizer.model, texts)
    assert sum(a != b for a, b in zip(plain, ours, strict=True)) > 5


def test_a_preset_gives_back_the_unchanged_vocabulary(tmp_path):
    model = albert_tf.AlbertBackbone(CONFIG, seed=1)
    path = tmp_path / "m"
    albert_tf.save_pretrained(model, path, "keras_hub", tokenizer=MODEL)
    assert load.load_tokenizer(path).model == MODEL.read_bytes()
    ids = _ids((path / VOCABULARY).read_bytes(), ["Berlin"])
    assert ids == [AlbertTokenizer(MODEL).encode("Berlin")]
