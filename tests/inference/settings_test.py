"""Settings of the commands that answer files: what is refused before TensorFlow."""

import os

import pytest

from albert_tf.errors import UsageError
from albert_tf.inference.settings import check_output_file
from albert_tf.storage import lock


def test_an_output_that_cannot_be_written_is_found_early(tmp_path, monkeypatch):
    path = str(tmp_path / "out.tsv")
    check_output_file(path, False)
    with pytest.raises(UsageError, match="there is no folder"):
        check_output_file(f"{tmp_path}/none/out.tsv", False)
    (tmp_path / "out.tsv").touch()
    with pytest.raises(UsageError, match="out.tsv exists already"):
        check_output_file(path, False)
    check_output_file(path, True)
    (tmp_path / "out.tsv.parts").mkdir()
    with lock.locked(f"{path}.parts"), pytest.raises(UsageError, match="is writing"):
        check_output_file(path, True)
    monkeypatch.setattr(os, "access", lambda *unused: False)
    with pytest.raises(UsageError, match="the folder is read-only"):
        check_output_file(path, True)
