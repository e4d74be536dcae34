"""The step that is compiled: its operations, and real compilations for TPUs."""

import dataclasses
import importlib.util
import json

import pytest

from albert_tf.planning.compiler import compile_step
from albert_tf.planning.plan_settings import pretraining
from albert_tf.planning.topologies import find_topology
from tests.tiny import CONFIG

needs_jax = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="needs albert_tf[plan]"
)
needs_libtpu = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="needs albert_tf[plan]"
)
CONFIG = CONFIG.replace(num_hidden_layers=3, max_position_embeddings=32)
ROWS, LENGTH, MASKED = 8, 32, 5
COUNT = """
import json, sys, jax, numpy as np
from albert_tf.config import AlbertConfig
from albert_tf.planning import program
from albert_tf.training.pretrain_settings import PretrainSettings
settings, config, forms = json.loads(sys.argv[1])
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("batch",))
for depth, parts in forms:
    made = program.make_update(PretrainSettings(**settings),
        AlbertConfig.from_dict(config), mesh, depth, parts)
    jaxpr = jax.make_jaxpr(made[0])(made[0].state_specs(), made[1]).jaxpr
    print(program.count_flops(jaxpr))
"""


def settings_of(**changes):
    given = {
        "preset": "albert_base_v2",
        "train_batch_size": ROWS,
        "max_seq_length": LENGTH,
        "max_predictions_per_seq": MASKED,
        "precision": "float32",
    }
    return dataclasses.asdict(pretraining(given | changes, {}))


def operations(rows: int) -> tuple[int, int]:
    """Those of a step, and of the layers that `loop_remat` computes again."""
    D, E, V = CONFIG.hidden_size, CONFIG.embedding_size, CONFIG.vocab_size
    tokens = rows * LENGTH
    encoder = tokens * CONFIG.flops_per_token(LENGTH)
    heads = rows * (MASKED * 2 * (D * E + E * V) + 2 * D * D + 2 * D * 2)
    # A one-hot of the segments needs no gradient.
    segments = tokens * 2 * CONFIG.type_vocab_size * E
    projection = tokens * 2 * E * D
    return 3 * (encoder + heads) + 2 * segments, encoder - projection


@pytest.mark.plan
@needs_jax
def test_operations_are_those_of_the_formula(run_python):
    forms = [("unrolled", 1), ("loop", 4), ("loop_remat", 2)]
    given = json.dumps([settings_of(), CONFIG.to_dict(), forms])
    cpus = {"JAX_PLATFORMS": "cpu", "KERAS_BACKEND": "jax"}
    two = "--xla_force_host_platform_device_count=2"
    counted = []
    for flags in ("", two):
        done = run_python("-c", COUNT, given, XLA_FLAGS=flags, **cpus)
        assert done.returncode == 0, done.stderr[-3000:]
        counted.append([int(line) for line in done.stdout.split()])
    once, again = operations(ROWS)
    assert counted[0] == [once, once, once + again]
    assert counted[1] == [count // 2 for count in counted[0]]  # of one chip of two


def request(topology, depth="loop_remat", parts=2, **changes):
    chips = find_topology(topology).num_devices
    given = {"precision": "bfloat16", "train_batch_size": 4 * chips, **changes}
    return {
        "settings": settings_of(**given),
        "config": CONFIG.to_dict(),
        "topology": topology,
        "depth": depth,
        "parts": parts,
    }


@pytest.mark.slow
@pytest.mark.plan
@needs_jax
@needs_libtpu
@pytest.mark.parametrize(
    ("topology", "shard_optimizer"),
    [
        *(("v5e-4", True), ("v5p-8", False), ("tpu7x-8", False)),
        *(pytest.param(n, False, marks=pytest.mark.broad) for n in ("v4-8", "v6e-4")),
    ],
)
def test_a_tiny_step_is_compiled_for_a_tpu(topology, shard_optimizer):
    found = compile_step(request(topology, shard_optimizer=shard_optimizer))
    state = 3 * 4 * CONFIG.num_parameters("pretraining")
    # Of slots that are divided, most of the state, every device has a part.
    least, most = (1 / 3, 1) if shard_optimizer else (1, 2)
    assert least * state <= found["arguments"] < most * state
    assert found["temporaries"] > 0 and found["code"] > 0
    # The state takes the place of the last one; a row of results is left.
    assert 0 <= found["results"] < 100_000
    assert found["flops"] == sum(operations(4))
    sizes = [size for kind, times, size, group in found["collectives"]]
    devices = find_topology(topology).num_devices
    assert {one[3] for one in found["collectives"]} == {devices}
    assert sum(sizes) >= state / 3  # the gradients
    # The weights that a device has changed are brought to the others.
    kinds = {one[0] for one in found["collectives"]}
    assert ("all-gather" in kinds) == shard_optimizer


@pytest.mark.slow
@pytest.mark.plan
@needs_jax
@needs_libtpu
def test_what_is_too_large_says_what_it_needs():
    found = compile_step(request("v5e-4", "loop", 1, train_batch_size=4 * 2**19))
    assert found.keys() == {"needed"} and found["needed"] > 15.75 * 2**30
