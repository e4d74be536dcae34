"""Which part of a step XLA compiles."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.objectives.pretraining import ALBERT
from albert_tf.optimizers.create import create_optimizer
from albert_tf.training.tensorflow.step import TrainStep
from benchmarks.step_speed import random_batch
from tests import tiny


def compiled_functions(**options) -> list[str]:
    """Returns the kinds of operations that XLA compiles, of every such function."""
    model = AlbertPretrainer(tiny.CONFIG, seed=1)
    optimizer = create_optimizer("adamw", learning_rate=1e-3, num_train_steps=10)
    strategy = tf.distribute.get_strategy()
    step = TrainStep(model, ALBERT, optimizer, strategy, **options)
    batch = {k: tf.constant(v) for k, v in random_batch(tiny.CONFIG, 2, 12).items()}
    micro = tf.function(step._micro_step)
    graph = micro.get_concrete_function(
        batch, ALBERT.weights(batch), tf.constant(0), tf.constant(0)
    ).graph.as_graph_def()
    return [
        sorted({node.op for node in function.node_def})
        for function in graph.library.function
        if function.attr["_XlaMustCompile"].b
    ]


def test_only_chains_of_element_wise_operations():
    found = compiled_functions(fuse=True)
    assert len(found) >= 2  # forward and backward
    assert any("Tanh" in kinds for kinds in found)
    assert not [k for kinds in found for k in kinds if "MatMul" in k or "Variable" in k]


@pytest.mark.parametrize("options", [{}, {"fuse": True, "jit_compile": True}])
def test_nothing_where_it_is_not_asked_or_of_no_use(options):
    assert compiled_functions(**options) == []


def test_nothing_on_other_devices_than_cpus(monkeypatch):
    devices = [tf.config.LogicalDevice("/device:GPU:0", "GPU")]
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda: devices)
    assert compiled_functions(fuse=True) == []


def test_random_batches_are_whole():
    batch = random_batch(tiny.CONFIG, 3, 12)
    assert batch["mask_positions"].shape == batch["mask_ids"].shape == (3, 2)
    assert np.all(np.diff(batch["mask_positions"]) > 0)
