"""A folder holds one run, which newer code can still resume."""

import contextlib
import json
from unittest import mock

import pytest

from albert_tf.errors import DataError, UsageError
from albert_tf.reports.environment import ONEDNN
from albert_tf.storage import files
from albert_tf.storage.lock import locked
from albert_tf.training.finetune_settings import FinetuneSettings
from albert_tf.training.pretrain_settings import PretrainSettings
from albert_tf.training.run_folder import RUN_FILE, RunFolder, describe_command


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


def test_a_setting_that_is_gone_must_have_had_its_default(tmp_path):
    given = FinetuneSettings(output_dir=str(tmp_path))
    RunFolder(given).begin()
    edit(tmp_path, lambda record: record["settings"].update(search=[]))
    RunFolder(given)
    edit(tmp_path, lambda record: record["settings"].update(search=["x"]))
    with pytest.raises(UsageError, match=r"--search=\['x'\]; received --search=\[\]"):
        RunFolder(given)


CONTENT = {"data": {"records": "a" * 64}, "config": {"hidden_size": 12}}


MOVED = {"input_file": "elsewhere", "preset": "", "albert_config_file": "c.json"}
LATER = {
    "data": {"records": "a" * 64, "card": "c" * 64},
    "config": {"hidden_size": 12, "a_later_field": 3},
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
            *({}, {"config": {"hidden_size": 16}}),
            r"with config: hidden_size=12; received 16 \(--preset=albert_base\)",
        ),
        # What an earlier version did not record is not compared.
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


def test_a_run_of_an_earlier_version_is_compared_by_its_paths(tmp_path):
    open_folder(tmp_path).begin()
    edit(tmp_path, lambda record: record.pop("content"))
    open_folder(tmp_path).check_content(CONTENT)
    with pytest.raises(UsageError, match="--input_file='data'; received .*'other'"):
        open_folder(tmp_path, input_file="other")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"settings": 3}'])
def test_damaged_record(tmp_path, text):
    (tmp_path / RUN_FILE).write_text(text)
    with pytest.raises(DataError, match="run.json: must be the JSON record of a run"):
        open_folder(tmp_path)


def test_what_a_run_killed_at_its_start_leaves_behind_is_no_other_run(
    tmp_path, monkeypatch
):
    for name in (
        *("run.json.tmp-0123abcd", ".run.json.0123abcd.partial", ".lock"),
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
    again.finish()
    assert not open_with_steps(tmp_path, 12, False).model_is_outdated
    record = read(tmp_path)
    assert record["changed_from"] == [{"num_train_steps": 9}]
    assert record["settings"]["num_train_steps"] == 12 and record["versions"]


def edit_version(folder, package, version):
    edit(folder, lambda record: record["versions"].update({package: version}))


def test_other_versions_continue_a_run_only_by_saying_so(tmp_path):
    open_folder(tmp_path).begin()
    now = read(tmp_path)["versions"]
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
