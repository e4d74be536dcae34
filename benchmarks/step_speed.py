"""Measures a pretraining step next to transformers: same weights, same rows.

Both train masked LM and sentence order with AdamW and clipped gradients, in turns of
one step; transformers is compiled by `torch.compile`, in bfloat16 by autocast, like its
Trainer. Rows are full, and a sixth of the tokens is predicted. Each does the work that
its users get, which is not the same: transformers scores the vocabulary at every token,
this package only at the tokens to be predicted.

Alternatively, it measures a step of other objectives in turns with ALBERT's: the same
encoder, rows and masked tokens. ELECTRA has a generator of a quarter of the width, and
SpanBERT's head predicts each masked token a second time.

Legend: `B` batch, `T` sequence, `P` predictions.
"""

import dataclasses
import statistics
from collections.abc import Callable

from albert_tf.config import AlbertConfig
from albert_tf.errors import require
from albert_tf.heads import find as find_head
from albert_tf.models.masked_lm import AlbertPretrainer
from albert_tf.objectives.pretraining import ALBERT, OBJECTIVES, Objective
from albert_tf.optimizers.create import create_optimizer
from benchmarks import peer
from benchmarks.operations import profile_operations
from benchmarks.report import Report, Row
from benchmarks.rows import random_batch
from benchmarks.turns import seconds_in_turns

_RATE = 1e-5
_SEED = 12345
_AIMS = {"bfloat16": "at least 1.35", "float32": "at least 1.2"}
_OBJECTIVE_AIMS = {"electra": "at most 1.35", "spanbert": "at most 1.15"}


@dataclasses.dataclass(frozen=True)
class Settings:
    """The parameters of the measurement.

    Attributes:
        preset: str. Size of the model; its weights are random.
        shapes: tuple of (int, int). `B` and `T` of the batches.
        steps: int. Steps of every contestant with every shape.
        precision: str. "bfloat16" or "float32".
        jit_compile: bool. Whether XLA compiles our step.
        fuse: bool. Whether it compiles the activation, if not the step.
        depth: str. Form of the encoder, as for `pretrain`.
        objectives: tuple of str. Names of the objectives to compare with ALBERT's; if
            empty, ALBERT's is compared with transformers.
    """

    preset: str = "albert_base_v2"
    shapes: tuple[tuple[int, int], ...] = ((8, 128), (2, 512))
    steps: int = 12
    precision: str = "bfloat16"
    jit_compile: bool = False
    fuse: bool = True
    depth: str = "unrolled"
    objectives: tuple[str, ...] = ()


def run(settings: Settings) -> Report:
    """Trains in turns; returns the time of a step, and how our step spends it.

    Raises:
        UsageError: If transformers or torch is not installed, or there is no such
            objective.
    """
    if settings.objectives:
        return _compare_objectives(settings)
    peer.require("step")
    config = AlbertConfig.from_preset(settings.preset)
    policy = dtype_policy(settings)
    rows = []
    for rows_of_batch, length in settings.shapes:
        model = AlbertPretrainer(config, seed=_SEED, dtype=policy)
        batch = random_batch(config, rows_of_batch, length)
        ours = our_step(settings, model, ALBERT, batch)
        theirs = _theirs(settings, model, batch)
        shape = f"{rows_of_batch} x {length}"
        seconds = seconds_in_turns(
            {"albert_tf": ours, "transformers, torch.compile": theirs},
            settings.steps,
            shape,
        )
        medians = {name: statistics.median(found) for name, found in seconds.items()}
        rows += [
            Row(
                f"{shape}: {name}",
                1e3 * medians[name],
                "ms",
                details={"seconds": [round(one, 3) for one in found]},
            )
            for name, found in seconds.items()
        ]
        mine, other = medians.values()
        rows.append(
            Row(f"{shape}: speed-up", other / mine, "", _AIMS[settings.precision])
        )
        rows += [
            Row(f"{shape}: share of {name}", share, "", details={"operations": count})
            for name, share, count in profile_operations(ours)
        ]
    return Report(f"Benchmark of a pretraining step, {settings.precision}", rows)


def dtype_policy(settings: Settings) -> str:
    """Returns Keras's name of the precision."""
    return {"bfloat16": "mixed_bfloat16"}.get(settings.precision, settings.precision)


def _compare_objectives(settings: Settings) -> Report:
    """Returns the time of a step of every objective, and its ratio to ALBERT's."""
    others = [name for name in OBJECTIVES if name != ALBERT.name]
    rule = f"--objective must be some of {', '.join(others)}, each once"
    names = settings.objectives
    fits = set(names) <= set(others) and len(set(names)) == len(names)
    require(fits, rule, ",".join(names))
    config = AlbertConfig.from_preset(settings.preset)
    rows = []
    for rows_of_batch, length in settings.shapes:
        batch = random_batch(config, rows_of_batch, length)
        shape = f"{rows_of_batch} x {length}"
        contestants = {}
        for name in (ALBERT.name, *names):
            objective = OBJECTIVES[name]
            model = find_head(objective.head).load_class()(
                config, seed=_SEED, dtype=dtype_policy(settings)
            )
            contestants[name] = our_step(settings, model, objective, batch)
        found = seconds_in_turns(contestants, settings.steps, shape)
        medians = {name: statistics.median(times) for name, times in found.items()}
        for name, times in found.items():
            details = {"seconds": [round(one, 4) for one in times]}
            milliseconds = 1e3 * medians[name]
            rows.append(Row(f"{shape}: {name}", milliseconds, "ms", details=details))
        for name in names:
            ratio = medians[name] / medians[ALBERT.name]
            aim = _OBJECTIVE_AIMS.get(name, "")
            rows.append(Row(f"{shape}: {name} / {ALBERT.name}", ratio, "", aim))
    return Report(f"Pretraining steps of objectives, {settings.precision}", rows)


def our_step(
    settings: Settings, model, objective: Objective, batch
) -> Callable[[], None]:
    """Returns a function that trains a step, as `pretrain` does; see `make_step`."""
    step, iterator = make_step(settings, model, objective, batch)

    def train() -> None:
        float(step.train(iterator, 1)["losses"][0])  # waits for the device

    return train


def make_step(settings: Settings, model, objective: Objective, batch):
    """Returns a `TrainStep`, and an iterator over batches for it.

    Args:
        settings: `Settings`. How the step is compiled.
        model: keras.Model. Takes the batch.
        objective: `Objective`.
        batch: dict. Every step trains on it.
    """
    import tensorflow as tf

    from albert_tf.training.tensorflow.step import TrainStep, distribute

    strategy = tf.distribute.get_strategy()
    optimizer = create_optimizer("adamw", learning_rate=_RATE, num_train_steps=10**6)
    step = TrainStep(
        model,
        objective,
        optimizer,
        strategy,
        seed=_SEED,
        jit_compile=settings.jit_compile,
        fuse=settings.fuse,
        depth=settings.depth,
    )
    repeated = tf.data.Dataset.from_tensors(batch).repeat()
    return step, iter(distribute(strategy, lambda n, i: repeated))


def _theirs(settings, model, batch) -> Callable[[], None]:
    """Returns a function that trains transformers' model a step."""
    given = peer.pretraining_inputs(batch)
    theirs = peer.load(model, "AlbertForPreTraining")
    train = peer.make_step(theirs, _RATE, settings.precision, compiled=True)
    return lambda: train(given)
