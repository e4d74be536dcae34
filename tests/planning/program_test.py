"""The step that is compiled: its operations, and real compilations for TPUs."""

import dataclasses
import sys

import pytest

from albert_tf.planning.compiler import compile_step
from albert_tf.planning.plan_settings import pretraining
from albert_tf.planning.topologies import find_topology
from tests.tiny import CONFIG

pytestmark = [pytest.mark.slow, pytest.mark.plan]
pytest.importorskip("jax", reason="needs albert_tf[plan]")
pytest.importorskip("libtpu", reason="needs albert_tf[plan]")
CONFIG = CONFIG.replace(num_hidden_layers=3, max_position_embeddings=32)
ROWS, LENGTH, MASKED = 8, 32, 5
# What a TPU's attention kernel takes.
WIDE = CONFIG.replace(hidden_size=128, num_attention_heads=2)
WIDE = WIDE.replace(max_position_embeddings=128, num_hidden_layers=2)
# All in one process, which imports JAX once. Programs for CPUs have one device, or two.
PROGRAM = """
import io, json, pathlib, sys
import jax
from albert_tf.planning import program
from albert_tf.settings import checked
from albert_tf.training.planned_step import make_update
from albert_tf.training.pretrain_settings import PretrainSettings
path, answers = pathlib.Path(sys.argv[1]), {}
for name, request in json.load(sys.stdin).items():
    if "topology" in request:
        folder = path.parent / name
        folder.mkdir()
        sys.argv[1], sys.stdin = str(folder / "a"), io.StringIO(json.dumps(request))
        program.main()
        answers[name] = json.loads((folder / "a").read_text())
        continue
    devices = jax.devices()[:request["devices"]]
    settings = checked(request["settings"], PretrainSettings)
    made = make_update(PretrainSettings(**settings), request["config"], devices,
        request["depth"], request["parts"])
    jaxpr = jax.make_jaxpr(made[0])(made[0].state_specs(), made[1]).jaxpr
    answers[name] = program.count_flops(jaxpr)
path.write_text(json.dumps(answers))
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


def operations(rows: int, config=CONFIG, length=LENGTH) -> tuple[int, int]:
    """Those of a step, and of the layers that `loop_remat` computes again."""
    D, E, V = config.hidden_size, config.embedding_size, config.vocab_size
    tokens = rows * length
    encoder = tokens * config.flops_per_token(length)
    heads = rows * (MASKED * 2 * (D * E + E * V) + 2 * D * D + 2 * D * 2)
    # A one-hot of the segments needs no gradient.
    segments = tokens * 2 * config.type_vocab_size * E
    projection = tokens * 2 * E * D
    return 3 * (encoder + heads) + 2 * segments, encoder - projection


def request(
    depth="loop_remat", parts=2, *, train_batch_size=ROWS, config=CONFIG, **changes
):
    """Returns a request for a step; without a topology, for so many CPUs."""
    where = {k: changes.pop(k) for k in ("topology", "devices") if k in changes}
    settings = settings_of(train_batch_size=train_batch_size, **changes)
    given = {"settings": settings, "config": config.to_dict(), **where}
    return {**given, "depth": depth, "parts": parts}


def request_tpu(topology, *form, rows=4, **changes):
    given = {"topology": topology, "precision": "bfloat16", **changes}
    chips = find_topology(topology).num_devices
    return request(*form, train_batch_size=rows * chips, **given)


FORMS = [("unrolled", 1), ("loop", 4), ("loop_remat", 2)]
OTHERS = ("tpu7x-8", "v4-8", "v5p-8", "v6e-4")
REQUESTS = {
    **{form[0]: request(*form, devices=1) for form in FORMS},
    "divided": request(devices=2),
    "v5e-4": request_tpu("v5e-4", shard_optimizer=True),
    "v5e-4, wide": request_tpu("v5e-4", config=WIDE, max_seq_length=128),
    "too large": request_tpu("v5e-4", "loop", 1, rows=2**19),
}


@pytest.fixture(scope="module")
def compiled():
    """The answers to all requests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
        return compile_step(REQUESTS, (sys.executable, "-P", "-c", PROGRAM))


def test_operations_are_those_of_the_formula(compiled):
    found = [compiled[name] for name in ("unrolled", "loop", "loop_remat", "divided")]
    once, again = operations(ROWS)
    whole = once + again
    assert found == [once, once, whole, whole // 2]  # of one chip of two
    assert compiled["v5e-4"]["flops"] == sum(operations(4))


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("v5e-4", CONFIG),
        ("v5e-4, wide", WIDE),
        *(pytest.param(name, CONFIG, marks=pytest.mark.broad) for name in OTHERS),
    ],
)
def test_a_small_step_is_compiled_for_a_tpu(compiled, name, config):
    found = compiled.get(name) or compile_step(request_tpu(name))
    shard_optimizer = name == "v5e-4"
    state = 3 * 4 * config.num_parameters("pretraining")
    # Of slots that are divided, most of the state, every device has a part.
    least, most = (1 / 3, 1) if shard_optimizer else (1, 2)
    assert least * state <= found["arguments"] < most * state
    assert found["temporaries"] > 0 and found["code"] > 0
    # The state takes the place of the last one; a row of results is left.
    assert 0 <= found["results"] < 100_000
    sizes = [size for kind, times, size, group in found["collectives"]]
    devices = find_topology(name.split(",")[0]).num_devices
    assert {one[3] for one in found["collectives"]} == {devices}
    assert sum(sizes) >= state / 3  # the gradients
    # The weights that a device has changed are brought to the others.
    kinds = {one[0] for one in found["collectives"]}
    assert ("all-gather" in kinds) == shard_optimizer


def test_attention_is_a_kernel_on_a_tpu(compiled):
    found, length = compiled["v5e-4, wide"], WIDE.max_position_embeddings
    # Forward, once more, and back, for each of two parts; one in a loop of the layers.
    assert found["kinds"]["attention"][0] == 2 * 3 * WIDE.num_hidden_layers
    assert "attention" not in compiled["v5e-4"]["kinds"]
    # Going back, it computes a product once more, and the outputs times gradients.
    again = WIDE.num_hidden_layers * 4 * 2 * WIDE.hidden_size * length * (length + 1)
    assert found["flops"] == sum(operations(4, WIDE, length)) + again


def test_what_is_too_large_says_what_it_needs(compiled):
    found = compiled["too large"]
    assert found.keys() == {"needed"} and found["needed"] > 15.75 * 2**30
