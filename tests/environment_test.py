"""The record of a run names versions and code; that of a benchmark the machine too."""

import platform

from albert_tf import environment


def test_record_of_a_run():
    record = environment.describe_environment()
    assert list(record) == ["versions", "git_revision", environment.ONEDNN]
    assert list(record["versions"]) == [
        *("python", "albert_tf", "tensorflow", "keras", "numpy", "sentencepiece")
    ]
    assert record["versions"]["python"] == platform.python_version()


def test_record_of_a_benchmark():
    machine = environment.machine()
    assert machine["cores"] >= 1
    run = environment.describe_environment()["versions"]
    assert run.items() <= machine["versions"].items()
    assert platform.node() not in str(machine)
