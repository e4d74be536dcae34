"""Every head in every format that has it, bit for bit, and refused by the others."""

import functools
import itertools
import json
import logging
import os
import warnings

import numpy as np
import pytest
import safetensors.numpy

import albert_tf
from albert_tf.converters import keras_model, load
from albert_tf.converters.convert import convert_checkpoint
from albert_tf.errors import DataError, UntrainedWeightsWarning, UsageError
from albert_tf.heads import HEADS, find
from albert_tf.models.base import weight_names
from albert_tf.storage import folders
from tests import exits
from tests.converters.as_electra_test import convert
from tests.tiny import make_model, randomize, shared_model

# What a fine-tuned model says about itself, by its head.
KINDS = {
    "text_classifier": [
        (("no", "yes"), "single_label_classification"),
        (("a", "b", "c"), "multi_label_classification"),
        (None, "regression"),
    ],
    "token_classifier": [(("O", "B-PER", "I-PER", "B-LOC", "I-LOC"), None)],
}
E_IS_D = {"embedding_size": 12}
GROUPS = {"num_hidden_layers": 4, "num_hidden_groups": 2}
# Variants of the model, and the formats that have them.
VARIANTS = {
    "base": ({}, "albert_tf huggingface tf1"),
    "BERT": ({"sharing": "none", **E_IS_D}, "albert_tf huggingface tf1"),
    "like BERT": ({"sharing": "none", **E_IS_D, "family": "albert"}, "huggingface"),
    "groups": ({**GROUPS, "inner_group_num": 2}, "tf1"),
    "uneven groups": ({"num_hidden_layers": 5, "num_hidden_groups": 3}, "tf1"),
    "E = D": (E_IS_D, "tf1"),
    "relu": ({"hidden_act": "relu"}, "tf1"),
    "nothing shared": ({"sharing": "none"}, "huggingface tf1"),
    "own norms": ({"share_layer_norm": False}, "tf1"),
    "own norms in groups": (
        {"share_layer_norm": False, **GROUPS, "inner_group_num": 2},
        "albert_tf tf1",
    ),
    "attention": ({"sharing": "attention"}, "albert_tf"),
    "ffn": ({"sharing": "ffn", **GROUPS}, "albert_tf"),
    "projection": ({**E_IS_D, "embedding_projection": "always"}, "albert_tf"),
}
# Heads of variants of the encoder: with and without a layer norm that the original
# numbers over the whole graph.
FEW = (None, "pretraining")


def cases():
    for head, variant in itertools.product((None, *HEADS), VARIANTS):
        kinds = KINDS.get(head, [(None, None)])
        for format in VARIANTS[variant][1].split():
            if format == "huggingface" and not find(head).huggingface_class:
                continue
            if format == "tf1" and (head == "discriminator" or find(head).written_as):
                continue
            # Hugging Face has classes of BERT with heads of their own.
            own = variant == "BERT" and format == "huggingface"
            if variant != "base" and not own and head not in FEW:
                continue
            if head is None and variant != "base" and "norms" not in variant:
                continue  # the pretrainer has the same encoder
            for kind in kinds if variant == "base" else kinds[:1]:
                name = "-".join(filter(None, (format, head, variant, kind[1])))
                yield pytest.param(format, head, variant, *kind, id=name)


@functools.cache
def random_model(head, variant, num_labels):
    """A model for every format that has it."""
    changes = {"num_labels": num_labels} if find(head).has_labels else {}
    return randomize(make_model(head, vocab_size=41, **VARIANTS[variant][0], **changes))


