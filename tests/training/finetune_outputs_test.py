"""What a finished run leaves, also for tasks whose examples are several rows."""

import json

import pytest

from albert_tf.reports.run_files import read_runs
from albert_tf.reports.run_page import render_runs
from albert_tf.tasks.text_classification import TextTask
from tests.commands import run_command
from tests.reports.parsed_page import ParsedPage
from tests.training.runs import family, run, write_table

CHOICES = ["a good day", "a bad day", "a long day"]


def test_the_share_of_cut_examples_is_that_of_examples(pretrained, tmp_path, caplog):
    rows = [
        {"context": "the film was long " * (9 if i % 2 else 1), "choices": CHOICES}
        for i in range(12)
    ]
    lines = [json.dumps({**row, "label": i % 3}) for i, row in enumerate(rows)]
    (tmp_path / "train.jsonl").write_text("\n".join(lines) + "\n")
    results = run(
        tmp_path / "out",
        train_file=str(tmp_path / "train.jsonl"),
        init_checkpoint=pretrained,
        max_seq_length=16,
        train_batch_size=4,
        num_train_steps=1,
    )
    assert (results["train_examples"], results["train_truncated"]) == (12, 6)
    assert "selected_on" not in results
    warning = "6 of 12 training examples (50%) do not fit into max_seq_length=16"
    assert f"train.jsonl: {warning}" in caplog.text
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    lengths = report["lengths"]["train"]
    assert (lengths["examples"], lengths["truncated"]) == (12, 6)
    assert len(lengths["values"]) == 36 and max(lengths["values"]) == 16
    page = ParsedPage((tmp_path / "out" / "report.html").read_bytes())
    again = render_runs(read_runs([str(tmp_path / "out")]))
    assert again == (tmp_path / "out/report.html").read_bytes()
    assert "longest row" in page.text
    assert warning in page.text and "50.00%" in page.text and "16.67%" not in page.text


def test_it_is_said_on_what_the_weights_were_chosen(tables, pretrained, tmp_path):
    results = run(
        tmp_path / "out",
        train_file=tables["train_file"],
        dev_fraction=0.2,
        init_checkpoint=pretrained,
        num_train_steps=2,
    )
    assert results["selected_on"] == "dev, 0.2 of train"
    assert (results["train_examples"], results["dev_examples"]) == (160, 40)
    assert results["metric"] == "dev_accuracy" and "dev_accuracy" in results


def test_without_a_number_to_select_by_the_last_weights_are_kept(
    tables, pretrained, tmp_path, monkeypatch, caplog
):
    compare = TextTask.compare
    nothing = {"accuracy": float("nan")}
    monkeypatch.setattr(TextTask, "compare", lambda *args: compare(*args) | nothing)
    results = run(
        tmp_path / "run",
        **tables,
        init_checkpoint=pretrained,
        num_train_steps=4,
        eval_steps=2,
    )
    message = "The accuracy was not a number at any evaluation: the weights are those"
    assert message in caplog.text
    assert message in (tmp_path / "run/report.html").read_text()
    assert results["step"] == 4 and results["dev_accuracy"] is None
    assert results == json.loads((tmp_path / "run/metrics.json").read_text())
    for name in ("metrics.json", "report.json"):
        json.loads((tmp_path / "run" / name).read_text(), parse_constant=pytest.fail)


@pytest.mark.parametrize("name", ["texts", "questions"])
def test_evaluate_gives_the_same_numbers_to_the_last_bit(longer, tmp_path, name):
    given = family(name, tmp_path, longer)
    if name == "texts":  # scores, whose metrics show every bit
        for file in (given["train_file"], given["dev_file"]):
            write_table(file, 40, seed=1, labels=("0.5", "1.5"))
    results, model = run(tmp_path / "out", **given), f"--model={tmp_path}/out"
    bad = "--on_bad_input=skip" if name == "questions" else "--on_bad_input=stop"
    page = tmp_path / "page.html"
    files = {"eval_file": given["dev_file"], "report_file": page}
    done = run_command("evaluate", model, bad, **files)
    assert ParsedPage(page.read_bytes()).titles == ["Results", "Answers on dev"]
    found = json.loads(done.out)
    assert found.pop("task") == results["task"] and len(found) > 3
    assert found == {name: results[f"dev_{name}"] for name in found}


def test_a_run_whose_outputs_are_not_finite_ends(tables, pretrained, tmp_path, caplog):
    settings = {"init_checkpoint": pretrained, "num_train_steps": 1}
    results = run(tmp_path / "run", **tables, **settings, learning_rate=1e38)
    assert "its logits are not finite" in caplog.text
    assert results["dev_accuracy"] is not None
    found = {path.name for path in (tmp_path / "run").iterdir()}
    assert found >= {"model.safetensors", "metrics.json", "report.html"}
