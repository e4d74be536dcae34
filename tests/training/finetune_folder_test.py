"""The folder of a run: complete, and in nobody's way."""

import csv
import errno
import functools
import json
import os
import re
import shutil
import subprocess
from concurrent import futures

import numpy as np
import pytest

from albert_tf.errors import DataError, UsageError
from albert_tf.inference.classifier import Classifier
from albert_tf.storage import folders
from albert_tf.training import finetune
from albert_tf.training import run_folder as folder
from albert_tf.training.finetune_settings import FinetuneSettings
from albert_tf.training.tensorflow.step import TrainStep
from tests.training.runs import command_line, finetuning, run


def test_the_folder(finished, tables):
    output_dir, results = finished
    assert {path.name for path in output_dir.iterdir()} == {
        "config.json",
        "curves.png",
        "manifest.json",
        "metrics.json",
        "metrics.jsonl",
        "model.safetensors",
        "predictions.jsonl",
        "predictions.tsv",
        "report.html",
        "report.json",
        "run.json",
        "spiece.model",
        "tensorboard",
        "test_predictions.jsonl",
        "test_predictions.tsv",
    }
    assert json.loads((output_dir / "metrics.json").read_text()) == results
    lines = [json.loads(x) for x in (output_dir / "metrics.jsonl").open()]
    # 200 examples are 12.5 batches: three epochs of 13, and the rest.
    evaluated = [line for line in lines if line["split"] == "eval"]
    assert [line["step"] for line in evaluated] == [13, 26, 39, 45]
    assert max(line["accuracy"] for line in evaluated) == results["dev_accuracy"]
    trained = [line for line in lines if line["split"] == "train"]
    assert trained[0]["loss"] > trained[-1]["loss"]
    assert (output_dir / "curves.png").read_bytes()[:4] == b"\x89PNG"
    record = json.loads((output_dir / "run.json").read_text())
    assert record["settings"]["max_seq_length"] == 24
    assert record["settings"]["num_warmup_steps"] == 4
    with open(output_dir / "predictions.tsv", encoding="utf-8") as f:
        rows = list(csv.DictReader(f, delimiter="\t"))
    accuracy = np.mean([row["label"] == row["prediction"] for row in rows])
    assert accuracy == pytest.approx(results["dev_accuracy"])
    classify = Classifier.from_pretrained(output_dir)
    assert classify.labels == ["bad", "good"]
    with open(tables["dev_file"], encoding="utf-8") as f:
        texts = [row["text"] for row in csv.DictReader(f, delimiter="\t")]
    scores = [float(row["probability_good"]) for row in rows]
    np.testing.assert_allclose(classify.scores(texts)[:, 1], scores, atol=2e-5)


@pytest.fixture
def once(tables, pretrained):
    """Fine-tunes for one step in a folder."""
    given = {"train_file": tables["train_file"], "init_checkpoint": pretrained}
    return functools.partial(run, **given, num_train_steps=1)


def test_a_refusal_names_what_differs_and_not_what_follows_from_it(tmp_path):
    def open_run(num_examples=99, **changes):
        settings = FinetuneSettings(output_dir=str(tmp_path), **changes)
        content = {"data": str(num_examples)}
        return folder.open_run(settings.resolved(num_examples), content)

    open_run().begin()
    for changes, named in (
        ({"train_batch_size": 16}, "--train_batch_size=32; received --train_b.*=16"),
        ({"num_train_epochs": 2.0}, "--num_train_epochs=None; received"),
        ({"num_train_steps": 5}, "--num_train_steps=10; received"),
        ({"jit_compile": True}, "--jit_compile=False; received"),
        ({"num_examples": 500}, "data='99'; received '500'"),
    ):
        with pytest.raises(UsageError, match=f"another run, with {named}"):
            open_run(**changes)


