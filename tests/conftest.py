"""What all tests share: a quiet TensorFlow on the CPU, repeatable random examples."""

import collections
import fcntl
import functools
import gc
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable

import hypothesis
import pytest

from tests import forked

# Before anything imports TensorFlow; whoever sets a variable outside keeps it.
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault(forked.OWNER, str(os.getpid()))
if "PYTEST_XDIST_WORKER" in os.environ:
    # The workers share the cores; threads on tensors of twelve numbers only wait.
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")

hypothesis.settings.register_profile(
    "repeatable", derandomize=True, deadline=None, max_examples=50
)
hypothesis.settings.load_profile("repeatable")

ROOT = pathlib.Path(__file__).resolve().parents[1]
PEERS = ROOT / "tests" / "peers"
BACKENDS = ROOT / "tests" / "backends"
# Tests that need more than `make test` installs: folders and marks.
MARKS = {
    "tests/peers": "peers",
    "tests/backends": "backends",
    "tests/training/jax": "backends",
}


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Runs folders without their broad tests, and on all cores, as make does.

    In one process: with -n 1, a debugger, -s, or on a GPU.
    """
    option = config.option
    if not any(pathlib.Path(arg).is_dir() for arg in config.args):
        return
    option.markexpr = option.markexpr or "not broad"
    alone = hasattr(config, "workerinput") or option.capture == "no" or option.trace
    alone |= option.collectonly or os.environ["CUDA_VISIBLE_DEVICES"] != "-1"
    if not alone and getattr(option, "numprocesses", 1) is None:
        option.numprocesses, option.maxprocesses = "logical", option.maxprocesses or 4
        option.dist, option.loadscopereorder = "loadfile", False


def pytest_ignore_collect(
    collection_path: pathlib.Path, config: pytest.Config
) -> bool | None:
    """Leaves tests/peers out where the peers are absent, unless asked for by name.

    And where they are not wanted, because importing them takes long. tests/backends is
    left out with TensorFlow.
    """
    if BACKENDS in (collection_path, *collection_path.parents):
        return True if os.environ["KERAS_BACKEND"] == "tensorflow" else None
    if collection_path != PEERS or any("peers" in str(arg) for arg in config.args):
        return None
    present = all(importlib.util.find_spec(name) for name in ("torch", "transformers"))
    return None if present and "not peers" not in config.option.markexpr else True


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Marks tests by their folder, and lets workers begin with the slow ones.

    A worker takes one file after another: one that takes minutes would run alone at the
    end. First come files with slow tests, those with the fewest tests before others.
    """
    for item in items:
        for folder, mark in MARKS.items():
            if ROOT / folder in item.path.parents:
                item.add_marker(mark)
    if hasattr(config, "workerinput"):
        slow = {item.path for item in items if item.get_closest_marker("slow")}
        sizes = collections.Counter(item.path for item in items)
        items.sort(key=lambda item: (item.path not in slow, sizes[item.path]))


