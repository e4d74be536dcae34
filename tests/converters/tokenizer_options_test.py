import pathlib

import pytest

import albert_tf
from albert_tf.converters import load
from albert_tf.converters.detect import FORMATS

SPIECE = pathlib.Path(__file__).parents[1] / "golden/tokenization/spiece.model"
CONFIG = albert_tf.AlbertConfig(
    embedding_size=6,
    hidden_size=12,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=20,
    max_position_embeddings=9,
)


@pytest.fixture(scope="module")
def model():
    return albert_tf.AlbertBackbone(CONFIG, seed=1)


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_keeps_case_and_accents(tmp_path, model, format):
    options = {"do_lower_case": False, "keep_accents": True, "digit_comma_rule": True}
    tokenizer = albert_tf.AlbertTokenizer(SPIECE, **options)
    path = tmp_path / "m"
    albert_tf.save_pretrained(model, path, format, tokenizer=tokenizer)
    with load.open_checkpoint(path) as checkpoint:
        assert checkpoint.make_tokenizer().get_config() == options
        assert checkpoint.tokenizer_options == options
