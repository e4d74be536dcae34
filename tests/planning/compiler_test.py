"""The process of the compiler: its noise, its answer and its end."""

import sys

import pytest

from albert_tf.errors import DataError, UsageError
from albert_tf.planning import compiler
from albert_tf.planning.topologies import find_topology

ANSWER = "import json, sys, pathlib; r = json.load(sys.stdin); print('noise'); "
ANSWER += "print('more', file=sys.stderr); w = pathlib.Path(sys.argv[1]).write_text; "


def run(code, request=None):
    return compiler.compile_step(request or {}, (sys.executable, "-c", code))


def test_the_answer_comes_without_the_noise(capfd):
    found = run(ANSWER + "w(json.dumps({'flops': r['depth']}))", {"depth": "loop"})
    assert found == {"flops": "loop"}
    assert capfd.readouterr() == ("", "")


def test_a_process_of_the_compiler_finds_this_package_and_no_tpu():
    code = "import os; e = os.environ; import albert_tf; w(json.dumps([e['JAX_PLATFORMS"
    code += "'], e['ALLOW_MULTIPLE_LIBTPU_LOAD'], albert_tf.__file__]))"
    platform, several, path = run(ANSWER + code)
    assert (platform, several) == ("cpu", "1")
    assert path == sys.modules["albert_tf"].__file__


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "import sys; print('a\\n\\nb\\nc'); sys.exit('fatal')",
            r"ended with exit code 1: b \| c \| fatal",
        ),
        ("import os; os.abort()", "exit code -6: it said nothing"),
        ("import os; os.kill(os.getpid(), 9)", "code -9; was there enough memory"),
        ("print('done')", "exit code 0: done"),
        ("exit('ABORTED: /tmp/libtpu_lockfile')", "libtpu is in use by another"),
    ],
)
def test_a_failure_is_one_line(code, message):
    with pytest.raises(DataError, match=message) as error:
        run(code)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_the_process_takes_nothing_from_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "albert_tf").mkdir()
    (tmp_path / "albert_tf/__init__.py").write_text("")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="KeyError: 'topology'|No module named 'jax'"):
        compiler.compile_step({})


def test_what_a_model_cannot_is_a_refusal():
    with pytest.raises(UsageError, match="--depth=loop: needs layers"):
        run(ANSWER + "w(json.dumps({'refused': '--depth=loop: needs layers'}))")


def test_without_the_packages_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(compiler.importlib.util, "find_spec", lambda name: None)
    for name, plugin, extra in (
        ("v5e-1", "libtpu", "plan"),
        ("l4x2", "jax_cuda12_plugin", "plan-gpu"),
    ):
        needs = rf"for {name} needs jax and {plugin}: .*albert_tf\[{extra}\]"
        with pytest.raises(UsageError, match=needs):
            compiler.check_installed(find_topology(name))
