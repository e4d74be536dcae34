"""The commands as a person uses them: table, classifier, predictions, SavedModel."""

import csv
import json
import os
import pathlib
import random
import subprocess
import sys

import pytest

from albert_tf.config import AlbertConfig
from albert_tf.converters.load import save_pretrained
from albert_tf.models.masked_lm import AlbertMaskedLM
from albert_tf.text.sentencepiece import AlbertTokenizer

ROOT = pathlib.Path(__file__).parents[2]
SPM_MODEL = ROOT / "tests" / "golden" / "tokenization" / "spiece.model"
CONFIG = AlbertConfig(
    embedding_size=6,
    hidden_size=12,
    num_hidden_layers=1,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=16,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """`model` (a masked LM) and `train.csv`."""
    folder = tmp_path_factory.mktemp("work")
    model = AlbertMaskedLM(CONFIG, seed=1)
    save_pretrained(model, folder / "model", tokenizer=AlbertTokenizer(SPM_MODEL))
    rng = random.Random(1)
    with open(folder / "train.csv", "w", newline="", encoding="utf-8") as f:
        writer = csv.writer(f)
        writer.writerow(["sentence", "class"])
        for _ in range(40):
            label = rng.choice(["bad", "good"])
            writer.writerow([f"a {label} film, as they say", label])
    return folder


def tool(verb, folder, *arguments, stdin=""):
    """Runs a command in `folder`; returns the finished process."""
    return subprocess.run(
        [sys.executable, str(ROOT / "tools" / f"{verb}.py"), *arguments],
        cwd=folder,
        input=stdin,
        capture_output=True,
        text=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        check=False,
    )


def done(process):
    assert process.returncode == 0, process.stderr
    return process.stdout


@pytest.mark.slow
def test_from_table_to_served_model(folder):
    columns = ("--text_column=sentence", "--label_column=class")
    out = done(
        tool(
            "finetune",
            folder,
            *columns,
            "--init_checkpoint=model",
            "--train_file=train.csv",
            "--dev_file=train.csv",
            "--output_dir=sentiment",
            "--train_step=3",  # The original's name.
            "--train_batch_size=8",
            "--max_seq_length=8",
        )
    )
    results = json.loads(out[out.index("{") :])
    assert results["num_train_steps"] == 3
    measured = json.loads(
        done(
            tool(
                "evaluate",
                folder,
                *columns,
                "--model=sentiment",
                "--dev_file=train.csv",
            )
        )
    )
    assert measured["accuracy"] == results["dev_accuracy"]
    assert results["dev_truncated"] > 0
    done(
        tool(
            "predict",
            folder,
            columns[0],
            "--model=sentiment",
            "--input_file=train.csv",
            "--output_file=out.jsonl",
        )
    )
    lines = [json.loads(line) for line in (folder / "out.jsonl").open()]
    with (folder / "sentiment" / "predictions.tsv").open() as f:
        rows = list(csv.DictReader(f, delimiter="\t"))
    assert len(rows) == len(lines) == 40
    for row, line in zip(rows, lines, strict=True):
        assert row["prediction"] == line["prediction"]
        for label, score in line["probabilities"].items():
            assert float(row[f"probability_{label}"]) == pytest.approx(score, abs=1e-5)
    made = done(
        tool(
            "export",
            folder,
            "--model=sentiment",
            "--output_dir=served",
            "--version=3",
            "--warmup_batch_sizes=1",
        )
    )
    assert made == "served/3\n"
    manifest = json.loads((folder / "served/3/assets.extra/manifest.json").read_text())
    assert manifest["labels"] == ["bad", "good"]
    assert manifest["max_seq_length"] == 8


@pytest.mark.slow
def test_fill_mask(folder):
    text = "The cat is so [MASK] ."
    out = done(tool("fill_mask", folder, "--model=model", f"--text={text}"))
    assert out.splitlines()[0] == text
    assert len(out.splitlines()) == 7
    flags = ("--model=model", "--json", "--top_k=2")
    out = done(tool("fill_mask", folder, *flags, stdin=f"{text}\n[MASK] [MASK]\n"))
    one, two = map(json.loads, out.splitlines())
    assert one["text"] == text
    assert [row["score"] for row in one["result"]] == sorted(
        (row["score"] for row in one["result"]), reverse=True
    )
    assert [len(candidates) for candidates in two["result"]] == [2, 2]
    process = tool("fill_mask", folder, "--model=model", "--text=no mask")
    assert process.returncode == 2
    assert "expected [MASK] in it, received 'no mask'" in process.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ["predict", "--model=model", "--output_file=x.tsv"],
            2,
            "exactly one of --input_file and --data_dir",
        ),
        (["evaluate", "--model=model"], 2, "exactly one of --eval_file and --data_dir"),
        (
            ["finetune", "--train_file=train.csv", "--output_dir=x"],
            2,
            "init_checkpoint: required",
        ),
    ],
)
@pytest.mark.slow
def test_mistakes(folder, arguments, code, message):
    before = sorted(folder.rglob("*"))
    process = tool(arguments[0], folder, *arguments[1:])
    assert process.returncode == code
    last = process.stderr.splitlines()[-1]
    assert last.startswith("error: ")
    assert message in last
    assert "Traceback" not in process.stderr
    assert sorted(folder.rglob("*")) == before
