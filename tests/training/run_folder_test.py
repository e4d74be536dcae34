"""A folder holds one run, which newer code can still resume."""

import json

import pytest

from albert_tf.errors import DataError, UsageError
from albert_tf.training.pretraining.settings import PretrainSettings
from albert_tf.training.run_folder import RUN_FILE, RunFolder


def settings(folder, **changes):
    return PretrainSettings("data", str(folder), "spm", preset="albert_base", **changes)


def open_folder(folder, **changes):
    new = settings(folder, **changes)
    return RunFolder(new.output_dir, new.identity(), new.defaults())


@pytest.fixture
def old_run(tmp_path):
    """A run recorded before the setting `objective` existed."""
    open_folder(tmp_path).begin()
    record = json.loads((tmp_path / RUN_FILE).read_text())
    del record["settings"]["objective"]
    (tmp_path / RUN_FILE).write_text(json.dumps(record))
    return tmp_path


def test_the_same_run_may_continue(tmp_path):
    open_folder(tmp_path).begin()
    open_folder(tmp_path, log_steps=7)  # not part of the identity
    with pytest.raises(UsageError, match=r"--seed=12345; received --seed=3"):
        open_folder(tmp_path, seed=3)


def test_a_run_from_before_a_setting_existed_may_continue(old_run):
    open_folder(old_run)
    with pytest.raises(UsageError, match=r"--objective='albert'; received .*'bert'"):
        open_folder(old_run, objective="bert")


def test_a_setting_without_a_default_must_be_recorded(old_run):
    record = json.loads((old_run / RUN_FILE).read_text())
    del record["settings"]["input_file"]
    (old_run / RUN_FILE).write_text(json.dumps(record))
    with pytest.raises(UsageError, match="--input_file=None"):
        open_folder(old_run)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"settings": 3}'])
def test_damaged_record(tmp_path, text):
    (tmp_path / RUN_FILE).write_text(text)
    with pytest.raises(DataError, match="run.json: must be the JSON record of a run"):
        open_folder(tmp_path)


def test_other_content_is_refused(tmp_path):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(UsageError, match="holds 'notes.txt'"):
        open_folder(tmp_path)
    with pytest.raises(UsageError, match="must be a folder, is a file"):
        open_folder(tmp_path / "notes.txt")
