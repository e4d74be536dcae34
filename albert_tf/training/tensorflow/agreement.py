"""Checks that all workers of a run are about to compute the same thing.

Workers exchange gradients, never weights: if one of them starts from other weights or
at another step, nothing fails, and the chief saves a model that no single run made.
"""

import functools
import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from albert_tf.errors import DataError

# float32 holds integers of this many bits exactly, and every device can sum it.
_BITS = 24
_WORDS = 5


def check_agreement(strategy: tf.distribute.Strategy, facts: Mapping[str, str]) -> None:
    """Compares facts of all workers, with a single all-reduce.

    Every worker must call it at the same point. It does nothing in a run of a single
    process.

    Args:
        strategy: `tf.distribute.Strategy`. Strategy of the run.
        facts: dict. Values that must be equal in all workers, by a title for people:
            short ones, or digests. All workers have the same titles.

    Raises:
        DataError: If they differ; in all workers alike.
    """
    if not is_one_of_several(strategy):
        return
    row = np.concatenate([_encode(value) for value in facts.values()])
    rows = _gather(strategy, row).reshape([-1, len(facts), _WORDS])
    # All replicas of a worker bring the row of that worker.
    workers = _num_workers(strategy)
    found = find_difference(list(facts), rows[:: len(rows) // workers])
    if found:
        raise DataError(
            f"the workers differ in {found}; give all of them the same flags and a "
            "folder --output_dir that all of them see"
        )


def is_one_of_several(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether other processes run the same program for this run."""
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


def any_worker(strategy: tf.distribute.Strategy, flag: bool) -> bool:
    """Returns whether a flag is set in any worker; all of them get the same answer.

    Every worker must call it at the same point.

    Args:
        strategy: `tf.distribute.Strategy`. Strategy of the run.
        flag: bool. This worker's.
    """
    if not is_one_of_several(strategy):
        return flag
    return bool(_gather(strategy, np.array([flag], np.float32)).any())


def find_difference(titles: Sequence[str], rows: np.ndarray) -> str | None:
    """Returns what differs first between workers, or None.

    Args:
        titles: Sequence of str. F titles, in the order of importance.
        rows: float32 `[W, F, words]`. What the W workers reported.
    """
    for number, title in enumerate(titles):
        groups: dict[bytes, list[str]] = {}
        for worker, row in enumerate(rows[:, number]):
            groups.setdefault(row.tobytes(), []).append(str(worker))
        if len(groups) > 1:
            parts = [f"worker {', '.join(group)}" for group in groups.values()]
            return f"their {title} ({' against '.join(parts)})"
    return None


def digest_of(tensors: Mapping[str, tf.Variable]) -> str:
    """Returns a sha256 of the names and values of variables."""
    sha256 = hashlib.sha256()
    for name, variable in sorted(tensors.items()):
        value = np.asarray(tf.convert_to_tensor(variable))
        sha256.update(f"{name} {value.shape}".encode())
        sha256.update(np.ascontiguousarray(value).tobytes())
    return sha256.hexdigest()


def _encode(value: str) -> np.ndarray:
    """Returns a digest of a text as float32 `[_WORDS]`, each an exact integer."""
    digest = hashlib.sha256(value.encode()).digest()
    size = _BITS // 8
    words = [digest[i * size : (i + 1) * size] for i in range(_WORDS)]
    return np.array([int.from_bytes(word, "little") for word in words], np.float32)


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


def _num_workers(strategy: tf.distribute.Strategy) -> int:
    cluster = strategy.cluster_resolver.cluster_spec().as_dict()
    return sum(len(cluster.get(job, ())) for job in ("chief", "worker"))