@pytest.mark.parametrize(("format", "head", "variant", "labels", "kind"), list(cases()))
def test_round_trip(tmp_path, format, head, variant, labels, kind):
    model = random_model(head, variant, len(labels or "1"))
    model.labels, model.problem_type = labels, kind
    albert_tf.save_pretrained(model, tmp_path / "m", format=format)
    if variant == "base":  # whatever the variant, a model is made of the tensors
        again = albert_tf.from_pretrained(tmp_path / "m")
        assert type(again) is type(model) and again.untrained_weights == []
        assert (again.labels, again.problem_type) == (labels, kind)
    expected = keras_model.from_model(model).tensors
    # A head that does not use the pooler has none in Hugging Face.
    kept = {n for n in expected if format != "huggingface" or "pooler" not in n}
    with load.open_checkpoint(tmp_path / "m") as again:
        assert (again.head, again.unknown) == (head, [])
        assert again.config.layer_table() == model.config.layer_table()
        assert again.config.num_parameters() == model.config.num_parameters()
        assert (tuple(again.labels or ()) or None, again.problem_type) == (labels, kind)
        assert again.config.family == model.config.family
        assert format != "albert_tf" or again.config == model.config
        assert kept <= set(again.tensors) <= set(expected)
        for name, tensor in again.tensors.items():
            value = expected[name].read()
            np.testing.assert_array_equal(tensor.read(), value, err_msg=name)


def test_huggingface_gets_the_masked_lm_of_a_model_of_spans(tmp_path):
    sizes = {"vocab_size": 41, "sharing": "none", **E_IS_D, "hidden_act": "gelu"}
    model = randomize(make_model("span_boundary", max_span=4, **sizes))
    albert_tf.save_pretrained(model, tmp_path / "own")
    pair = tmp_path / "own", tmp_path / "m"
    with pytest.raises(DataError, match="only the source has sbo_head/dense/bias"):
        convert_checkpoint(*pair, "huggingface")
    notes = convert(*pair, "huggingface", ignore="sbo_head").notes
    assert "huggingface has no sbo_head; it is left out" in notes
    values = json.loads((tmp_path / "m/config.json").read_text())
    assert values["architectures"] == ["BertForMaskedLM"]
    again = albert_tf.from_pretrained(tmp_path / "m")
    assert type(again) is albert_tf.AlbertMaskedLM and not again.untrained_weights
    found, expected = weight_names(again), weight_names(model)
    assert set(expected) - set(found) == {n for n in expected if "sbo_head" in n}
    for name, value in found.items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)


OTHERS = ("tf1", "keras_hub")
ALWAYS = {**E_IS_D, "embedding_projection": "always"}
UNEQUAL = "embedding_projection=False, received True"
LM = {"head": "masked_lm", "sharing": "none"}
ROBERTA = {**LM, **E_IS_D, "family": "roberta", "position_offset": 2}
ELECTRA = {**LM, "family": "electra", "hidden_act": "gelu"}
BEAM = {"head": "beam_question_answering", "start_n_top": 2, "end_n_top": 3}
ALL = ("huggingface", "keras_hub", "tf1")
SKIPPED = {"num_hidden_layers": 18, "num_hidden_groups": 14}
EXITS = {"head": "text_classifier", "num_exits": 1}


