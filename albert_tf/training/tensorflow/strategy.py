"""The devices of a run, as a `tf.distribute` strategy."""

import collections
import contextlib
import functools
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging
from tensorflow.python.eager import context

from albert_tf.errors import DataError, require
from albert_tf.training.workers import find_cluster, share_by, whole_blocks

# Time limit for TensorFlow to connect workers that are all there.
_CONNECT_SECONDS = 120
# Time limit for a TPU to accept a connection.
_TPU_SECONDS = 10.0

Strategy = tf.distribute.Strategy
start_trace = tf.profiler.experimental.start
stop_trace = tf.profiler.experimental.stop


def create_strategy(
    distribution: str = "one_device",
    *,
    num_devices: int | None = None,
    tpu_name: str = "local",
    worker_timeout: float = 600.0,
    allow_tpu_pod: bool = False,
) -> tf.distribute.Strategy:
    """Creates the `tf.distribute` strategy of a run.

    Call it before anything else in TensorFlow: several CPU devices and the connections
    between workers can only be set up before the first operation. `TrainingSettings`
    describes the arguments; `worker_timeout` is in seconds, 0 for no limit. Raises
    `UsageError` if the devices do not exist, or are a pod that is not allowed, and
    `DataError` if no TPU answers, or a worker does not.
    """
    if distribution == "one_device":
        gpu = tf.config.list_physical_devices("GPU")
        return tf.distribute.OneDeviceStrategy("/gpu:0" if gpu else "/cpu:0")
    if distribution == "mirrored":
        return tf.distribute.MirroredStrategy(_local_devices(num_devices))
    if distribution == "multi_worker":
        return _multi_worker_strategy(worker_timeout)
    return _tpu_strategy(tpu_name, allow_tpu_pod)


def takes_several_processes(distribution: str) -> bool:
    """Returns whether a run needs a process on each of several hosts."""
    return distribution == "multi_worker"


def helper_name(strategy: tf.distribute.Strategy) -> str:
    """Returns the name of a worker other than the chief, such as "worker-1", or "".

    The name is the same each time a run is started. The chief writes the files that
    exist once per run.
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
    """Raises a one-line `DataError` if another worker of a run has ended.

    TensorFlow checks every 30 seconds that every worker is alive, and ends operations
    that wait for one that has not answered for 10. Most deaths are noticed at once,
    because the connection closes.
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
    need = f"--num_devices must be from 1 to {most}"
    require(0 < count <= (gpus or 64), need, count)
    if gpus:
        return [f"/gpu:{i}" for i in range(count)]
    cpu = tf.config.list_physical_devices("CPU")[0]
    devices = [tf.config.LogicalDeviceConfiguration()] * count
    try:
        tf.config.set_logical_device_configuration(cpu, devices)
    except (RuntimeError, ValueError):
        present = len(tf.config.list_logical_devices("CPU"))
        need = f"--num_devices={count}: TensorFlow was already started with {present}"
        require(present >= count, f"{need} CPU device(s)")
    return [f"/cpu:{i}" for i in range(count)]


def _multi_worker_strategy(timeout: float) -> tf.distribute.Strategy:
    workers = find_cluster(timeout).workers
    # If a worker leaves now, TensorFlow would wait for it without a limit.
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
            # TensorFlow has installed a handler that does not end the process.
            signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))


def _tpu_strategy(name: str, allow_pod: bool) -> tf.distribute.Strategy:
    with _tpu_errors(name):
        resolver = _find_tpu(name)
        hosts = resolver.cluster_spec().as_dict().get("worker", ())
    _check_hosts(len(hosts), allow_pod)
    with _tpu_errors(name):
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        strategy = tf.distribute.TPUStrategy(resolver)
    _check_hosts(strategy.extended.num_hosts, allow_pod)
    return strategy


@contextlib.contextmanager
def _tpu_errors(name: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, RuntimeError, TypeError, OSError, tf.errors.OpError) as e:
        # TensorFlow's message differs between machines, and may be a stack trace.
        logging.debug("--distribution=tpu: %s", e)
        raise DataError(
            f"--distribution=tpu: no TPU answers at --tpu_name={name} (TensorFlow "
            f"{tf.__version__}; docs/tpu.md says what to install where)"
        ) from e


