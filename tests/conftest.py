"""What all tests share: a quiet TensorFlow on the CPU, repeatable random examples."""

import importlib.util
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable

import hypothesis
import pytest

# Before anything imports TensorFlow; whoever sets a variable outside keeps it.
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.load_profile("repeatable")

ROOT = pathlib.Path(__file__).resolve().parents[1]
PEERS = ROOT / "tests" / "peers"


def pytest_ignore_collect(
    collection_path: pathlib.Path, config: pytest.Config
) -> bool | None:
    """Leaves tests/peers out where the peers are absent, unless asked for by name."""
    if collection_path != PEERS or any("peers" in str(arg) for arg in config.args):
        return None
    present = all(importlib.util.find_spec(name) for name in ("torch", "transformers"))
    return None if present else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks every test under tests/peers."""
    for item in items:
        if PEERS in item.path.parents:
            item.add_marker(pytest.mark.peers)


@pytest.fixture(scope="session")
def run_python() -> Callable[..., subprocess.CompletedProcess]:
    """Runs Python in a clean process: `run_python("-c", code, ENV="value")`.

    The process sees this checkout. It is the place for tests that need several logical
    devices or another KERAS_BACKEND, which a process can choose only once.
    """

    def run(
        *arguments: str, timeout: float = 600, cwd: str | None = None, **variables: str
    ) -> subprocess.CompletedProcess:
        path = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, path))}
        return subprocess.run(
            [sys.executable, *map(str, arguments)],
            env=environment | variables,
            cwd=cwd,
            timeout=timeout,
            capture_output=True,
            text=True,
        )

    return run


@pytest.fixture(scope="session")
def tokenizer():
    """The tokenizer of the golden files, for `tests.tiny.CONFIG` and larger models."""
    from albert_tf.text.sentencepiece import AlbertTokenizer
    from tests.tiny import SPIECE

    return AlbertTokenizer(SPIECE)


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch):
    """Calls of a file system are repeated at once."""
    from albert_tf.storage import calls

    monkeypatch.setattr(calls, "WAITS", tuple(0.0 for _ in calls.WAITS))
