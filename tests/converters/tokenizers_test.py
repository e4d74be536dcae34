"""Which tokenizer is used, and what other formats make of it."""

import json

import pytest
import sentencepiece
import tokenizers

import albert_tf
from albert_tf.converters import load, parity
from albert_tf.converters.checkpoint import Checkpoint
from albert_tf.converters.detect import FORMATS
from albert_tf.converters.keras_hub import VOCABULARY, folded_model
from albert_tf.converters.tokenizers import attach_tokenizer, choose_tokenizer
from albert_tf.errors import DataError, UsageError
from albert_tf.models.backbone import AlbertBackbone
from albert_tf.text.load import load_tokenizer
from albert_tf.text.preprocessor import Preprocessor
from albert_tf.text.sentencepiece import AlbertTokenizer
from albert_tf.text.tokenizer_json import to_json
from albert_tf.text.train import train_tokenizer
from tests.text.kinds import SENTENCEPIECE, WORDPIECE, bpe
from tests.text.kinds import TEXTS as STRINGS
from tests.tiny import CONFIG, SPIECE, TEXT, make_model

PROSE = TEXT.read_text().splitlines()

# Formats that store an encoder without a head.
BARE = [name for name in FORMATS if name != "sentence_transformers"]


@pytest.fixture(scope="module")
def foreign():
    return train_tokenizer(PROSE, vocab_size=300, progress=False)


def _checkpoint(options=None, tokenizer=SPIECE):
    build = tokenizer and (lambda: AlbertTokenizer(tokenizer, **(options or {})))
    return Checkpoint(
        "tf1", "m", CONFIG, {}, tokenizer=build, tokenizer_options=options or {}
    )


def test_the_same_file_under_another_name_is_accepted(tmp_path):
    path = tmp_path / "other.model"
    path.write_bytes(SPIECE.read_bytes())
    chosen = choose_tokenizer(_checkpoint({"do_lower_case": False}), path)
    assert not chosen.do_lower_case  # the checkpoint's option holds for the file too


def test_a_foreign_tokenizer_is_refused_under_the_same_name(tmp_path, foreign):
    path = tmp_path / SPIECE.name
    path.write_bytes(foreign)
    for given in (path, AlbertTokenizer(foreign)):
        with pytest.raises(UsageError, match="is not the tokenizer of m"):
            choose_tokenizer(_checkpoint(), given)


def test_options_are_set_where_the_checkpoint_does_not_say():
    checkpoint = _checkpoint()
    assert choose_tokenizer(checkpoint).do_lower_case
    chosen = choose_tokenizer(checkpoint, do_lower_case=False, keep_accents=True)
    assert not chosen.do_lower_case and chosen.keep_accents


def test_options_that_contradict_the_checkpoint_are_refused():
    checkpoint = _checkpoint({"do_lower_case": False})
    with pytest.raises(UsageError, match="m was made with do_lower_case=false"):
        choose_tokenizer(checkpoint, do_lower_case=True)
    with pytest.raises(UsageError, match="m was made with do_lower_case=false"):
        choose_tokenizer(checkpoint, AlbertTokenizer(SPIECE))


def test_a_far_smaller_vocabulary_is_said(foreign, caplog):
    caplog.set_level("WARNING", logger="absl")
    assert choose_tokenizer(_checkpoint(tokenizer=None), AlbertTokenizer(foreign))
    (record,) = caplog.records
    assert "300 tokens, the model's vocab_size is 30,000" in record.getMessage()
    choose_tokenizer(_checkpoint())
    assert len(caplog.records) == 1


def test_without_any_tokenizer():
    with pytest.raises(DataError, match="holds no tokenizer"):
        choose_tokenizer(_checkpoint(tokenizer=None))


@pytest.fixture(scope="module")
def model():
    return AlbertBackbone(CONFIG, seed=1)


@pytest.mark.parametrize("format", BARE)
def test_every_format_keeps_case_and_accents(tmp_path, model, format):
    options = {"do_lower_case": False, "keep_accents": True, "digit_comma_rule": True}
    path = tmp_path / "m"
    tokenizer = AlbertTokenizer(SPIECE, **options)
    load.save_pretrained(model, path, format, tokenizer=tokenizer)
    if format != "albert_tf":  # a foreign key of a config is no option
        config = path / "config.json"
        values = json.loads(config.read_text()) if config.exists() else {}
        config.write_text(json.dumps(values | {"tokenizer": "albert"}))
    with load.open_checkpoint(path) as checkpoint:
        assert checkpoint.make_tokenizer().get_config() == options
        assert checkpoint.make_tokenizer().sha256 == tokenizer.sha256
        assert checkpoint.tokenizer_options == options
    written = json.loads((path / "tokenizer_config.json").read_text())
    assert options.items() <= written.items()


