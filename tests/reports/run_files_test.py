"""Folders of runs as they are at any moment of a run, and what is none."""

import json
import os

import pytest

from albert_tf.errors import DataError, UsageError
from albert_tf.reports.run_files import (
    FINETUNING,
    PRETRAINING,
    Rollback,
    is_finetuning,
    read_runs,
)
from albert_tf.storage import files
from tests.reports.runs import CONFIG, SETTINGS, lines, rollback, write_run


def test_a_pretraining_run(tmp_path):
    path = write_run(tmp_path / "a")
    (run,) = read_runs([path + "/"])
    assert (run.path, run.name, run.kind) == (path, "a", PRETRAINING)
    assert (run.is_finished, run.num_train_steps) == (False, 40)
    assert (run.settings, run.config) == (SETTINGS, CONFIG)
    assert run.environment == {"versions": {"python": "3.11"}}
    assert run.measurements.last_step == 20
    assert not (run.data_card or run.trials or run.notices)
    assert not is_finetuning(path)


def test_a_run_in_progress(tmp_path):
    path = write_run(tmp_path / "a")
    with open(tmp_path / "a/metrics.jsonl", "a") as file:
        file.write('{"split": "train", "step": 22, "lo')
    (run,) = read_runs([path])
    assert run.measurements.last_step == 20
    (tmp_path / "a/metrics.jsonl").write_text("")
    (run,) = read_runs([path])
    assert run.notices == ["a: nothing is on record yet."]
    os.remove(tmp_path / "a/metrics.jsonl")
    assert read_runs([path])[0].notices == run.notices


def test_lines_that_are_left_out_are_named(tmp_path):
    (run,) = read_runs([write_run(tmp_path / "a", [*lines(), 3, {"loss": 1.0}])])
    (notice,) = run.notices
    assert notice.startswith("a: 2 lines of metrics.jsonl have no step")


def test_the_data_card_is_read_where_the_run_found_it(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "docs-00000-of-00001.tfrecord").write_bytes(b"")
    card = {"form": "dynamic", "corpus": {"documents": 3}}
    (data / "dataset.json").write_text(json.dumps(card))
    path = write_run(tmp_path / "a", input_file=str(data / "docs"))
    assert read_runs([path])[0].data_card == card
    path = write_run(tmp_path / "b", input_file="gs://bucket/docs")
    assert read_runs([path])[0].data_card == {}


@pytest.mark.parametrize(
    ("finished", "names"), [(True, ["a"]), (False, ["a/seed_1", "a/seed_2"])]
)
def test_seeds_are_runs_until_one_is_chosen(tmp_path, finished, names):
    path = write_run(tmp_path / "a", kind="finetune", finished=finished)
    for seed in (1, 2):
        write_run(tmp_path / f"a/trials/seed_{seed}", kind="finetune", seed=seed)
    (tmp_path / "a/trials/.lock-12345678").mkdir()
    trials = [{"name": "seed_1", "seed": 1, "results": {}, "value": 0.5}]
    (tmp_path / "a/trials.json").write_text(json.dumps(trials))
    runs = read_runs([path])
    assert [run.name for run in runs] == names
    assert {run.kind for run in runs} == {FINETUNING}
    assert runs[0].trials == (trials if finished else [])
    assert is_finetuning(path)


def test_runs_of_the_same_name_are_told_apart(tmp_path):
    paths = [write_run(tmp_path / one / "run") for one in "ab"]
    paths.append(write_run(tmp_path / "c"))
    assert [run.name for run in read_runs(paths)] == [*paths[:2], "c"]
    with pytest.raises(UsageError, match="must be given once, received it twice"):
        read_runs([paths[0], paths[0] + "/"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "must be the folder of a run of pretrain or finetune, has no run.json"),
        ("{", "run.json: not JSON"),
        ("[]", "run.json: expected a JSON object"),
        ("{}", "run.json: must be the record of a run"),
        ('{"settings": 3}', "run.json: must be the record of a run"),
        ('{"settings": {}, "kind": "x"}', "run.json: must be the record of a run"),
        ('{"settings": {}, "kind": ["x"]}', "run.json: must be the record of a run"),
    ],
)
def test_a_folder_that_is_no_run_is_refused(tmp_path, content, message):
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    with pytest.raises(DataError, match=message):
        read_runs([str(tmp_path)])


def test_paths_that_are_no_folder_are_refused(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        read_runs([str(tmp_path / "none")])
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"has no run\.json"):
        read_runs([str(tmp_path / "file")])


def test_a_damaged_log_is_named(tmp_path):
    path = write_run(tmp_path / "a")
    (tmp_path / "a/metrics.jsonl").write_text('{"step": 1}\nx\n{"step": 2}\n')
    with pytest.raises(DataError, match=r"metrics\.jsonl: line 2 must be JSON"):
        read_runs([path])
    (tmp_path / "a/trials.json").write_text("{")
    (tmp_path / "a/metrics.jsonl").write_text("")
    write_run(tmp_path / "a", kind="finetune", finished=True)
    with pytest.raises(DataError, match=r"trials\.json: must be a JSON list"):
        read_runs([path])


def test_a_remote_run(tmp_path, bucket):
    local, remote = tmp_path / "a", f"{bucket}/a"
    write_run(local)
    files.make_folder(remote)
    for name in ("run.json", "metrics.jsonl"):
        files.write_bytes(files.join(remote, name), (local / name).read_bytes())
    (run,), (same,) = read_runs([remote]), read_runs([str(local)])
    assert run.name == "a"
    assert run.measurements == same.measurements


def test_rollbacks_are_read_from_the_log(tmp_path):
    found = [*lines(8), rollback(11, 8, 10), *lines(20)[5:]]
    (run,) = read_runs([write_run(tmp_path / "a", found)])
    assert run.rollbacks == [Rollback(11, 8, 10, 0, 57.25, None)]
    assert run.rollbacks[0].describe() == (
        "diverged at step 11: loss 57.2500, gradient norm not finite; batch 10 left "
        "out, back to step 8"
    )
    # They are no curves, and nothing that a reader must be warned of.
    assert "skipped" not in {split for split, *_ in run.measurements.curves}
    assert not run.notices


def test_the_record_of_rollbacks_is_complete(tmp_path):
    path = write_run(tmp_path / "a", [*lines(8), rollback(11, 8, 10)])
    entries = [rollback(11, 8, 10), rollback(1011, 1008, 10, phase=1000, loss=1e-9)]
    text = json.dumps({"skipped": entries})
    (tmp_path / "a/skipped_batches.json").write_text(text)
    (run,) = read_runs([path])
    assert [one.diverged_at for one in run.rollbacks] == [11, 1011]
    assert "batch 10 of the phase from step 1,000 left" in run.rollbacks[1].describe()


def test_what_is_no_rollback_is_left_out(tmp_path):
    strange = [
        *(rollback(at, 4, 4) for at in (None, "5", -1, 2.5, True, 2**60)),
        rollback(5, 4, 4, phase="x"),
        {"split": "skipped", "step": 3},
    ]
    path = write_run(tmp_path / "a", [*lines(), *strange, rollback(5, 4, 4, loss="x")])
    (run,) = read_runs([path])
    assert run.rollbacks == [Rollback(5, 4, 4)]
    (tmp_path / "a/skipped_batches.json").write_text('{"skipped": 3}')
    assert not read_runs([path])[0].rollbacks
