"""A run's answers to masked sentences, as tables over time."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from albert_tf.reports.page import Table
from albert_tf.storage import files
from albert_tf.training.metrics_file import SAMPLES_FILE, iterate_metrics

# Rows per table and kind of weights: the first, some between, and the last.
_MOMENTS = 9
# Names of the weights of --export_weights.
WEIGHTS = {"last": "last", "average": "averaged"}


class Sample(NamedTuple):
    """The answers to a text at an evaluation.

    Attributes:
        weights: str. Whether the last or the averaged weights answered.
        masks: Sequence. For each mask, the best tokens with their probabilities.
    """

    step: int
    weights: str
    text: str
    masks: Sequence[Sequence[tuple[str, float]]]


def read_samples(folder: str) -> list[Sample]:
    """Returns the answers on record of a run, in the order of their lines.

    Raises `DataError` if a line other than the last is not JSON.
    """
    return list(_parse(iterate_metrics(files.join(folder, SAMPLES_FILE))))


def show_masks(masks: Iterable[Iterable[tuple[str, float]]]) -> str:
    """Returns the answers to a text on one line."""
    return " | ".join(
        ", ".join(f"{token or '▁'} {score:.1%}" for token, score in mask)
        for mask in masks
    )


def sample_tables(runs: Mapping[str, Sequence[Sample]]) -> list[Table]:
    """Returns a table for each text, with the answers at some of the evaluations.

    `runs` holds the answers by the name of the run.
    """
    named = [(name, one) for name, several in runs.items() for one in several]
    several = len({name for name, _ in named}) > 1
    averaged = len({one.weights for _, one in named}) > 1
    tables = []
    for text in dict.fromkeys(one.text for _, one in named):
        mine = [(name, one) for name, one in named if one.text == text]
        steps = {n: _some(sorted({s.step for m, s in mine if m == n})) for n in runs}
        rows = [
            {
                **({"run": name} if several else {}),
                "step": one.step,
                **({"weights": WEIGHTS[one.weights]} if averaged else {}),
                "answers": show_masks(one.masks),
            }
            for name, one in mine
            if one.step in steps[name]
        ]
        tables.append(Table.of(text, rows, stacked=True))
    return tables


def _some(steps: Sequence[int]) -> list[int]:
    """Returns the first step, the last one, and some between at equal distances."""
    last = len(steps) - 1
    if last < _MOMENTS:
        return list(steps)
    return [steps[round(i * last / (_MOMENTS - 1))] for i in range(_MOMENTS)]


def _parse(lines: Iterable[Any]) -> Iterator[Sample]:
    """Yields readable samples; a file edited by hand must not break the page."""
    for line in lines:
        line = line if isinstance(line, Mapping) else {}
        step, weights = line.get("step"), line.get("weights")
        answers = line.get("answers")
        fits = isinstance(weights, str) and weights in WEIGHTS
        if type(step) is not int or not fits or not isinstance(answers, list):
            continue
        for one in answers:
            try:
                text, masks = one["text"], one["masks"]
                read = [[(str(t), float(score)) for t, score in m] for m in masks]
            except (LookupError, TypeError, ValueError, OverflowError):
                continue
            if isinstance(text, str):
                yield Sample(step, weights, text, read)
