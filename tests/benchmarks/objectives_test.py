"""The study of the objectives: its plan, its words, and a small one to its end."""

import dataclasses
import os
import pathlib
import random
import re

import pytest

from albert_tf.errors import UsageError
from benchmarks import objectives
from benchmarks.objectives_jobs import Study, step_costs
from benchmarks.objectives_picture import Panel, Point, draw_study
from benchmarks.objectives_report import Estimate, compare, estimate, verdicts
from tests.tiny import SPIECE, TEXT

WORDS = ["the", "a", "returns", "array", "of", "new", "value", "with", "input", "list"]


def test_the_dearer_objective_is_younger_at_equal_seconds():
    costs = {
        "albert": {"cpu_seconds_per_step": 1.0, "tokens_per_step": 100.0},
        "electra": {"cpu_seconds_per_step": 2.0, "tokens_per_step": 100.0},
        "spanbert": {"cpu_seconds_per_step": 1.1, "tokens_per_step": 50.0},
        "slow": {"cpu_seconds_per_step": 9.0, "tokens_per_step": 100.0},
    }
    budgets = objectives.plan_budgets(costs, num_tokens=4000, first=10)
    assert {name: one.steps for name, one in budgets.items()} == {
        "albert": {"tokens": 40, "seconds": 40},
        "electra": {"tokens": 40, "seconds": 20},
        "spanbert": {"tokens": 80, "seconds": 36},
        "slow": {"tokens": 40, "seconds": 10},  # a run cannot go back
    }


def test_costs_are_between_lines_without_the_first():
    times = [(3.0, 1), (10.0, 2), (12.0, 4), (15.0, 5)]
    assert step_costs(times) == [1.0, 3.0]
    assert step_costs(times[:2]) == []


def test_intervals_are_those_of_student():
    found = estimate([0.6, 0.7, 0.8])
    assert found.mean == pytest.approx(0.7)
    assert found.margin == pytest.approx(4.302653 * 0.1 / 3**0.5, abs=1e-6)
    assert str(found) == "0.700 ± 0.248"
    assert str(estimate([0.5])) == "0.500"


@pytest.mark.parametrize(
    "estimates, text",
    [
        ({"a": (0.5, 0.1), "b": (0.6, 0.1)}, "not separated"),
        ({"a": (0.5, 0.1), "b": (0.8, 0.1)}, "b above a"),
        (
            {"a": (0.9, 0.1), "b": (0.75, 0.1), "c": (0.6, 0.1)},
            "a above c; the other pairs are not separated",
        ),
        ({"a": (0.5, None), "b": (0.9, None)}, "not ranked, one seed"),
    ],
)
def test_only_what_is_separated_is_ranked(estimates, text):
    assert compare({k: Estimate(*v) for k, v in estimates.items()}) == text


def test_columns_that_say_the_same_share_a_sentence():
    near, far = ({"a": Estimate(0.5, 0.1), "b": Estimate(b, 0.1)} for b in (0.6, 0.8))
    alone = {"a": Estimate(0.5, None), "b": Estimate(0.9, None)}
    assert verdicts({"x": near, "y": near}) == ["No pair is separated in any column."]
    assert verdicts({"x": alone, "y": alone}) == ["One seed: not ranked."]
    assert verdicts({"x": near, "y": far})[1] == "* y: b above a."


def test_same_numbers_same_picture():
    def draw(score):
        curves = {"albert": [Point(1.0, score, 0.4, 0.6), Point(2.0, 0.7, 0.7, 0.7)]}
        return draw_study([[Panel("A task", "accuracy", curves, {"random": 0.3})]])

    assert draw(0.5)[:8] == b"\x89PNG\r\n\x1a\n"
    assert draw(0.5) == draw(0.5) != draw(0.55)


def write_tables(folder):
    """Writes SST-2's files with sentences that one word decides."""
    draw = random.Random(7)
    for name, count in (("train", 64), ("dev", 32)):
        lines = ["sentence\tlabel"]
        for number in range(count):
            label = number % 2
            words = draw.choices(WORDS, k=7) + [("bad", "good")[label]]
            lines.append(f"{' '.join(draw.sample(words, 8))}\t{label}")
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n")


def in_process(monkeypatch, *modules):
    """Lets a study make its calls here: each process imports TensorFlow first."""

    def each(calls, title):
        return [call(*given) for call, given in calls]

    for module in modules:
        monkeypatch.setattr(module, "each", each)


def test_calls_are_made_in_processes_of_one_thread():
    calls = [(os.getenv, ("OMP_NUM_THREADS",)), (os.getpid, ()), (os.getppid, ())]
    threads, process, parent = objectives.each(calls, "calls")
    assert threads == "1" and process != parent == os.getpid()


@pytest.fixture
def study(tmp_path):
    write_tables(tmp_path)
    return Study(
        folder=str(tmp_path / "study"),
        input_file=str(TEXT),
        tokenizer=str(SPIECE),
        tasks={"sst2": str(tmp_path)},
        objectives=("albert", "electra"),
        scale=dataclasses.replace(objectives.SCALES["small"], num_tokens=1024),
    )


@pytest.mark.broad
def test_a_small_study(study, monkeypatch):
    in_process(monkeypatch, objectives)
    monkeypatch.setattr(objectives, "_FIRST", 1.5)  # one model is at both budgets
    report = objectives.run(study)
    assert report.picture[:8] == b"\x89PNG\r\n\x1a\n"
    for name in (*study.objectives, "random encoder", "bag of words"):
        assert len(re.findall(rf"^\| {name} \|", report.text, re.M)) == 2
    trained = [one for one in report.series["scores"] if one["tokens"]]
    wanted = [(o, m) for o in study.objectives for m in ("fine-tuned", "probe")]
    assert sorted((one["objective"], one["method"]) for one in trained) == wanted
    assert all(set(one["budgets"]) == {"tokens", "seconds"} for one in trained)
    spent = [one["tokens"] for one in trained]
    assert max(spent) - min(spent) < 256  # tokens of a step
    assert all(one["cpu_seconds"] > 0 for one in trained)
    # What is there is not computed again, as after a kill.
    score, *_ = pathlib.Path(study.folder, "scores").glob("*-probe.json")
    score.unlink()
    monkeypatch.setattr(objectives.jobs, "_pretraining", None)
    before = {path: os.stat(path).st_mtime_ns for path in score.parent.iterdir()}
    again = objectives.run(study)
    assert again.text == report.text and again.series == report.series
    assert all(os.stat(path).st_mtime_ns == when for path, when in before.items())


def test_a_folder_holds_one_study(study):
    pathlib.Path(study.folder).mkdir()
    objectives.check(study)
    objectives.check(study)
    other = dataclasses.replace(study, objectives=objectives.all_objectives()[:2])
    with pytest.raises(UsageError, match="with other values of objectives; give"):
        objectives.check(other)


@pytest.mark.parametrize("names", [("albert",), ("albert", "albert"), ("albert", "t5")])
def test_objectives_that_cannot_be_compared(study, names):
    with pytest.raises(UsageError, match="--objective must be two or more of albert, "):
        objectives.check(dataclasses.replace(study, objectives=names))


def test_a_folder_of_something_else(study):
    folder = pathlib.Path(study.folder)
    folder.mkdir()
    (folder / "notes.txt").touch()
    with pytest.raises(UsageError, match="must be empty or hold this study, holds 'no"):
        objectives.check(study)
