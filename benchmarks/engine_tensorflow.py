"""Computes cases of the step benchmark with TensorFlow, as `pretrain` does."""

import functools
import time
from collections.abc import Mapping

from albert_tf.models.masked_lm import AlbertPretrainer
from albert_tf.objectives.pretraining import ALBERT
from benchmarks import step_speed
from benchmarks.cases import Case, Prepared, prepared_or_failed

_SEED = 12345


def device() -> str:
    """Returns the kind of the device."""
    return "cpu"


def prepare(cases: Mapping[str, Case]) -> dict[str, Prepared]:
    """Computes the first step of each case."""
    return {
        name: prepared_or_failed(functools.partial(_prepare, case))
        for name, case in cases.items()
    }


def _prepare(case: Case) -> Prepared:
    start = time.perf_counter()
    settings = step_speed.Settings(precision=case.precision, depth=case.depth)
    policy = step_speed.dtype_policy(settings)
    model = AlbertPretrainer(case.config, seed=_SEED, dtype=policy)
    step, batches = step_speed.make_step(settings, model, ALBERT, dict(case.batch))

    def run(steps: int) -> None:
        step.train(batches, steps)  # its results are on the host

    run(1)
    return Prepared(run, {"first": time.perf_counter() - start})
