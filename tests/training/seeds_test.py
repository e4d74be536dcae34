"""Several runs of one command, and a run that learns nothing."""

import json
from unittest import mock

import pytest

from albert_tf.converters.load import from_pretrained
from albert_tf.errors import DataError, UsageError
from albert_tf.reports import run_page
from albert_tf.reports.run_files import read_runs
from albert_tf.reports.run_page import render_runs
from albert_tf.storage import hubs
from albert_tf.training import evaluation
from albert_tf.training import seeds as trials
from albert_tf.training.evaluation import CollapsedError
from albert_tf.training.run_folder import RunFolder
from tests.training.runs import run, write_table


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_the_best_of_several_runs_is_kept(pretrained, monkeypatch, caplog, tmp_path):
    """By a metric of the second dev split; none is lost where nothing can be drawn."""
    folder, out = tmp_path / "glue" / "MNLI", tmp_path / "o"
    folder.mkdir(parents=True)
    labels = ("entailment", "neutral", "contradiction")
    rows = [f"the film {i}\ta day {i}\t{labels[i * i % 3]}" for i in range(24)]
    header = "sentence1\tsentence2\tgold_label"
    for part in ("train", "dev_matched", "dev_mismatched"):
        own = rows[::-1][:10] if part == "dev_mismatched" else rows
        (folder / f"{part}.tsv").write_text("\n".join([header, *own, ""]))
    arguments = {"task": "mnli", "data_dir": str(tmp_path / "glue"), "num_seeds": 2}
    name, origin, asked = "hf://owner/name", "hf://owner/name@0123", []
    arguments |= {"init_checkpoint": name, "num_train_steps": 4}
    arguments["metric"] = metric = "dev_mismatched_accuracy"
    complete, drawn = RunFolder.complete, []

    def download(name):
        asked.append(name)
        return hubs.Download(pretrained, origin)

    def complete_or_stop(folder, contents, *write_model):
        if "trials.json" not in contents:
            return complete(folder, contents, *write_model)
        drawn.append("report.html" in contents)
        raise KeyboardInterrupt

    monkeypatch.setattr(hubs, "download", download)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        fail = mock.Mock(side_effect=ValueError("no fonts"))
        patch.setattr(run_page, "render_runs", fail)
        patch.setattr(RunFolder, "complete", complete_or_stop)
        run(out, **arguments)
    assert "report.html: not written: ValueError: no fonts" in caplog.text
    assert drawn == [False]
    # All seeds start from the commit that the first one found.
    assert asked == [name, origin, origin]
    results = run(out, **arguments)  # all seeds have been tried
    found = results["trials"]
    assert [one["name"] for one in found["runs"]] == ["seed_7", "seed_8"]
    lowest, highest = sorted(one["value"] for one in found["runs"])
    assert results["metric"] == metric
    assert results[metric] == found["highest"] == highest
    assert (found["lowest"], found["median"]) == (lowest, (lowest + highest) / 2)
    best = [one["value"] for one in found["runs"] if one["name"] == found["best"]]
    assert best == [highest]
    assert from_pretrained(out).labels == tuple(sorted(labels))
    names = {path.name for path in out.iterdir()}
    assert "trials.json" in names and "trials" not in names
    page = (out / "report.html").read_bytes()
    assert b"Results by seed" in page and page == render_runs(read_runs([str(out)]))
    # The finished command only reports.
    assert run(out, **arguments) == results


@pytest.mark.parametrize(
    ("num_seeds", "learns", "kept"),
    [
        (1, lambda attempt: attempt == 3, [3]),
        # Only collapses in a row show that another seed is no cure.
        (2, lambda attempt: attempt % trials.MAX_COLLAPSES == 0, [5, 10]),
        (1, lambda attempt: False, None),
    ],
)
def test_a_collapsed_run_is_begun_again_with_the_next_seed(
    tables, pretrained, monkeypatch, tmp_path, num_seeds, learns, kept
):
    tried = []

    def finetune_once(settings, draw):
        tried.append(settings.seed)
        assert settings.on_collapse == "stop" and settings.overwrite
        if not learns(len(tried)):
            raise CollapsedError("all the same")
        return {"metric": "dev_accuracy", "dev_accuracy": 0.5, "step": 1}

    monkeypatch.setattr(trials, "finetune_once", finetune_once)
    monkeypatch.setattr(trials, "_finish", lambda folder, found, draw: found)
    given = {**tables, "init_checkpoint": pretrained, "on_collapse": "restart"}
    given["overwrite"] = True
    if kept is None:
        with pytest.raises(CollapsedError):
            run(tmp_path / "o", **given, seed=1)
        assert len(tried) == trials.MAX_COLLAPSES
        record = json.loads((tmp_path / "o" / "run.json").read_text())
        assert not record.get("finished")
        return
    found = run(tmp_path / "o", **given, num_seeds=num_seeds, seed=1)
    assert tried == list(range(1, kept[-1] + 1))
    assert [trial["seed"] for trial in found] == kept


@pytest.fixture
def arguments(tables, pretrained, tmp_path, monkeypatch, eager):
    monkeypatch.setattr(evaluation, "_FEW_STEPS", 0)
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


WEIGHTED = {"class_weights": ("balanced",), "label_smoothing": 0.3}


@pytest.mark.slow
def test_a_loss_at_chance_stops_a_run(arguments, tmp_path):
    settings = {**arguments, **WEIGHTED, "on_collapse": "stop"}
    # Again: the decision is on record, or is made again.
    for _ in range(2):
        message = "collapsed at step .*: the loss is .*, and .* when guessing"
        with pytest.raises(CollapsedError, match=message) as caught:
            run(tmp_path / "o", **settings)
        assert "\n" not in str(caught.value)
        with pytest.raises(DataError, match="has not finished"):
            from_pretrained(tmp_path / "o")


@pytest.mark.slow
def test_a_warning_is_in_the_log_the_metrics_and_the_report(
    arguments, tmp_path, caplog
):
    run(tmp_path / "o", **arguments, **WEIGHTED)
    assert from_pretrained(tmp_path / "o").labels == ("bad", "good")
    assert caplog.text.count("training collapsed at step") == 1
    lines = [json.loads(x) for x in (tmp_path / "o" / "metrics.jsonl").open()]
    found = [line["step"] for line in lines if line.get("collapsed")]
    assert found[-1] == 12 and 4 not in found  # not in the first half of the run
    report = (tmp_path / "o" / "report.html").read_text()
    assert "training looked collapsed at step 12" in report


@pytest.mark.parametrize("given", [{"num_seeds": 2}, {"on_collapse": "restart"}])
def test_several_processes_do_not_draw_seeds(tables, pretrained, tmp_path, given):
    given = {**tables, "init_checkpoint": pretrained, **given}
    with pytest.raises(UsageError, match="num_seeds.*--distribution=multi_worker has"):
        run(tmp_path / "o", **given, distribution="multi_worker")
    assert not (tmp_path / "o").exists()
