"""Makes the page of runs: tables, and curves that a small script draws."""

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.config import AlbertConfig
from albert_tf.figure import PAGE_DPI, draw_lengths
from albert_tf.reports import comparison
from albert_tf.reports.page import (
    Block,
    Charts,
    Facts,
    Figure,
    Figures,
    Folded,
    Heading,
    Notices,
    Page,
    Section,
    Table,
    Text,
    as_setting,
    flatten,
    render,
)
from albert_tf.reports.run_files import PRETRAINING, RunFiles
from albert_tf.reports.samples import sample_tables, show_masks
from albert_tf.reports.task_report import report_sections, seed_blocks

_TIMES = (
    "Training time is that of the steps on record: without the evaluations, the "
    "checkpoints and the steps that a killed run repeated. Time left follows from the "
    "speed of the last lines."
)
_STOPPED = " The same command continues a run that was stopped."
_COST = " Cost is time multiplied by {price:g} per hour."
_LEFT_OUT = (
    "Training diverged at these steps, went back to a checkpoint and went on without "
    "the batch. Batches are counted from 0."
)
# Parts of the data card that are numbers, not lists of files.
_CARD_PARTS = ("splits", "corpus", "examples", "masks", "tokenizer")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunPage:
    """What the page shows.

    Attributes:
        runs: Sequence of `RunFiles`, at least one.
        cost_per_hour: float or None. Price of an hour of the machine.
        prompts: Sequence of str. Texts with masks that the checkpoints answered.
        answers: Mapping. By the name of a run, what `answer_all` yields.
    """

    runs: Sequence[RunFiles]
    cost_per_hour: float | None = None
    prompts: Sequence[str] = ()
    answers: Mapping[str, Sequence[Mapping[str, Any]]] = dataclasses.field(
        default_factory=dict
    )


def render_runs(page: RunPage) -> bytes:
    """Returns the page as an HTML file, UTF-8.

    Args:
        page: `RunPage`.
    """
    runs = page.runs
    names = [run.name for run in runs]
    kinds = dict.fromkeys(run.kind for run in runs)
    title = names[0] if len(names) == 1 else f"{len(names)} runs"
    subtitle = f"{' and '.join(kinds)}: {', '.join(names)}"
    return render(Page(title, subtitle, _sections(page)))


def render_run(run: RunFiles, **known: Any) -> bytes:
    """Returns the page of one run, as `albert-tf report` writes it.

    Args:
        run: `RunFiles`.
        **known: Fields of `run` that its folder does not show yet.
    """
    return render_runs(RunPage(runs=[dataclasses.replace(run, **known)]))


def _sections(page: RunPage) -> list[Section]:
    runs, price = page.runs, page.cost_per_hour
    notices = [notice for run in runs for notice in run.notices]
    drawn = comparison.make_charts(runs)
    data = {"runs": [comparison.run_data(run) for run in runs], "charts": drawn}
    values = comparison.last_and_best(runs)
    differing = comparison.differing_settings(runs) if len(runs) > 1 else None
    samples = {run.name: run.samples for run in runs}
    left_out = comparison.rollback_table({run.name: run.rollbacks for run in runs})
    times = _TIMES if price is None else _TIMES + _COST.format(price=price)
    times += "" if all(run.is_finished for run in runs) else _STOPPED
    return [
        Section(
            "Overview",
            [
                *([Notices(notices)] if notices else []),
                comparison.overview(runs, price),
                Text(times),
            ],
        ),
        Section("Curves", [Charts(data)] if drawn else []),
        Section("Values", [values] if values else []),
        *(section for run in runs for section in _answered(run, len(runs) > 1)),
        Section("Batches left out", [Text(_LEFT_OUT), left_out] if left_out else []),
        Section("Settings that differ", [differing] if differing else []),
        Section("Answers over time", sample_tables(samples)),
        Section("Answers of checkpoints", _answers(page)),
        Section(
            f"Everything about {'the run' if len(runs) == 1 else 'each run'}",
            [Folded(run.name, _details(run)) for run in runs],
        ),
    ]


def _answered(run: RunFiles, is_named: bool) -> list[Section]:
    """Returns what the model of a fine-tuning run answers, and its trials."""
    sections = report_sections(run.report) if run.report else []
    if run.trials:
        metric = run.report.metric if run.report else ""
        seeds = seed_blocks(run.trials, run.best_trial, metric or "result")
        sections.insert(1, Section("Seeds", seeds))
    if not is_named:
        return sections
    return [
        Section(f"{section.title}: {run.name}", section.blocks) for section in sections
    ]


def _answers(page: RunPage) -> list[Block]:
    blocks: list[Block] = []
    for number, prompt in enumerate(page.prompts):
        rows = []
        for run, found in page.answers.items():
            for one in found:
                rows.append([run, one["name"], show_masks(one["answers"][number])])
        if len(page.answers) == 1:
            names, rows = ["checkpoint", "answers"], [row[1:] for row in rows]
        else:
            names = ["run", "checkpoint", "answers"]
        if rows:
            blocks.append(Table(prompt, names, rows, stacked=True))
    return blocks


def _details(run: RunFiles) -> list[Block]:
    """Returns everything that a run was made of."""
    card = {
        name: value
        for name, value in run.data_card.items()
        if name in _CARD_PARTS or (isinstance(value, str | int) and name != "format")
    }
    shown = {
        name.replace("_", " "): value
        for name, value in flatten(card).items()
        if not isinstance(value, list)
    }
    if run.kind == PRETRAINING and not shown:
        shown = {"": "The data card is not where the run found it."}
    config = {k: as_setting(v) for k, v in run.config.items()}
    with contextlib.suppress(ValueError, TypeError):
        config["parameters"] = AlbertConfig.from_dict(run.config).num_parameters()
    parts = [
        ("Settings", {k: as_setting(v) for k, v in _given(run.settings).items()}),
        ("Config of the model", config if run.config else {}),
        ("Data card", shown),
        (
            "Environment",
            {k: as_setting(v) for k, v in flatten(run.environment).items()},
        ),
    ]
    blocks: list[Block] = []
    for title, values in parts:
        if values:
            blocks += [Heading(title), Facts(f"{title}, {run.name}", values)]
    blocks += _lengths(run.data_card)
    ratios = {
        weight: curve.values[-1]
        for (split, name, weight), curve in run.measurements.curves.items()
        if (split, name) == ("train", comparison.TRUST_RATIOS)
    }
    if ratios:
        blocks += [
            Heading("Trust ratios of the last step on record"),
            Facts(f"Trust ratios, {run.name}", ratios),
        ]
    return blocks


def _lengths(card: Mapping[str, Any]) -> list[Block]:
    examples = card.get("examples")
    lengths = examples.get("length_histogram") if isinstance(examples, dict) else None
    is_list = isinstance(lengths, list) and all(type(n) is int for n in lengths)
    if not is_list or not sum(lengths):
        return []
    alt = f"Histogram of the lengths of {sum(lengths):,} examples in tokens."
    return [Figures([Figure(draw_lengths(np.array(lengths), PAGE_DPI), alt)])]


def _given(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in settings.items() if v not in ("", None, [])}
