"""What cannot be written is refused before the work is done."""

import pytest

from albert_tf.cli.outputs import check_output_file
from albert_tf.errors import UsageError


def test_what_can_be_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.json").write_text("{}")
    for path in ("", "new.json", str(tmp_path / "new.json"), "ram://none/new.json"):
        check_output_file("output_file", path, overwrite=False)
    check_output_file("output_file", "old.json", overwrite=True)


def test_what_cannot(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.json").write_text("{}")
    with pytest.raises(UsageError, match="--report=old.json: exists already"):
        check_output_file("report", "old.json", overwrite=False)
    with pytest.raises(UsageError, match="--report=no/x.json: there is no folder no"):
        check_output_file("report", "no/x.json", overwrite=True)
