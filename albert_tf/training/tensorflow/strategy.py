"""The devices of a run, as a `tf.distribute` strategy, and its workers.

TensorFlow waits for other workers in code that lets no other Python run: no line
appears, no signal is answered, no thread notices a time limit. So every worker opens
its port and connects to the others' first; TensorFlow begins when all have answered.

Workers exchange gradients, never weights: if one of them starts from other weights or
at another step, nothing fails, and the chief saves a model that no single run made. So
they compare first what they are about to compute.
"""

import collections
import concurrent.futures
import contextlib
import functools
import hashlib
import json
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging
from tensorflow.python.eager import context

from albert_tf.errors import DataError, require

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


def _local_devices(number: int | None) -> list[str]:
    gpus = len(tf.config.list_physical_devices("GPU"))
    count = (gpus or 2) if number is None else number
    most = f"{gpus}, the number of GPUs of this machine" if gpus else "64"
    rule = f"--num_devices must be from 1 to {most}"
    require(0 < count <= (gpus or 64), rule, count)
    if gpus:
        return [f"/gpu:{i}" for i in range(count)]
    cpu = tf.config.list_physical_devices("CPU")[0]
    devices = [tf.config.LogicalDeviceConfiguration()] * count
    try:
        tf.config.set_logical_device_configuration(cpu, devices)
    except (RuntimeError, ValueError):
        present = len(tf.config.list_logical_devices("CPU"))
        rule = f"--num_devices={count}: TensorFlow was already started with {present}"
        require(present >= count, f"{rule} CPU device(s)")
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
    text, cluster = os.environ.get("TF_CONFIG", ""), {}
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
        config = json.loads(text)
        task, index = config["task"].get("type", "worker"), config["task"]["index"]
        jobs = [job for job in ("chief", "worker") if job in config["cluster"]]
        cluster = {job: list(config["cluster"][job]) for job in jobs}
    require(
        cluster.get("worker"),
        "--distribution=multi_worker requires the environment variable TF_CONFIG with "
        "cluster.worker and task.index",
        text,
    )
    names = ", ".join(cluster)
    rule = f"TF_CONFIG: task.type must be one of {names}, the jobs of cluster"
    require(task in cluster, rule, task)
    count = len(cluster[task])
    require(
        type(index) is int and 0 <= index < count,
        f"TF_CONFIG: task.index must be from 0 to {count - 1}, for the {count} of "
        f"cluster.{task}",
        index,
    )
    workers = {}
    for job in cluster:
        for number, address in enumerate(cluster[job]):
            fits = re.fullmatch(r".+:\d+", str(address))
            require(fits, f"TF_CONFIG: cluster.{job} must hold host:port", address)
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
    # TensorFlow makes an input pipeline for every host of a pod, and `distribute` gives
    # it the rows of that host. But records are read by `tf.numpy_function`, whose
    # function other hosts do not have: seen with a data set placed on a second local
    # server, the reading of all pipelines comes back to this process. Pipelines that
    # each host runs alone would need operations of TensorFlow's that read single
    # records; reading shards in sequence would give up exact resuming.
    hosts = strategy.extended.num_hosts
    if hosts > 1:
        logging.warning(
            "the TPU has %d hosts, but this process alone reads the records for all of "
            "them, which may be too slow (not tested on a TPU)",
            hosts,
        )
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


_FIRST_LINE_AFTER = 20.0
_KNOCKS_EVERY = 0.5


def wait_for(addresses: Mapping[str, str], port: int, timeout: float) -> None:
    """Returns when all other workers have opened their ports.

    Args:
        addresses: dict. `host:port` of the other workers, by a name for people.
        port: int. This worker's, which is free again afterwards.
        timeout: float. Seconds to wait; 0: without end.

    Raises:
        DataError: If a worker is not there in time, or the port is in use.
    """
    begun, told, absent = time.monotonic(), "", dict(addresses)
    with _listen(port), concurrent.futures.ThreadPoolExecutor(32) as threads:
        # One that has answered goes on; its port is closed until TensorFlow opens it.
        while True:
            there = dict(
                zip(absent, threads.map(_listens, absent.values()), strict=True)
            )
            absent = {name: absent[name] for name in absent if not there[name]}
            if not absent:
                return
            seconds = time.monotonic() - begun
            names = ", ".join(f"{name} ({where})" for name, where in absent.items())
            if timeout and seconds >= timeout:
                raise DataError(
                    f"no answer from {names} after {timeout:g} s; give the same "
                    "command to all workers in TF_CONFIG, or raise --worker_timeout"
                )
            if seconds >= _FIRST_LINE_AFTER and names != told:
                told = names
                print(f"waiting for {names}", file=sys.stderr, flush=True)
            time.sleep(_KNOCKS_EVERY)


