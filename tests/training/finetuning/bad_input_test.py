"""Bad input ends a run with one line that says where, and leaves nothing behind."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from albert_tf.cli.run import _describe
from albert_tf.errors import DataError, UsageError
from albert_tf.training.finetune_settings import FinetuneSettings
from albert_tf.training.seeds import finetune
from tests.training.finetuning.runs import run

ROOT = pathlib.Path(__file__).parents[3]


def squad(*answers, context="I had tea today.", **changes):
    question = {"id": "q7", "question": "What?", "answers": list(answers), **changes}
    paragraph = {"context": context, "qas": [question]}
    return json.dumps({"data": [{"title": "t", "paragraphs": [paragraph]}]})


def race(options, answer):
    return json.dumps(
        {
            "id": "high1",
            "article": "a text",
            "questions": ["q"],
            "options": [options],
            "answers": [answer],
        }
    )


SST2 = "sentence\tlabel\ngood\t1\n{}bad\t0\n"
QNLI = "index\tquestion\tsentence\tlabel\n0\ta\tb\tentailment\n1\tc\td\t{}\n"
STSB = "a\tb\tsentence1\tsentence2\tscore\n0\tx\tone\ttwo\t3.5\n1\tx\tone\ttwo\t{}\n"
SWAG = ",sent1,sent2,ending0,ending1,ending2,ending3,label\n0,A,b,c,d,e,f,0\n"
WHOLE = {"text": "tea", "answer_start": 6}
LONG = "one two three four five six seven eight nine ten " * 9
# Task, name of the file, its content, other settings, exit code, message.
CASES = {
    "nul": ("sst2", "train.tsv", SST2.format("a\0b\t1\n"), 1, "line 3: a NUL byte"),
    "encoding": ("sst2", "train.tsv", b"sentence\tlabel\na\xff\t1\n", 1, "line 2: not"),
    "empty file": ("sst2", "train.tsv", "", 1, "received an empty file"),
    "label": ("qnli", "train.tsv", QNLI.format("yes"), 1, "line 3: .* 'yes'"),
    "no label": ("qnli", "train.tsv", QNLI.format(""), 1, "line 3: the label is empty"),
    "one class": (
        "qnli",
        "train.tsv",
        QNLI.format("entailment"),
        1,
        "received only 'entailment'",
    ),
    "wide row": ("qnli", "train.tsv", QNLI.format("x\ty"), 1, "line 3: .*received 5"),
    "nan": ("stsb", "train.tsv", STSB.format("nan"), 1, "line 3: .* 'nan'"),
    "text": ("stsb", "train.tsv", STSB.format("good"), 1, "line 3: .* 'good'"),
    "header of CoLA twice": (
        "cola",
        "train.tsv",
        "source\tlabel\t\tsentence\nsource\tlabel\t\tsentence\ng\t1\t\tx\n",
        1,
        "line 1: .*'label'",
    ),
    "answer_start": (
        "squad1",
        "train-v1.1.json",
        squad({"text": "tea", "answer_start": 5}),
        1,
        r"qas\[0\] \(id \"q7\"\): answer_start 5: .*\"tea\" there, received \" te\"",
    ),
    "nan as answer_start": (
        "squad1",
        "train-v1.1.json",
        squad({"text": "tea", "answer_start": float("nan")}),
        1,
        "answer_start: expected a whole number, received NaN",
    ),
    "several answers": (
        "squad1",
        "train-v1.1.json",
        squad(WHOLE, WHOLE),
        1,
        "q7.*exactly one answer in training, received 2",
    ),
    "no window": (
        "squad1",
        "train-v1.1.json",
        squad({"text": LONG[:-1], "answer_start": 0}, context=LONG),
        1,
        "q7.*no window",
    ),
    "doc_stride 0": (
        "squad1",
        "train-v1.1.json",
        squad(WHOLE),
        2,
        "doc_stride must be from 1 to .* received 0",
        {"doc_stride": 0},
    ),
    "doc_stride": (
        "squad1",
        "train-v1.1.json",
        squad(WHOLE),
        2,
        "doc_stride must be from 1 to .* received 99",
        {"doc_stride": 99},
    ),
    "three options": ("race", "train/high/1.txt", race("abc", "A"), 1, "1.txt: line 1"),
    "answer E": (
        "race",
        "train/high/1.txt",
        race(list("abcd"), "E"),
        1,
        "received 'E'",
    ),
    "no ending": (
        "swag",
        "train.csv",
        SWAG + "1,A,b,c,d,e,,0\n",
        1,
        "line 3: expected 4 endings, received 3",
    ),
    "broken tag": (
        "conll2003",
        "train.txt",
        "Ann NNP B-NP B-PER\n\nx NN B-NP X-PER\n",
        1,
        "line 3: .*'X-PER'",
    ),
    "no tag": ("wnut17", "wnut17train.conll", "Ann\tB-person\nLee\n", 1, "2: .*'Lee'"),
}


@pytest.mark.parametrize("case", CASES)
def test_one_line_and_nothing_written(pretrained, tmp_path, case):
    task, name, content, code, message, *changes = CASES[case]
    path = tmp_path / "data" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    settings = FinetuneSettings(
        task=task,
        data_dir=str(tmp_path / "data"),
        init_checkpoint=pretrained,
        output_dir=str(tmp_path / "out"),
        num_train_steps=1,
        **{"max_query_length": 4, **(changes[0] if changes else {})},
    )
    with pytest.raises((DataError, UsageError), match=message) as caught:
        finetune(settings)
    assert "\n" not in str(caught.value)
    assert _describe(caught.value)[0] == code
    if code == 1:
        assert path.name in str(caught.value) or str(path.parent) in str(caught.value)
    assert os.listdir(tmp_path) == ["data"]


def test_what_is_odd_but_not_wrong(pretrained, tmp_path):
    """A byte order mark, Windows' line ends, quotes, empty and very long texts."""
    rows = ['so " good\t1', "\t0", "word " * 200_000 + "\t1", '"bad\t0']
    text = "\ufeff" + "\r\n".join(["sentence\tlabel", *rows, ""])
    (tmp_path / "train.tsv").write_bytes(text.encode())
    results = run(
        tmp_path / "out",
        task="sst2",
        data_dir=str(tmp_path),
        init_checkpoint=pretrained,
        num_train_steps=1,
        train_batch_size=4,
    )
    assert results["train_examples"] == 4 and results["train_truncated"] == 1


