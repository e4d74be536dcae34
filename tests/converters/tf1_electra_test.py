"""ELECTRA's TensorFlow 1 checkpoints: two nets in one file, both ways."""

import os
import re

import numpy as np
import pytest

import albert_tf
from albert_tf.converters import load, tf1
from albert_tf.converters.convert import convert_checkpoint
from albert_tf.errors import DataError, UsageError
from albert_tf.models.base import weight_names
from tests import tiny
from tests.converters.as_electra_test import convert
from tests.tf1_weights import save_tensors, stored_tensors
from tests.tiny import assert_same_weights, make_model, randomize

CONFIG = tiny.CONFIG.replace(
    vocab_size=41,
    hidden_act="gelu",
    sharing="none",
    family="electra",
    num_attention_heads=1,
)
SMALL = CONFIG.replace(hidden_size=8, intermediate_size=32, num_hidden_layers=1)
BERT_SCOPES = {
    "attention/self/query": ("D", "D"),
    "attention/self/key": ("D", "D"),
    "attention/self/value": ("D", "D"),
    "attention/output/dense": ("D", "D"),
    "attention/output/LayerNorm": ("D",),
    "intermediate/dense": ("D", "F"),
    "output/dense": ("F", "D"),
    "output/LayerNorm": ("D",),
}


def layer(name, *shape):
    """The two variables of a dense layer or a layer norm, as the original has them."""
    if len(shape) == 1:
        return {f"{name}/{part}": shape for part in ("beta", "gamma")}
    return {f"{name}/kernel": shape, f"{name}/bias": shape[-1:]}


def embeddings(scope, config, E):
    stem = f"{scope}/embeddings"
    return {
        f"{stem}/word_embeddings": (config.vocab_size, E),
        f"{stem}/position_embeddings": (config.max_position_embeddings, E),
        f"{stem}/token_type_embeddings": (config.type_vocab_size, E),
        **layer(f"{stem}/LayerNorm", E),
    }


def encoder(scope, config, E):
    D, F = config.hidden_size, config.intermediate_size
    sizes = {"D": D, "F": F}
    shapes = {} if E == D else layer(f"{scope}/embeddings_project", E, D)
    for i in range(config.num_hidden_layers):
        for name, letters in BERT_SCOPES.items():
            shape = [sizes[letter] for letter in letters]
            shapes |= layer(f"{scope}/encoder/layer_{i}/{name}", *shape)
    return shapes


def generator_head(config, E):
    stem = "generator_predictions"
    return {
        **layer(f"{stem}/dense", config.hidden_size, E),
        **layer(f"{stem}/LayerNorm", E),
        f"{stem}/output_bias": (config.vocab_size,),
    }


def discriminator_head(config):
    D, stem = config.hidden_size, "discriminator_predictions"
    return {**layer(f"{stem}/dense", D, D), **layer(f"{stem}/dense_1", D, 1)}


E = CONFIG.embedding_size
MAIN = embeddings("electra", CONFIG, E) | encoder("electra", CONFIG, E)
HEAD = discriminator_head(CONFIG)
# The variables that the original creates, by the options it was trained with.
KINDS = {
    "tied": MAIN | HEAD | encoder("generator", SMALL, E) | generator_head(SMALL, E),
    "untied": MAIN
    | HEAD
    | embeddings("generator", SMALL, 8)
    | encoder("generator", SMALL, 8)
    | generator_head(SMALL, 8),
    "one net": MAIN | HEAD | generator_head(CONFIG, E),
    "discriminator": MAIN | HEAD,
    "masked LM": MAIN | generator_head(CONFIG, E),
}


def write_original(path, shapes, *, slots=False, **others):
    """Writes random values as `tf.train.Saver` would; returns them."""
    rng = np.random.default_rng(4)
    values = {k: rng.normal(0, 0.2, v).astype("float32") for k, v in shapes.items()}
    stored = values | others
    if slots:
        for name, value in values.items():
            stored |= {f"{name}/{slot}": value * 0 for slot in ("adam_m", "adam_v")}
        stored["global_step"] = np.int64(7)
    path.mkdir(exist_ok=True)
    save_tensors(path / "model.ckpt-7", stored)
    return values


def sizes_of(config):
    names = ("vocab_size", "embedding_size", "hidden_size", "intermediate_size")
    return [getattr(config, name) for name in (*names, "num_hidden_layers")]


