"""`import albert_tf` is cheap; the public names arrive when they are used."""

import json
import time

import pytest

import albert_tf

HEAVY = ("tensorflow", "keras", "torch", "jax", "numpy", "pandas", "matplotlib")


def seconds(run_python, code: str, times: int = 5) -> float:
    """The shortest wall time of a process; the machine may be busy."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        assert run_python("-c", code).returncode == 0
        taken.append(time.perf_counter() - start)
    return min(taken)


def test_import_loads_nothing_heavy(run_python):
    code = "import albert_tf, json, sys; print(json.dumps(sorted(sys.modules)))"
    result = run_python("-c", code)
    assert result.returncode == 0, result.stderr
    assert not result.stderr
    assert not set(HEAVY) & set(json.loads(result.stdout))


def test_import_takes_less_than_half_a_second(run_python):
    bare = seconds(run_python, "pass")
    ours = seconds(run_python, "import albert_tf")
    print(f"python: {bare:.3f} s; with albert_tf: {ours:.3f} s")
    assert ours - bare < 0.5


def test_cli_module_loads_nothing_heavy(run_python):
    code = "import albert_tf.cli.run, json, sys; print(json.dumps(sorted(sys.modules)))"
    result = run_python("-c", code)
    assert not set(HEAVY) & set(json.loads(result.stdout))


def test_names_are_listed():
    assert set(albert_tf.__all__) <= set(dir(albert_tf))
    assert albert_tf.__version__


@pytest.mark.parametrize("name", sorted(set(albert_tf.__all__) - {"__version__"}))
def test_public_names_resolve(name):
    assert getattr(albert_tf, name).__doc__


def test_unknown_name():
    with pytest.raises(AttributeError, match="nonsense"):
        _ = albert_tf.nonsense
