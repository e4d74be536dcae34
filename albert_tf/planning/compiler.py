"""Runs the compiler of a device in its own process, whose output stays hidden."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

import albert_tf
from albert_tf.errors import DataError, UsageError, require
from albert_tf.planning.topologies import GpuMachine, Topology

# With these, libtpu starts without a TPU, and next to a process that holds one.
_ENVIRONMENT = {
    "KERAS_BACKEND": "jax",
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",  # any TPU; the request names the real one
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
_COMMAND = (sys.executable, "-P", "-m", "albert_tf.planning.program")
_NUM_LINES = 3


def check_installed(topology: Topology | GpuMachine) -> None:
    """Raises `UsageError` if packages of the machine's extra are missing."""
    extra, plugin = "plan", "libtpu"
    if isinstance(topology, GpuMachine):
        extra, plugin = "plan-gpu", "jax_cuda12_plugin"
    missing = [n for n in ("jax", plugin) if importlib.util.find_spec(n) is None]
    needs = f"compiling for {topology.name} needs {' and '.join(missing)}: "
    require(not missing, f"{needs}pip install 'albert_tf[{extra}]'")


def compile_step(
    request: Mapping[str, Any], command: tuple[str, ...] = _COMMAND
) -> dict[str, Any]:
    """Returns the result of `program.compile_step`, computed in another process.

    Raises `UsageError` if the model cannot be computed as requested, and `DataError` if
    the compiler fails.
    """
    package = str(pathlib.Path(albert_tf.__file__).parents[1])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, **_ENVIRONMENT, "PYTHONPATH": os.pathsep.join(paths)}
    with tempfile.TemporaryDirectory() as folder:
        answer = pathlib.Path(folder, "answer.json")
        done = subprocess.run(
            [*command, str(answer)],
            input=json.dumps(request).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=env,
        )
        if done.returncode or not answer.exists():
            raise DataError(
                _reason(done.returncode, done.stdout.decode("utf-8", "replace"))
            )
        result = json.loads(answer.read_text(encoding="utf-8"))
    if "refused" in result:
        raise UsageError(result["refused"])
    return result


def _reason(code: int, output: str) -> str:
    """Returns one line describing a compiler that exited without a result."""
    if "libtpu_lockfile" in output:
        return (
            "libtpu is in use by another process: end it, or remove "
            "/tmp/libtpu_lockfile if none runs"
        )
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    last = " | ".join(lines[-_NUM_LINES:]) or "it said nothing"
    hint = "; was there enough memory?" if code == -9 else ""
    return f"the compiler of the device ended with exit code {code}{hint}: {last}"
