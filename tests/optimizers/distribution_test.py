"""Two replicas equal one device, in `fit` and in a step of one's own."""

import json
import os
import pathlib
import subprocess
import sys

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
def results():
    root = str(HERE.parents[1])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    environment.update(CUDA_VISIBLE_DEVICES="", KERAS_BACKEND="tensorflow")
    process = subprocess.run(
        [sys.executable, str(HERE / "distributed_check.py"), *CASES],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
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
