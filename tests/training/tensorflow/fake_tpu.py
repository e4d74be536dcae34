"""Traces the steps of training for a TPU on a machine that has none.

`TPUStrategy` itself builds the graph that a TPU would compile; only its cores are
logical devices of the CPU, which cannot run it. Run as a program, in a process of its
own: `python -m tests.training.tensorflow.fake_tpu RECORDS CASES`, where CASES is JSON,
`{name: arguments of trace, or of trace_finetuning}`. Prints what was found, as JSON.
"""

import dataclasses
import json
import re
import sys
import types
from collections import Counter
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from tensorflow.python.tpu import tpu_system_metadata

from albert_tf import features, heads
from albert_tf.config import AlbertConfig
from albert_tf.data.batches.pretraining import PretrainingData
from albert_tf.models.masked_lm import AlbertPretrainer
from albert_tf.objectives.finetuning import for_task
from albert_tf.objectives.pretraining import ALBERT
from albert_tf.optimizers.create import create_optimizer
from albert_tf.tasks.batches import BatchMaker, BatchShape, make_training_dataset
from albert_tf.tasks.outputs import input_ranks
from albert_tf.training.tensorflow.step import TrainStep, distribute
from tests.data.synthetic_records import VOCAB
from tests.tasks.batches_test import examples_of

REPLICAS = 2
T, P, B = 29, 5, 8
_DEVICE = "/job:localhost/replica:0/task:0/device:"
_CORES = [f"{_DEVICE}CPU:{1 + i}" for i in range(REPLICAS)]
# They run on the host, or their outputs have as many elements as the values say.
_HOST_OR_DYNAMIC = re.compile(
    r"(Eager)?PyFunc(Stateless)?|Unique\w*|Where|AsString|String\w+|Print(V2)?"
    r"|DynamicPartition|ListDiff|Iterator\w+|_?Xla(Host|Send|Recv)\w*|OutfeedEnqueue\w*"
)


class _Resolver(tf.distribute.cluster_resolver.ClusterResolver):
    """Describes one host with two cores, as that of a TPU VM would."""

    environment, task_type, task_id = "", None, None

    def get_tpu_system_metadata(self):
        kinds = ["CPU:0", *(f"TPU:{i}" for i in range(REPLICAS))]
        devices = [
            types.SimpleNamespace(name=_DEVICE + kind, device_type=kind[:3])
            for kind in kinds
        ]
        return tpu_system_metadata.TPUSystemMetadata(
            num_cores=REPLICAS,
            num_hosts=1,
            num_of_cores_per_host=REPLICAS,
            topology=None,
            devices=devices,
        )

    def cluster_spec(self):
        return tf.train.ClusterSpec({})

    def master(self, *args, **kwargs):
        return ""

    def num_accelerators(self, *args, **kwargs):
        return {"TPU": REPLICAS}

    def is_tpu_vm(self):
        return True


def fake_tpu() -> tf.distribute.TPUStrategy:
    """Returns a strategy whose cores are logical devices of the CPU."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    parts = [tf.config.LogicalDeviceConfiguration()] * (1 + REPLICAS)
    tf.config.set_logical_device_configuration(cpu, parts)
    tf.config.list_logical_devices()
    strategy = tf.distribute.TPUStrategy(_Resolver())
    extended, host = strategy.extended, f"{_DEVICE}CPU:0"
    extended._tpu_devices = np.array([[core] for core in _CORES], dtype=object)
    extended._host_device = host
    for workers, devices in (
        (extended._device_input_worker_devices, _CORES),
        (extended._host_input_worker_devices, [host] * REPLICAS),
    ):
        workers.clear()
        workers[host] = devices
    return strategy


class _Dynamic:
    """ALBERT's objective with what a TPU cannot do: the tests of the checks."""

    def __init__(self, kind: str):
        self.kind = kind

    def __getattr__(self, name):
        return getattr(ALBERT, name)

    def sums(self, outputs, batch):
        ids, sums = batch["token_ids"], ALBERT.sums(outputs, batch)
        if self.kind == "boolean_mask":
            extra = tf.reduce_sum(tf.boolean_mask(ids, ids > 7))
        else:
            extra = tf.numpy_function(np.sum, [ids], tf.int32)
        sums["mlm_hits"] += tf.cast(tf.reshape(extra, ()), tf.float32)
        return sums


