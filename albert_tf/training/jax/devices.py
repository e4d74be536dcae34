"""The devices of a run on JAX, as a mesh, and its workers.

TensorFlow reads and batches the data on the host, and must leave accelerators alone:
only one framework can own them.
"""

import atexit
import contextlib
import ctypes
import functools
import http.client
import os
import re
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import keras
import numpy as np
from absl import logging
from jax.experimental import multihost_utils
from jax.experimental.compilation_cache import compilation_cache as persistent
from jax.sharding import Mesh

from albert_tf.errors import DataError, Stopped, require
from albert_tf.kernels.device import adds_in_order
from albert_tf.storage import files
from albert_tf.training.jax.update import AXIS
from albert_tf.training.workers import find_cluster, listen, share_by

# Time limit for JAX to connect workers that are all there, and to disconnect.
_CONNECT_SECONDS = 120
_PART_SECONDS = 10
# A process silent for this long counts as lost, as with TensorFlow.
_SILENT_SECONDS = 40
# Stands for no time limit, which JAX cannot express.
_A_YEAR = 365 * 24 * 3600
# Messages when another process is gone: from XLA itself, Gloo (on CPUs), NCCL (on GPUs)
# and the service that coordinates the processes.
_LOST = re.compile(
    r"(UNAVAILABLE|DEADLINE_EXCEEDED):|.*\b(Gloo|remote process exited|"
    r"coordination (service|agent))\b",
    re.IGNORECASE | re.DOTALL,
)
_CONTINUE = (
    "see its last line, then give the same command on all workers to continue from the "
    "last checkpoint"
)
_ABORTED = f"""
error: JAX has ended this process, most likely because another worker of the run does \
not answer; {_CONTINUE}
"""
# JAX keeps only programs that take a second to compile, but many are smaller.
_LEAST_SECONDS = "jax_persistent_cache_min_compile_time_secs"
# The metadata of a TPU VM that lists its slice, and the time limit for reading it.
_ENDPOINTS = "/computeMetadata/v1/instance/attributes/worker-network-endpoints"
_METADATA_SECONDS = 5.0


class Devices:
    """The devices that train one model, of this process and of others.

    All processes must list them in the same order. `mesh` has all devices, `local_mesh`
    only this process's.
    """

    def __init__(self, devices: Sequence[jax.Device]):
        own = [d for d in devices if d.process_index == jax.process_index()]
        self.mesh = Mesh(np.array(devices), (AXIS,))
        self.local_mesh = Mesh(np.array(own), (AXIS,))
        self.num_replicas_in_sync = len(devices)

    def scope(self) -> contextlib.AbstractContextManager:
        """Does nothing; in TensorFlow, a strategy creates variables in its scope."""
        return contextlib.nullcontext()


Strategy = Devices
start_trace, stop_trace = jax.profiler.start_trace, jax.profiler.stop_trace


def create_strategy(
    distribution: str = "one_device",
    *,
    num_devices: int | None = None,
    tpu_name: str = "local",
    worker_timeout: float = 600.0,
) -> Devices:
    """Returns the devices of a run; see `training.tensorflow.strategy.create_strategy`.

    Call it before anything else in JAX: several CPU devices and the connections between
    workers can only be set up before the first operation. With `"tpu"`, all TPU chips
    of all hosts are used, each of which runs the same command; `tpu_name` must be
    `"local"`. The worker timeout, in seconds, applies to all runs of several processes.
    Raises `UsageError` if the devices do not exist, and `DataError` if no TPU answers,
    or a worker does not.
    """
    _leave_to_jax()
    if distribution == "one_device":
        return default_strategy()
    if distribution == "mirrored":
        return Devices(_local_devices(num_devices))
    if distribution == "multi_worker":
        _connect_workers(worker_timeout)
        return Devices(jax.devices())
    need = "--tpu_name must be local with --backend=jax, which runs on every TPU host"
    require(tpu_name == "local", need, tpu_name)
    return Devices(_tpus(worker_timeout))


def default_strategy() -> Devices:
    """Returns the default device of a program."""
    _leave_to_jax()
    return Devices(jax.local_devices()[:1])


def takes_several_processes(distribution: str) -> bool:
    """Returns whether a run needs a process on each of several hosts."""
    on_tpus = distribution == "tpu" and "," in _hosts()
    return distribution == "multi_worker" or on_tpus


