"""Run in a process of its own: batches that are made ahead under determinism."""

import sys
import threading

import tensorflow as tf

from albert_tf.data.records.tfrecord import RecordSet
from tests.data.synthetic_records import make

tf.config.experimental.enable_op_determinism()
dataset = make(sys.argv[1], max_seq_length=40, packing=True)
read, reads = RecordSet.read, []
more = threading.Event()


def counted(self, indices):
    reads.append(1)
    if len(reads) > 1:
        more.set()
    return read(self, indices)


RecordSet.read = counted
iterator = iter(dataset)  # Without a reference it would stop.
next(iterator)
print(more.wait(30))  # A second batch is made before it is asked for.
