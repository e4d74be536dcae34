"""Checks that all workers of a run are about to compute the same thing.

Workers exchange gradients, never weights: if one of them starts from other weights or
at another step, nothing fails, and the chief saves a model that no single run made.
"""

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.errors import DataError

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
        DataError: If they differ; in all workers alike.
    """
    found = find_difference(share(strategy, facts))
    if found:
        raise DataError(
            f"the workers differ in their {found}; give all of them the same packages, "
            "flags and files, and an --output_dir that all of them see"
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


def find_difference(workers: Sequence[Mapping[str, Any]]) -> str | None:
    """Returns what differs between the facts of workers and who has what, or None."""
    rows = [_flat(facts) for facts in workers]
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
    return ", ".join(found) or None


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