@pytest.mark.parametrize("kind", ["tied", "untied", "one net", "masked LM"])
def test_read_and_written_bit_for_bit(kind, tmp_path):
    values = write_original(tmp_path / "theirs", KINDS[kind], slots=True)
    heads = ["discriminator", "masked_lm"]
    heads = heads[1:] if kind == "masked LM" else heads
    with load.open_checkpoint(tmp_path / "theirs") as checkpoint:
        assert checkpoint.head == heads[0] and checkpoint.unknown == []
        assert len(checkpoint.dropped) == 2 * len(values) + 1
    # As a run leaves them.
    names, count = ["model", "generator"], 0
    for head, name in zip(heads, names, strict=False):
        model = albert_tf.from_pretrained(tmp_path / "theirs", head=head)
        assert model.untrained_weights == []
        count += len(weight_names(model))
        assert name != "model" or sizes_of(model.config) == sizes_of(CONFIG)
        convert(tmp_path / "theirs", tmp_path / name, "albert_tf", head=head)
    source = tmp_path if len(heads) == 2 else tmp_path / "model"
    command = convert_checkpoint if kind == "untied" else convert
    report = command(source, tmp_path / "back", "tf1")
    assert len(report.matched) == count
    if kind == "untied":
        assert max(v["reload"] for v in report.outputs.values()) == 0
        assert "generator/logits" in report.outputs
    np.testing.assert_equal(stored_tensors(tmp_path / "back" / tf1.PREFIX), values)


def test_heads_and_dropout_are_kept_next_to_what_the_original_stores(tmp_path):
    changes = {"num_attention_heads": 3, "hidden_dropout_prob": 0.3}
    model = randomize(make_model("discriminator", **vars(CONFIG.replace(**changes))))
    albert_tf.save_pretrained(model, tmp_path / "ours")
    report = convert(tmp_path / "ours", tmp_path / "m", "tf1")
    assert any("computes with 1 heads" in note for note in report.notes)
    assert albert_tf.from_pretrained(tmp_path / "m").config == model.config
    os.remove(tmp_path / "m/electra_config.json")
    assert albert_tf.from_pretrained(tmp_path / "m").config.num_attention_heads == 1
    given = albert_tf.from_pretrained(tmp_path / "m", config=model.config)
    assert given.config == model.config
    assert_same_weights(given, model)


def test_heads_of_64_without_a_config(tmp_path):
    big = CONFIG.replace(hidden_size=192, intermediate_size=20, num_hidden_layers=1)
    shapes = embeddings("electra", big, E) | encoder("electra", big, E)
    write_original(tmp_path / "m", shapes | discriminator_head(big))
    assert load.load_config(tmp_path / "m").num_attention_heads == 3


def test_a_fine_tuned_file_gives_the_encoder(tmp_path):
    logits = {
        "task_specific/cola/logits/kernel": np.zeros((12, 2), np.float32),
        "task_specific/cola/logits/kernel/adam_m": np.zeros((12, 2), np.float32),
    }
    values = write_original(tmp_path / "m", MAIN, **logits)
    model = albert_tf.from_pretrained(tmp_path / "m")
    assert type(model) is albert_tf.AlbertBackbone
    assert len(weight_names(model)) == len(values)
    report = convert(tmp_path / "m", tmp_path / "hf", "huggingface")
    assert any("fine-tuned on cola" in note for note in report.notes)
    assert {*logits} == {*report.dropped}


def test_a_format_for_one_net_says_what_it_leaves_out(tmp_path):
    write_original(tmp_path / "m", KINDS["tied"])
    report = convert(tmp_path / "m", tmp_path / "hf", "huggingface")
    assert any("the generator is left out" in note for note in report.notes)
    again = albert_tf.from_pretrained(tmp_path / "hf")
    assert_same_weights(again, albert_tf.from_pretrained(tmp_path / "m"))
    arguments = tmp_path / "m", tmp_path / "g", "huggingface"
    report = convert(*arguments, head="masked_lm")
    assert report.notes == [] and report.head == "masked_lm"


