"""The results of a study of the objectives: tables, and the separated objectives."""

import dataclasses
import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.objectives_picture import Panel, draw_study, points
from benchmarks.report import Report, Row

RANDOM, BAG_OF_WORDS = "random encoder", "bag of words"
METHODS = ("fine-tuned", "probe")
TITLES = {"sst2": "SST-2", "cola": "CoLA"}
METRICS = {"sst2": "accuracy", "cola": "Matthews correlation"}
SHARINGS = {"all": "One shared block", "none": "Unshared layers"}
_UNRANKED, _NOT_SEPARATED = "not ranked, one seed", "not separated"
_BUDGETS = {"tokens": "equal tokens", "seconds": "equal CPU seconds"}
_NOTES = (
    "A score is the mean over pretraining seeds, with the 95% interval of Student's t "
    "distribution; for a fine-tuned model, the median of its fine-tuning seeds is "
    "used. Two rows are called separated only if their intervals do not overlap; with "
    "one seed there is no interval, and nothing is ranked. The intervals cover seeds, "
    "not other text, other dev examples or larger models, and with so many pairs, "
    "some may be separated by chance.",
)


@dataclasses.dataclass(frozen=True)
class Score:
    """The score of a model on a task.

    Attributes:
        sharing: str. Sharing of its encoder's weights; empty without an encoder.
        objective: str. Its objective, or `RANDOM` or `BAG_OF_WORDS`.
        seed: int. Seed of its pretraining, or of its random weights.
        task: str. Name of the task.
        method: str. One of `METHODS`.
        value: float. The task's metric on the dev examples.
        trials: list of float. The metric of every fine-tuning seed; `value` is their
            median.
        budgets: tuple of str. Budgets that its pretraining has spent.
        tokens: float. Tokens that it was pretrained on.
        cpu_seconds: float. CPU seconds of its pretraining.
    """

    sharing: str
    objective: str
    seed: int
    task: str
    method: str
    value: float
    trials: Sequence[float] = ()
    budgets: tuple[str, ...] = ()
    tokens: float = 0.0
    cpu_seconds: float = 0.0


class Estimate(NamedTuple):
    """Scores of several seeds.

    Attributes:
        mean: float.
        margin: float or None. Half of the 95% interval; None with one seed.
    """

    mean: float
    margin: float | None

    def __str__(self) -> str:
        if self.margin is None:
            return f"{self.mean:.3f}"
        return f"{self.mean:.3f} ± {self.margin:.3f}"


def estimate(values: Sequence[float]) -> Estimate:
    """Returns the mean of seeds and its 95% interval, by Student's t distribution."""
    from scipy import stats

    mean, count = statistics.fmean(values), len(values)
    if count < 2:
        return Estimate(mean, None)
    error = statistics.stdev(values) / math.sqrt(count)
    return Estimate(mean, float(stats.t.ppf(0.975, count - 1)) * error)


def compare(estimates: Mapping[str, Estimate]) -> str:
    """Describes the separated ones: their intervals do not overlap.

    Args:
        estimates: dict. At least two, by name.
    """
    if any(one.margin is None for one in estimates.values()):
        return _UNRANKED
    found = []
    for (first, a), (second, b) in itertools.combinations(estimates.items(), 2):
        if abs(a.mean - b.mean) > a.margin + b.margin:
            names = (first, second) if a.mean > b.mean else (second, first)
            found.append("{} above {}".format(*names))
    if not found:
        return _NOT_SEPARATED
    pairs = len(estimates) * (len(estimates) - 1) // 2
    others = "; the other pairs are not separated" if len(found) < pairs else ""
    return ", ".join(found) + others


def verdicts(
    columns: Mapping[str, Mapping[str, Estimate]],
    none: str = "No pair is separated in any column.",
) -> list[str]:
    """Describes the separated ones of each column, or all columns in one sentence.

    Args:
        columns: dict. For each column the estimates to compare, by name.
        none: str. The sentence if nothing is separated in any column.
    """
    texts = {column: compare(estimates) for column, estimates in columns.items()}
    if set(texts.values()) == {_UNRANKED}:
        return ["One seed: not ranked."]
    if set(texts.values()) == {_NOT_SEPARATED}:
        return [none]
    return [f"* {column}: {text}." for column, text in texts.items()]


