"""Prepares the start of TensorFlow, before anything imports it.

**Quiet.** TF_CPP_MIN_LOG_LEVEL=3 silences TensorFlow once it runs, but its libraries
ignore that variable while they are loaded. Therefore stderr is captured during the
import, and only lines that are not known start-up messages are printed afterwards.

**TPUs.** With libtpu installed, TensorFlow queries the metadata server of Google Cloud
about the TPU as soon as it starts, every query up to thirty times. Outside the cloud
took more than eight minutes, so TensorFlow is told to skip these queries.

**oneDNN.** TensorFlow uses its kernels by default only on CPUs with instructions for
neural networks (AVX512_VNNI or later). Measured on a CPU with AVX-512 but without
these, they make a float32 training step faster and a bfloat16 step 2.3 times slower
(docs/benchmarks/step.md). `pretrain`, `predict`, `embed` and their benchmarks choose;
`evaluate` must compute what `finetune` computed.
"""

import contextlib
import importlib.util
import os
import pathlib
import re
import sys
import tempfile
from collections.abc import Iterator

import albert_tf
from albert_tf.errors import require

_CHATTER = re.compile(
    r"WARNING: All log messages before absl::InitializeLog"
    r"|[IWE]0000 \d\d:\d\d:"
    r"|To enable the following instructions:"
)
_LOG_LEVEL, _SKIP_TPU = "TF_CPP_MIN_LOG_LEVEL", "TPU_SKIP_MDS_QUERY"
_ONEDNN = "TF_ENABLE_ONEDNN_OPTS"
_CPU_INFO = pathlib.Path("/proc/cpuinfo")
_SERVER = "metadata.google.internal"
_SECONDS = 2.0
_BACKEND, _XLA_FLAGS = "KERAS_BACKEND", "XLA_FLAGS"
# Without this flag, jax 0.10.2 adds to a float32 in memory by a compare-and-swap loop
# on most GPUs (jax#38806). Numbers below 1.2e-38 become 0.
_FLUSH = "--xla_gpu_ftz=true"
# The same operations then give the same bits, also on a GPU.
_DETERMINISTIC = "--xla_gpu_deterministic_ops=true"


def install() -> None:
    """Makes later imports of TensorFlow and JAX quiet and without queries about TPUs.

    Variables that the user has set are not changed.
    """
    os.environ.setdefault(_LOG_LEVEL, "3")
    for package in ("tensorflow", "jax"):
        if package not in sys.modules:
            albert_tf._AroundImport(package, _execute)


def use_onednn(precision: str) -> None:
    """Enables oneDNN's kernels where they are faster, unless the user has chosen.

    Only the precision "float32" profits.
    """
    if precision == "float32" and _ONEDNN not in os.environ and _has_avx512():
        os.environ[_ONEDNN] = "1"


def use_backend(backend: str, deterministic: bool | None = None) -> None:
    """Chooses the backend of Keras, which is not imported yet.

    `backend` is "tensorflow" or "jax". If `deterministic`, XLA leaves out operations on
    a GPU that add in any order. Raises `UsageError` if it is not installed, or the user
    has chosen another one.
    """
    chosen = os.environ.setdefault(_BACKEND, backend)
    need = f"--backend={backend}: the environment variable {_BACKEND} names another one"
    require(chosen == backend, need, chosen)
    if backend != "jax":
        return
    spec = importlib.util.find_spec("jax")
    require(spec, "--backend=jax: JAX is not installed: pip install 'albert_tf[jax]'")
    flags = os.environ.get(_XLA_FLAGS, "")
    for flag in (_FLUSH, _DETERMINISTIC) if deterministic else (_FLUSH,):
        flags += "" if flag.split("=")[0] in flags else f" {flag}"
    os.environ[_XLA_FLAGS] = flags.strip()


def _execute(execute, module) -> None:
    if importlib.util.find_spec("libtpu") and _SKIP_TPU not in os.environ:
        os.environ.update({} if _in_the_cloud() else {_SKIP_TPU: "1"})
    quiet = os.environ.get(_LOG_LEVEL) == "3"
    with _stderr_held() if quiet else contextlib.nullcontext():
        execute(module)


@contextlib.contextmanager
def _stderr_held() -> Iterator[None]:
    """Captures file descriptor 2, then prints all but start-up messages."""
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(saved, 2)
            os.close(saved)
            held.seek(0)
            for line in held.read().decode(errors="replace").splitlines():
                if not _CHATTER.match(line):
                    print(line, file=sys.stderr)


def _in_the_cloud() -> bool:
    import http.client  # slow to import, and seldom needed

    connection = http.client.HTTPConnection(_SERVER, timeout=_SECONDS)
    with contextlib.closing(connection):
        try:
            connection.request("GET", "/", headers={"Metadata-Flavor": "Google"})
            return connection.getresponse().getheader("Metadata-Flavor") == "Google"
        except (OSError, http.client.HTTPException):
            return False


def _has_avx512() -> bool:
    try:
        text = _CPU_INFO.read_text()
    except OSError:  # not Linux
        return False
    return re.search(r"^flags.*\bavx512f\b", text, re.M) is not None
