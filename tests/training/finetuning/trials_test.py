"""Several runs of one command."""

import json

import pytest

from albert_tf.converters.load import from_pretrained
from albert_tf.reports.run_files import read_runs
from albert_tf.reports.run_page import RunPage, render_runs
from albert_tf.training import outputs
from albert_tf.training import seeds as trials
from albert_tf.training.evaluation import CollapsedError
from tests.training.finetuning.runs import run


@pytest.mark.slow
def test_the_best_of_several_runs_is_kept(tables, pretrained, tmp_path):
    arguments = {
        **tables,
        "init_checkpoint": pretrained,
        "num_train_steps": 6,
        "num_seeds": 3,
    }
    results = run(tmp_path / "o", **arguments)
    found = results["trials"]
    assert [one["name"] for one in found["runs"]] == ["seed_7", "seed_8", "seed_9"]
    lowest, median, highest = sorted(one["value"] for one in found["runs"])
    assert results["dev_accuracy"] == found["highest"] == highest
    assert (found["lowest"], found["median"]) == (lowest, median)
    best = [one["value"] for one in found["runs"] if one["name"] == found["best"]]
    assert best == [highest]
    assert from_pretrained(tmp_path / "o").labels == ("bad", "good")
    names = {path.name for path in (tmp_path / "o").iterdir()}
    assert "trials.json" in names and "trials" not in names
    page = (tmp_path / "o" / "report.html").read_bytes()
    assert b"Results by seed" in page
    assert page == render_runs(RunPage(runs=read_runs([str(tmp_path / "o")])))
    # The finished command only reports.
    assert run(tmp_path / "o", **arguments) == results


@pytest.mark.slow
def test_seeds_are_compared_by_a_metric_of_the_second_dev_split(
    pretrained, monkeypatch, caplog, tmp_path
):
    """And none is lost where nothing can be drawn."""
    folder = tmp_path / "glue" / "MNLI"
    folder.mkdir(parents=True)
    labels = ("entailment", "neutral", "contradiction")
    rows = [f"the film {i}\ta day {i}\t{labels[i * i % 3]}" for i in range(24)]
    header = "sentence1\tsentence2\tgold_label"
    for name in ("train", "dev_matched", "dev_mismatched"):
        own = rows[::-1][:10] if name == "dev_mismatched" else rows
        (folder / f"{name}.tsv").write_text("\n".join([header, *own, ""]))

    def fail(*args, **kwargs):
        raise ValueError("no fonts")

    for module in (outputs, trials):
        monkeypatch.setattr(module, "render_run", fail)
    results = run(
        tmp_path / "o",
        task="mnli",
        data_dir=str(tmp_path / "glue"),
        init_checkpoint=pretrained,
        metric="dev_mismatched_accuracy",
        num_train_steps=4,
        num_seeds=2,
    )
    values = [one["value"] for one in results["trials"]["runs"]]
    assert results["metric"] == "dev_mismatched_accuracy"
    assert results["dev_mismatched_accuracy"] == max(values)
    assert results["trials"]["median"] == sum(values) / 2
    assert "report.html: not written: ValueError: no fonts" in caplog.text
    assert not (tmp_path / "o" / "report.html").exists()
    assert from_pretrained(tmp_path / "o").labels == tuple(sorted(labels))


def test_a_collapsed_run_is_begun_again_with_the_next_seed(
    tables, pretrained, monkeypatch, tmp_path
):
    seeds = []

    def finetune_once(settings):
        seeds.append((settings.seed, settings.on_collapse))
        if len(seeds) < 3:
            raise CollapsedError("all the same")
        return {"metric": "dev_accuracy", "dev_accuracy": 0.5, "step": 1}

    monkeypatch.setattr(trials, "finetune_once", finetune_once)
    monkeypatch.setattr(trials, "_finish", lambda run, found: found)
    found = run(
        tmp_path / "o",
        **tables,
        init_checkpoint=pretrained,
        on_collapse="restart",
        seed=7,
    )
    assert seeds == [(7, "stop"), (8, "stop"), (9, "stop")]
    assert [trial["seed"] for trial in found] == [9]
    seeds.clear()

    def always(settings):
        seeds.append(settings.seed)
        raise CollapsedError("all the same")

    def often(settings):
        seeds.append(settings.seed)
        if len(seeds) % trials.MAX_COLLAPSES:
            raise CollapsedError("all the same")
        return {"metric": "dev_accuracy", "dev_accuracy": 0.5, "step": 1}

    # Only collapses in a row show that another seed is no cure.
    monkeypatch.setattr(trials, "finetune_once", often)
    found = run(
        tmp_path / "often",
        **tables,
        init_checkpoint=pretrained,
        on_collapse="restart",
        num_seeds=2,
        seed=1,
    )
    assert [trial["seed"] for trial in found] == [5, 10]
    seeds.clear()
    monkeypatch.setattr(trials, "finetune_once", always)
    with pytest.raises(CollapsedError):
        run(
            tmp_path / "p",
            **tables,
            init_checkpoint=pretrained,
            on_collapse="restart",
        )
    assert len(seeds) == trials.MAX_COLLAPSES
    record = json.loads((tmp_path / "p" / "run.json").read_text())
    assert not record.get("finished")