FULL = """
mount -t tmpfs -o size=1m tmpfs "$1" || exit 99
shift
for size in 1m 4m 6m 8m 10m 99m; do
  mount -o remount,size=$size "$FOLDER"
  "$@" 2> "$RESULTS/$size.txt"
  echo $? > "$RESULTS/$size.code"
  ls -A "$FOLDER" "$FOLDER/model" > "$RESULTS/$size.list" 2>&1
done
cp -r "$FOLDER/model" "$RESULTS/model"
"""


def can_mount():
    command = ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    if not shutil.which("unshare"):
        return False
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.broad
@pytest.mark.skipif(not can_mount(), reason="a disk of a given size cannot be made")
def test_a_disk_that_is_full(tables, pretrained, tmp_path):
    """On a disk that grows from attempt to attempt, the last one ends as any run."""
    disk, found = tmp_path / "disk", tmp_path / "results"
    disk.mkdir()
    found.mkdir()
    flags = {
        **tables,
        "init_checkpoint": pretrained,
        "num_train_steps": 6,
        "learning_rate": 5e-3,
        "train_batch_size": 16,
        "eval_steps": 3,
        "save_checkpoints_steps": 2,
        "seed": 7,
    }
    command = [sys.executable, str(ROOT / "tools/finetune.py")]
    command += [f"--{name}={value}" for name, value in flags.items()]
    command += [f"--output_dir={disk}/model"]
    environment = {**os.environ, "FOLDER": str(disk), "RESULTS": str(found)}
    subprocess.run(
        ["unshare", "-rm", "sh", "-c", FULL, "sh", str(disk), *command],
        env=environment,
        check=True,
        timeout=900,
    )
    failed = 0
    for file in found.glob("*.code"):
        errors = file.with_suffix(".txt").read_text()
        if file.stem == "99m":
            assert file.read_text() == "0\n", errors
            continue
        assert file.read_text() in ("0\n", "1\n"), errors
        if file.read_text() == "1\n":
            failed += 1
            assert "Traceback" not in errors
            (line,) = re.findall(r"^error: .*", errors, re.M)
            assert re.search("No space left|disk is full", line), line
            assert "config.json" not in file.with_suffix(".list").read_text()
    assert failed >= 3
    run(tmp_path / "whole", **flags)
    for name in ("metrics.json", "model.safetensors", "predictions.tsv"):
        whole = (tmp_path / "whole" / name).read_bytes()
        assert (found / "model" / name).read_bytes() == whole
