"""The page of a fine-tuning run: how it went, and what the model gets wrong."""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.reports import finetuning_figures as figures
from albert_tf.reports.finetuning_curves import page_curves
from albert_tf.reports.page import (
    Block,
    Facts,
    Figures,
    Heading,
    Notices,
    Page,
    Section,
    Table,
    Text,
    as_setting,
    as_text,
    flatten,
    render,
)

_NUM_PAIRS = 10  # of labels confused most, beside the matrix
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
class FinetuningReport:
    """What a report shows. All of it is optional; what is missing is left out.

    Attributes:
        title: str. Title of the page.
        task: str. Name of the task.
        model: str. What was fine-tuned or evaluated.
        created: str. When the run was made. It is the only thing on the page that
            differs between two equal runs, so leave it out to compare bytes.
        metric: str. Name of the metric that selects the checkpoint.
        best_step: int. Step of the selected checkpoint.
        warnings: Sequence of str. What the reader must know, such as a collapse.
        results: Mapping. Metrics by name, or such mappings by split.
        history: Lines of `metrics.jsonl`, each with `split` ("train", "dev", ...) and
            `step`, and with `seed` if it holds several runs.
        seeds: A mapping per seed with `seed`, `metric` (the value of the selecting
            metric; None if the run failed), and more, such as `best_step`. The one
            that was kept has `selected`, True, and stands out.
        search: A mapping per trial with the hyperparameters and `metric`, and
            `selected` as above.
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
        settings: Mapping. What the command was given.
        environment: Mapping. Versions, code and machine, as `reports.environment`
            returns them.
    """

    title: str = "Fine-tuning"
    task: str = ""
    model: str = ""
    created: str = ""
    metric: str = ""
    best_step: int | None = None
    warnings: Sequence[str] = ()
    results: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    history: Sequence[Mapping[str, Any]] = ()
    seeds: Sequence[Mapping[str, Any]] = ()
    search: Sequence[Mapping[str, Any]] = ()
    splits: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    lengths: Mapping[str, Lengths] = dataclasses.field(default_factory=dict)
    useful_token_rate: float | None = None
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    environment: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def make_report(run: FinetuningReport) -> bytes:
    """Returns the page of a run as an HTML file, UTF-8.

    Args:
        run: `FinetuningReport`.
    """
    names = (("task", run.task), ("model", run.model))
    sections = [
        Section("Warnings", [Notices(run.warnings)] if run.warnings else []),
        Section("Results", _results(run)),
        Section("Curves", _curves(run)),
        Section("Seeds", _seeds(run)),
        Section("Search", _search(run)),
        *(
            Section(f"Answers on {split}", split_blocks(split, report))
            for split, report in run.splits.items()
        ),
        Section("Lengths and truncation", _lengths(run)),
        *settings_sections(run.settings, run.environment),
    ]
    subtitle = ", ".join(f"{name} {value}" for name, value in names if value)
    return render(Page(run.title, subtitle, sections, run.created))


def settings_sections(
    settings: Mapping[str, Any], environment: Mapping[str, Any]
) -> list[Section]:
    """Returns the sections that every run's page ends with.

    Args:
        settings: Mapping. What the command was given.
        environment: Mapping. Versions, code and machine.
    """
    found = []
    for title, values in (("Settings", settings), ("Environment", environment)):
        shown = {name: as_setting(value) for name, value in flatten(values).items()}
        found.append(Section(title, [Facts(title, shown)] if shown else []))
    return found


def split_blocks(split: str, report: Mapping[str, Any]) -> list[Block]:
    """Returns what there is to see of the answers on a split.

    Args:
        split: str. Name of the split.
        report: Mapping. What `Family.report` returns.
    """
    return [
        *_groups(report.get("groups", ())),
        *_per_class(report.get("per_class", ())),
        *_confusion(split, report.get("labels", ()), report.get("confusion", ())),
        *_scatter(split, report.get("scatter", ())),
        *_calibration(split, report.get("calibration", ())),
        *_errors(report.get("errors", ())),
    ]


