"""What steps of ALBERT and BERT cost: what is measured, and what is estimated."""

import re

import pytest

from albert_tf.errors import DataError, UsageError
from albert_tf.planning import facts
from benchmarks import costs, topics
from tests.tiny import tiny_config


def tiny_pair(size):
    """Returns small encoders in the place of those of a size."""
    config = tiny_config().replace(sharing="all")
    width = {"embedding_size": config.hidden_size, "sharing": "none"}
    return {"ALBERT": config, "BERT": config.replace(**width)}


def test_berts_are_the_paper_s():
    for size in costs.SIZES[:2]:
        bert = costs.configs(size)["BERT"].replace(vocab_size=30000)
        paper = facts.PAPER_PARAMETERS[f"bert_{size}"]
        assert bert.num_parameters() / 1e6 == pytest.approx(paper, rel=0.015)


def test_what_does_not_fit_is_estimated(monkeypatch):
    monkeypatch.setattr(costs, "_measure", measured_by_size)
    report = costs.run(costs.Settings(("base", "large", "xlarge"), gigabytes=12))
    row = next(r for r in report.text.split("\n") if r.startswith("| BERT xlarge"))
    assert row.count("(estimated)") == 2
    found = {one.name: one.value for one in report.rows}
    # A second for each model, and half of one for each 100 million parameters more.
    parameters = [found[f"{name} xlarge: parameters"] for name in costs.MODELS]
    slower = 0.5 * (parameters[1] - parameters[0]) / 1e8
    assert found["BERT xlarge: step (estimated)"] == pytest.approx(1 + slower)
    assert "BERT large: step" in found and "ALBERT xlarge: step" in found
    assert re.search(
        r"^\* xlarge: 2\d\.\d times fewer .* \(estimated\)\.$", report.text, re.M
    )


def measured_by_size(settings, given, size):
    """Stands in for a measurement: time grows with what BERT has more."""
    least = costs.configs(size)["ALBERT"].num_parameters()
    return {
        name: costs.Measured(
            1e9, 1 + 0.5 * (config.num_parameters() - least) / 1e8, False, {}
        )
        for name, config in given.items()
    }


def test_without_any_bert_no_time_is_estimated(monkeypatch):
    monkeypatch.setattr(costs, "_measure", measured_by_size)
    report = costs.run(costs.Settings(("xxlarge",), gigabytes=5))
    row = next(r for r in report.text.split("\n") if r.startswith("| BERT xxlarge"))
    assert "| - |" in row and row.count("(estimated)") == 1


@pytest.mark.broad
def test_steps_of_a_small_model_are_measured(monkeypatch):
    given = tiny_pair("base") | {"BERT": costs.configs("xxlarge")["BERT"]}
    monkeypatch.setattr(costs, "configs", lambda size: given)
    report = costs.run(costs.Settings(("base",), rows=2, length=16, steps=2))
    found = {one.name: one for one in report.rows}
    assert found["ALBERT base: peak memory"].value > 0
    assert len(found["ALBERT base: step"].details["seconds"]) == 2
    assert "BERT base: peak memory (estimated)" in found


def test_a_process_that_ends_is_named(monkeypatch):
    given = tiny_pair("base")["ALBERT"]
    with costs._Model("ALBERT base", given, 2, 16) as model:
        model._process.kill()
        with pytest.raises(
            DataError, match="ALBERT base: its process ended with code -9"
        ):
            model.step()


@pytest.mark.parametrize("sizes", [[], ["base", "base"], ["small"]])
def test_sizes_are_checked(sizes):
    with pytest.raises(UsageError, match="--sizes must be some of base, large, xlarge"):
        topics.measure("costs", {"sizes": sizes, "memory_gigabytes": 1.0})