def test_overwriting(once, finished, tmp_path, monkeypatch):
    output_dir, _ = finished
    before = (output_dir / "model.safetensors").read_bytes()
    with pytest.raises(UsageError, match="holds another run.*--overwrite"):
        once(output_dir)
    assert (output_dir / "model.safetensors").read_bytes() == before
    (tmp_path / "other").mkdir()
    # Also what looks like a leftover.
    precious = tmp_path / "other" / "thesis.txt.tmp-deadbeef"
    precious.write_text("precious")
    with pytest.raises(UsageError, match="exists already"):
        once(tmp_path / "other")
    with pytest.raises(UsageError, match="other is not a fine-tuning run"):
        once(tmp_path / "other", overwrite=True)
    assert precious.read_text() == "precious"
    shutil.copytree(output_dir, tmp_path / "new")
    first = (tmp_path / "new" / "run.json").read_text()
    with monkeypatch.context() as several:
        several.setattr(finetune, "is_one_of_several", lambda strategy: True)
        with pytest.raises(UsageError, match="several workers cannot replace"):
            once(tmp_path / "new", overwrite=True, seed=9)
    assert (tmp_path / "new" / "model.safetensors").read_bytes() == before
    precious = "thesis.txt", "README.md", "labels.txt", "dev_predictions.tsv"
    for name in (*precious, "assets/photo.png"):
        (tmp_path / "new" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "new" / name).write_text("mine")
    once(tmp_path / "new", overwrite=True, seed=9)
    assert (tmp_path / "new" / "run.json").read_text() != first
    for name in (*precious, "assets/photo.png"):
        assert (tmp_path / "new" / name).read_text() == "mine"
    assert not (tmp_path / "new" / "test_predictions.tsv").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "other"]


def test_a_finished_run_is_whole_or_made_again(once, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / ".run.json.0123abcd.partial").write_text("{")  # of an interrupted write
    results = once(out)
    assert not (out / ".run.json.0123abcd.partial").exists()
    before = (out / "model.safetensors").read_bytes()
    # The first is of a killed process; the others may be the user's.
    for name in (".out.tmp-0123abcd", "out.old-0123abcd", "out.old-20240131", "out2"):
        (tmp_path / name).mkdir()
    assert once(out) == results
    names = ["out", "out.old-0123abcd", "out.old-20240131", "out2"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    (out / "model.safetensors").write_bytes(b"")
    with pytest.raises(DataError, match="is not the file .*; --overwrite makes the"):
        once(out)
    once(out, overwrite=True)
    assert (out / "model.safetensors").read_bytes() == before


def test_an_unwritable_folder_is_reported_before_the_work(once, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="output_dir: .*/out cannot be created in"):
        once(tmp_path / "file" / "out", train_file="no.csv")
    # A possible folder passes, and nothing is left behind.
    with pytest.raises(DataError, match="no.csv"):
        once(tmp_path / "a" / "b", train_file="no.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_full_disk_is_one_line_and_costs_no_training(once, tmp_path, monkeypatch):
    def fill(self, name):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(folders.FolderWriter, "open", fill)
        with pytest.raises(DataError, match="out: cannot be written: No space left"):
            once(tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert "checkpoints" in names and "config.json" not in names
    monkeypatch.setattr(TrainStep, "train", lambda *args: pytest.fail("again"))
    assert once(tmp_path / "out")["step"] == 1
    assert (tmp_path / "out/config.json").exists()


def test_a_refused_command_leaves_the_old_run_alone(once, finished, tmp_path):
    new = tmp_path / "new"
    shutil.copytree(finished[0], new)
    before = {path.name: path.stat().st_mtime for path in new.iterdir()}
    for change in (
        {"class_weights": ("x=1",)},
        {"num_warmup_steps": 100},
        {"metric": "accuracy"},  # without dev examples
    ):
        with pytest.raises(UsageError):
            once(new, overwrite=True, seed=9, **change)
    assert {path.name: path.stat().st_mtime for path in new.iterdir()} == before


def test_a_link_to_the_folder_stays_a_link(once, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real" / ".lock-0123abcd").write_text("")
    (tmp_path / "real" / "lost+found").mkdir()  # as on a new disk
    once(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "model.safetensors").exists()


@pytest.mark.parametrize("old", ["new.old-0123abcd", ".new.old-0123abcd"])
def test_an_interrupted_replacement_is_undone(once, finished, tmp_path, old):
    shutil.copytree(finished[0], tmp_path / old)
    with pytest.raises(UsageError, match="holds another run"):
        once(tmp_path / "new")
    assert (tmp_path / "new" / "model.safetensors").exists()


def test_runs_that_start_together_do_not_refuse_each_other(tables, tmp_path):
    values = {**tables, "output_dir": str(tmp_path), "init_checkpoint": "unread"}
    settings = FinetuneSettings(**values)
    with futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(folder.prepared, [settings] * 200))
    assert not list(tmp_path.iterdir())


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
    values = {**tables, "init_checkpoint": pretrained, "num_train_steps": 6}
    values |= {"eval_steps": 3, "save_checkpoints_steps": 2}
    command = command_line("finetune", finetuning(disk / "model", **values))
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
    run(tmp_path / "whole", **values)
    for name in ("metrics.json", "model.safetensors", "predictions.tsv"):
        whole = (tmp_path / "whole" / name).read_bytes()
        assert (found / "model" / name).read_bytes() == whole
