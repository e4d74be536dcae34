"""Folders of runs as they are at any moment of a run, and other folders."""

import json
import math
import os

import pytest

from albert_tf.errors import DataError, UsageError
from albert_tf.reports.run_files import (
    FINETUNING,
    PRETRAINING,
    read_log,
    read_run,
    read_runs,
)
from albert_tf.reports.run_page import render_runs
from albert_tf.storage import files
from tests.reports.runs import CONFIG, SETTINGS, lines, rollback, write_run


def points(curve):
    return list(zip(*map(list, curve), strict=True))


def run_of(tmp_path, found=None):
    return read_run(write_run(tmp_path / "a", found))


def test_a_pretraining_run_in_progress(tmp_path):
    path = write_run(tmp_path / "a")
    with open(tmp_path / "a/metrics.jsonl", "a") as file:
        file.write('{"split": "train", "step": 22, "lo')
    (run,) = read_runs([path + "/"])
    assert (run.path, run.name, run.kind) == (path, "a", PRETRAINING)
    assert (run.is_finished, run.num_train_steps) == (False, 40)
    assert (run.settings, run.config) == (SETTINGS, CONFIG)
    assert run.environment == {"versions": {"python": "3.11"}}
    assert run.last_step == 20
    assert not (run.data_card or run.trials or run.notices)
    os.remove(tmp_path / "a/metrics.jsonl")
    assert read_run(path).notices == ["a: nothing is on record yet."]


def test_curves_by_split_and_name():
    sums = {"split": "unfinished", "step": 4, "sums": {"loss_sum": 3.0}, "seconds": 2.0}
    found = read_log(
        [
            {"split": "train", "step": 2, "loss": 3.0, "name": "x", "ok": True},
            {"split": "eval", "step": 2, "loss": 2.5, "missing": None},
            {"split": "train", "step": 4, "loss": 1, "trust_ratios": {"a/b": 0.5}},
            sums,
        ]
    )
    assert {key: points(curve) for key, curve in found["measured"].items()} == {
        ("train", "loss", ""): [(2, 3.0), (4, 1.0)],
        ("eval", "loss", ""): [(2, 2.5)],
        ("train", "trust_ratios", "a/b"): [(4, 0.5)],
    }
    assert found["last_step"] == 4 and found["skipped"] == 0


def test_what_is_no_measurement_is_counted(tmp_path):
    strange = [3, "text", None, [], {}, {"step": "2"}, {"step": True}, {"step": -1}]
    strange += [{"step": math.nan}, {"step": math.inf}, {"step": 10**400}]
    found = read_log([*strange, {"step": 1, "loss": 10**400, "split": ["x"]}])
    assert found["skipped"] == len(strange)
    assert points(found["measured"]["train", "loss", ""]) == [(1, math.inf)]
    (notice,) = run_of(tmp_path, [*lines(), 3, {"loss": 1.0}]).notices
    assert notice.startswith("a: 2 lines of metrics.jsonl have no step")


def test_time_is_tokens_by_speed(tmp_path):
    log = [{"tokens": 100.0, "tokens_per_second": 10.0, "step": 1}]  # compiles
    log += [{"tokens": 300.0, "tokens_per_second": 100.0, "step": s} for s in (4, 7)]
    clock = run_of(tmp_path, log).clock
    assert points(clock[:2]) == [(1, 10.0), (4, 13.0), (7, 16.0)]
    assert clock.tokens.tolist() == [100.0, 400.0, 700.0]
    assert clock.step_seconds == 1.0
    # The speed of now is that of the last lines.
    slow = {"tokens": 100.0, "tokens_per_second": 10.0}
    log += [{**slow, "step": 7 + 2 * n} for n in range(1, 11)]
    assert run_of(tmp_path, log).clock.step_seconds == 5.0
    for change in (
        {"tokens": "x"},
        {"tokens_per_second": math.inf},
        {"tokens_per_second": 0},
        {"tokens": math.nan},
    ):
        assert run_of(tmp_path, [*log[:3], {**log[3], **change}]).clock is None


def test_the_data_card_is_read_where_the_run_found_it(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "docs-00000-of-00001.tfrecord").write_bytes(b"")
    card = {"form": "dynamic", "corpus": {"documents": 3}}
    (data / "dataset.json").write_text(json.dumps(card))
    path = write_run(tmp_path / "a", input_file=str(data / "docs"))
    assert read_run(path).data_card == card
    path = write_run(tmp_path / "b", input_file="gs://bucket/docs")
    assert read_run(path).data_card == {}


