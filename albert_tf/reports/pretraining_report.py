"""The page of a pretraining run: the same page as a fine-tuning run's."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.config import AlbertConfig
from albert_tf.objectives.objective import Objective
from albert_tf.reports.figure import PAGE_DPI
from albert_tf.reports.finetuning_report import settings_sections
from albert_tf.reports.length_histogram import draw_lengths
from albert_tf.reports.model_card import results_table
from albert_tf.reports.page import (
    Block,
    Facts,
    Figure,
    Figures,
    Heading,
    Notices,
    Page,
    Section,
    Table,
    flatten,
    render,
)
from albert_tf.reports.pretraining_curves import page_curves

# What the data card says in numbers; the rest are lists of files and settings.
_CARD_PARTS = ("corpus", "examples", "masks", "tokenizer")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingReport:
    """What a report shows. Only the objective is needed; what is missing is left out.

    Attributes:
        objective: `Objective`. What was learned.
        title: str. Title of the page.
        created: str. When the run was made. It is the only thing on the page that
            differs between two equal runs, so leave it out to compare bytes.
        config: `AlbertConfig`. Config of the model.
        metrics: Lines of `metrics.jsonl`.
        warnings: Sequence of str. What the reader must know.
        data_card: Mapping. The data card of the training data (`dataset.json`).
        settings: Mapping. What the command was given.
        environment: Mapping. Versions, code and machine, as `reports.environment`
            returns them.
    """

    objective: Objective
    title: str = "Pretraining"
    created: str = ""
    config: AlbertConfig | None = None
    metrics: Sequence[Mapping[str, Any]] = ()
    warnings: Sequence[str] = ()
    data_card: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    environment: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def make_report(run: PretrainingReport) -> bytes:
    """Returns the page of a run as an HTML file, UTF-8.

    Args:
        run: `PretrainingReport`.
    """
    curves = page_curves(run.metrics, run.objective.terms)
    sections = [
        Section("Warnings", [Notices(run.warnings)] if run.warnings else []),
        Section("Results", _results(run)),
        Section("Curves", [Figures(curves)] if curves else []),
        Section("Model", _model(run.config)),
        Section("Data", _data(run.data_card)),
        *settings_sections(run.settings, run.environment),
    ]
    subtitle = f"objective {run.objective.name}"
    return render(Page(run.title, subtitle, sections, run.created))


def _results(run: PretrainingReport) -> list[Block]:
    names, rows = results_table(run.objective, run.metrics)
    if not rows:
        return []
    table = [[title, *numbers] for title, numbers in rows]
    return [Table("Last results", names, table)]


def _model(config: AlbertConfig | None) -> list[Block]:
    if config is None:
        return []
    facts = {
        "parameters": config.num_parameters(),
        "sharing": config.sharing,
        "layers": config.num_hidden_layers,
        "hidden size": config.hidden_size,
        "embedding size": config.embedding_size,
        "vocabulary": config.vocab_size,
    }
    return [Facts("ALBERT encoder", facts)]


def _data(card: Mapping[str, Any]) -> list[Block]:
    facts = {
        _words(name): value
        for name, value in card.items()
        if isinstance(value, str | int) and name != "format"
    }
    blocks: list[Block] = [Facts("Records", facts)] if facts else []
    splits = card.get("splits", {})
    if splits:
        names = ("examples", "documents", "tokens")
        rows = [
            [
                split,
                *(totals.get(name) for name in names),
                len(totals.get("shards", ())),
            ]
            for split, totals in splits.items()
        ]
        blocks.append(Table("Splits", ["split", *names, "shards"], rows))
    for part in _CARD_PARTS:
        values = {
            _words(name): value
            for name, value in flatten(card.get(part, {})).items()
            if not isinstance(value, list)
        }
        if values:
            title = part.capitalize()
            blocks += [Heading(title), Facts(title, values)]
    lengths = card.get("examples", {}).get("length_histogram", ())
    if sum(lengths):
        alt = f"Histogram of the lengths of {sum(lengths):,} examples in tokens."
        png = draw_lengths(np.array(lengths), PAGE_DPI)
        blocks.append(Figures([Figure(png, alt)]))
    return blocks


def _words(name: str) -> str:
    return name.replace("_", " ")