def test_generators_that_do_not_fit(tmp_path):
    model = make_model("discriminator", **vars(CONFIG))
    albert_tf.save_pretrained(model, tmp_path / "model")
    for changes, message in (
        ({}, "embedding_size equal to hidden_size, received 6 and 8"),
        ({"vocab_size": 43}, "one vocabulary.* be 41, received 43"),
        ({"hidden_act": "relu"}, "generator's hidden_act must be 'gelu'.*'relu'"),
    ):
        model = randomize(make_model("masked_lm", **vars(SMALL.replace(**changes))))
        albert_tf.save_pretrained(model, tmp_path / "generator", overwrite=True)
        with pytest.raises(UsageError, match=message):
            convert_checkpoint(tmp_path, tmp_path / "m", "tf1")
    report = convert(tmp_path, tmp_path / "m", "tf1", head="discriminator")
    assert report.head == "discriminator"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sharing", "way"),
    [("tied", "converted"), ("disentangled", "saved"), ("none", "converted")],
)
def test_two_nets_that_were_trained_together(sharing, way, tmp_path):
    """The embeddings that the nets read are stored, whatever they are made of."""
    # Only where E is the generator's width, the original has embeddings of its own.
    config = CONFIG.replace(embedding_size=6, hidden_size=12, intermediate_size=24)
    sizes = {"generator_size": 0.5, "embedding_sharing": sharing}
    model = randomize(albert_tf.ElectraPretrainer(config, seed=1, **sizes))
    albert_tf.save_pretrained(model, tmp_path / "ours")
    if way == "saved":
        albert_tf.save_pretrained(model, tmp_path / "m", format="tf1")
    else:
        report = convert(tmp_path / "ours", tmp_path / "m", "tf1")
        assert len(report.matched) > 2 * len(weight_names(model)) / 3
    for head in ("discriminator", "masked_lm"):
        ours = albert_tf.from_pretrained(tmp_path / "ours", head=head)
        again = albert_tf.from_pretrained(tmp_path / "m", head=head)
        assert again.config == ours.config and again.untrained_weights == []
        assert_same_weights(again, ours)
    names = stored_tensors(tmp_path / "m" / tf1.PREFIX)
    own = any(name.startswith("generator/embeddings/") for name in names)
    assert own == (sharing != "tied")
    assert not (tmp_path / "m/generator").exists()


def without(shapes, *names):
    return {k: v for k, v in shapes.items() if not re.search("|".join(names), k)}


WORDS = "electra/embeddings/word_embeddings"
DAMAGED = {
    "rank": (MAIN | {WORDS: (41,)}, r"word_embeddings, which must have two.*\(41,\)"),
    "no block": (without(MAIN, "layer_0/"), r"layer_0/intermediate/dense/kernel, wh"),
    "gap": (without(MAIN, "layer_0/attention/self"), "no tensor for encoder/attention"),
    "far": (MAIN | {"electra/encoder/layer_99999/x": (1,)}, "must be at most 4096"),
    "longer": (MAIN | {f"electra/encoder/layer_{'9' * 5000}/x": (1,)}, "unknown tens"),
    "shape": (
        KINDS["discriminator"] | {"discriminator_predictions/dense/kernel": (5, 5)},
        r"must have shape \(12, 12\)",
    ),
    "headless": (MAIN | encoder("generator", SMALL, E), "unknown tensor generator/"),
    "heads": (
        embeddings("electra", CONFIG.replace(hidden_size=200), E)
        | encoder("electra", CONFIG.replace(hidden_size=200), E),
        "multiple of num_attention_heads, received 200 and 3; a config is required",
    ),
    "else": (MAIN | {"electra/encoder/layer_0/gate/kernel": (2, 2)}, "unknown tensor"),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_damaged_checkpoints(kind, tmp_path):
    shapes, message = DAMAGED[kind]
    write_original(tmp_path / "m", shapes)
    with pytest.raises(DataError, match=message) as error:
        albert_tf.from_pretrained(tmp_path / "m")
    assert "\n" not in str(error.value)


def test_configs_of_other_models(tmp_path):
    write_original(tmp_path / "m", KINDS["tied"])
    # Of the generator: the discriminator's follows from the shapes.
    small = SMALL.replace(num_attention_heads=2)
    for head, heads in (("masked_lm", 2), ("auto", 1)):
        model = albert_tf.from_pretrained(tmp_path / "m", head=head, config=small)
        assert model.config.num_attention_heads == heads
    for changes, message in (
        ({"sharing": "all"}, "config: sharing must be 'none', received 'all'"),
        ({"family": "albert"}, "config: family must be 'electra'.* 'albert'"),
        ({"vocab_size": 42}, "config: vocab_size must be 41 by .*, received 42"),
    ):
        other = CONFIG.replace(**changes)
        with pytest.raises(UsageError, match=message):
            albert_tf.from_pretrained(tmp_path / "m", config=other)
    other.to_json(tmp_path / "m/electra_config.json")
    with pytest.raises(DataError, match=r"electra_config\.json: vocab_size must be 41"):
        albert_tf.from_pretrained(tmp_path / "m")
    (tmp_path / "m/electra_config.json").write_text("[")
    with pytest.raises(DataError, match=r"electra_config\.json"):
        albert_tf.from_pretrained(tmp_path / "m")
