"""Chooses the devices of a run, as a `tf.distribute` strategy."""

import collections
import contextlib
import json
import os
import re
import signal
import socket
import threading
from collections.abc import Iterator

import tensorflow as tf
from absl import logging
from tensorflow.python.eager import context

from albert_tf.errors import DataError, UsageError
from albert_tf.training.tensorflow.waiting import wait_for

DISTRIBUTIONS = ("one_device", "mirrored", "multi_worker", "tpu")
# How long TensorFlow may take to connect workers that are all there.
_CONNECT_SECONDS = 120
# How long a TPU may take to accept a connection.
_TPU_SECONDS = 10.0


def create_strategy(
    distribution: str = "one_device",
    *,
    num_devices: int | None = None,
    tpu_name: str = "local",
    worker_timeout: float = 600.0,
) -> tf.distribute.Strategy:
    """Makes the `tf.distribute` strategy of a run.

    Call it before anything else in TensorFlow: several CPU devices and the connections
    between workers can only be set up before the first operation.

    Args:
        distribution: str. `"one_device"`: the first GPU, or the CPU. `"mirrored"`: all
            GPUs of this machine, or the CPU divided into logical devices.
            `"multi_worker"`: the machines listed in the environment variable TF_CONFIG.
            `"tpu"`: a TPU.
        num_devices: int or None. With `"mirrored"`: number of GPUs or of logical CPU
            devices; None for all GPUs, or 2.
        tpu_name: str. With `"tpu"`: name or address of the TPU, as for
            `TPUClusterResolver`; `"local"` on a TPU VM.
        worker_timeout: float. With `"multi_worker"`: seconds to wait for the other
            workers; 0: without end.

    Raises:
        UsageError: If the devices do not exist.
        DataError: If no TPU answers, or a worker does not.
    """
    if distribution not in DISTRIBUTIONS:
        raise UsageError(
            f"--distribution must be one of {', '.join(DISTRIBUTIONS)}, "
            f"received {distribution!r}"
        )
    if num_devices is not None and distribution != "mirrored":
        raise UsageError(
            f"--num_devices requires --distribution=mirrored, received {distribution!r}"
        )
    if distribution == "one_device":
        gpu = tf.config.list_physical_devices("GPU")
        return tf.distribute.OneDeviceStrategy("/gpu:0" if gpu else "/cpu:0")
    if distribution == "mirrored":
        return tf.distribute.MirroredStrategy(_local_devices(num_devices))
    if distribution == "multi_worker":
        return _multi_worker_strategy(worker_timeout)
    return _tpu_strategy(tpu_name)


def helper_name(strategy: tf.distribute.Strategy) -> str:
    """Returns the name of a worker that is not the chief, such as "worker-1".

    The name is the same each time a run is started. It is empty in the chief, the
    process that writes the files that exist once per run.
    """
    resolver = strategy.cluster_resolver
    task = getattr(resolver, "task_type", None)
    if not task or task == "chief":
        return ""
    has_chief = "chief" in resolver.cluster_spec().as_dict()
    if task == "worker" and resolver.task_id == 0 and not has_chief:
        return ""
    return f"{task}-{resolver.task_id}"