def _listen(port: int) -> socket.socket:
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    try:
        return socket.create_server(("", port), family=family, dualstack_ipv6=both)
    except OSError as e:
        raise DataError(
            f"TF_CONFIG: this worker's port {port} cannot be opened: "
            f"{os.strerror(e.errno)}; an earlier process of the run may still use it"
        ) from None


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=2) as one:
            # On one machine, a port that nobody has opened can be given to the knock.
            return one.getsockname() != one.getpeername()
    except OSError:
        return False


# The lengths of what workers exchange are multiples of this, so that few graphs serve.
_BLOCK = 4096
_MOST_NAMED = 4


def check_agreement(strategy: tf.distribute.Strategy, facts: Mapping[str, Any]) -> None:
    """Compares facts of all workers.

    Every worker must call it at the same point. It does nothing in a run of a single
    process.

    Args:
        strategy: `tf.distribute.Strategy`. Strategy of the run.
        facts: dict. What must be equal in all workers, by a title for people, in the
            order of importance: values ready for JSON, digests, or dicts of these.

    Raises:
        DataError: If they differ; in all workers alike, and says who has what.
    """
    rows = [_flat(facts) for facts in share(strategy, facts)]
    found = []
    for title in dict.fromkeys(title for row in rows for title in row):
        groups: dict[str, list[str]] = {}
        for worker, row in enumerate(rows):
            groups.setdefault(str(row.get(title)), []).append(str(worker))
        if len(groups) > 1:
            parts = [f"worker {', '.join(g)}: {v:.40}" for v, g in groups.items()]
            found.append(f"{title} ({'; '.join(parts)})")
    if len(found) > _MOST_NAMED:
        found[_MOST_NAMED:] = [f"{len(found) - _MOST_NAMED} more"]
    require(
        not found,
        f"the workers differ in their {', '.join(found)}; give all of them the same "
        "packages, flags and files, and an --output_dir that all of them see",
        error=DataError,
    )


def is_one_of_several(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether other processes run the same program for this run."""
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


def share(strategy: tf.distribute.Strategy, value: Any) -> list[Any]:
    """Returns the values of all workers, the chief's first, to all of them.

    Every worker must call it at the same point. What workers measure by themselves may
    differ in the last bits, so they share what they decide by it.

    Args:
        strategy: `tf.distribute.Strategy`. Strategy of the run.
        value: This worker's, ready for JSON, of any size.
    """
    if not is_one_of_several(strategy):
        return [value]
    text = np.frombuffer(json.dumps(value).encode(), np.uint8)
    lengths = _gather(strategy, np.array([len(text)], np.float32))[:, 0].astype(int)
    row = np.zeros(-(-max(lengths) // _BLOCK) * _BLOCK, np.float32)
    row[: len(text)] = text
    rows = _gather(strategy, row).astype(np.uint8)
    # All replicas of a worker bring the row of that worker.
    replicas = len(strategy.extended.worker_devices)
    return [
        json.loads(row[:length].tobytes())
        for row, length in list(zip(rows, lengths, strict=True))[::replicas]
    ]


def _flat(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the facts with those of inner dicts under both names."""
    flat: dict[str, Any] = {}
    for title, value in facts.items():
        inner = value if isinstance(value, dict) else {"": value}
        flat |= {f"{title} {name}".strip(): v for name, v in inner.items()}
    return flat


def digest_of(tensors: Mapping[str, tf.Variable]) -> str:
    """Returns a sha256 of the names and values of variables."""
    sha256 = hashlib.sha256()
    for name, variable in sorted(tensors.items()):
        value = np.asarray(tf.convert_to_tensor(variable))
        sha256.update(f"{name} {value.shape}".encode())
        sha256.update(np.ascontiguousarray(value).tobytes())
    return sha256.hexdigest()


def _gather(strategy: tf.distribute.Strategy, row: np.ndarray) -> np.ndarray:
    """Returns the rows of all replicas, `[replicas, n]`."""
    gather = _gatherer(strategy)
    return strategy.experimental_local_results(gather(tf.constant(row)))[0].numpy()


@functools.cache
def _gatherer(strategy: tf.distribute.Strategy):
    """Returns the function behind `_gather`, traced once for each size of row."""
    replicas = strategy.num_replicas_in_sync

    @tf.function
    def gather(row):
        def on_replica(row):
            context = tf.distribute.get_replica_context()
            place = tf.one_hot(context.replica_id_in_sync_group, replicas)
            # Sums with zeros only, so that the sum is exact.
            return context.all_reduce("SUM", place[:, None] * row[None, :])

        return strategy.run(on_replica, (row,))

    return gather
