"""Exits are saved with a model, and no other format loses them silently."""

import json

import numpy as np
import pytest

from albert_tf.converters import keras_model, load
from albert_tf.converters.convert import convert_checkpoint
from albert_tf.errors import DataError, UntrainedWeightsWarning, UsageError
from tests import exits


@pytest.fixture(scope="module")
def model():
    return exits.make_model()


@pytest.fixture(scope="module")
def folder(model, tokenizer, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "m"
    load.save_pretrained(model, path, tokenizer=tokenizer)
    return path


def test_saved_and_read(model, folder):
    again = load.from_pretrained(folder)
    assert again.num_exits == exits.LAYERS - 1 and again.untrained_weights == []
    inputs = exits.make_inputs(3)
    one, other = (exits.every_logit(m, inputs) for m in (model, again))
    np.testing.assert_allclose(other, one, rtol=1e-6, atol=1e-6)


def test_exits_can_be_left_or_added(folder, tmp_path):
    plain = load.from_pretrained(folder, num_exits=0)
    assert plain.exits == []
    assert load.from_pretrained(folder, head=None).untrained_weights == []
    plain.save_pretrained(tmp_path / "m")
    stored = json.loads((tmp_path / "m/config.json").read_text())["model"]
    assert "num_exits" not in stored  # as before there were any
    with pytest.warns(UntrainedWeightsWarning, match="exit_1/pooler/kernel"):
        load.from_pretrained(tmp_path / "m", num_exits=exits.LAYERS - 1)


@pytest.mark.parametrize("format", ["huggingface", "keras_hub", "tf1"])
def test_formats_that_cannot_express_them(model, tmp_path, format):
    with pytest.raises(UsageError, match="exit_1"):
        load.save_pretrained(model, tmp_path / "m", format)
    assert not (tmp_path / "m").exists()


def test_converted_to_our_own_format(folder, tmp_path):
    convert_checkpoint(folder, tmp_path / "m", "albert_tf")
    assert load.from_pretrained(tmp_path / "m").num_exits == exits.LAYERS - 1
    digests = {load.open_checkpoint(p).digest() for p in (folder, tmp_path / "m")}
    assert len(digests) == 1


def test_a_wrong_number_of_exits(folder, model, tmp_path):
    with keras_model.from_model(model) as checkpoint:
        checkpoint.head_options["num_exits"] = 2
        load.write_checkpoint(checkpoint, tmp_path / "m", "albert_tf")
    with pytest.raises(DataError, match="num_exits must be 3, .* received 2"):
        load.from_pretrained(tmp_path / "m")
