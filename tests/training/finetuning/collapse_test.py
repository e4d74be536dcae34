"""A run that learns nothing, from the first step to what it leaves."""

import dataclasses
import json

import pytest

from albert_tf.converters.load import from_pretrained
from albert_tf.errors import DataError
from albert_tf.training import seeds as trials
from albert_tf.training.evaluation import CollapsedError
from tests.training.finetuning.runs import run, write_table

REASON = "the loss is .*, that of guessing"


@pytest.fixture
def arguments(tables, pretrained, tmp_path):
    # One label in the dev file: that all answers are the same is then no sign.
    dev = write_table(tmp_path / "one_label.tsv", 20, 3, labels=("good",))
    return {
        "train_file": tables["train_file"],
        "dev_file": dev,
        "init_checkpoint": pretrained,
        "num_train_steps": 12,
        "eval_steps": 4,
        "log_steps": 1,
        "learning_rate": 1e-9,
    }


LOSSES = {
    "plain": {},
    "weighted": {"class_weights": ("bad=0.5", "good=3")},
    "smoothed": {"label_smoothing": 0.3},
    "both": {"class_weights": ("balanced",), "label_smoothing": 0.3},
}


_BROAD = [pytest.param(x, marks=pytest.mark.broad) for x in ("plain", "smoothed")]


@pytest.mark.parametrize("loss", ["weighted", "both", *_BROAD])
def test_a_loss_at_chance_stops_a_run(arguments, tmp_path, loss):
    settings = {**arguments, **LOSSES[loss], "on_collapse": "stop"}
    # Again: the decision is on record, or is made again.
    for _ in range(2):
        message = f"collapsed at step .*: {REASON}"
        with pytest.raises(CollapsedError, match=message) as caught:
            run(tmp_path / "o", **settings)
        assert "\n" not in str(caught.value)
        with pytest.raises(DataError, match="has not finished"):
            from_pretrained(tmp_path / "o")


LEARNING = {"num_train_steps": 60, "learning_rate": 1e-2, "eval_steps": 60}


@pytest.mark.broad
@pytest.mark.parametrize("loss", ["smoothed", "both"])
def test_a_run_that_learns_is_none(arguments, tables, tmp_path, loss):
    changes = {**LEARNING, "dev_file": tables["dev_file"], "on_collapse": "stop"}
    results = run(tmp_path / "o", **{**arguments, **LOSSES[loss], **changes})
    assert results["dev_accuracy"] > 0.9


def test_a_warning_is_in_the_log_the_metrics_and_the_report(
    arguments, tmp_path, caplog
):
    run(tmp_path / "o", **arguments, **LOSSES["both"])
    assert from_pretrained(tmp_path / "o").labels == ("bad", "good")
    assert caplog.text.count("training collapsed at step") == 1
    lines = [json.loads(x) for x in (tmp_path / "o" / "metrics.jsonl").open()]
    found = [line["step"] for line in lines if line.get("collapsed")]
    assert found[-1] == 12 and 4 not in found  # not in the first half of the run
    report = (tmp_path / "o" / "report.html").read_text()
    assert "training looked collapsed at step 12" in report


@pytest.mark.broad
def test_a_collapsed_run_is_begun_again(arguments, tmp_path, monkeypatch):
    once, seeds = trials.finetune_once, []

    def finetune_once(settings):
        seeds.append(settings.seed)
        if settings.seed == 8:
            settings = dataclasses.replace(settings, learning_rate=1e-9)
        return once(settings)

    monkeypatch.setattr(trials, "finetune_once", finetune_once)
    settings = {**arguments, **LOSSES["both"], **LEARNING}
    settings |= {"on_collapse": "restart", "seed": 8}
    results = run(tmp_path / "o", **settings)
    assert seeds == [8, 9] and results["seed"] == 9
    assert [one["seed"] for one in results["trials"]["runs"]] == [9]
    assert from_pretrained(tmp_path / "o").labels == ("bad", "good")
    assert not (tmp_path / "o" / "trials").exists()
    assert run(tmp_path / "o", **settings) == results and seeds == [8, 9]
