"""Two replicas equal one device, in `fit` and in a step of one's own."""

import json
import pathlib

import pytest

HERE = pathlib.Path(__file__).parent
CASES = (
    "fit:lamb",
    "fit:adamw",
    "loop:lamb",
    "loop_reduced:lamb",
    "loop_reduced:adamw",
    "loop_scaled:lamb",
)


@pytest.fixture(scope="module")
def results(run_python):
    process = run_python(str(HERE / "distributed_check.py"), *CASES)
    assert process.returncode == 0, process.stderr[-3000:]
    found = [json.loads(line) for line in process.stdout.splitlines()]
    return {result["case"]: result for result in found}


@pytest.mark.parametrize("case", CASES)
def test_two_replicas_equal_one_device(results, case):
    result = results[case]
    assert result["moved"] > 0.1
    one, two = result["norms"]
    assert one > 0.05  # The last step was clipped too.
    assert one == pytest.approx(two, rel=1e-4)
    assert result["difference"] < 5e-5
