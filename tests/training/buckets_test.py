"""A finished run on its way into a bucket, and two runs that want one folder."""

import json
import os

import pytest
import tensorflow as tf

from albert_tf.converters.load import from_pretrained, load_tokenizer
from albert_tf.errors import DataError, UsageError
from albert_tf.inference.predictor import Predictor
from albert_tf.storage import files, folders
from albert_tf.storage.lock import LOCK_FILE
from albert_tf.training.evaluation import Evaluator
from tests.training.runs import Killed, run


@pytest.fixture
def arguments(tables, pretrained, eager):
    lengths = {"num_train_steps": 4, "eval_steps": 2, "save_checkpoints_steps": 2}
    return {**tables, "init_checkpoint": pretrained, **lengths}


def contents(path):
    """The files that are the same each time; times and paths are in the others."""
    names = files.tree(path)
    kept = [
        n
        for n in names
        if n.endswith((".safetensors", ".model", ".tsv", "predictions.jsonl"))
        or n in ("metrics.json", "config.json", "manifest.json")
    ]
    return {name: files.read_bytes(files.join(path, name)) for name in kept}


def is_refused(path):
    """Checks that a folder is a model for nobody, and that people learn why."""
    message = "holds a fine-tuning run that has not finished; run the same finetune"
    openings = (from_pretrained, load_tokenizer, Predictor.from_pretrained)
    for open_it in openings:
        with pytest.raises(DataError, match=message):
            open_it(path)
    with pytest.raises(DataError, match=message):
        from_pretrained(path, format="albert_tf")


def fail_at(monkeypatch, function, error, name, after=None):
    """Lets a function of the file system fail at a name, once another path exists."""
    real = getattr(tf.io.gfile, function)

    def wrapped(*args, **kwargs):
        named = any(str(path).endswith(f"/{name}") for path in args)
        if named and (after is None or files.exists(after)):
            raise error
        return real(*args, **kwargs)

    monkeypatch.setattr(tf.io.gfile, function, wrapped)


@pytest.mark.slow
def test_an_upload_that_dies_is_no_model_and_is_completed(
    arguments, bucket, tmp_path, monkeypatch
):
    run(tmp_path / "whole", **arguments)
    expected = contents(str(tmp_path / "whole"))
    path = f"{bucket}/model"
    away = tf.errors.UnavailableError(None, None, "bucket is away")
    message = "model: cannot be written: bucket is away; run the same command"
    with monkeypatch.context() as patch, pytest.raises(DataError, match=message):
        fail_at(patch, "copy", away, "predictions.tsv")
        run(path, **arguments)
    is_refused(path)
    # The record is the last file.
    manifest = f"{path}/manifest.json"
    with monkeypatch.context() as patch, pytest.raises(Killed):
        fail_at(patch, "copy", Killed(), "run.json", after=manifest)
        run(path, **arguments)
    is_refused(path)
    assert files.is_folder(f"{path}/checkpoints")
    with monkeypatch.context() as patch, pytest.raises(Killed):
        fail_at(patch, "rmtree", Killed(), "checkpoints", after=manifest)
        run(path, **arguments)
    # The run is finished, but had no time to remove what it no longer needs.
    assert from_pretrained(path).labels == ("bad", "good")
    assert files.is_folder(f"{path}/checkpoints")
    assert run(path, **arguments) == json.loads(expected["metrics.json"])
    assert contents(path) == expected
    folders.verify(path)
    # Nothing else is left, except that each attempt has events of its own.
    left = [
        {name for name in files.tree(folder) if "tfevents" not in name}
        for folder in (path, str(tmp_path / "whole"))
    ]
    assert left[0] == left[1]
    assert not {"checkpoints", "best", LOCK_FILE} & {*files.list_folder(path)}


@pytest.mark.slow
def test_of_two_live_runs_the_second_is_refused(arguments, bucket, monkeypatch):
    path = f"{bucket}/model"
    evaluate, refused = Evaluator.__call__, []

    def begin_a_second_run(self):
        if not refused:
            refused.append(None)
            before = files.read_json(files.join(path, LOCK_FILE))
            for change in ({}, {"seed": 8, "overwrite": True}):
                with pytest.raises(UsageError) as caught:
                    run(path, **{**arguments, **change})
                refused.append(str(caught.value))
            after = files.read_json(files.join(path, LOCK_FILE))
            assert {**after, "renewed": None} == {**before, "renewed": None}
        return evaluate(self)

    monkeypatch.setattr(Evaluator, "__call__", begin_a_second_run)
    results = run(path, **arguments)
    for message in refused[1:]:
        assert f"{path}: process {os.getpid()} on host" in message
        assert "is writing to this folder" in message and "\n" not in message
    assert results["num_train_steps"] == 4
    assert files.read_json(files.join(path, "metrics.json"))["seed"] == 7
    assert LOCK_FILE not in files.list_folder(path)