def helper_name(devices: Devices) -> str:
    """Returns the name of a worker that is not the chief; empty in the chief."""
    number = jax.process_index() if is_one_of_several(devices) else 0
    return f"worker-{number}" if number else ""


def is_one_of_several(devices: Devices) -> bool:
    """Returns whether other processes run the same program for this run."""
    return devices.mesh.size != devices.local_mesh.size


def is_tpu(devices: Devices) -> bool:
    """Returns whether the devices are TPUs."""
    return devices.mesh.devices.flat[0].platform == "tpu"


def num_shares(devices: Devices) -> int:
    """Returns the number of devices of this process."""
    return devices.local_mesh.size


def make_deterministic(asked: bool | None) -> None:
    """Warns if XLA was not set to be deterministic before JAX started (`cli.start`)."""
    if asked and jax.default_backend() == "gpu" and not adds_in_order():
        logging.warning(
            "set XLA_FLAGS=--xla_gpu_deterministic_ops=true before JAX starts for runs "
            "that give the same bits"
        )


@contextlib.contextmanager
def compilation_cache(asked: str, usual: str) -> Iterator[None]:
    """Keeps compiled programs in a folder inside a `with` statement, and reads them.

    With `"none"` there is no cache. With `""` it is the one that JAX has, or else the
    usual one next to the run, unless that is in a bucket: XLA's cache of
    tuned kernels has to be on a disk. JAX writes only in the first process.
    """
    before = jax.config.jax_compilation_cache_dir
    path = None if asked == "none" else asked or before or usual
    if path == usual and files.is_remote(usual):
        logging.info("no --compilation_cache, because --output_dir is in a bucket")
        path = None
    elif path and path != before:
        # Part of the key of every program.
        path, reason = os.path.realpath(path), ""
        try:
            os.makedirs(path, exist_ok=True)
            reason = "" if os.access(path, os.W_OK) else "it cannot be written"
        except OSError as e:
            reason = e.strerror
        if reason:
            logging.warning("no --compilation_cache=%s: %s", path, reason)
            path = None
    if _LEAST_SECONDS.upper() not in os.environ:
        jax.config.update(_LEAST_SECONDS, 0)
    _keep_programs_in(path)
    try:
        yield
    finally:
        _keep_programs_in(before)


def _keep_programs_in(path: str | None) -> None:
    jax.config.update("jax_compilation_cache_dir", path)
    persistent.reset_cache()


def bring_home(devices: Devices, model: keras.Model) -> None:
    """Copies the weights to each process, to compute with them on one device."""
    if devices.mesh.size > 1:
        for variable in model.variables:
            variable.assign(value_of(variable))


def leave_together(devices: Devices) -> None:
    """Returns when all processes have called it: JAX ends the others if one leaves."""
    share(devices, None)


def share(devices: Devices, value: Any) -> list[Any]:
    """Returns the values of all workers, the chief's first, to all of them.

    Every worker must call it at the same point, with a value ready for JSON, of any
    size.
    """
    if not is_one_of_several(devices):
        return [value]
    return share_by(multihost_utils.process_allgather, value)


def join_rows(devices: Devices, rows: np.ndarray) -> np.ndarray:
    """Returns the rows of all workers, the chief's first; all have equally many."""
    del devices
    return multihost_utils.process_allgather(rows, tiled=True)


def value_of(variable: keras.Variable) -> np.ndarray:
    """Returns the current value; every worker must call it, as slots may be divided."""
    value = variable.value
    if value.is_fully_addressable or value.is_fully_replicated:
        return np.array(value)  # a copy: the step reuses the memory of its arguments
    return multihost_utils.process_allgather(value, tiled=True)


@contextlib.contextmanager
def worker_errors(devices: Devices) -> Iterator[None]:
    """Raises a one-line `DataError` if another worker has ended, or XLA's message."""
    try:
        yield
    except Stopped:  # all of them stop
        raise
    except KeyboardInterrupt as e:
        if is_one_of_several(devices):
            _leave_at_once(getattr(e, "exit_code", 130))
        raise
    except (jax.errors.JaxRuntimeError, ValueError) as e:
        text = str(e)
        # On CPUs, the loss of a worker may raise an error of the latter kind.
        is_one = isinstance(e, jax.errors.JaxRuntimeError) or "Gloo" in text
        if not (is_one and is_one_of_several(devices)):
            raise
        _leave_at_once(1)
        if not _LOST.match(text):
            raise DataError(f"XLA: {text.splitlines()[0]}") from e
        logging.debug("%s", text)
        raise DataError(
            f"another worker of the run does not answer; {_CONTINUE}"
        ) from e


