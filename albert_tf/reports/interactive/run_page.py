"""Makes the page: tables that need nothing, and curves that a small script draws.

Nothing is loaded from elsewhere, and the browser is told so: it may run the one script
whose digest the page names. What comes from a run is data, escaped wherever it stands.
The same runs give the same bytes.
"""

import base64
import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from albert_tf.reports.interactive import charts, comparison
from albert_tf.reports.interactive.rollbacks import rollback_table
from albert_tf.reports.interactive.run_files import PRETRAINING, RunFiles
from albert_tf.reports.interactive.samples import sample_tables, show_masks
from albert_tf.reports.page import (
    PREVIEW,
    Block,
    Facts,
    Heading,
    Notices,
    Section,
    Table,
    Text,
    as_setting,
    as_text,
    clean,
    flatten,
    template,
)

_TIMES = (
    "Training time is that of the steps on record: without the evaluations, the "
    "checkpoints and the steps that a killed run repeated. Time left goes by the speed "
    "of the last lines."
)
_COST = " Cost is time multiplied by {price:g} per hour."
_LEFT_OUT = (
    "Training diverged at these steps, went back to a checkpoint and went on without "
    "the batch. Batches are counted from 0."
)
# What would end a script element or a comment, and what ends a line in JavaScript.
_ESCAPED = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}
# Files of the script, in the order in which they build on each other.
_SCRIPTS = ("numbers", "view", "chart", "controls")
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
    drawn = charts.make_charts(page.runs)
    data = json.dumps(
        _cleaned(charts.as_data(page.runs, drawn)),
        allow_nan=False,
        ensure_ascii=False,
        separators=(",", ":"),
    )
    parts = "\n".join(_file(f"{name}.js") for name in _SCRIPTS)
    # Text of a run becomes text nodes only; nothing of the script is global.
    script = f'(function () {{\n"use strict";\n{parts}}})();\n'
    own_style = _file("run_page.css")
    style = f"\n{_file('page.css', 'albert_tf.reports')}{own_style}"
    names = [run.name for run in page.runs]
    kinds = dict.fromkeys(run.kind for run in page.runs)
    notices = [notice for run in page.runs for notice in run.notices]
    return (
        template("interactive/run_page.html.j2")
        .render(
            title=names[0] if len(names) == 1 else f"{len(names)} runs",
            subtitle=f"{' and '.join(kinds)}: {', '.join(names)}",
            notices=[Notices(notices)] if notices else [],
            first=_first(page),
            sections=[section for section in _sections(page) if section.blocks],
            details=[(run.name, _details(run)) for run in page.runs],
            has_charts=bool(drawn),
            data=_Html(data.translate(_ESCAPED)),
            script=_Html(script),
            style=_Html(style),
            script_digest=_digest(script),
            style_digest=_digest(style),
            preview=PREVIEW,
        )
        .encode("utf-8")
    )


class _Html(str):
    """Text that is HTML already."""

    def __html__(self) -> str:
        return str(self)


def _cleaned(value: Any) -> Any:
    """Returns data in which no text holds a character that garbles what follows."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {key: _cleaned(inner) for key, inner in value.items()}
    if isinstance(value, list) and value and not isinstance(value[0], int | float):
        return [_cleaned(inner) for inner in value]
    return value


def _file(name: str, package: str = "albert_tf.reports.interactive") -> str:
    return (resources.files(package) / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """Returns the source expression of an inline element (CSP, section 2.3.1)."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"


def _first(page: RunPage) -> list[Block]:
    price = page.cost_per_hour
    text = _TIMES if price is None else _TIMES + _COST.format(price=price)
    return [comparison.overview(page.runs, price), Text(text)]


def _sections(page: RunPage) -> list[Section]:
    runs = page.runs
    values = comparison.last_and_best(runs)
    differing = comparison.differing_settings(runs) if len(runs) > 1 else None
    samples = {run.name: run.samples for run in runs}
    left_out = rollback_table({run.name: run.rollbacks for run in runs})
    return [
        Section("Values", [values] if values else []),
        Section("Batches left out", [Text(_LEFT_OUT), left_out] if left_out else []),
        Section("Settings that differ", [differing] if differing else []),
        Section("Answers over time", sample_tables(samples)),
        Section("Answers of checkpoints", _answers(page)),
        Section("Trials", _trials(runs)),
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


def _trials(runs: Sequence[RunFiles]) -> list[Block]:
    """Returns a table of the seeds or the search of each finished run."""
    blocks: list[Block] = []
    for run in runs:
        lines = [
            {name: v for name, v in trial.items() if name not in ("name", "results")}
            for trial in run.trials
        ]
        names = list(dict.fromkeys(name for line in lines for name in line))
        rows = [
            [
                as_text(trial.get("name", _number(i))),
                *(_cell(line.get(name)) for name in names),
            ]
            for i, (trial, line) in enumerate(zip(run.trials, lines, strict=True))
        ]
        if rows:
            blocks.append(Table(run.name, ["run", *names], rows))
    return blocks


def _number(index: int) -> str:
    return f"{index + 1}"


def _cell(value: Any) -> str:
    return as_text(value) if isinstance(value, float) else as_setting(value)


def _details(run: RunFiles) -> list[Block]:
    """Returns everything that a run was made of."""
    card = {
        name: value
        for name, value in run.data_card.items()
        if isinstance(value, str | int) and name != "format"
    }
    for part in _CARD_PARTS:
        values = run.data_card.get(part)
        if isinstance(values, Mapping):
            card |= flatten({part: values})
    shown = {
        name.replace("_", " "): value
        for name, value in card.items()
        if not isinstance(value, list)
    }
    if run.kind == PRETRAINING and not shown:
        shown = {"": "The data card is not where the run found it."}
    parts = [
        ("Settings", {k: as_setting(v) for k, v in _given(run.settings).items()}),
        ("Config of the model", {k: as_setting(v) for k, v in run.config.items()}),
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
    ratios = {
        weight: curve.values[-1]
        for (split, name, weight), curve in run.measurements.curves.items()
        if (split, name) == ("train", charts.TRUST_RATIOS)
    }
    if ratios:
        blocks += [
            Heading("Trust ratios of the last step on record"),
            Facts(f"Trust ratios, {run.name}", ratios),
        ]
    return blocks


def _given(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in settings.items() if v not in ("", None, [])}
