"""A folder holds one run, which newer code can resume; complete, in nobody's way."""

import contextlib
import csv
import errno
import functools
import json
import os
import re
import shutil
import subprocess
from concurrent import futures
from unittest import mock

import numpy as np
import pytest

from albert_tf.environment import ONEDNN
from albert_tf.errors import DataError, UsageError
from albert_tf.inference.classifier import Classifier
from albert_tf.storage import files, folders
from albert_tf.storage.lock import locked
from albert_tf.training import finetune
from albert_tf.training.finetune_settings import FinetuneSettings
from albert_tf.training.pretrain_settings import PretrainSettings
from albert_tf.training.run_folder import (
    RUN_FILE,
    RunFolder,
    describe_command,
    open_run,
    prepared,
)
from albert_tf.training.tensorflow.step import TrainStep
from tests.training.runs import command_line, finetuning, run


def settings(folder, **changes):
    names = {"input_file": "data", "spm_model_file": "spm", "preset": "albert_base"}
    return PretrainSettings(output_dir=str(folder), **{**names, **changes})


def open_folder(folder, **changes):
    return RunFolder(settings(folder, **changes))


def edit(folder, change):
    """Changes the record of a run."""
    record = json.loads((folder / RUN_FILE).read_text())
    change(record)
    (folder / RUN_FILE).write_text(json.dumps(record))


def test_the_same_run_may_continue(tmp_path):
    open_folder(tmp_path).begin()
    open_folder(tmp_path, log_steps=7)  # not part of the identity
    with pytest.raises(UsageError, match=r"--seed=12345; received --seed=3"):
        open_folder(tmp_path, seed=3)
    # Also on other devices, or in other parts of the same batch.
    changes = {"distribution": "mirrored", "gradient_accumulation_steps": 2}
    open_folder(tmp_path, depth="loop", **changes).begin()
    assert read(tmp_path)["changed_from"] == [{"depth": "unrolled"}]


def test_what_follows_from_other_settings_is_compared_last(tmp_path):
    open_folder(tmp_path).begin()
    with pytest.raises(UsageError, match="--max_seq_length=512; received --max_seq"):
        open_folder(tmp_path, max_seq_length=64)
    open_folder(tmp_path, max_predictions_per_seq=77).check_content({})
    with pytest.raises(UsageError, match="--max_predictions_per_seq=77; received"):
        open_folder(tmp_path, max_predictions_per_seq=20).check_content({})


def read(folder):
    return json.loads((folder / RUN_FILE).read_text())


def test_other_kernels_are_named(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv(ONEDNN, "1")
    for _ in range(2):
        open_folder(tmp_path).begin()
    assert not caplog.records
    monkeypatch.delenv(ONEDNN)
    with caplog.at_level("WARNING", logger="absl"):
        open_folder(tmp_path).begin()
    assert f"began with {ONEDNN}=1, continues with None" in caplog.text


def test_where_the_initial_checkpoint_came_from_is_recorded_only(tmp_path):
    folder = open_folder(tmp_path)
    folder.origin = "hf://owner/name@0123"
    folder.begin()
    record = read(tmp_path)
    assert record["init_checkpoint"] == "hf://owner/name@0123"
    again = open_folder(tmp_path)  # the same weights at another commit
    again.origin = "hf://owner/name@4567"
    again.begin()
    assert open_folder(tmp_path).record() == record


def test_a_run_from_before_a_setting_existed_may_continue(tmp_path):
    open_folder(tmp_path).begin()
    edit(tmp_path, lambda record: record["settings"].pop("objective"))
    open_folder(tmp_path)
    with pytest.raises(UsageError, match=r"--objective='albert'; received .*'bert'"):
        open_folder(tmp_path, objective="bert")
    # One without a default must be on record.
    edit(tmp_path, lambda record: record["settings"].pop("input_file"))
    with pytest.raises(UsageError, match="--input_file=None"):
        open_folder(tmp_path)


CONTENT = {
    "data": {"records": "a" * 64},
    "config": {"hidden_size": 12, "depth_embedding": True},
}


MOVED = {"input_file": "elsewhere", "preset": "", "albert_config_file": "c.json"}
LATER = {
    "data": {"records": "a" * 64, "card": "c" * 64},
    "config": {**CONTENT["config"], "a_later_field": 3},
    "tokenizer": {"sha256": "d" * 64},
}


@pytest.mark.parametrize(
    ("changes", "content", "message"),
    [
        # "spm" is not on record by content, so its path is compared.
        (MOVED, {}, None),
        ({"spm_model_file": "b"}, {}, "--spm_model_file='spm'; received .*'b'"),
        (
            *({}, {"data": {"records": "b" * 64}}),
            r"with data: records=a{12}…; received b{12}… \(--input_file=data\)",
        ),
        (
            *({}, {"config": {**CONTENT["config"], "hidden_size": 16}}),
            r"with config: hidden_size=12; received 16 \(--preset=albert_base\)",
        ),
        # Some fields are left out where they are off.
        (*({}, {"config": {"hidden_size": 12}}), "depth_embedding=True; received None"),
        (
            *({}, {"config": {**CONTENT["config"], "depth_rank": 2}}),
            "depth_rank=None; received 2",
        ),
        # What else is not on record is not compared.
        ({}, LATER, None),
    ],
)
def test_a_run_is_known_by_its_content(tmp_path, changes, content, message):
    folder = open_folder(tmp_path)
    folder.check_content(CONTENT)
    folder.begin()
    refused = pytest.raises(UsageError, match=message)
    with refused if message else contextlib.nullcontext():
        open_folder(tmp_path, **changes).check_content({**CONTENT, **content})


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"settings": 3}', "[" * 200_000])
def test_damaged_record(tmp_path, text):
    (tmp_path / RUN_FILE).write_text(text)
    message = "run.json: must be the JSON record of a run; after a power cut, put"
    with pytest.raises(DataError, match=message):
        open_folder(tmp_path)
    paths = {"output_dir": str(tmp_path), "data_dir": "x", "init_checkpoint": "y"}
    fine_tuning = FinetuneSettings(task="sst-2", **paths)
    with pytest.raises(DataError, match=message):
        prepared(fine_tuning)


