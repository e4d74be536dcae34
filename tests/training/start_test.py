"""Learning rates of layers, and exits, with the model or on one that stays."""

import json

import numpy as np
import pytest

from albert_tf.converters import load
from albert_tf.converters.load import from_pretrained
from albert_tf.errors import UsageError
from albert_tf.models.base import weight_names
from albert_tf.models.classifiers import AlbertTextClassifier
from albert_tf.optimizers.adamw import AdamW
from albert_tf.training.finetune_settings import DECAY_RULES, FinetuneSettings
from albert_tf.training.start import Start, learning_rate_multipliers
from tests.tiny import SPIECE
from tests.training.runs import CONFIG, run

UNSHARED = CONFIG.replace(sharing="none", num_hidden_layers=2)


@pytest.mark.parametrize("inner", [1, 2])
def test_rates_of_layers(inner):
    config = UNSHARED.replace(num_hidden_layers=11, inner_group_num=inner)
    model = AlbertTextClassifier(config, num_labels=2, name="ffn_0")
    # google-research/electra: decay ** (n_layers + 2 - depth), where the embeddings
    # have the depth 0 and the task's own layers n_layers + 2.
    tops = {"standard": 0, "corrected": 1, "original": 2}
    assert {*tops} == {*DECAY_RULES}
    for rule, top in tops.items():
        multipliers = learning_rate_multipliers(0.5, config, rule)
        optimizer = AdamW(1.0, learning_rate_multipliers=multipliers)
        optimizer.build(model.trainable_variables)
        rates = {}
        for name, variable in weight_names(model).items():
            layer = name.removeprefix("backbone/").split("/")
            number = layer[1].rpartition("_")[2] if layer[0] == "encoder" else ""
            key = int(number) // inner if number.isdigit() else layer[0]
            rates.setdefault(key, set()).add(
                optimizer._rates[optimizer._get_variable_index(variable)]
            )
        assert rates == {
            **{layer: {0.5 ** (top + 10 - layer)} for layer in range(11)},
            "embeddings": {0.5 ** (top + 11)},
            "encoder": {0.5 ** (top + 11)},  # the projection of the embeddings
            "pooler": {1.0},
            "classifier": {1.0},
        }


def test_a_group_for_each_layer_shares_nothing():
    config = UNSHARED.replace(sharing="all", num_hidden_groups=2)
    assert learning_rate_multipliers(0.5, config) == (
        learning_rate_multipliers(0.5, UNSHARED)
    )


@pytest.mark.parametrize("sharing", ["all", "attention", "ffn"])
def test_shared_layers_are_refused_by_name(sharing):
    config = CONFIG.replace(sharing=sharing, num_hidden_layers=2)
    with pytest.raises(UsageError, match=rf"share their weights .sharing={sharing}."):
        learning_rate_multipliers(0.9, config)
    assert learning_rate_multipliers(None, config) == {}


def test_positions_of_a_preset_follow_the_tokenizer():
    given = {"train_file": "a", "output_dir": "b", "spm_model_file": str(SPIECE)}
    settings = FinetuneSettings(preset="roberta_base", from_scratch=True, **given)
    start = Start(settings, None)
    assert start.tokenizer.pad_id == 0 and start.config.position_offset == 1


@pytest.mark.slow
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


LAYERS = 3
# Three layers from random weights need more steps than one.
LONG = {"num_train_steps": 120, "learning_rate": 2e-3, "eval_steps": 60}


@pytest.fixture(scope="module")
def three_layers(pretrained_as):
    return pretrained_as(num_hidden_layers=LAYERS)


@pytest.fixture(scope="module")
def joint(three_layers, tables, tmp_path_factory):
    path = tmp_path_factory.mktemp("joint") / "model"
    run(path, init_checkpoint=three_layers, exits="joint", **tables, **LONG)
    return path


def losses(folder):
    """The losses of the first and the last line about training."""
    text = (folder / "metrics.jsonl").read_text()
    lines = [
        line for line in map(json.loads, text.splitlines()) if "exit_1_loss" in line
    ]
    names = [f"exit_{layer}_loss" for layer in range(1, LAYERS)]
    return [[line[name] for name in names] for line in (lines[0], lines[-1])]


def weights(folder):
    model = from_pretrained(folder)
    return {name: v.numpy() for name, v in weight_names(model).items()}


@pytest.mark.slow
def test_joint(joint):
    before, after = losses(joint)
    assert all(b < 0.7 * a for a, b in zip(before, after, strict=True))
    model = from_pretrained(joint)
    assert model.num_exits == LAYERS - 1
    results = json.loads((joint / "metrics.json").read_text())
    assert results["dev_accuracy"] > 0.9


@pytest.mark.slow
def test_frozen_trains_the_exits_alone(three_layers, tables, tmp_path):
    given = {**tables, "num_train_steps": 40}
    run(tmp_path / "a", init_checkpoint=three_layers, **given)
    plain = weights(tmp_path / "a")
    assert not any(name.startswith("exit_") for name in plain)
    run(tmp_path / "b", init_checkpoint=str(tmp_path / "a"), exits="frozen", **given)
    frozen = weights(tmp_path / "b")
    new = {name for name in frozen if name.startswith("exit_")}
    assert frozen.keys() - new == plain.keys() and len(new) == 4 * (LAYERS - 1)
    for name, value in plain.items():
        np.testing.assert_array_equal(frozen[name], value, err_msg=name)
    before, after = losses(tmp_path / "b")
    assert all(b < 0.9 * a for a, b in zip(before, after, strict=True))
    results = json.loads((tmp_path / "b/metrics.json").read_text())
    # Not those of the first evaluation, which no later one can beat.
    assert results["step"] == results["num_train_steps"]


@pytest.mark.slow
def test_going_on_without_exits(joint, tables, tmp_path, caplog):
    given = {**tables, "num_train_steps": 1, "init_checkpoint": str(joint)}
    run(tmp_path / "m", **given)
    assert from_pretrained(tmp_path / "m").num_exits == 0
    assert "exits of" in caplog.text and "are not kept" in caplog.text


@pytest.mark.slow
def test_what_exits_need(three_layers, pretrained, tables, tmp_path):
    for exits, model, message in (
        ("frozen", three_layers, "frozen needs an init_checkpoint"),
        ("joint", pretrained, "needs at least 2 layers"),
    ):
        with pytest.raises(UsageError, match=f"exits: {message}"):
            run(tmp_path / "m", init_checkpoint=model, exits=exits, **tables)
    assert not (tmp_path / "m").exists()
