"""Shows the kinds of TensorFlow operations on which a call spends its time."""

import collections
import glob
import os
import tempfile
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2


class OperationShare(NamedTuple):
    """The share of one kind of operation."""

    name: str  # such as "MatMul"
    share: float  # of the time of all operations
    count: int  # calls


def profile_operations(
    call: Callable[[], object], top: int = 12
) -> list[OperationShare]:
    """Calls a function under TensorFlow's profiler.

    Args:
        call: Function without arguments; called once, warmed up by the caller.
        top: int. Number of kinds to return.

    Returns:
        list of `OperationShare`, the most expensive first. The time of an operation is
        its thread's: operations that share the cores overlap.
    """
    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder)
        try:
            call()
        finally:
            tf.profiler.experimental.stop()
        (path,) = glob.glob(f"{folder}/**/*.xplane.pb", recursive=True)
        with open(path, "rb") as file:
            space = xplane_pb2.XSpace.FromString(file.read())
    times: collections.Counter[str] = collections.Counter()
    counts: collections.Counter[str] = collections.Counter()
    for plane in space.planes:
        if "CPU" not in os.path.basename(plane.name):
            continue
        for line in plane.lines:
            for event in line.events:
                # "name of the node:Kind"; other events are the runtime's own.
                name = plane.event_metadata[event.metadata_id].name
                node, _, kind = name.rpartition(":")
                if node and not node.endswith(":") and kind.isidentifier():
                    times[kind] += event.duration_ps
                    counts[kind] += 1
    total = sum(times.values()) or 1
    return [
        OperationShare(kind, time / total, counts[kind])
        for kind, time in times.most_common(top)
    ]