@contextlib.contextmanager
def worker_errors(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Says in one line that another worker of a run has ended.

    TensorFlow asks every worker every 30 seconds whether it lives, and ends what waits
    for one that has not answered for 10. Most deaths are noticed at once, because the
    connection closes.

    Raises:
        DataError: If an operation fails because another worker does not answer.
    """
    try:
        yield
    except tf.errors.OpError as e:
        if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            raise
        lost = (tf.errors.UnavailableError, tf.errors.AbortedError)
        lost += (tf.errors.DeadlineExceededError, tf.errors.CancelledError)
        if not isinstance(e, lost) and "ollective" not in str(e):
            raise
        raise DataError(
            "another worker of the run does not answer; see its last line, then give "
            "the same command on all workers to continue from the last checkpoint"
        ) from e


def warn_of_hosts(num_hosts: int) -> None:
    """Says that one process reads the data of a TPU of several hosts.

    TensorFlow makes an input pipeline for every host of a pod, and `distribute` gives
    it the rows of that host. But only this process runs Python: records are read by
    `tf.numpy_function`, whose function other hosts do not have, so the reading of all
    pipelines comes back here and the batches travel over the network. Pipelines that
    each host runs alone would have to read single records with TensorFlow's own
    operations, which cannot; reading shards in sequence instead would give up the
    exact order and with it exact resuming. Nothing of this has run on a TPU: that the
    function runs here was seen with a data set placed on a second local server.
    """
    if num_hosts > 1:
        logging.warning(
            "the TPU has %d hosts, but this process alone reads the records for all of "
            "them, which may be too slow (not tested on a TPU)",
            num_hosts,
        )


def _local_devices(num_devices: int | None) -> list[str]:
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        count = len(gpus) if num_devices is None else num_devices
        if not 0 < count <= len(gpus):
            raise UsageError(
                f"--num_devices must be from 1 to {len(gpus)}, the number of GPUs of "
                f"this machine, received {count}"
            )
        return [f"/gpu:{i}" for i in range(count)]
    count = 2 if num_devices is None else num_devices
    if not 0 < count <= 64:
        raise UsageError(f"--num_devices must be from 1 to 64, received {count}")
    cpu = tf.config.list_physical_devices("CPU")[0]
    devices = [tf.config.LogicalDeviceConfiguration()] * count
    try:
        tf.config.set_logical_device_configuration(cpu, devices)
    except (RuntimeError, ValueError):
        present = len(tf.config.list_logical_devices("CPU"))
        if present < count:
            raise UsageError(
                f"--num_devices={count}: TensorFlow was already started with "
                f"{present} CPU device(s)"
            ) from None
    return [f"/cpu:{i}" for i in range(count)]


def _multi_worker_strategy(timeout: float) -> tf.distribute.Strategy:
    workers, own = _workers()
    others = {name: where for name, where in workers.items() if name != own}
    wait_for(others, int(workers[own].rpartition(":")[2]), timeout)
    # A worker that leaves now is missed by nobody but TensorFlow, without a limit.
    jobs = collections.Counter(name.partition(" ")[0] for name in workers)
    eager = context.context()
    eager.configure_coordination_service(
        "standalone",
        service_leader=f"/job:{min(jobs)}/replica:0/task:0",
        cluster_register_timeout_in_ms=_CONNECT_SECONDS * 1000,
    )
    eager.coordination_service.cluster_register_with_barrier = True
    for job, count in jobs.items():
        eager.coordination_service.coordinated_job_list.add(name=job, num_tasks=count)
    try:
        return tf.distribute.MultiWorkerMirroredStrategy()
    except tf.errors.OpError as e:
        reason = e.message.partition("\n")[0]
        raise DataError(
            f"the workers in TF_CONFIG answer, but cannot be connected: {reason}"
        ) from e
    finally:
        if threading.current_thread() is threading.main_thread():
            # TensorFlow has put one in its place that only takes note.
            signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))


def _workers() -> tuple[dict[str, str], str]:
    """Returns the workers' addresses in TF_CONFIG by their names, and the own name."""
    text = os.environ.get("TF_CONFIG", "")
    try:
        config = json.loads(text)
        found = config["cluster"]
        cluster = {job: list(found[job]) for job in ("chief", "worker") if job in found}
        task, index = config["task"].get("type", "worker"), config["task"]["index"]
        complete = bool(cluster["worker"])
    except (ValueError, KeyError, TypeError, AttributeError):
        complete = False
    if not complete:
        raise UsageError(
            "--distribution=multi_worker requires the environment variable TF_CONFIG "
            f"with cluster.worker and task.index, received {text!r}"
        )
    if task not in cluster:
        raise UsageError(
            f"TF_CONFIG: task.type must be one of {', '.join(cluster)}, the jobs of "
            f"cluster, received {task!r}"
        )
    if type(index) is not int or not 0 <= index < len(cluster[task]):
        raise UsageError(
            f"TF_CONFIG: task.index must be from 0 to {len(cluster[task]) - 1}, for "
            f"the {len(cluster[task])} of cluster.{task}, received {index!r}"
        )
    workers = {}
    for job in cluster:
        for number, address in enumerate(cluster[job]):
            if not re.fullmatch(r".+:\d+", str(address)):
                raise UsageError(
                    f"TF_CONFIG: cluster.{job} must hold host:port, received "
                    f"{address!r}"
                )
            workers[f"{job} {number}"] = address
    return workers, f"{task} {index}"


def _tpu_strategy(name: str) -> tf.distribute.Strategy:
    try:
        resolver = _find_tpu(name)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        strategy = tf.distribute.TPUStrategy(resolver)
    except (ValueError, RuntimeError, TypeError, OSError, tf.errors.OpError) as e:
        # What TensorFlow says differs from machine to machine, and may be a stack.
        logging.debug("--distribution=tpu: %s", e)
        raise DataError(
            f"--distribution=tpu: no TPU answers at --tpu_name={name} (TensorFlow "
            f"{tf.__version__}; docs/tpu.md says what to install where)"
        ) from e
    warn_of_hosts(strategy.extended.num_hosts)
    return strategy


def _find_tpu(name: str) -> tf.distribute.cluster_resolver.TPUClusterResolver:
    """Looks a TPU up, and knocks at its address: TensorFlow would wait for hours."""
    before = socket.getdefaulttimeout()
    # A name is looked up in the cloud, by requests that have no other time limit.
    socket.setdefaulttimeout(_TPU_SECONDS)
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
        for address in resolver.cluster_spec().as_dict().get("worker", ()):
            host, _, port = address.rpartition(":")
            socket.create_connection((host, int(port)), _TPU_SECONDS).close()
    finally:
        socket.setdefaulttimeout(before)
    return resolver
