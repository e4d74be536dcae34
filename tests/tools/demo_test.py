"""What `make demo` refuses; `make test-all` runs it with fewer steps."""

import pathlib

from albert_tf.data.corpus import docstrings
from tests.commands import run_command

DEMO = str(pathlib.Path(__file__).parents[2] / "tools/demo.py")


def test_a_folder_with_something_in_it_stays_as_it_is(tmp_path):
    (tmp_path / "mine").touch()
    done = run_command(DEMO, output_dir=tmp_path)
    assert done.code == 2 and "must be a new or empty folder" in done.error
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_failing_step_is_one_line(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(docstrings, "write_topic_tables", lambda *_: None)
    given = {"output_dir": tmp_path / "out", "input_file": "nowhere.txt"}
    done = run_command(DEMO, **given)
    assert done.code == 1 and "failed with exit code 1" in done.error
    errors = capfd.readouterr().err + done.err
    assert "nowhere.txt" in errors and "Traceback" not in errors
