"""Batches that a run left out are named, from whichever file tells them."""

import json

from albert_tf.reports.rollbacks import Rollback, rollback_table
from albert_tf.reports.run_files import read_runs
from tests.reports.run_page_test import RunsPage, page_of
from tests.reports.runs import lines, rollback, write_run


def test_they_are_read_from_the_log(tmp_path):
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


def test_the_record_of_the_run_is_complete(tmp_path):
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


def test_the_table():
    one, other = Rollback(11, 8, 10, 0, 57.25), Rollback(1011, 1008, 10, 1000)
    table = rollback_table({"a": [one]})
    assert table.names[0] == "diverged at step"
    assert table.cells == [["11", "57.2500", "not finite", "10", "8"]]
    table = rollback_table({"a": [one], "b": [other], "c": []})
    assert table.names[0] == "run" and table.names[5] == "of the phase from step"
    assert table.cells[1] == [
        *("b", "1,011", "not finite", "not finite", "10", "1,000", "1,008")
    ]
    assert rollback_table({"a": []}) is None


def test_the_page_names_and_marks_them(tmp_path):
    path = write_run(tmp_path / "a", [*lines(), rollback(13, 12, 12)])
    parsed = RunsPage(page_of(path, write_run(tmp_path / "b")))
    assert "Batches left out" in parsed.titles
    assert "57.25" in parsed.text and "not finite" in parsed.text
    marks = [run["rollbacks"] for run in json.loads(parsed.scripts[0])["runs"]]
    assert [[mark["step"] for mark in one] for one in marks] == [[13], []]
    assert "back to step 12" in marks[0][0]["text"]
    assert "Batches left out" not in RunsPage(page_of(str(tmp_path / "b"))).titles