def test_what_a_run_killed_at_its_start_leaves_behind_is_no_other_run(
    tmp_path, monkeypatch
):
    for name in (
        *(".run.json.0123abcd.partial", ".lock"),
        *(".lock-0123abcd", "..lock.0123abcd.partial"),
    ):
        (tmp_path / name).write_text("{")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(files, "rename", mock.Mock(side_effect=KeyboardInterrupt))
        open_folder(tmp_path).begin()
    open_folder(tmp_path).begin()
    open_folder(tmp_path)


def open_with_steps(folder, steps, allowed):
    lengths = {"num_train_steps": steps, "num_warmup_steps": 1}
    return open_folder(folder, **lengths, change_num_train_steps=allowed)


def test_the_length_of_a_run_may_be_changed_by_saying_so(tmp_path):
    open_with_steps(tmp_path, 9, False).begin()
    with pytest.raises(UsageError, match=r"=12 \(--change_num_train_steps allows it"):
        open_with_steps(tmp_path, 12, False)
    changed = open_with_steps(tmp_path, 12, True)
    assert changed.model_is_outdated
    changed.begin()
    # Killed before the new model is there: the same command goes on.
    again = open_with_steps(tmp_path, 12, False)
    assert again.model_is_outdated
    again.begin()
    (tmp_path / "compilation_cache").mkdir()
    again.finish()
    assert not (tmp_path / "compilation_cache").exists()
    assert not open_with_steps(tmp_path, 12, False).model_is_outdated
    record = read(tmp_path)
    assert record["changed_from"] == [{"num_train_steps": 9}]
    assert record["settings"]["num_train_steps"] == 12 and record["versions"]


def edit_version(folder, package, version):
    edit(folder, lambda record: record["versions"].update({package: version}))


def test_other_versions_continue_a_run_only_by_saying_so(tmp_path):
    open_folder(tmp_path).begin()
    now = read(tmp_path)["versions"]
    edit_version(tmp_path, "source of albert_tf", "0" * 64)
    with pytest.raises(UsageError, match=r"began with source of albert_tf 0+ \(here "):
        open_folder(tmp_path).check_versions()
    edit_version(tmp_path, "source of albert_tf", now["source of albert_tf"])
    edit_version(tmp_path, "python", "2.7")
    edit_version(tmp_path, "keras", "1.0")
    folder = open_folder(tmp_path)
    message = rf"began with keras 1.0 \(here {now['keras']}\); .*--allow_other_versions"
    with pytest.raises(UsageError, match=message):
        folder.check_versions()
    folder = open_folder(tmp_path, allow_other_versions=True)
    folder.check_versions()
    folder.begin()
    record = read(tmp_path)
    assert record["versions"] == now
    assert record["changed_from"][0]["versions"]["keras"] == "1.0"
    again = open_folder(tmp_path)
    again.check_versions()
    assert not again.model_is_outdated


def test_all_settings_but_the_local_ones_are_shared_with_the_code(tmp_path):
    facts = describe_command(settings(tmp_path, seed=3))
    assert facts["--seed"] == 3 and facts["version of keras"]
    assert len(facts["source of albert_tf"]) == 64
    assert "--output_dir" not in facts and "version of python" not in facts