def _check_hosts(count: int, allow_pod: bool) -> None:
    # TensorFlow makes an input pipeline for every host of a pod, and `distribute` gives
    # it the rows of that host. But records are read by `tf.numpy_function`, whose
    # function other hosts do not have: with a dataset placed on a second local server,
    # all pipelines were read in this process. Pipelines that each host runs alone would
    # need TensorFlow operations that read single records; reading shards in sequence
    # would give up exact resuming. Besides, connecting to the hosts may never end.
    require(
        count <= 1 or allow_pod,
        f"--distribution=tpu: this TPU has {count} hosts, on which TensorFlow hangs "
        "(tensorflow#93618), and one would read the records for all of them; "
        "--backend=jax trains on all hosts; --allow_tpu_pod tries it",
    )


def _find_tpu(name: str) -> tf.distribute.cluster_resolver.TPUClusterResolver:
    """Looks up a TPU and tests its address: TensorFlow would wait for hours."""
    before = socket.getdefaulttimeout()
    # A name is looked up in the cloud, by requests without a time limit of their own.
    socket.setdefaulttimeout(_TPU_SECONDS)
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
        for address in resolver.cluster_spec().as_dict().get("worker", ()):
            host, _, port = address.rpartition(":")
            socket.create_connection((host, int(port)), _TPU_SECONDS).close()
    finally:
        socket.setdefaulttimeout(before)
    return resolver


def default_strategy() -> tf.distribute.Strategy:
    """Returns the default devices of a program."""
    return tf.distribute.get_strategy()


def make_deterministic(asked: bool | None) -> None:
    """Makes operations deterministic in this process; None: unless there is a GPU."""
    if asked or asked is None and not tf.config.list_physical_devices("GPU"):
        tf.config.experimental.enable_op_determinism()


def compilation_cache(asked: str, usual: str) -> contextlib.AbstractContextManager:
    """Does nothing; see `training.jax.devices`."""
    del asked, usual
    return contextlib.nullcontext()


def bring_home(strategy: tf.distribute.Strategy, model: keras.Model) -> None:
    """Does nothing: every process can read all weights by itself."""


def leave_together(strategy: tf.distribute.Strategy) -> None:
    """Does nothing: a process may end before the others."""


def is_one_of_several(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether other processes run the same program for this run."""
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


def share(strategy: tf.distribute.Strategy, value: Any) -> list[Any]:
    """Returns the values of all workers, the chief's first, to all of them.

    Every worker must call it at the same point, with a value ready for JSON. Values
    that workers measure may differ in the last bits, so they share the ones that decide
    anything.
    """
    if not is_one_of_several(strategy):
        return [value]
    gather = functools.partial(_gather, strategy)
    # All replicas of a worker contribute the row of that worker.
    return share_by(gather, value, num_shares(strategy))


def join_rows(strategy: tf.distribute.Strategy, rows: np.ndarray) -> np.ndarray:
    """Returns the rows of all workers, the chief's first; all have equally many."""
    row = np.zeros(whole_blocks(rows.size), np.float32)
    row[: rows.size] = rows.ravel()
    joined = _gather(strategy, row)[:: num_shares(strategy), : rows.size]
    return joined.reshape(-1, *rows.shape[1:]).astype(rows.dtype)


def is_tpu(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether the devices are TPUs, which compile everything they compute."""
    return isinstance(strategy, tf.distribute.TPUStrategy)


def num_shares(strategy: tf.distribute.Strategy) -> int:
    """Returns the number of devices of this process."""
    return len(strategy.extended.worker_devices)


def value_of(variable: keras.Variable) -> np.ndarray:
    """Returns the current value, which all replicas share."""
    return tf.convert_to_tensor(variable.value).numpy()


def _gather(strategy: tf.distribute.Strategy, row: np.ndarray) -> np.ndarray:
    """Returns the rows of all replicas, `[replicas, n]`."""
    gather = _gatherer(strategy)
    return strategy.experimental_local_results(gather(tf.constant(row)))[0].numpy()


@functools.cache
def _gatherer(strategy: tf.distribute.Strategy):
    """Returns the function behind `_gather`, traced once for each row size."""
    replicas = strategy.num_replicas_in_sync

    @tf.function
    def gather(row):
        def on_replica(row):
            context = tf.distribute.get_replica_context()
            place = tf.range(replicas) == context.replica_id_in_sync_group
            # Everything is added to zeros only, so the sum is exact.
            own = tf.where(place[:, None], row[None, :], 0.0)
            return context.all_reduce("SUM", own)

        return strategy.run(on_replica, (row,))

    return gather