_leaving: list[int] = []


def _leave_at_once(code: int) -> None:
    """Ends this process without JAX, which would wait for the others and abort."""
    _leaving.append(code)
    atexit.register(_exit, code)


def _exit(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@functools.cache
def _end_in_one_line() -> Any:
    """Lets SIGABRT print a last line: JAX raises it when another process is lost."""
    # A Python handler would come too late, because it waits for the main thread. The
    # cache keeps the returned handler in memory.

    @ctypes.CFUNCTYPE(None, ctypes.c_int)
    def end(number):
        if _leaving:
            time.sleep(_PART_SECONDS)  # the main thread may report the reason and end
        else:
            os.write(2, _ABORTED.encode())
        os._exit(_leaving[0] if _leaving else 1)

    libc = ctypes.CDLL(None)
    libc.signal.argtypes, libc.signal.restype = [ctypes.c_int, type(end)], None
    libc.signal(signal.SIGABRT, end)
    return end


def _leave_to_jax() -> None:
    """Hides accelerators from TensorFlow, which would occupy their memory."""
    import tensorflow as tf

    for kind in ("GPU", "TPU"):
        # Fails if the program has already used TensorFlow, whose choice then stays.
        with contextlib.suppress(RuntimeError):
            tf.config.set_visible_devices([], kind)


def _local_devices(number: int | None) -> list[jax.Device]:
    require(number is None or number <= 64, "--num_devices must be at most 64", number)
    # Has no effect with GPUs. Raises if JAX has started, perhaps with more devices.
    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", number or 2)
    present = jax.local_devices()
    count = number or (2 if present[0].platform == "cpu" else len(present))
    need = f"--num_devices must be at most {len(present)}, the devices that JAX has"
    require(count <= len(present), need, count)
    return present[:count]


def _connect_workers(timeout: float) -> None:
    cluster = find_cluster(timeout)
    names = list(cluster.workers)
    number = names.index(cluster.own)
    # JAX opens only the first worker's port; others may still connect to this one's.
    own = int(cluster.workers[cluster.own].rpartition(":")[2])
    with listen(own) if number else contextlib.nullcontext():
        _initialize(
            coordinator_address=cluster.workers[names[0]],
            num_processes=len(names),
            process_id=number,
            # Under SLURM or Open MPI, detection would give each process one GPU.
            cluster_detection_method="deactivate",
        )


def _initialize(timeout: float = _CONNECT_SECONDS, **cluster) -> None:
    """Connects the processes, or raises `DataError` if they cannot be connected."""
    # The service would catch SIGTERM without ending the run.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            initialization_timeout=int(timeout or _A_YEAR),
            heartbeat_timeout_seconds=_SILENT_SECONDS,
            shutdown_timeout_seconds=_PART_SECONDS,
            **cluster,
        )
    except (RuntimeError, ValueError) as e:
        reason = str(e).partition("\n")[0]
        raise DataError(f"the workers cannot be connected: {reason}") from e
    _end_in_one_line()


def _tpus(timeout: float) -> list[jax.Device]:
    if "," in _hosts():
        _initialize(timeout)
    try:
        return jax.devices("tpu")
    except RuntimeError as e:
        logging.debug("--distribution=tpu: %s", e)
        raise DataError(
            f"--distribution=tpu: JAX {jax.__version__} finds no TPU on this machine "
            "(docs/tpu.md says what to install where)"
        ) from e


def _hosts() -> str:
    """Returns the hosts of this TPU's slice, by commas; "" without a TPU."""
    names = os.environ.get("TPU_WORKER_HOSTNAMES")  # set by GKE
    # JAX sets the second variable where it finds no chips.
    if names is not None or "TPU_SKIP_MDS_QUERY" in os.environ:
        return names or ""
    server = os.environ.get("GCE_METADATA_IP", "metadata.google.internal")
    connection = http.client.HTTPConnection(server, timeout=_METADATA_SECONDS)
    failures = OSError, http.client.HTTPException
    with contextlib.closing(connection), contextlib.suppress(*failures):
        connection.request("GET", _ENDPOINTS, headers={"Metadata-Flavor": "Google"})
        response = connection.getresponse()
        return response.read().decode() if response.status == 200 else ""
    return ""
