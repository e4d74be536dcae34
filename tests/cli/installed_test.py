"""The commands as an installed wheel has them: without tests/ and configs/."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.imports import ROOT
from tools import main as dispatch

# A copy of one process for each verb: starting Python takes most of the time.
HELP = """
import os, sys
import albert_tf.cli.run
from albert_tf_tools import main
for verb in main.verb_files():
    if (child := os.fork()) == 0:
        sys.exit(main.main([verb, "--help"]))
    assert os.waitpid(child, 0)[1] == 0, verb
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """Runs Python in an empty folder, with the contents of a wheel and nothing else."""
    site = tmp_path_factory.mktemp("site")
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "albert_tf", site / "albert_tf", ignore=ignore)
    shutil.copytree(ROOT / "tools", site / "albert_tf_tools", ignore=ignore)
    empty = tmp_path_factory.mktemp("empty")

    def run(*arguments):
        result = subprocess.run(
            [sys.executable, *arguments],
            env=os.environ | {"PYTHONPATH": str(site)},
            cwd=empty,
            capture_output=True,
            text=True,
        )
        assert not list(empty.iterdir())
        return result

    return run


def test_every_verb_has_its_help(python):
    result = python("-c", HELP)
    assert (result.returncode, result.stderr) == (0, "")
    for verb in dispatch.verb_files():
        assert f"usage: albert-tf {verb} " in result.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["demo"], 2, ""),
        (["pretrain", "--config=configs/b.py"], 1, "configs/b.py: no such file"),
    ],
)
def test_what_needs_a_checkout_says_so(python, arguments, code, message):
    result = python("-m", "albert_tf_tools.main", *arguments)
    assert (result.returncode, len(result.stderr.splitlines())) == (code, 1)
    assert message in result.stderr
    assert "checkout of the albert_tf repository" in result.stderr