def make_report(
    scores: Sequence[Score], objectives: Sequence[str], num_seeds: Mapping[str, int]
) -> Report:
    """Returns tables, picture and all numbers.

    Args:
        scores: sequence of `Score`.
        objectives: sequence of str. In the order of the tables.
        num_seeds: dict. Pretraining seeds by `sharing`.
    """
    rows, parts = [], []
    for sharing, seeds in num_seeds.items():
        for budget, title in _BUDGETS.items():
            seed_count = "1 seed" if seeds == 1 else f"{seeds} seeds"
            parts += [f"## {SHARINGS[sharing]}, {seed_count}, {title}", ""]
            table = _table(scores, sharing, budget, objectives)
            parts += [*to_table(table), ""]
            parts += [*_verdicts(table, objectives), ""]
            rows += [
                Row(f"{sharing}, {title}, {name}, {column}", one.mean, "")
                for name, cells in table.items()
                for column, one in cells.items()
                if isinstance(one, Estimate)
            ]
    return Report(
        "Pretraining objectives on one encoder",
        rows,
        series={"scores": [dataclasses.asdict(score) for score in scores]},
        picture=draw_study(_panels(scores, objectives, list(num_seeds))),
        notes=_NOTES,
        text="\n".join(parts).rstrip(),
    )


def _table(
    scores: Sequence[Score], sharing: str, budget: str, objectives: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Returns the cells of a table by row and column: `Estimate`s, and texts."""
    table: dict[str, dict[str, Any]] = {}
    for name in (*objectives, RANDOM, BAG_OF_WORDS):
        mine = [
            score
            for score in scores
            if score.objective == name
            and score.sharing in (sharing, "")
            and (budget in score.budgets or name not in objectives)
        ]
        table[name] = {
            "tokens": _number(mine[0].tokens),
            "CPU seconds": _number(mine[0].cpu_seconds),
        }
        for task, method in _columns(scores):
            values = [s.value for s in mine if (s.task, s.method) == (task, method)]
            column = f"{TITLES[task]}, {method}"
            table[name][column] = estimate(values) if values else "-"
    return table


def _number(value: float) -> str:
    if not value:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _columns(scores: Sequence[Score]) -> list[tuple[str, str]]:
    tasks = dict.fromkeys(score.task for score in scores)
    return [(task, method) for task in tasks for method in METHODS]


def to_table(table: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Returns lines of Markdown, from cells by row and column."""
    columns = list(next(iter(table.values())))
    lines = [f"| | {' | '.join(columns)} |", "|" + "---|" * (len(columns) + 1)]
    for name, cells in table.items():
        lines.append(f"| {name} | {' | '.join(map(str, cells.values()))} |")
    return lines


def _verdicts(table, objectives: Sequence[str]) -> list[str]:
    """Describes the separated objectives in the columns where all have a score."""
    columns = {
        column: {name: table[name][column] for name in (*objectives, RANDOM)}
        for column in next(iter(table.values()))
    }
    return verdicts(
        {
            column: estimates
            for column, estimates in columns.items()
            if all(isinstance(one, Estimate) for one in estimates.values())
        }
    )


def _panels(
    scores: Sequence[Score], objectives: Sequence[str], sharings: Sequence[str]
) -> list[list[Panel]]:
    """Returns the panels of the picture: a row per task."""
    tasks = dict.fromkeys(score.task for score in scores)
    kinds = [(sharing, method) for sharing in sharings for method in METHODS]
    return [
        [_panel(scores, task, *kind, objectives) for kind in kinds] for task in tasks
    ]


def _panel(scores, task, sharing, method, objectives) -> Panel:
    mine: dict[str, dict[float, list[float]]] = {}
    for score in scores:
        fits = (score.task, score.method) == (task, method)
        if fits and score.sharing in (sharing, ""):
            found = mine.setdefault(score.objective, {})
            found.setdefault(score.cpu_seconds, []).append(score.value)
    curves = {name: points(mine[name]) for name in objectives}
    baselines = {
        name: statistics.fmean(mine[name][0.0])
        for name in (RANDOM, BAG_OF_WORDS)
        if name in mine
    }
    title = f"{TITLES[task]}, {method}\n{SHARINGS[sharing].lower()}"
    return Panel(title, METRICS[task], curves, baselines)
