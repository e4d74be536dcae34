"""The commands as a person uses them: table, classifier, predictions, SavedModel."""

import csv
import json
import random

import pytest

from tests.commands import run_command


def run(verb, **flags):
    done = run_command(verb, **flags)
    assert done.code == 0, done.err
    return done.out


@pytest.mark.slow
def test_from_table_to_served_model(model_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = random.Random(1)
    with open("train.csv", "w", newline="", encoding="utf-8") as f:
        writer = csv.writer(f)
        writer.writerow(["sentence", "class"])
        for _ in range(40):
            label = rng.choice(["bad", "good"])
            writer.writerow([f"a {label} film, as they say", label])
    out = run(
        "finetune",
        text_column="sentence",
        label_column="class",
        init_checkpoint=model_folder("masked_lm"),
        train_file="train.csv",
        dev_file="train.csv",
        output_dir="sentiment",
        train_step=3,  # The original's name.
        train_batch_size=8,
        max_seq_length=8,
    )
    results = json.loads(out[out.index("{") :])
    assert results["num_train_steps"] == 3
    given = {"model": "sentiment", "text_column": "sentence"}
    measured = run("evaluate", **given, label_column="class", dev_file="train.csv")
    assert json.loads(measured)["accuracy"] == results["dev_accuracy"]
    assert results["dev_truncated"] > 0
    run("predict", **given, input_file="train.csv", output_file="out.jsonl")
    lines = [json.loads(x) for x in (tmp_path / "out.jsonl").read_text().splitlines()]
    with open("sentiment/predictions.tsv") as f:
        rows = list(csv.DictReader(f, delimiter="\t"))
    assert len(rows) == len(lines) == 40
    for row, line in zip(rows, lines, strict=True):
        assert row["prediction"] == line["prediction"]
        for label, score in line["probabilities"].items():
            assert float(row[f"probability_{label}"]) == pytest.approx(score, abs=1e-5)
    made = run(
        "export",
        model="sentiment",
        output_dir="served",
        version=3,
        warmup_batch_sizes=1,
    )
    assert made == "served/3\n"
    manifest = json.loads(
        (tmp_path / "served/3/assets.extra/manifest.json").read_text()
    )
    assert manifest["labels"] == ["bad", "good"]
    assert manifest["max_seq_length"] == 8