@pytest.mark.parametrize(
    ("format", "changes", "message"),
    [
        *((format, EXITS, "exit_1") for format in ALL),
        ("tf1", {"head": "span_boundary"}, "tf1 has no name for sbo_head/dense/bias"),
        ("keras_hub", {"head": "span_boundary"}, "keras_hub has no .*span_boundary"),
        ("huggingface", BEAM, "huggingface has no .*beam_question_answering"),
        ("keras_hub", BEAM, "keras_hub has no .*beam_question_answering"),
        ("huggingface", {"sharing": "attention"}, "sharing='attention'"),
        ("huggingface", {"share_layer_norm": False}, "share_layer_norm=False"),
        ("huggingface", SKIPPED, "another of 14 groups"),
        ("huggingface", {"add_pooler": False}, "its bare model has a pooler"),
        ("tf1", {"head": "discriminator"}, "tf1 has no name for discriminator/dense"),
        ("keras_hub", {"hidden_act": "gelu"}, "gelu_new only: .*received 'gelu'"),
        ("keras_hub", {"num_hidden_layers": 5, "num_hidden_groups": 2}, "multiple of"),
        ("keras_hub", {"share_layer_norm": False}, "share_layer_norm=False"),
        ("tf1", {"hidden_act": "gelu"}, "hidden_act='gelu'"),
        ("tf1", {"sharing": "ffn"}, "sharing='ffn'"),
        ("tf1", ALWAYS, "no projection"),
        ("tf1", {"num_hidden_layers": 22, "num_hidden_groups": 22}, "another of 22 gr"),
        # Hugging Face has no layers in groups of other families.
        ("huggingface", ROBERTA | {"sharing": "all"}, "received 'all' and 1"),
        ("huggingface", ROBERTA | {"sharing": "attention"}, "received 'attention' and"),
        ("huggingface", ELECTRA | {"sharing": "ffn"}, "received 'ffn' and 1"),
        ("huggingface", ROBERTA | {"inner_group_num": 2}, "num, received 'none' and 2"),
        ("huggingface", ROBERTA | {"embedding_size": 6}, UNEQUAL),
        ("huggingface", ELECTRA | ALWAYS, UNEQUAL),
        ("huggingface", ROBERTA | {"head": "pretraining"}, "no Roberta with a head"),
        ("huggingface", ELECTRA | {"head": "pretraining"}, "no Electra with a head"),
        ("huggingface", {"head": "discriminator"}, "no Albert with a head like discr"),
        *((format, ROBERTA, f"{format}.* famil.*roberta") for format in OTHERS),
        ("keras_hub", ELECTRA, "keras_hub.* famil.*electra"),
        ("tf1", ELECTRA | {"head": "text_classifier"}, "the encoder.*received 'text_"),
        ("tf1", ELECTRA | {"hidden_act": "gelu_new"}, "hidden_act='gelu_new'"),
        ("tf1", ELECTRA | {"sharing": "all"}, "received 'all' and 1"),
        ("tf1", ELECTRA | ALWAYS, "no projection where E = D"),
    ],
)
def test_what_a_format_cannot_express(format, changes, message, tmp_path):
    model = shared_model(vocab_size=41, **changes)
    with pytest.raises(UsageError, match=message):
        albert_tf.save_pretrained(model, tmp_path / "m", format=format)
    assert os.listdir(tmp_path) == []


@pytest.fixture(scope="module")
def beam(tmp_path_factory):
    """A folder with a head that Hugging Face and KerasHub do not have."""
    path = tmp_path_factory.mktemp("beam") / "source"
    shared_model(**BEAM, add_pooler=True, vocab_size=41).save_pretrained(path)
    return path


def test_a_conversion_compares_every_score_and_keeps_the_options(beam, tmp_path):
    report = convert_checkpoint(beam, tmp_path / "m", "tf1")
    assert report.head == "beam_question_answering"
    for name in ("start_logits", "end_logits", "cls_logits"):
        assert report.outputs[name]["reload"] == 0
    again = convert(tmp_path / "m", tmp_path / "back", "albert_tf")
    assert again.parameters == report.parameters
    model = albert_tf.from_pretrained(tmp_path / "back")
    assert (model.start_n_top, model.end_n_top) == (2, 3)
    model = albert_tf.from_pretrained(beam, end_n_top=4)
    assert (model.start_n_top, model.end_n_top) == (2, 4)


@pytest.mark.parametrize(
    ("format", "given", "name", "value", "message"),
    [
        ("albert_tf", BEAM, "end_n_top", True, "end_n_top must be a positive integer"),
        ("tf1", BEAM, "end_n_top", True, "end_n_top must be a positive integer"),
        ("albert_tf", EXITS, "num_exits", 2, "num_exits must be 1, .* received 2"),
    ],
)
def test_a_damaged_option_is_refused(format, given, name, value, message, tmp_path):
    checkpoint = keras_model.from_model(shared_model(vocab_size=41, **given))
    checkpoint.head_options[name] = value
    with folders.writing(tmp_path / "m") as out:
        load.write_files(checkpoint, out, format)
    with pytest.raises(DataError, match=message):
        albert_tf.from_pretrained(tmp_path / "m")