def make_step(
    strategy: tf.distribute.Strategy,
    *,
    optimizer: str = "lamb",
    dtype: str = "mixed_bfloat16",
    accumulation: int = 1,
    dropout: float = 0.1,
    layers: int = 2,
    jit_compile: bool = False,
    dynamic: str = "",
    head: str = "",
    **options,
) -> TrainStep:
    """Returns the step of a small model; `options` are those of its optimizer.

    With a head, that of fine-tuning it.
    """
    config = AlbertConfig(
        vocab_size=VOCAB.vocab_size,
        embedding_size=6,
        hidden_size=12,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=20,
        max_position_embeddings=32,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    rates = {"learning_rate": 0.05, "num_train_steps": 20, "num_warmup_steps": 2}
    with strategy.scope():
        kind = heads.find(head).load_class() if head else AlbertPretrainer
        size = {"num_labels": 3} if head == "token_classifier" else {}
        model = kind(config, seed=3, dtype=dtype, **size)
        adam = create_optimizer(optimizer, **rates, **{"clip_norm": 1.0, **options})
    objective = _Dynamic(dynamic) if dynamic else ALBERT
    objective = for_task(head) if head else objective
    ways = {"accumulation": accumulation, "jit_compile": jit_compile, "fuse": True}
    return TrainStep(model, objective, adam, strategy, seed=1, **ways)


def trace_finetuning(strategy, head: str, fixed_length: bool = True, **options) -> dict:
    """Traces the steps that fine-tune and evaluate a head, as `trace` does.

    Returns:
        dict. By "train" and "predict" what `trace` returns; `variables`, their number.
    """
    step = make_step(strategy, head=head, **options)
    encoded = examples_of(head.removeprefix("beam_"))
    if head.startswith("beam_"):
        impossible = {features.IS_IMPOSSIBLE: np.arange(len(encoded), dtype=np.int32)}
        targets = {**encoded.targets, **impossible}
        encoded = dataclasses.replace(encoded, targets=targets)
    shape = BatchShape(
        *(head, T, 32, 0),
        parts=REPLICAS * options.get("accumulation", 1),
        fixed_length=fixed_length,
    )

    def make(pipelines, pipeline):
        sizes = {"num_pipelines": pipelines, "pipeline": pipeline}
        return make_training_dataset(encoded, shape, batch_size=B, seed=3, **sizes)

    concrete = step._train.get_concrete_function(
        iter(distribute(strategy, make)),
        tf.constant(1, tf.int32),
        tf.zeros(len(step.sum_names)),
    )
    found = {"train": _inspect(concrete.graph), "variables": len(step.variables)}
    # As `tasks.outputs.collect_outputs` makes the rows of one replica.
    rows = dataclasses.replace(
        encoded, unit_splits=np.arange(len(encoded.rows) + 1), targets={}
    )
    batch = BatchMaker(rows, dataclasses.replace(shape, parts=1))(np.arange(B))
    batch = {name: tf.constant(batch[name]) for name in input_ranks(head)}
    place = strategy.experimental_distribute_values_from_function
    concrete = step._predict.get_concrete_function(place(lambda context: batch))
    return {**found, "predict": _inspect(concrete.graph)}


def trace(
    strategy,
    records: str,
    packing: bool = False,
    only_training: bool = False,
    **options,
) -> dict:
    """Traces training and evaluation as for a TPU; returns what the graphs hold.

    Returns:
        dict. By "train" and "evaluate": `ops`, the number of operations of each type;
        `on_tpu`, those that the TPU would compile; `forbidden` and `unknown`, the names
        of what it could not; `host`, tensors of unknown shape elsewhere.
    """
    step = make_step(strategy, **options)
    data = PretrainingData(
        records,
        tokenizer=VOCAB,
        max_seq_length=T,
        max_predictions_per_seq=P,
        seed=3,
        packing=packing,
    )

    def evaluate(batches):
        return step._evaluate_step(next(batches))

    found = {}
    for name, training in (("train", True), ("evaluate", False)):
        if only_training and not training:
            break

        def make(n, i, training=training):
            return data.batches(
                B, is_training=training, num_input_pipelines=n, input_pipeline_id=i
            )

        batches = iter(distribute(strategy, make))
        if training:
            totals = tf.zeros(len(step.sum_names))
            arguments = (batches, tf.constant(1, tf.int32), totals)
            concrete = step._train.get_concrete_function(*arguments)
        else:
            concrete = tf.function(evaluate).get_concrete_function(batches)
        found[name] = _inspect(concrete.graph)
    return found


def _inspect(graph) -> dict:
    found = {"ops": Counter(), "on_tpu": Counter()}
    found |= {"forbidden": [], "unknown": [], "host": []}
    # A second compilation inside that of the TPU.
    found["forbidden"] += [
        f"compiled {function.signature.name}"
        for function in graph.as_graph_def().library.function
        if function.attr["_XlaMustCompile"].b
    ]
    for operation, on_tpu in _operations(graph, False, set()):
        label = f"{operation.type} {operation.name}"
        found["ops"][operation.type] += 1
        if on_tpu:
            found["on_tpu"][operation.type] += 1
            outside = "_xla_outside_compilation" in operation.node_def.attr
            if outside or _HOST_OR_DYNAMIC.fullmatch(operation.type):
                found["forbidden"].append(label)
        for tensor in operation.outputs:
            if tensor.dtype in (tf.resource, tf.variant):
                continue
            if tensor.dtype == tf.string:
                found["forbidden"] += [label] * on_tpu
            elif not tensor.shape.is_fully_defined() and not _is_settled(tensor):
                found["unknown" if on_tpu else "host"].append(label)
    return found


def _operations(graph, on_tpu: bool, seen: set) -> Iterator[tuple]:
    """Yields the operations of a graph and of the functions that it calls."""
    for operation in graph.get_operations():
        here = on_tpu or "_tpu_replicate" in operation.node_def.attr
        yield operation, here
        for value in operation.node_def.attr.values():
            for name in filter(
                None, [value.func.name, *(f.name for f in value.list.func)]
            ):
                if (name, here) not in seen:
                    seen.add((name, here))
                    yield from _operations(_function(graph, name), here, seen)


def _function(graph, name: str):
    while graph is not None:
        if name in graph._functions:
            return graph._functions[name].graph
        graph = getattr(graph, "outer_graph", None)
    raise KeyError(name)


def _is_settled(tensor) -> bool:
    """Returns whether a tensor is computed from constants, or read by nobody."""
    operation = tensor.op
    if operation.type == "Placeholder":
        return not tensor.consumers()
    if not operation.inputs:
        return operation.type == "Const"
    return all(_is_settled(each) for each in operation.inputs)


def main() -> None:
    """Runs the cases."""
    records, cases = sys.argv[1], json.loads(sys.argv[2])
    tpu = fake_tpu()  # devices can be divided only at the start
    found = {
        name: trace_finetuning(tpu, **case)
        if "head" in case
        else trace(tpu, records, **case)
        for name, case in cases.items()
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
