"""An ALBERT written as an ELECTRA computes the same."""

import functools
import json

import numpy as np
import pytest
import safetensors.numpy

import albert_tf
from albert_tf.converters.convert import convert_checkpoint
from albert_tf.errors import UsageError
from tests.commands import run_command
from tests.models.base_test import assert_equal_outputs
from tests.tiny import SPIECE, make_model, randomize

# The tests run both sides themselves, or need not.
convert = functools.partial(convert_checkpoint, verify="none")
CLOSE = {"atol": 1e-5, "rtol": 1e-5}
ALWAYS = {"embedding_size": 12, "embedding_projection": "always"}
ROBERTA = {"embedding_size": 12, "family": "roberta", "position_offset": 2}
# How the layers share weights, and the layouts of the embeddings.
ENCODERS = {
    "groups": {"num_hidden_groups": 2, "num_hidden_layers": 4},
    "attention, square": {"sharing": "attention", "embedding_size": 12},
    "ffn, own norms": {"sharing": "ffn", "share_layer_norm": False},
    "bert": {"sharing": "none", "embedding_size": 12, "hidden_act": "gelu"},
    "electra": {"family": "electra", "hidden_act": "gelu"},
}


def make_folder(path, head, **changes):
    """A folder of ours with random weights, which are also those of biases."""
    model = randomize(make_model(head, vocab_size=41, **changes))
    albert_tf.save_pretrained(model, path)
    return model


def batch_of(rows=3, length=9):
    rng = np.random.default_rng(2)
    mask = np.arange(length) < np.array([[length], [5], [2]][:rows])
    batch = {
        "token_ids": rng.integers(3, 41, (rows, length)),
        "segment_ids": rng.integers(0, 2, (rows, length)),
        "padding_mask": mask,
    }
    return {name: value.astype(np.int32) for name, value in batch.items()}


@pytest.mark.parametrize("kind", ENCODERS)
def test_the_encoder_is_the_same(kind, tmp_path):
    model = make_folder(tmp_path / "ours", None, **ENCODERS[kind])
    command = convert_checkpoint if kind == "bert" else convert
    report = command(tmp_path / "ours", tmp_path / "m", "electra")
    assert kind != "bert" or report.outputs["layer 2"]["reload"] < 1e-5
    again = albert_tf.from_pretrained(tmp_path / "m")
    assert (again.config.family, again.config.sharing) == ("electra", "none")
    assert again.config.hidden_act == model.config.hidden_act
    expected = model(batch_of(), output_hidden_states=True)
    received = again(batch_of(), output_hidden_states=True)
    expected.pop("pooled_output", None)
    for name, value in expected.items():
        np.testing.assert_allclose(received[name], value, **CLOSE)
    stored = safetensors.numpy.load_file(tmp_path / "m/model.safetensors")
    count = sum(value.size for value in stored.values())
    assert report.parameters == count == again.count_params()
    note = f"{count:,} parameters, {4 * count / 1e6:.1f} MB; in the source they are"
    assert any(note in text for text in report.notes)
    config = json.loads((tmp_path / "m/config.json").read_text())
    assert config["architectures"] == ["ElectraModel"]


@pytest.mark.parametrize(
    ("head", "changes"),
    [
        ("token_classifier", {}),
        ("question_answering", {}),
        ("masked_lm", {"hidden_act": "gelu"}),
        ("span_boundary", {"hidden_act": "gelu"}),
        ("text_classifier", ENCODERS["electra"]),
        ("discriminator", ENCODERS["electra"]),
        ("discriminator", {}),
    ],
)
def test_heads_that_compute_the_same_are_kept(head, changes, tmp_path):
    model = make_folder(tmp_path / "ours", head, num_hidden_layers=1, **changes)
    ignore = "sbo_head" if head == "span_boundary" else None
    report = convert(tmp_path / "ours", tmp_path / "m", "electra", ignore=ignore)
    again = albert_tf.from_pretrained(tmp_path / "m")
    assert again.untrained_weights == []
    assert report.head == head
    if head == "span_boundary":
        assert type(again) is albert_tf.AlbertMaskedLM
        return
    assert_equal_outputs(again(batch_of()), model(batch_of()), **CLOSE)


def test_heads_of_pretraining_are_left_out_with_the_reason(tmp_path):
    make_folder(tmp_path / "ours", "pretraining")
    report = convert(tmp_path / "ours", tmp_path / "m", "electra")
    assert report.head is None and len(report.notes) == 3
    assert "head pretraining is left out, as no class of ELECTRA" in report.notes[0]
    assert "no pooler" in report.notes[1]
    make_folder(tmp_path / "lm", "masked_lm")
    report = convert(tmp_path / "lm", tmp_path / "n", "electra")
    assert "as ELECTRA's computes gelu, not gelu_new" in report.notes[0]
    assert type(albert_tf.from_pretrained(tmp_path / "n")) is albert_tf.AlbertBackbone


@pytest.mark.parametrize(
    ("made", "head", "changes", "message"),
    [
        ("text_classifier", "auto", {}, "gelu where its pooler computes tanh; --head="),
        ("multiple_choice", "auto", {}, "cannot keep the head multiple_choice"),
        ("beam_question_answering", "auto", {}, "no class of ELECTRA has it"),
        ("masked_lm", "masked_lm", {}, "head masked_lm, as ELECTRA's computes gelu,"),
        (None, "auto", {"inner_group_num": 2}, "inner_group_num must be 1, received 2"),
        (None, "auto", ALWAYS, "needs embedding_projection=False"),
        ("masked_lm", "auto", ROBERTA, "position_offset must be 0, received 2"),
    ],
)
def test_what_an_electra_cannot_be(made, head, changes, message, tmp_path):
    make_folder(tmp_path / "ours", made, **changes)
    with pytest.raises(UsageError, match=message):
        convert(tmp_path / "ours", tmp_path / "m", "electra", head=head)
    assert not (tmp_path / "m").exists()


def test_command_with_a_tokenizer(tmp_path):
    model = randomize(make_model("pretraining", vocab_size=30000))
    albert_tf.save_pretrained(model, tmp_path / "ours", tokenizer=SPIECE)
    arguments = (f"--input={tmp_path}/ours", f"--output={tmp_path}/m", "--to=electra")
    result = run_command("convert_checkpoint", *arguments)
    assert (result.code, result.err) == (0, "")
    assert "note: electra: 2 layers with weights of their own, 18" in result.out
    assert "texts with other ids, re-loaded: 0 of" in result.out
    assert (tmp_path / "m/tokenizer.json").exists()
    albert_tf.from_pretrained(tmp_path / "m").preprocessor(["a text"])
    assert run_command("convert_checkpoint", *arguments[:2], "--to=elektra").code == 2
