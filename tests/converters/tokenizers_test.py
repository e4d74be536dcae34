import pathlib

import pytest

from albert_tf.converters import load
from albert_tf.converters.checkpoint import Checkpoint
from albert_tf.converters.detect import FORMATS
from albert_tf.converters.tokenizers import choose_tokenizer
from albert_tf.errors import DataError, UsageError
from albert_tf.models.backbone import AlbertBackbone
from albert_tf.text.sentencepiece import AlbertTokenizer
from albert_tf.text.train import train_tokenizer
from tests.tiny import CONFIG
from tests.tiny import SPIECE as MODEL

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"


@pytest.fixture(scope="module")
def foreign():
    lines = (GOLDEN / "tf1_data/input.txt").read_text().splitlines()
    return train_tokenizer(lines, vocab_size=300, progress=False)


def _checkpoint(options=None, tokenizer=MODEL):
    build = tokenizer and (lambda: AlbertTokenizer(tokenizer, **(options or {})))
    return Checkpoint(
        "tf1", "m", CONFIG, {}, tokenizer=build, tokenizer_options=options or {}
    )


def test_the_same_file_under_another_name_is_accepted(tmp_path):
    path = tmp_path / "other.model"
    path.write_bytes(MODEL.read_bytes())
    chosen = choose_tokenizer(_checkpoint({"do_lower_case": False}), path)
    assert not chosen.do_lower_case  # the checkpoint's option holds for the file too


def test_a_foreign_tokenizer_is_refused_under_the_same_name(tmp_path, foreign):
    path = tmp_path / MODEL.name
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
        choose_tokenizer(checkpoint, AlbertTokenizer(MODEL))


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


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_keeps_case_and_accents(tmp_path, model, format):
    options = {"do_lower_case": False, "keep_accents": True, "digit_comma_rule": True}
    path = tmp_path / "m"
    tokenizer = AlbertTokenizer(MODEL, **options)
    load.save_pretrained(model, path, format, tokenizer=tokenizer)
    with load.open_checkpoint(path) as checkpoint:
        assert checkpoint.make_tokenizer().get_config() == options
        assert checkpoint.make_tokenizer().sha256 == tokenizer.sha256
        assert checkpoint.tokenizer_options == options
