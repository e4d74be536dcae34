"""The weights that a run starts from, and exits with the model or on one that stays."""

import dataclasses
import json
import types

import numpy as np
import pytest

from albert_tf.converters import load
from albert_tf.converters.load import from_pretrained
from albert_tf.errors import UsageError
from albert_tf.models.base import weight_names
from albert_tf.training.finetune_settings import FinetuneSettings
from albert_tf.training.pretrain_inputs import load_config
from albert_tf.training.pretrain_settings import PretrainSettings
from albert_tf.training.start import Start, make_pretrainer, open_start
from tests.tiny import SPIECE
from tests.training.runs import lines_of, run


def test_positions_of_a_preset_follow_the_tokenizer():
    given = {"train_file": "a", "output_dir": "b", "spm_model_file": str(SPIECE)}
    settings = FinetuneSettings(preset="roberta_base", from_scratch=True, **given)
    start = Start(settings, None)
    assert start.tokenizer.pad_id == 0 and start.config.position_offset == 1


def only_depth(pretrained, **changes):
    paths = {"train_file": "a", "output_dir": "b", "init_checkpoint": pretrained}
    return FinetuneSettings(train="depth", **paths, **changes)


def test_only_weights_of_single_layers_and_the_head_are_trained(pretrained):
    settings = only_depth(pretrained, depth_rank=2, depth_embedding=True)
    table = {"head": "text_classifier", "labels": ("a", "b"), "problem_type": None}
    with open_start(settings) as start:
        model = start.make_model(types.SimpleNamespace(**table), "float32")
    paths = [v.path.split("/") for v in model.trainable_weights]
    assert {path[-2] for path in paths} == {"depth_0", "classifier"}
    assert len(paths) == 1 + 6 * 3 + 2
    scratch = {"from_scratch": True, "preset": "albert_base_v2", "spm_model_file": "c"}
    for given in ({"init_checkpoint": "", **scratch}, {"exits": "frozen"}):
        with pytest.raises(UsageError, match="^--train=depth: "):
            dataclasses.replace(settings, **given)


def test_pretraining_gives_layers_weights_of_their_own(pretrained):
    paths = {"input_file": "a", "output_dir": "b", "init_checkpoint": pretrained}
    settings = PretrainSettings(**paths, depth_rank=2)
    with load.open_checkpoint(pretrained) as start:
        config = load_config(settings, start, None)
        model = make_pretrainer(settings, start, config, "pretraining", "float32")
    before = from_pretrained(pretrained)
    assert model.config == before.config.replace(depth_rank=2)
    batch = {"token_ids": np.ones((1, 4), int), "mask_positions": np.ones((1, 1), int)}
    one, other = (each(batch)["mlm_logits"] for each in (before, model))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"depth_rank": 99}, "--depth_rank must be at most 24, the width of query, "),
        ({"depth_rank": 1, "depth_matrices": ("k",)}, "--depth_matrices must be a l"),
        ({"depth_matrices": ("key",)}, "--depth_matrices needs a depth_rank above 0"),
        ({}, "--train=depth: no layer has weights of its own; add --depth_rank$"),
    ],
)
def test_what_weights_of_single_layers_need(changes, message, pretrained):
    settings = only_depth(pretrained, **changes)
    with pytest.raises(UsageError, match=f"^{message}"), open_start(settings):
        pass


@pytest.fixture(scope="module")
def two_layers(pretrained_as):
    return pretrained_as(num_hidden_layers=2)


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_a_run_moves_the_lower_layers_less(tables, pretrained_as, tmp_path):
    out = tmp_path / "out"
    start = pretrained_as(sharing="none", num_hidden_layers=2)
    run(
        out,
        train_file=tables["train_file"],
        init_checkpoint=start,
        layerwise_decay=0.03,
        layerwise_decay_rule="original",
        learning_rate=0.02,
        weight_decay_rate=0.0,
        num_train_steps=2,
        num_warmup_steps=0,
    )
    trained = weight_names(load.from_pretrained(out))
    before = weight_names(load.from_pretrained(start, head="pretraining"))

    def moved(name):
        difference = np.array(trained[name]) - np.array(before[name])
        return float(np.abs(difference).max())

    layers = [moved(f"backbone/encoder/ffn_{i}/output/kernel") for i in range(2)]
    steps = [moved("backbone/embeddings/position_embeddings"), *layers]
    steps.append(moved("backbone/pooler/kernel"))
    for lower, upper in zip(steps, steps[1:], strict=False):
        assert 0 <= lower < 0.05 * upper
    assert json.loads((out / "run.json").read_text())["settings"]["layerwise_decay"]


def losses(folder):
    """The losses of the exit in the first and the last line about training."""
    lines = [line["exit_1_loss"] for line in lines_of(folder) if "exit_1_loss" in line]
    return lines[0], lines[-1]


def weights(folder):
    model = from_pretrained(folder)
    return {name: v.numpy() for name, v in weight_names(model).items()}


@pytest.mark.slow
def test_exits_with_the_model_without_and_alone(
    two_layers, tables, tmp_path, caplog, eager
):
    eager(False)
    joint, plain, frozen = (tmp_path / name for name in ("joint", "plain", "frozen"))
    lengths = {"num_train_steps": 90, "eval_steps": 45, "learning_rate": 2e-3}
    run(joint, init_checkpoint=two_layers, exits="joint", **tables, **lengths)
    before, after = losses(joint)
    assert after < 0.7 * before
    assert from_pretrained(joint).num_exits == 1
    assert json.loads((joint / "metrics.json").read_text())["dev_accuracy"] > 0.9
    # A run without exits does not keep them.
    given = {"train_file": tables["train_file"], "num_train_steps": 1}
    eager(True)
    run(plain, init_checkpoint=str(joint), **given)
    eager(False)
    assert "exits of" in caplog.text and "are not kept" in caplog.text
    assert from_pretrained(plain).num_exits == 0
    # Frozen trains the exits alone.
    known = weights(plain)
    assert not any(name.startswith("exit_") for name in known)
    given = {"init_checkpoint": str(plain), "exits": "frozen", **tables}
    results = run(frozen, **given, num_train_steps=40)
    found = weights(frozen)
    new = {name for name in found if name.startswith("exit_")}
    assert found.keys() - new == known.keys() and len(new) == 4
    for name, value in known.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
    before, after = losses(frozen)
    assert after < 0.9 * before
    # Not those of the first evaluation, which no later one can beat.
    assert results["step"] == results["num_train_steps"]


@pytest.mark.slow
def test_what_exits_need(two_layers, pretrained, tables, tmp_path):
    for exits, model, message in (
        ("frozen", two_layers, "frozen needs an init_checkpoint"),
        ("joint", pretrained, "needs at least 2 layers"),
    ):
        with pytest.raises(UsageError, match=f"exits: {message}"):
            run(tmp_path / "m", init_checkpoint=model, exits=exits, **tables)
    assert not (tmp_path / "m").exists()