@pytest.mark.parametrize("kind", WORDPIECE)
def test_wordpiece_in_every_format_but_keras_hub_s(tmp_path, model, kind):
    tokenizer = WORDPIECE[kind]
    for format in set(BARE) - {"keras_hub"}:
        path = tmp_path / format
        load.save_pretrained(model, path, format, tokenizer=tokenizer)
        for found in (load.load_tokenizer(path), load_tokenizer(path)):
            assert found.get_config() == tokenizer.get_config()
            assert found.sha256 == tokenizer.sha256
        written = json.loads((path / "tokenizer_config.json").read_text())
        assert written["strip_accents"] is not tokenizer.keep_accents
    with pytest.raises(UsageError, match="a file .* only, received WordPieceTok"):
        load.save_pretrained(model, tmp_path / "k", "keras_hub", tokenizer=tokenizer)
    Preprocessor(tokenizer, 9).save_assets(str(tmp_path))
    again = Preprocessor.load_assets(str(tmp_path))
    assert again.tokenizer.get_config() == tokenizer.get_config()
    assert again.tokenizer.sha256 == tokenizer.sha256


def test_a_cased_vocabulary_needs_its_option(tmp_path):
    (tmp_path / "vocab.txt").write_bytes(WORDPIECE["wordpiece"].model)
    checkpoint = Checkpoint("tf1", "m", CONFIG, {})
    attach_tokenizer(checkpoint, str(tmp_path))
    with pytest.raises(UsageError, match=r"^do_lower_case: .* 294 of its 3000 tokens"):
        choose_tokenizer(checkpoint)
    found = choose_tokenizer(checkpoint, do_lower_case=False)
    assert not found.do_lower_case
    (tmp_path / "tokenizer.json").write_text(json.dumps(found.to_json()))
    assert not load_tokenizer(tmp_path).do_lower_case


def test_a_null_option_is_the_default():
    checkpoint = _checkpoint(tokenizer=None)
    options = {"do_lower_case": None, "keep_accents": True}
    attach_tokenizer(checkpoint, str(SPIECE.parent), [SPIECE.name], options)
    assert checkpoint.make_tokenizer().do_lower_case
    assert not choose_tokenizer(checkpoint, do_lower_case=False).do_lower_case


SPECIAL = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
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
    return ours, tokenizers.Tokenizer.from_str(json.dumps(to_json(ours)))


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
        assert ids(theirs, text) == ours.encode_masked(text), text


@pytest.mark.parametrize(
    ("kind", "num_segments"),
    [("lower", 2), ("wordpiece", 1), ("byte_bpe", 1), ("byte_bpe", 2)],
)
def test_pairs_of_an_exported_model(tmp_path, kind, num_segments):
    ours = {**SENTENCEPIECE, **WORDPIECE, "byte_bpe": bpe()}[kind]
    model = make_model("masked_lm", type_vocab_size=num_segments)
    albert_tf.save_pretrained(model, tmp_path, format="huggingface", tokenizer=ours)
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    encoded = theirs.encode("one text", "another")
    ours = ours.for_segments(num_segments)
    expected = Preprocessor(ours, 64)(("one text", "another"))
    length = expected["padding_mask"].sum()
    assert encoded.ids == expected["token_ids"][:length].tolist()
    assert encoded.type_ids == expected["segment_ids"][:length].tolist()
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert ("token_type_ids" in config["model_input_names"]) == (num_segments == 2)
    (again,) = load.load_tokenizer(tmp_path).encode_batch(["one text"])
    assert again == ours.encode("one text")


def test_the_same_tokenizer_is_made_of_the_json_alone(tmp_path, model, tokenizer_pair):
    ours, _ = tokenizer_pair
    load.save_pretrained(model, tmp_path / "m", "huggingface", tokenizer=ours)
    assert load.load_tokenizer(tmp_path / "m").sha256 == ours.sha256
    (tmp_path / "m/spiece.model").unlink()
    assert load_tokenizer(tmp_path / "m/tokenizer.json").vocabulary == ours.vocabulary
    again = load.load_tokenizer(tmp_path / "m")
    assert again.get_config() == ours.get_config()
    assert again.special_ids == ours.special_ids
    for text in STRINGS + TEXTS + PROSE[:100]:
        assert again.encode(text) == ours.encode(text), repr(text)


def _ids(model, texts):
    processor = sentencepiece.SentencePieceProcessor()
    processor.LoadFromSerializedProto(model)
    return processor.encode(list(texts))


@pytest.mark.parametrize(
    "options", [{}, {"do_lower_case": False}, {"keep_accents": True}]
)
def test_raw_text_gets_our_ids(options):
    tokenizer = AlbertTokenizer(SPIECE, **options)
    texts = [text for text in (*STRINGS, *parity.TEXTS) if "Σ" not in text]
    got = _ids(folded_model(tokenizer), texts)
    ours = tokenizer.encode_batch(texts)
    wrong = [t for t, a, b in zip(texts, ours, got, strict=True) if a != b]
    assert not wrong
    plain = _ids(tokenizer.model, texts)
    assert sum(a != b for a, b in zip(plain, ours, strict=True)) > 5


def test_a_preset_gives_back_the_unchanged_vocabulary(tmp_path, model):
    path = tmp_path / "m"
    load.save_pretrained(model, path, "keras_hub", tokenizer=SPIECE)
    assert load.load_tokenizer(path).model == SPIECE.read_bytes()
    ids = _ids((path / VOCABULARY).read_bytes(), ["Berlin"])
    assert ids == [AlbertTokenizer(SPIECE).encode("Berlin")]
