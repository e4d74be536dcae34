"""Several runs of one command."""

import json

import pytest

from albert_tf.converters.load import from_pretrained
from albert_tf.errors import UsageError
from albert_tf.training.finetuning import trials
from albert_tf.training.finetuning.evaluation import CollapsedError
from tests.training.finetuning.runs import run


def test_all_combinations_of_a_search():
    found = trials.read_search(("learning_rate:1e-5,2e-5", "packing:true,false"))
    assert found == [
        {"learning_rate": rate, "packing": packing}
        for rate in (1e-5, 2e-5)
        for packing in (True, False)
    ]
    assert trials.read_search(()) == [{}]


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("rate:1", "expected setting:value"),
        ("learning_rate", "expected setting:value"),
        ("learning_rate:1e-5,x", "'x' is not a value"),
        ("num_train_steps:1.5", "'1.5' is not a value"),
        ("packing:maybe", "'maybe' is not a value"),
    ],
)
def test_bad_searches(item, message):
    with pytest.raises(UsageError, match=message):
        trials.read_search((item,))


def test_a_setting_is_searched_once():
    with pytest.raises(UsageError, match="every setting once"):
        trials.read_search(("learning_rate:1", "learning_rate:2"))


@pytest.mark.slow
def test_the_best_of_several_runs_is_kept(tables, pretrained, tmp_path):
    arguments = {
        **tables,
        "init_checkpoint": pretrained,
        "num_train_steps": 6,
        "num_seeds": 2,
        "search": ("learning_rate:5e-3,1e-9",),
    }
    results = run(tmp_path / "o", **arguments)
    found = results["trials"]
    assert len(found["runs"]) == 4
    by_rate = {}
    for one in found["runs"]:
        by_rate.setdefault(one["learning_rate"], []).append(one["value"])
    assert results["dev_accuracy"] == max(by_rate[5e-3])
    assert found["median"] == sum(by_rate[5e-3]) / 2
    assert from_pretrained(tmp_path / "o").labels == ("bad", "good")
    names = {path.name for path in (tmp_path / "o").iterdir()}
    assert "trials.json" in names and "trials" not in names
    assert "seed" in (tmp_path / "o" / "report.html").read_text()
    # The finished command only reports.
    assert run(tmp_path / "o", **arguments) == results


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
    monkeypatch.setattr(trials, "_finish", lambda settings, run, found: found)
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
