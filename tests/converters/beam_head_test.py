"""The beam head in formats that have it, and its refusal by those that have not."""

import os

import pytest

import albert_tf
from albert_tf.converters.convert import convert_checkpoint
from albert_tf.errors import DataError, UsageError
from tests import tiny

CONFIG = tiny.CONFIG.replace(vocab_size=41)


@pytest.fixture
def folder(tmp_path):
    model = albert_tf.AlbertBeamQuestionAnswering(
        CONFIG, start_n_top=2, add_pooler=True, seed=4
    )
    albert_tf.save_pretrained(model, tmp_path / "source")
    return tmp_path / "source"


def test_a_conversion_compares_every_score(folder, tmp_path):
    report = convert_checkpoint(folder, tmp_path / "m", "tf1")
    assert report.head == "beam_question_answering"
    for name in ("start_logits", "end_logits", "cls_logits"):
        assert report.outputs[name]["reload"] == 0
    again = convert_checkpoint(tmp_path / "m", tmp_path / "back", "albert_tf")
    assert again.parameters == report.parameters
    assert albert_tf.from_pretrained(tmp_path / "back").start_n_top == 2


@pytest.mark.parametrize("format", ["huggingface", "keras_hub"])
def test_formats_without_the_head_refuse_it_by_name(folder, format, tmp_path):
    with pytest.raises(UsageError, match=f"{format} has no .*beam_question_answering"):
        convert_checkpoint(folder, tmp_path / "m", format)
    model = albert_tf.from_pretrained(folder)
    with pytest.raises(UsageError, match=f"{format} has no .*beam_question_answering"):
        albert_tf.save_pretrained(model, tmp_path / "m", format)
    assert os.listdir(tmp_path) == ["source"]


def test_the_encoder_alone_can_be_converted(folder, tmp_path):
    ignore = "_head"
    report = convert_checkpoint(
        folder, tmp_path / "m", "huggingface", head=None, ignore=ignore
    )
    assert all("_head/" in name for name in report.only_in_source)
    assert type(albert_tf.from_pretrained(tmp_path / "m")) is albert_tf.AlbertBackbone


def test_other_heads_are_new(folder, tmp_path):
    with pytest.raises(DataError, match="holds no classifier"):
        convert_checkpoint(folder, tmp_path / "m", "tf1", head="question_answering")
    with pytest.warns(albert_tf.UntrainedWeightsWarning, match="classifier/kernel"):
        model = albert_tf.from_pretrained(folder, head="question_answering")
    assert isinstance(model, albert_tf.AlbertQuestionAnswering)
