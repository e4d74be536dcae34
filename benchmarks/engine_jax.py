"""Computes cases of the step benchmark with JAX; needs no TensorFlow."""

import concurrent.futures
import functools
import time
from collections.abc import Mapping
from typing import Any

import jax
import keras
import numpy as np
from jax import numpy as jnp

from albert_tf import features
from albert_tf.layers.attention import attention_form
from albert_tf.layers.depth import depth_form
from albert_tf.models.backbone import AlbertBackbone
from albert_tf.models.masked_lm import AlbertPretrainer
from albert_tf.objectives.pretraining import ALBERT
from albert_tf.optimizers.create import create_optimizer
from albert_tf.training.jax.update import AXIS, Update
from benchmarks.cases import (
    EAGER,
    FUSED,
    OUTPUT,
    PRODUCT,
    PRODUCT_SIZE,
    STEP,
    Case,
    Prepared,
    prepared_or_failed,
)

_RATE = 1e-5
_SEED = 12345
_FORMS = {EAGER: "matmul", FUSED: "auto"}
_POLICIES = {"bfloat16": "mixed_bfloat16"}
_READ = (features.TOKEN_IDS, features.SEGMENT_IDS, features.PADDING_MASK)
# Number of programs that are compiled at the same time.
_COMPILERS = 4


def prepare(cases: Mapping[str, Case]) -> dict[str, Prepared]:
    """Compiles all cases, then computes the first step of each."""
    start = time.perf_counter()
    lowered = {name: _lower(case) for name, case in cases.items()}
    lowering = time.perf_counter() - start
    with concurrent.futures.ThreadPoolExecutor(_COMPILERS) as pool:
        compiled = {
            name: pool.submit(_compile, one[0]) for name, one in lowered.items()
        }
        concurrent.futures.wait(compiled.values())

    def start_one(name: str) -> Prepared:
        program, compiling = compiled[name].result()
        run = _runner(program, lowered.pop(name)[1], cases[name].work)
        start = time.perf_counter()
        run(1)
        first = lowering / len(cases) + compiling + time.perf_counter() - start
        return Prepared(run, {"first": first, **_memory(program)})

    return {
        name: prepared_or_failed(functools.partial(start_one, name)) for name in cases
    }


def _compile(lowered) -> tuple[Any, float]:
    """Returns a compiled program, and the seconds of its compilation."""
    start = time.perf_counter()
    return lowered.compile(), time.perf_counter() - start


def device() -> str:
    """Returns the kind of the device."""
    return jax.devices()[0].device_kind


def _lower(case: Case):
    """Returns a lowered program, and its arguments."""
    policy = _POLICIES.get(case.precision, case.precision)
    if case.work == PRODUCT:
        keys = jax.random.split(jax.random.key(_SEED))
        shape = PRODUCT_SIZE, PRODUCT_SIZE
        given = tuple(jax.random.normal(key, shape, jnp.bfloat16) for key in keys)
        return jax.jit(jnp.matmul).lower(*given), given
    if case.work == STEP:
        model = AlbertPretrainer(case.config, seed=_SEED, dtype=policy)
        optimizer = create_optimizer(
            "adamw", learning_rate=_RATE, num_train_steps=10**6
        )
        mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), (AXIS,))
        update = Update(model, ALBERT, optimizer, mesh, depth=case.depth)
        groups = update.groups().items()
        state = {n: [jnp.array(v.value) for v in some] for n, some in groups}
        given = state, jax.device_put(dict(case.batch))
        function = update.compiled()
    else:
        model = AlbertBackbone(case.config, seed=_SEED, dtype=policy)
        batch = jax.device_put({name: case.batch[name] for name in _READ})
        given = [jnp.asarray(v.value) for v in model.trainable_variables], batch
        function = jax.jit(_function(model, case))
    with attention_form(_FORMS[case.attention]):
        return function.lower(*given), given


def _function(model: AlbertBackbone, case: Case):
    """Returns a function that computes the encoder, or its gradients."""
    training = case.work != OUTPUT

    def output(weights, batch):
        pairs = list(zip(model.trainable_variables, weights, strict=True))
        with keras.StatelessScope(state_mapping=pairs), depth_form(case.depth):
            return model(batch, training=training)["sequence_output"]

    def loss(weights, batch):
        # Not the sum, whose gradient layer normalization makes 0.
        return jnp.sum(output(weights, batch).astype(jnp.float32) ** 3)

    return jax.grad(loss) if training else output


def _runner(program, given: tuple, work: str):
    """Returns a function that runs a program a number of times."""
    state, batch = given

    def run(steps: int) -> None:
        nonlocal state
        for _ in range(steps):
            found = program(state, batch)
            if work == STEP:
                state, found = found
        jax.block_until_ready(found)

    return run


def _memory(program) -> dict[str, int]:
    """Returns the bytes that a program needs, and the peak of the process."""
    facts = {}
    if size := program.memory_analysis():
        facts["program"] = (
            size.argument_size_in_bytes
            + size.output_size_in_bytes
            - size.alias_size_in_bytes
            + size.temp_size_in_bytes
        )
    if stats := jax.devices()[0].memory_stats():
        facts["memory"] = stats["peak_bytes_in_use"]
    return facts