def pytest_collection_finish() -> None:
    """Lets garbage collections pass over what all imports have left, and be rarer."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 10)


def _run(
    python: list[str],
    *arguments: object,
    timeout: float = 600,
    cwd: str | None = None,
    **variables: str,
) -> subprocess.CompletedProcess:
    path = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, path))}
    return subprocess.run(
        [*python, *map(str, arguments)],
        env=environment | variables,
        cwd=cwd,
        timeout=timeout,
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="session")
def run_python() -> Callable[..., subprocess.CompletedProcess]:
    """Runs Python in a clean process: `run_python("-c", code, ENV="value")`.

    The process sees this checkout. It is the place for tests of what is imported, and
    when; others use `run_forked`, which is ten seconds faster.
    """
    return functools.partial(_run, [sys.executable])


@pytest.fixture(scope="session")
def run_forked() -> Callable[..., subprocess.CompletedProcess]:
    """Runs Python as `run_python` does, in a process that has imported TensorFlow.

    It has not started it yet: the process may still split the CPU in several devices.
    """
    return functools.partial(_run, forked.PYTHON)


@pytest.fixture
def eager():
    """Computes without graphs: tracing a training step takes longer than a few steps.

    `eager(False)` ends that, for what is exported.
    """
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    yield tf.config.run_functions_eagerly
    tf.config.run_functions_eagerly(False)


@pytest.fixture(scope="session")
def tokenizer():
    """The tokenizer of the golden files, for `tests.tiny.CONFIG` and larger models."""
    from albert_tf.text.sentencepiece import AlbertTokenizer
    from tests.tiny import SPIECE

    return AlbertTokenizer(SPIECE)


@pytest.fixture(scope="session")
def model_folder(tokenizer, tmp_path_factory) -> Callable[..., str]:
    """Saves a model with its tokenizer, once per session: only for tests that read it.

    `model_folder("text_classifier", labels=("a", "b"), hidden_size=24)` returns the
    folder. It takes `labels`, `task` (the name of a registered task, with its labels),
    `problem_type`, and what `tests.tiny.make_model` takes.
    """
    from albert_tf.converters.load import save_pretrained
    from albert_tf.tasks import registry, saved
    from tests.tiny import make_model

    @functools.cache
    def make(head, labels=None, task=None, problem_type=None, **changes):
        if task is not None:
            task = registry.find_task(task)
            labels = labels or task.labels or None
        if labels is not None:
            changes["num_labels"] = len(labels)
        model = make_model(head, **changes)
        if task is not None:
            model.task = saved.describe(task)
            model.problem_type = task.problem_type
        model.problem_type = problem_type or getattr(model, "problem_type", None)
        path = tmp_path_factory.mktemp(str(head)) / "model"
        labels = None if labels is None else list(labels)
        save_pretrained(model, path, tokenizer=tokenizer, labels=labels)
        return str(path)

    return make


@pytest.fixture(scope="session")
def records(tmp_path_factory) -> Callable[..., str]:
    """Prepares the golden text for pretraining, once per session.

    `records(pair_policy="nsp", max_seq_length=64)` returns the folder. It takes the
    fields of `CreateSettings`.
    """
    from albert_tf.data.prepare.create import create_from_settings
    from albert_tf.data.prepare.create_settings import CreateSettings
    from tests.tiny import SPIECE, TEXT

    @functools.cache
    def make(**changes):
        folder = tmp_path_factory.mktemp("records")
        values = {"input_file": str(TEXT), "output_file": str(folder / "x")}
        values |= {"spm_model_file": str(SPIECE), "num_processes": 1, **changes}
        create_from_settings(CreateSettings(**values))
        return str(folder)

    return make


@pytest.fixture
def bucket() -> str:
    """An empty folder under a scheme, on the route that `gs://` takes."""
    from albert_tf.storage import files

    path = f"ram://{uuid.uuid4().hex}"
    files.make_folder(path)
    return path


@pytest.fixture(params=["disk", "bucket"])
def place(request, tmp_path, bucket) -> str:
    """An empty folder on disk and, in the other run of the test, under a scheme."""
    return bucket if request.param == "bucket" else str(tmp_path)


@pytest.fixture(scope="session")
def exported(tokenizer, tmp_path_factory):
    """Exports a model of `tests.export.heads`: `exported(head)` is its folder.

    Each is made once for all workers, because it takes long.
    """
    from albert_tf.export.saved_model import export_saved_model
    from tests.export import heads

    root = tmp_path_factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root

    @functools.cache
    def export(head: str | None) -> str:
        base = root / f"served-{head}" / "films"
        sizes = {"tokenizer": tokenizer, "warmup_batch_sizes": (1, 2)}
        with open(root / f"served-{head}.lock", "a+", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lock.seek(0)
            if not (made := lock.read()):
                shutil.rmtree(base.parent, ignore_errors=True)  # of a failed attempt
                base.parent.mkdir()
                model = heads.make_model(head)
                made = export_saved_model(model, base, version=7, **sizes)
                lock.write(str(made))
        return made

    return export


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch):
    """Calls of a file system are repeated at once, and no file waits for its disk."""
    from albert_tf.storage import calls

    monkeypatch.setattr(calls, "WAITS", tuple(0.0 for _ in calls.WAITS))
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture(autouse=True)
def _same_names():
    """Keras counts from zero: TensorFlow makes a kernel for each name of a variable."""
    if (naming := sys.modules.get("keras.src.utils.naming")) is not None:
        naming.reset_uids()


@pytest.fixture(scope="module", autouse=True)
def _free_graphs():
    """Frees what a file's tests have traced, which would fill the memory of a worker.

    And forgets variables without values, which Keras would give memory in a later test.
    TensorFlow registers the gradient of each call of a `tf.custom_gradient` in a graph
    under a name of its own, for ever, and with it the whole graph.
    """
    yield
    if (framework := sys.modules.get("tensorflow.python.framework.ops")) is not None:
        registered = framework.gradient_registry._registry
        for name in [n for n in registered if n.startswith("CustomGradient-")]:
            del registered[name]
    if (keras := sys.modules.get("keras")) is not None:
        keras.backend.clear_session()  # collects garbage