def test_other_content_is_refused(tmp_path):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(UsageError, match="holds 'notes.txt'"):
        open_folder(tmp_path)
    with pytest.raises(UsageError, match="must be a folder, is a file"):
        open_folder(tmp_path / "notes.txt")


def test_what_a_living_process_writes_is_left_alone(tmp_path):
    folder = open_folder(tmp_path)
    folder.begin()
    left = [tmp_path / ".run.json.0123abcd.partial", tmp_path / "best/.new-0123abcd"]
    left += [tmp_path / ".best.tmp-0123abcd"]
    for path in left:
        path.mkdir(parents=True)
    with locked(tmp_path):
        folder.tidy()
        assert all(path.exists() for path in left)
    folder.tidy()
    assert {path.name for path in tmp_path.rglob("*")} == {"best", RUN_FILE}


def test_it_learns_and_leaves_a_folder(finished, tables):
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
        "tokenizer_config.json",
    }
    assert json.loads((output_dir / "metrics.json").read_text()) == results
    lines = [json.loads(x) for x in (output_dir / "metrics.jsonl").open()]
    assert results["dev_accuracy"] > 0.95 and results["dev_majority_accuracy"] < 0.7
    assert results["labels"] == ["bad", "good"]
    assert (results["train_examples"], results["num_train_steps"]) == (200, 45)
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
def once(tables, pretrained, eager):
    """Fine-tunes for one step in a folder."""
    given = {"train_file": tables["train_file"], "init_checkpoint": pretrained}
    return functools.partial(run, **given, num_train_steps=1)


def test_a_refusal_names_what_differs_and_not_what_follows_from_it(tmp_path):
    def reopen(num_examples=99, **changes):
        places = {"train_file": "t", "init_checkpoint": "c"}
        settings = FinetuneSettings(output_dir=str(tmp_path), **places, **changes)
        content = {"data": str(num_examples)}
        return open_run(settings.resolved(num_examples), content)

    reopen().begin()
    for changes, named in (
        ({"train_batch_size": 16}, "--train_batch_size=32; received --train_b.*=16"),
        ({"num_train_epochs": 2.0}, "--num_train_epochs=None; received"),
        ({"num_train_steps": 5}, "--num_train_steps=10; received"),
        ({"jit_compile": True}, "--jit_compile=False; received"),
        ({"num_examples": 500}, "data='99'; received '500'"),
    ):
        with pytest.raises(UsageError, match=f"another run, with {named}"):
            reopen(**changes)


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
    others = ("assets/photo.png", "model/.notes.12345678.partial")
    for name in (*precious, *others):
        (tmp_path / "new" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "new" / name).write_text("mine")
    once(tmp_path / "new", overwrite=True, seed=9)
    assert (tmp_path / "new" / "run.json").read_text() != first
    for name in (*precious, *others):
        assert (tmp_path / "new" / name).read_text() == "mine"
    assert not (tmp_path / "new" / "test_predictions.tsv").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "other"]


@pytest.mark.slow
def test_a_finished_run_is_whole_or_made_again(once, tmp_path, monkeypatch):
    place, link = tmp_path / "place", tmp_path / "link"
    out = place / "out"
    (out / "lost+found").mkdir(parents=True)  # as on a new disk
    link.symlink_to(out)
    left = [out / ".run.json.0123abcd.partial", out / ".lock-0123abcd"]
    for path in left:
        path.write_text("{")
    # A full disk is one line and costs no training.
    with monkeypatch.context() as patch:
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        patch.setattr(folders.FolderWriter, "open", mock.Mock(side_effect=full))
        with pytest.raises(DataError, match="/(link|out): cannot be written: No space"):
            once(link)
    names = {path.name for path in out.iterdir()}
    assert "checkpoints" in names and "config.json" not in names
    with monkeypatch.context() as patch:
        patch.setattr(TrainStep, "train", lambda *args: pytest.fail("again"))
        results = once(link)
    assert results["step"] == 1 and (out / "config.json").exists()
    assert link.is_symlink() and not any(path.exists() for path in left)
    before = (out / "model.safetensors").read_bytes()
    # The first is of a killed process; the others may be the user's.
    for name in (".out.tmp-0123abcd", "out.old-0123abcd", "out.old-20240131", "out2"):
        (place / name).mkdir()
    assert once(out) == results
    names = ["out", "out.old-0123abcd", "out.old-20240131", "out2"]
    assert sorted(path.name for path in place.iterdir()) == names
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


def test_runs_that_start_together_do_not_refuse_each_other(tables, tmp_path):
    values = {**tables, "output_dir": str(tmp_path), "init_checkpoint": "unread"}
    settings = FinetuneSettings(**values)
    with futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(prepared, [settings] * 200))
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
