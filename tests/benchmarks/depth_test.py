"""What layers cost in a loop: what is measured, and what does not fit."""

import pytest

from albert_tf.config import AlbertConfig
from albert_tf.errors import DataError, UsageError
from benchmarks import depth, step_speed, topics
from tests.tiny import tiny_config


def measure_one_form(monkeypatch, form, engine):
    """Returns the rows of a small model by what they are."""
    make = lambda preset, **changes: tiny_config(vocab_size=90, **changes)  # noqa: E731
    monkeypatch.setattr(AlbertConfig, "from_preset", make)
    monkeypatch.setattr(depth, "FORMS", (form,))
    step = step_speed.Settings(precision="float32", shapes=((2, 16),), steps=1)
    report = depth.run(depth.Settings(step, (3,), 1e9, engine))
    of_jax = "the needs of the compiled program" in report.notes[0]
    assert of_jax == (engine == "jax")
    title = f"2 x 16, 3 layers, {form}: "
    return {row.name.removeprefix(title): row for row in report.rows}


@pytest.mark.broad
def test_small_models_are_measured(monkeypatch):
    found = measure_one_form(monkeypatch, "loop", "tensorflow")
    assert found["nodes"].value > 0 and found["peak memory"].value > 0
    assert len(found["step"].details["seconds"]) == 2


def test_what_does_not_fit_is_not_trained(monkeypatch):
    tried = []

    def end(step, config):
        tried.append(step)
        raise DataError("its process ended with code -9")

    monkeypatch.setattr(depth, "_in_process", end)
    step = step_speed.Settings(shapes=((8, 512),))
    report = depth.run(depth.Settings(step, (48,), 3.0))
    assert [one.depth for one in tried] == ["loop_remat"]
    lines = report.text.split("\n")
    assert [line.count("not tried: needs at least") for line in lines[2:]] == [1, 1, 0]
    assert "its process ended with code -9" in lines[-1]


@pytest.mark.broad
def test_on_jax(monkeypatch):
    pytest.importorskip("jax")
    found = measure_one_form(monkeypatch, "loop_remat", "jax")
    assert found["activations"].value > 0 and found["step"].value > 0


def test_the_engine_is_checked():
    given = {"num_layers": ["2"], "memory_gigabytes": 1.0, "backend": ["torch"]}
    with pytest.raises(UsageError, match="--backend must be one of tensorflow, jax"):
        topics.measure("depth", given)


@pytest.mark.parametrize("layers", [[], ["1"], ["x"]])
def test_numbers_of_layers_are_checked(layers):
    with pytest.raises(UsageError, match="--num_layers must be numbers of 2 or more"):
        topics.measure("depth", {"num_layers": layers, "memory_gigabytes": 1.0})
