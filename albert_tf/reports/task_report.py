"""What a fine-tuned model gets right and wrong, as sections of a page."""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.reports import figures
from albert_tf.reports.page import (
    Block,
    Facts,
    Figures,
    Heading,
    Page,
    Section,
    Table,
    Text,
    as_setting,
    as_text,
    flatten,
    render,
)

_NUM_PAIRS = 10  # of labels confused most, next to the matrix
_ONLY_PAIRS = 30  # and without it
_MAX_TEXT = 1000  # characters of a text among the errors
_ERROR_COLUMNS = {
    "index": "example",
    "label": "correct",
    "prediction": "predicted",
    "score": "score",
    "truncated": "cut",
    "text": "text",
}


@dataclasses.dataclass(frozen=True)
class Lengths:
    """Lengths of the rows of a split; an example may be several of them.

    Attributes:
        values: Sequence of int. Tokens of each row, after truncation.
        max_seq_length: int. Number of tokens of the longest possible row.
        examples: int. Number of examples.
        truncated: int. Number of examples that lost text.
    """

    values: Sequence[int]
    max_seq_length: int
    examples: int
    truncated: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskReport:
    """What a fine-tuned model answers. All of it is optional.

    Attributes:
        task: str. Name of the task.
        model: str. What was fine-tuned or evaluated.
        metric: str. Name of the metric that selects the checkpoint.
        best_step: int. Step of the selected checkpoint.
        warnings: Sequence of str. What the reader must know, such as a collapse.
        results: Mapping. Metrics by name, or such mappings by split.
        splits: By split, what `Family.report` returns: any of

            - `labels`, list of str, and `confusion`, int `[C, C]`, rows = correct,
            - `scatter`, list of (label, prediction),
            - `per_class`, list of `{"label", "precision", "recall", "f1", "support"}`,
            - `calibration`, list of (confidence, whether the answer is correct),
            - `errors`, list of `{"index", "text", "label", "prediction", "score",
              "truncated"}`, worst first,
            - `groups`, list of `{"name", <metric>: value}`.
        lengths: `Lengths` by split.
        useful_token_rate: float. Share of the tokens of the training batches that are
            no padding.
    """

    task: str = ""
    model: str = ""
    metric: str = ""
    best_step: int | None = None
    warnings: Sequence[str] = ()
    results: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    splits: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    lengths: Mapping[str, Lengths] = dataclasses.field(default_factory=dict)
    useful_token_rate: float | None = None

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TaskReport":
        """Returns the report that `dataclasses.asdict` made a mapping of.

        Raises:
            TypeError: If the lengths are not those of a report.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        found = {name: value for name, value in values.items() if name in known}
        lengths = {k: Lengths(**v) for k, v in dict(found.pop("lengths", {})).items()}
        return cls(**found, lengths=lengths)


def report_sections(report: TaskReport) -> list[Section]:
    """Returns what there is to see of the answers of a model."""
    return [
        Section("Results", _results(report)),
        *(
            Section(f"Answers on {split}", split_blocks(split, found))
            for split, found in report.splits.items()
        ),
        Section("Lengths and truncation", _lengths(report)),
    ]


def render_evaluation(report: TaskReport) -> bytes:
    """Returns the page of an evaluation as an HTML file, UTF-8."""
    names = (("task", report.task), ("model", report.model))
    subtitle = ", ".join(f"{name} {value}" for name, value in names if value)
    title = f"Evaluation: {report.task}"
    return render(Page(title, subtitle, report_sections(report)))


def seed_blocks(
    trials: Sequence[Mapping[str, Any]], best: str, metric: str
) -> list[Block]:
    """Returns the results of several seeds or trials side by side.

    Args:
        trials: Sequence of dict. Content of `trials.json`: `name`, `value` of the
            metric (None if the run failed), `seed`, `results`, and settings.
        best: str. Name of the one that was kept.
        metric: str. Name of the selecting metric.
    """
    seeds = [trial.get("seed") for trial in trials]
    values = [_number(trial.get("value")) for trial in trials]
    known = [value for value in values if math.isfinite(value)]
    summary: dict[str, Any] = {"seeds": len(seeds)}
    if len(known) < len(seeds):
        summary["without a result"] = len(seeds) - len(known)
    if known:
        median = statistics.median(known)
        summary |= {"median": median, "lowest": min(known), "highest": max(known)}
        if len(known) > 1:
            summary["standard deviation"] = statistics.stdev(known)
    figure = figures.draw_seeds(seeds, values, metric)
    shown = [
        {k: as_setting(v) for k, v in t.items() if k not in ("results", "value")}
        | {metric: t.get("value"), "selected": t.get("name") == best}
        for t in trials
    ]
    marked = next((i for i, line in enumerate(shown) if line["selected"]), None)
    table = _table("Results by seed", shown)._replace(marked=marked)
    return [Facts(f"The {metric} over seeds", summary), Figures([figure]), table]


def split_blocks(split: str, report: Mapping[str, Any]) -> list[Block]:
    """Returns what there is to see of the answers on a split.

    Args:
        split: str. Name of the split.
        report: Mapping. What `Family.report` returns.
    """
    return [
        *_listed("Groups", "Metrics by group", report.get("groups", ())),
        *_listed("Labels", "Metrics by label", report.get("per_class", ())),
        *_confusion(split, report.get("labels", ()), report.get("confusion", ())),
        *_scatter(split, report.get("scatter", ())),
        *_calibration(split, report.get("calibration", ())),
        *_errors(report.get("errors", ())),
    ]


def _results(report: TaskReport) -> list[Block]:
    blocks: list[Block] = []
    if report.metric and report.best_step is not None:
        step, metric = report.best_step, report.metric
        blocks.append(Text(f"The checkpoint of step {step:,} has the best {metric}."))
    flat = {k: v for k, v in report.results.items() if not isinstance(v, Mapping)}
    by_split = {k: v for k, v in report.results.items() if isinstance(v, Mapping)}
    if by_split:
        rows = {name: None for values in by_split.values() for name in flatten(values)}
        columns = [flatten(values) for values in by_split.values()]
        table = [[name, *(column.get(name) for column in columns)] for name in rows]
        marked = list(rows).index(report.metric) if report.metric in rows else None
        blocks.append(Table("Metrics by split", ["metric", *by_split], table, marked))
    if flat:
        marked = list(flat).index(report.metric) if report.metric in flat else None
        table = [list(item) for item in flat.items()]
        blocks.append(Table("Metrics", ["metric", "value"], table, marked))
    return blocks


def _listed(
    heading: str, caption: str, lines: Sequence[Mapping[str, Any]]
) -> list[Block]:
    return [Heading(heading), _table(caption, lines)] if lines else []


def _table(caption: str, lines: Sequence[Mapping[str, Any]]) -> Table:
    """Returns a table with a column for each name in the lines."""
    names = list(dict.fromkeys(name for line in lines for name in line))
    rows = [[line.get(name) for name in names] for line in lines]
    return Table(caption, names, rows)


def _confusion(
    split: str, labels: Sequence[str], confusion: Sequence[Sequence[int]]
) -> list[Block]:
    if not len(confusion):
        return []
    blocks: list[Block] = [Heading("Confusion")]
    is_drawn = len(labels) <= figures.MAX_LABELS
    if is_drawn:
        blocks.append(Figures([figures.draw_confusion(split, labels, confusion)]))
    pairs = figures.most_confused(confusion, _NUM_PAIRS if is_drawn else _ONLY_PAIRS)
    if not pairs:
        return [*blocks, Text("No label was confused with another.")]
    names = ["correct", "predicted", "examples", "share of the correct label"]
    rows = [[labels[a], labels[b], count, share] for a, b, count, share in pairs]
    return [*blocks, Table("Labels confused most often", names, rows)]


def _scatter(split: str, scatter: Sequence[Sequence[float]]) -> list[Block]:
    if not len(scatter):
        return []
    return [Heading("Scores"), Figures([figures.draw_scatter(split, scatter)])]


def _calibration(split: str, calibration: Sequence[Sequence[Any]]) -> list[Block]:
    bins, error = figures.calibration_bins(calibration)
    total = sum(count for *_, count in bins)
    if not total:
        return []
    kept = [(x * count / total, y * count / total) for x, y, count in bins if count]
    facts = {
        "expected calibration error": error,
        "mean confidence": sum(x for x, _ in kept),
        "accuracy": sum(y for _, y in kept),
        "answers": total,
    }
    diagram = figures.draw_calibration(split, calibration)
    return [Heading("Calibration"), Facts("Calibration", facts), Figures([diagram])]


def _errors(errors: Sequence[Mapping[str, Any]]) -> list[Block]:
    if not errors:
        return []
    names = [name for name in _ERROR_COLUMNS if any(name in line for line in errors)]
    rows = [
        [_shorten(line.get(name), name == "index") for name in names] for line in errors
    ]
    titles = [_ERROR_COLUMNS[name] for name in names]
    caption = f"{len(errors)} errors, the worst first"
    return [Heading("Errors"), Table(caption, titles, rows, stacked=True)]


def _lengths(report: TaskReport) -> list[Block]:
    blocks: list[Block] = []
    if report.useful_token_rate is not None:
        rate = f"{report.useful_token_rate:.1%}"
        blocks.append(Facts("Padding", {"useful tokens of a training batch": rate}))
    found = {split: one for split, one in report.lengths.items() if len(one.values)}
    if not found:
        return blocks
    limit = max(one.max_seq_length for one in found.values())
    values = {split: [int(v) for v in one.values] for split, one in found.items()}
    rows = [
        [
            split,
            one.examples,
            len(values[split]),
            statistics.fmean(values[split]),
            statistics.median_low(values[split]),
            max(values[split]),
            one.max_seq_length,
            one.truncated,
            f"{one.truncated / max(one.examples, 1):.2%}",
        ]
        for split, one in found.items()
    ]
    names = [*("split", "examples", "rows", "mean tokens of a row", "median")]
    names += ["longest row", "limit", "cut examples", "share of the examples"]
    figure = figures.draw_token_lengths(values, limit)
    return [*blocks, Table("Lengths by split", names, rows), Figures([figure])]


def _shorten(value: Any, is_name: bool) -> Any:
    """Returns a value whose text does not fill the page; the index is a name."""
    if value is None or (isinstance(value, int | float) and not is_name):
        return value
    text = str(value) if is_name else as_text(value)
    return text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + "…"


def _number(value: Any) -> float:
    """Returns the number, or NaN without one."""
    return float(value) if isinstance(value, int | float) else math.nan
