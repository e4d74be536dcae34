"""The devices of a run on JAX, as a mesh, and its workers.

TensorFlow reads and batches the data on the host, and must leave accelerators alone:
one framework owns them.
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
from jax.sharding import Mesh

from albert_tf.errors import DataError, Stopped, require
from albert_tf.kernels.attention import adds_in_order
from albert_tf.training.jax.update import AXIS
from albert_tf.training.workers import find_cluster, listen, share_by

# How long JAX may take to connect workers that are all there, and to part.
_CONNECT_SECONDS = 120
_PART_SECONDS = 10
# After which a process that is silent counts as lost, as long as on TensorFlow.
_SILENT_SECONDS = 40
# Without end, nearly.
_A_YEAR = 365 * 24 * 3600
# What XLA says where another process is gone: by itself, by Gloo (on CPUs), by NCCL (on
# GPUs), and by what coordinates the processes.
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
# What a TPU VM says of its slice, and how long it may take.
_ENDPOINTS = "/computeMetadata/v1/instance/attributes/worker-network-endpoints"
_METADATA_SECONDS = 5.0


class Devices:
    """The devices that train one model, of this process and of others.

    Args:
        devices: sequence of `jax.Device`, in the same order in all processes.

    Attributes:
        mesh, local_mesh: `jax.sharding.Mesh` of all devices, and of this process's.
        num_replicas_in_sync: int. Number of all devices.
    """

    def __init__(self, devices: Sequence[jax.Device]):
        own = [d for d in devices if d.process_index == jax.process_index()]
        self.mesh = Mesh(np.array(devices), (AXIS,))
        self.local_mesh = Mesh(np.array(own), (AXIS,))
        self.num_replicas_in_sync = len(devices)

    def scope(self) -> contextlib.AbstractContextManager:
        """Does nothing; a `tf.distribute.Strategy` makes variables in its scope."""
        return contextlib.nullcontext()


Strategy = Devices


def create_strategy(
    distribution: str = "one_device",
    *,
    num_devices: int | None = None,
    tpu_name: str = "local",
    worker_timeout: float = 600.0,
) -> Devices:
    """Returns the devices of a run.

    Call it before anything else in JAX: several CPU devices and the connections between
    workers can only be set up before the first operation.

    Args:
        distribution: str. `"one_device"`: the first GPU or TPU, or the CPU.
            `"mirrored"`: all GPUs of this machine, or the CPU divided into several
            devices. `"multi_worker"`: all devices of the machines listed in the
            environment variable TF_CONFIG. `"tpu"`: all TPU chips of all hosts, each of
            which runs the same command.
        num_devices: int or None. With `"mirrored"`: number of GPUs or of CPU devices;
            None for all GPUs, or 2.
        tpu_name: str. Must be `"local"`.
        worker_timeout: float. With several processes: seconds to wait for the others;
            0: without end.

    Raises:
        UsageError: If the devices do not exist.
        DataError: If no TPU answers, or a worker does not.
    """
    _leave_to_jax()
    if distribution == "one_device":
        return default_strategy()
    if distribution == "mirrored":
        return Devices(_local_devices(num_devices))
    if distribution == "multi_worker":
        _connect_workers(worker_timeout)
        return Devices(jax.devices())
    rule = "--tpu_name must be local with --backend=jax, which runs on every TPU host"
    require(tpu_name == "local", rule, tpu_name)
    return Devices(_tpus(worker_timeout))


def default_strategy() -> Devices:
    """Returns the device of a program that does not choose any."""
    _leave_to_jax()
    return Devices(jax.local_devices()[:1])


def takes_several_processes(distribution: str) -> bool:
    """Returns whether a run takes a process on each of several hosts.

    Args:
        distribution: str. See `create_strategy`.
    """
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
    """Warns if XLA was not asked for it before JAX started, as `cli.start` does."""
    if asked and jax.default_backend() == "gpu" and not adds_in_order():
        logging.warning(
            "set XLA_FLAGS=--xla_gpu_deterministic_ops=true before JAX starts for runs "
            "that give the same bits"
        )


def bring_home(devices: Devices, model: keras.Model) -> None:
    """Gives each process weights of its own, to compute with on one device.

    Args:
        devices: `Devices`. Those of the run.
        model: Keras model of the run.
    """
    if devices.mesh.size > 1:
        for variable in model.variables:
            variable.assign(value_of(variable))


def leave_together(devices: Devices) -> None:
    """Returns when all processes have called it: JAX ends those that one has left."""
    share(devices, None)


def share(devices: Devices, value: Any) -> list[Any]:
    """Returns the values of all workers, the chief's first, to all of them.

    Every worker must call it at the same point.

    Args:
        devices: `Devices`. Those of the run.
        value: This worker's, ready for JSON, of any size.
    """
    if not is_one_of_several(devices):
        return [value]
    return share_by(multihost_utils.process_allgather, value)


def value_of(variable: keras.Variable) -> np.ndarray:
    """Returns the value of now.

    Every worker must call it at the same point: slots may be divided among them.
    """
    value = variable.value
    if value.is_fully_addressable or value.is_fully_replicated:
        return np.array(value)  # a copy: the step takes the memory of its arguments
    return multihost_utils.process_allgather(value, tiled=True)


@contextlib.contextmanager
def worker_errors(devices: Devices) -> Iterator[None]:
    """Says in one line that another worker of a run has ended, or what XLA says.

    Raises:
        DataError: If an operation fails because another worker does not answer, or on
            this one.
    """
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
        # On CPUs, the loss of a worker may be an error of the latter kind.
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
    """Lets this process end by itself: JAX would wait for the others, and abort."""
    _leaving.append(code)
    atexit.register(_exit, code)


def _exit(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@functools.cache
def _end_in_one_line() -> Any:
    """Gives SIGABRT, by which JAX ends a process that has lost another, a last line.

    A handler of Python's would come too late: it waits for the main thread. The cache
    keeps the one that is returned in memory.
    """

    @ctypes.CFUNCTYPE(None, ctypes.c_int)
    def end(number):
        if _leaving:
            time.sleep(_PART_SECONDS)  # it says why by itself, and ends
        else:
            os.write(2, _ABORTED.encode())
        os._exit(_leaving[0] if _leaving else 1)

    libc = ctypes.CDLL(None)
    libc.signal.argtypes, libc.signal.restype = [ctypes.c_int, type(end)], None
    libc.signal(signal.SIGABRT, end)
    return end


def _leave_to_jax() -> None:
    """Hides accelerators from TensorFlow, which would take their memory."""
    import tensorflow as tf

    for kind in ("GPU", "TPU"):
        # Fails if the program has used TensorFlow before; then it has what it wants.
        with contextlib.suppress(RuntimeError):
            tf.config.set_visible_devices([], kind)


def _local_devices(number: int | None) -> list[jax.Device]:
    require(number is None or number <= 64, "--num_devices must be at most 64", number)
    # Means nothing where there are GPUs. Raises if JAX has started, perhaps with more.
    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", number or 2)
    found = jax.local_devices()
    count = number or (2 if found[0].platform == "cpu" else len(found))
    rule = f"--num_devices must be at most {len(found)}, the devices that JAX has"
    require(count <= len(found), rule, count)
    return found[:count]


def _connect_workers(timeout: float) -> None:
    cluster = find_cluster(timeout)
    names = list(cluster.workers)
    number = names.index(cluster.own)
    # JAX opens the first one's port only; others may still knock at this one's.
    own = int(cluster.workers[cluster.own].rpartition(":")[2])
    with listen(own) if number else contextlib.nullcontext():
        _initialize(
            coordinator_address=cluster.workers[names[0]],
            num_processes=len(names),
            process_id=number,
            # Under SLURM or Open MPI it would take one GPU for each process.
            cluster_detection_method="deactivate",
        )


def _initialize(timeout: float = _CONNECT_SECONDS, **cluster) -> None:
    """Connects the processes.

    Raises:
        DataError: If they answer, but cannot be connected.
    """
    # It would catch SIGTERM, and only take note.
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
    """Returns the hosts of this TPU's slice, where `jax.distributed` looks for them.

    They are separated by commas; empty if there is no TPU here.
    """
    names = os.environ.get("TPU_WORKER_HOSTNAMES")  # set by GKE
    # JAX sets this one where it finds no chips.
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
