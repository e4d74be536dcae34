"""The common part of the studies of the paper's claims: models with one budget."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

from benchmarks import objectives
from benchmarks import objectives_jobs as jobs
from benchmarks.objectives_jobs import Scale, Study, Training
from benchmarks.objectives_report import estimate

# The encoder of `make demo`, which learns words and order in few steps.
_DEMO = {
    "max_predictions_per_seq": 19,
    "masked_lm_prob": 0.3,
    "ngram": 1,
    "masking": "albert",
    "pair_loss_weight": 0.3,
    "learning_rate_schedule": "linear",
    "num_decay_steps": None,
    "packing": False,
    "jit_compile": True,
    "iterations_per_loop": 50,
    "save_checkpoints_steps": 500,
}


def full_scale(num_tokens: int, **sizes: int) -> Scale:
    """Returns the scale of a study whose models are trained in minutes.

    Args:
        num_tokens: int. Places for tokens that every model reads, including padding.
        **sizes: Fields of the encoder that differ from the study of objectives.
    """
    full = objectives.SCALES["full"]
    return dataclasses.replace(
        full,
        num_tokens=num_tokens,
        sizes=full.sizes | {"embedding_size": 128, "num_attention_heads": 4} | sizes,
        batch_size=16,
        learning_rate=2e-3,
        num_warmup_steps=800,
        eval_fraction=0.05,
        pretraining=_DEMO,
    )


SMALL = dataclasses.replace(
    objectives.SCALES["small"], eval_fraction=0.3, pretraining={"masking": "albert"}
)


class Trained(NamedTuple):
    """A model and the cost of its training.

    Attributes:
        run: `Training`.
        model: str. Its name among the study's models.
        tokens: float. Number of tokens that it has read, without padding.
        cpu_seconds: float or None. CPU seconds of its training; None if it was killed
            too near its end to be measured.
    """

    run: Training
    model: str
    tokens: float
    cpu_seconds: float | None

    def cost(self) -> dict[str, Any]:
        """Returns the entries of a report about every model."""
        return {
            "seed": self.run.seed,
            "tokens": self.tokens,
            "CPU seconds": self.cpu_seconds,
        }


def train_all(study: Study) -> list[Trained]:
    """Trains the missing models of a study, and returns all of them.

    Raises:
        UsageError: If the folder holds another study.
        DataError: If the text or the data of a task cannot be read.
    """
    objectives.open_study(study)
    objectives.each([(jobs.prepare, (study,))], "text and records")
    scale = study.scale
    places = scale.batch_size * scale.sizes["max_position_embeddings"]
    step = round(scale.num_tokens / places)
    runs = [
        Training(sharing, objective, jobs.FIRST_SEED + number)
        for number in range(max(scale.num_seeds.values()))
        for sharing, seeds in scale.num_seeds.items()
        if number < seeds
        for objective in study.objectives
    ]
    calls = [(jobs.train_until, (study, run, step)) for run in runs]
    found = []
    for run, cost in zip(runs, objectives.each(calls, "pretraining"), strict=True):
        seconds = cost["cpu_seconds_per_step"]
        found.append(
            Trained(
                run,
                f"{run}-{step}",
                step * cost["tokens_per_step"],
                None if seconds is None else step * seconds,
            )
        )
    return found


def cell(column: str, values: Sequence[float | None]) -> Any:
    """Returns a table's cell for all seeds: an amount, or a score with its interval.

    Args:
        column: str. "tokens", "CPU seconds", or the name of a score.
        values: sequence of float. The values of all seeds.
    """
    if column not in ("tokens", "CPU seconds"):
        return estimate(values)
    known = [value for value in values if value is not None]
    return f"{sum(known) / len(known):,.0f}" if known else "-"