def _results(run: FinetuningReport) -> list[Block]:
    blocks: list[Block] = []
    if run.metric and run.best_step is not None:
        text = f"The checkpoint of step {run.best_step:,} has the best {run.metric}."
        blocks.append(Text(text))
    flat = {k: v for k, v in run.results.items() if not isinstance(v, Mapping)}
    by_split = {k: v for k, v in run.results.items() if isinstance(v, Mapping)}
    if by_split:
        rows = {name: None for values in by_split.values() for name in flatten(values)}
        columns = [flatten(values) for values in by_split.values()]
        table = [[name, *(column.get(name) for column in columns)] for name in rows]
        marked = list(rows).index(run.metric) if run.metric in rows else None
        blocks.append(Table("Metrics by split", ["metric", *by_split], table, marked))
    if flat:
        marked = list(flat).index(run.metric) if run.metric in flat else None
        table = [list(item) for item in flat.items()]
        blocks.append(Table("Metrics", ["metric", "value"], table, marked))
    return blocks


def _curves(run: FinetuningReport) -> list[Block]:
    curves = page_curves(run.history, run.metric, run.best_step)
    return [Figures(curves)] if curves else []


def _seeds(run: FinetuningReport) -> list[Block]:
    if not run.seeds:
        return []
    seeds = [line.get("seed") for line in run.seeds]
    values = [_number(line.get("metric")) for line in run.seeds]
    known = [value for value in values if math.isfinite(value)]
    summary: dict[str, Any] = {"seeds": len(seeds)}
    if len(known) < len(seeds):
        summary["without a result"] = len(seeds) - len(known)
    if known:
        median = statistics.median(known)
        summary |= {"median": median, "lowest": min(known), "highest": max(known)}
        if len(known) > 1:
            summary["standard deviation"] = statistics.stdev(known)
    metric = run.metric or "result"
    figure = figures.draw_seeds(seeds, values, metric)
    table = _table_of("Results by seed", run.seeds, metric)
    return [Facts(f"The {metric} over seeds", summary), Figures([figure]), table]


def _search(run: FinetuningReport) -> list[Block]:
    if not run.search:
        return []
    given = ("metric", "selected")
    lines = [
        {name: v if name in given else as_setting(v) for name, v in line.items()}
        for line in run.search
    ]
    return [_table_of("Trials", lines, run.metric or "result")]


def _table_of(caption: str, lines: Sequence[Mapping[str, Any]], metric: str) -> Table:
    """Returns a table of mappings; the column `metric` gets the metric's name."""
    selected = [index for index, line in enumerate(lines) if line.get("selected")]
    marked = selected[0] if selected else None
    names = list(dict.fromkeys(name for line in lines for name in line))
    if "selected" in names:
        lines = [{**line, "selected": bool(line.get("selected"))} for line in lines]
    titles = [metric if name == "metric" else name for name in names]
    rows = [[_label(name, line.get(name)) for name in names] for line in lines]
    return Table(caption, titles, rows, marked)


def _groups(groups: Sequence[Mapping[str, Any]]) -> list[Block]:
    if not groups:
        return []
    names = list(dict.fromkeys(["name", *(name for row in groups for name in row)]))
    rows = [[group.get(name) for name in names] for group in groups]
    return [Heading("Groups"), Table("Metrics by group", ["group", *names[1:]], rows)]


def _per_class(lines: Sequence[Mapping[str, Any]]) -> list[Block]:
    if not lines:
        return []
    names = list(dict.fromkeys(["label", *(name for line in lines for name in line)]))
    rows = [[line.get(name) for name in names] for line in lines]
    return [Heading("Labels"), Table("Metrics by label", names, rows)]


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
        return [*blocks, Text("No label was taken for another.")]
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
        [_shorten(_label(name, line.get(name))) for name in names] for line in errors
    ]
    titles = [_ERROR_COLUMNS[name] for name in names]
    caption = f"{len(errors)} errors, the worst first"
    return [Heading("Errors"), Table(caption, titles, rows, stacked=True)]


def _lengths(run: FinetuningReport) -> list[Block]:
    blocks: list[Block] = []
    if run.useful_token_rate is not None:
        rate = f"{run.useful_token_rate:.1%}"
        blocks.append(Facts("Padding", {"useful tokens of a training batch": rate}))
    found = {split: one for split, one in run.lengths.items() if len(one.values)}
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


def _label(name: str, value: Any) -> Any:
    """Returns a value as a table shows it: the number of a row or seed is a name."""
    return str(value) if name in ("index", "seed") and value is not None else value


def _shorten(value: Any) -> Any:
    """Returns a value whose text, if it is one, does not fill the page."""
    if value is None or isinstance(value, int | float):
        return value
    text = as_text(value)
    return text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + "…"


def _number(value: Any) -> float:
    """Returns the number, or NaN if there is none."""
    return math.nan if value is None else float(value)