def test_another_head_or_none_can_be_converted(beam, tmp_path):
    report = convert(beam, tmp_path / "m", "huggingface", head=None, ignore="_head")
    assert all("_head/" in name for name in report.only_in_source)
    assert type(albert_tf.from_pretrained(tmp_path / "m")) is albert_tf.AlbertBackbone
    with pytest.raises(DataError, match="holds no classifier"):
        convert_checkpoint(beam, tmp_path / "x", "tf1", head="question_answering")
    with pytest.warns(UntrainedWeightsWarning, match="classifier/kernel"):
        model = albert_tf.from_pretrained(beam, head="question_answering")
    assert isinstance(model, albert_tf.AlbertQuestionAnswering)


def test_one_line_names_the_weights_that_are_not_used(tmp_path, caplog):
    folder, plain = tmp_path / "pretrained", {"sharing": "none", **E_IS_D}
    plain["vocab_size"] = 41
    load.save_pretrained(make_model("pretraining", **plain), folder, "huggingface")
    caplog.set_level(logging.INFO, logger="absl")

    def lines(path, **options):
        caplog.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UntrainedWeightsWarning)
            load.from_pretrained(path, **options)
        found = [r for r in caplog.records if "does not use" in r.getMessage()]
        stem = f"{path}: has weights that "
        return [(r.levelname, r.getMessage().removeprefix(stem)) for r in found]

    assert lines(folder) == lines(folder, head="pretraining") == []
    # Nobody expects a classifier to have the heads of pretraining.
    heads = "mlm_head (5), sop_head (2)"
    kind = "AlbertTextClassifier does not use"
    assert lines(folder, head="text_classifier") == [("INFO", f"{kind}: {heads}")]
    kind = "AlbertTokenClassifier does not use"
    expected = [("INFO", f"{kind}: pooler (2), {heads}")]
    assert lines(folder, head="token_classifier") == expected
    # A head of another kind, by the same names or by names that no table has.
    tensors = safetensors.numpy.load_file(folder / "model.safetensors")
    tensors["rank.weight"] = tensors["rank.bias"] = np.zeros(2, np.float32)
    safetensors.numpy.save_file(tensors, folder / "model.safetensors")
    (found,) = lines(folder, head="masked_lm")
    assert found[1].endswith("not use: pooler (2), sop_head (2), rank (2)")
    assert not lines(folder, head="pretraining", ignore="rank")
    texts = tmp_path / "texts"
    load.save_pretrained(make_model("text_classifier", **plain), texts)
    ((level, text),) = lines(texts, head="token_classifier")
    assert level == "INFO" and text.endswith("pooler (2), classifier (2)")
    # Layers that a config has not are another matter.
    config = load.load_config(texts).replace(num_hidden_layers=1)
    ((level, text),) = lines(texts, head=None, config=config)
    assert level == "WARNING" and text.endswith("encoder (16), classifier (2)")


def test_exits_are_kept_left_or_added(tmp_path):
    with_exits = exits.make_model(config=exits.CONFIG.replace(vocab_size=900))
    exits_folder = tmp_path / "exits"
    load.save_pretrained(with_exits, exits_folder)
    convert(exits_folder, tmp_path / "copy", "albert_tf")
    again = load.from_pretrained(tmp_path / "copy")
    assert again.num_exits == exits.LAYERS - 1 and again.untrained_weights == []
    inputs = exits.make_inputs(3)
    one, other = (exits.every_logit(m, inputs) for m in (with_exits, again))
    np.testing.assert_allclose(other, one, rtol=1e-6, atol=1e-6)
    plain = load.from_pretrained(exits_folder, num_exits=0)
    assert plain.exits == []
    assert load.from_pretrained(exits_folder, head=None).untrained_weights == []
    plain.save_pretrained(tmp_path / "m")
    stored = json.loads((tmp_path / "m/config.json").read_text())["model"]
    assert "num_exits" not in stored  # as before there were any
    with pytest.warns(UntrainedWeightsWarning, match="exit_1/pooler/kernel"):
        load.from_pretrained(tmp_path / "m", num_exits=exits.LAYERS - 1)