@pytest.mark.parametrize(
    ("finished", "names"), [(True, ["a"]), (False, ["a/seed_1", "a/seed_2"])]
)
def test_seeds_are_runs_until_one_is_chosen(tmp_path, finished, names):
    path = write_run(tmp_path / "a", kind="finetune", finished=finished)
    for seed in (1, 2):
        write_run(tmp_path / f"a/trials/seed_{seed}", kind="finetune", seed=seed)
    (tmp_path / "a/trials/.lock-12345678").mkdir()
    runs = read_runs([path])
    assert [run.name for run in runs] == names
    assert {run.kind for run in runs} == {FINETUNING}


def test_runs_of_the_same_name_are_told_apart(tmp_path):
    paths = [write_run(tmp_path / one / "run") for one in "ab"]
    paths.append(write_run(tmp_path / "c"))
    assert [run.name for run in read_runs(paths)] == [*paths[:2], "c"]
    with pytest.raises(UsageError, match="must be given once, received it twice"):
        read_runs([paths[0], paths[0] + "/"])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("run.json", None, "must be the folder of a run of .*, has no run.json"),
        ("run.json", "{", "run.json: not JSON"),
        ("run.json", "{}", "run.json: must be the record of a run"),
        ("run.json", '{"settings": 3}', "run.json: must be the record of a run"),
        ("run.json", '{"settings": {}, "kind": ["x"]}', "run.json: must be the record"),
        ("metrics.jsonl", '{"step": 1}\nx\n{"step": 2}\n', "line 2 must be JSON"),
        ("report.json", '{"lengths": {"dev": {"values": [1]}}}', "report.json: "),
        ("metrics.json", '{"trials": {"runs": ["seed_1"]}}', "metrics.json: "),
    ],
)
def test_a_damaged_file_is_named(tmp_path, name, content, message):
    path = write_run(tmp_path / "a", kind="finetune", finished=True)
    file = tmp_path / "a" / name
    file.unlink() if content is None else file.write_text(content)
    with pytest.raises(DataError, match=message):
        read_runs([path])


@pytest.mark.parametrize("runs", [{}, {"runs": [{"name": "seed_2", "value": 0.5}] * 2}])
def test_what_is_missing_of_the_seeds_is_not_shown(tmp_path, runs):
    path = write_run(tmp_path / "a", kind="finetune", finished=True)
    content = json.dumps({"trials": {"best": "seed_1", **runs}})
    (tmp_path / "a/metrics.json").write_text(content)
    page = render_runs(read_runs([path]))
    assert (b"Results by seed" in page) == (b">median<" in page) == bool(runs)


def test_a_remote_run(tmp_path, bucket):
    local, remote = tmp_path / "a", f"{bucket}/a"
    write_run(local)
    files.make_folder(remote)
    for name in ("run.json", "metrics.jsonl"):
        files.write_bytes(files.join(remote, name), (local / name).read_bytes())
    run, same = read_run(remote), read_run(str(local))
    assert run.name == "a"
    assert list(map(points, run.curves.values())) == [
        *map(points, same.curves.values())
    ]


def test_rollbacks_are_read_from_the_log_or_a_complete_record(tmp_path):
    strange = [
        *(rollback(at, 4, 4) for at in (None, "5", -1, 2.5, True, 2**60)),
        rollback(5, 4, 4, phase="x"),
        {"split": "skipped", "step": 3},
    ]
    found = [*lines(8), *strange, rollback(11, 8, 10, loss="x")]
    run = run_of(tmp_path, found)
    (one,) = run.rollbacks
    assert (one["diverged_at"], one["loss"], one["grad_norm"]) == (11, None, None)
    # They are no curves, and nothing that a reader must be warned of.
    assert "skipped" not in {split for split, *_ in run.curves} and not run.notices
    recorded = [rollback(11, 8, 10), rollback(1011, 1008, 10, phase=1000)]
    file = tmp_path / "a/skipped_batches.json"
    for content, steps in ((recorded, [11, 1011]), (3, [])):
        file.write_text(json.dumps({"skipped": content}))
        run = read_run(str(tmp_path / "a"))
        assert [one["diverged_at"] for one in run.rollbacks] == steps
