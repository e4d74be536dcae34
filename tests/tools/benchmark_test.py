"""The benchmark as a person runs it, on a text so small that it says nothing."""

import pytest

from tests.commands import run_command


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--topic=step --shapes=8x128,8", "--shapes: expected rows x tokens, such"),
        ("--topic=fidelity", "--recording_dir: required for benchmark fidelity"),
    ],
)
def test_wrong_flags(arguments, message):
    done = run_command("benchmark", *arguments.split())
    assert done.code == 2 and message in done.error
