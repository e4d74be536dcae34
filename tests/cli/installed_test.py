"""The commands as an installed wheel has them: without tests/ and configs/."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.imports import ROOT
from tools import main as dispatch


@pytest.fixture(scope="module")
def albert_tf(tmp_path_factory):
    """Runs a verb in an empty folder, with the contents of a wheel and nothing else."""
    site = tmp_path_factory.mktemp("site")
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "albert_tf", site / "albert_tf", ignore=ignore)
    shutil.copytree(ROOT / "tools", site / "albert_tf_tools", ignore=ignore)
    empty = tmp_path_factory.mktemp("empty")

    def run(*arguments):
        result = subprocess.run(
            [sys.executable, "-m", "albert_tf_tools.main", *arguments],
            env=os.environ | {"PYTHONPATH": str(site)},
            cwd=empty,
            capture_output=True,
            text=True,
        )
        assert not list(empty.iterdir())
        return result

    return run


def test_every_verb_has_its_help(albert_tf):
    for verb in dispatch.verb_files():
        result = albert_tf(verb, "--help")
        assert (result.returncode, result.stderr) == (0, "")
        assert f"usage: albert-tf {verb} " in result.stdout


def test_demo_names_the_checkout(albert_tf):
    result = albert_tf("demo")
    assert result.returncode == 2
    assert "checkout of the albert_tf repository" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_pretrain_names_the_checkout(albert_tf):
    result = albert_tf("pretrain", "--config=configs/pretrain/demo.py")
    assert result.returncode == 1
    assert "configs/pretrain/demo.py: no such file" in result.stderr
    assert "checkout of the albert_tf repository" in result.stderr
