"""Exits learn, with the model or on one that stays as it is."""

import json

import numpy as np
import pytest

from albert_tf.converters.load import from_pretrained
from albert_tf.errors import UsageError
from albert_tf.models.base import weight_names
from tests.training.runs import run

LAYERS = 3
# Three layers from random weights need more steps than one.
LONG = {"num_train_steps": 120, "learning_rate": 2e-3, "eval_steps": 60}
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def start(pretrained_as):
    return pretrained_as(num_hidden_layers=LAYERS)


@pytest.fixture(scope="module")
def joint(start, tables, tmp_path_factory):
    path = tmp_path_factory.mktemp("joint") / "model"
    run(path, init_checkpoint=start, exits="joint", **tables, **LONG)
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


def test_joint(joint):
    before, after = losses(joint)
    assert all(b < 0.7 * a for a, b in zip(before, after, strict=True))
    model = from_pretrained(joint)
    assert model.num_exits == LAYERS - 1
    results = json.loads((joint / "metrics.json").read_text())
    assert results["dev_accuracy"] > 0.9


def test_frozen_trains_the_exits_alone(start, tables, tmp_path):
    given = {**tables, "num_train_steps": 40}
    run(tmp_path / "a", init_checkpoint=start, **given)
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


def test_going_on_without_exits(joint, tables, tmp_path, caplog):
    given = {**tables, "num_train_steps": 1, "init_checkpoint": str(joint)}
    run(tmp_path / "m", **given)
    assert from_pretrained(tmp_path / "m").num_exits == 0
    assert "exits of" in caplog.text and "are not kept" in caplog.text


def test_what_exits_need(start, pretrained, tables, tmp_path):
    for exits, model, message in (
        ("frozen", start, "frozen needs an init_checkpoint"),
        ("joint", pretrained, "needs at least 2 layers"),
    ):
        with pytest.raises(UsageError, match=f"exits: {message}"):
            run(tmp_path / "m", init_checkpoint=model, exits=exits, **tables)
    assert not (tmp_path / "m").exists()
