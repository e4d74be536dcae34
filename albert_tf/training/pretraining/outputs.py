"""What a pretraining run leaves beside its model: curves, a model card, a page."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

from albert_tf.config import AlbertConfig
from albert_tf.data.records import card, shards
from albert_tf.objectives.objective import Objective
from albert_tf.reports import model_card
from albert_tf.reports.metrics_file import METRICS_FILE, read_metrics
from albert_tf.reports.optional import drawn_if_possible
from albert_tf.reports.pretraining_curves import draw_pretraining_curves
from albert_tf.reports.pretraining_report import PretrainingReport, make_report
from albert_tf.storage import files
from albert_tf.training.pretraining.rollback import SkippedBatches, describe
from albert_tf.training.pretraining.settings import PretrainSettings
from albert_tf.training.run_folder import RunFolder

CURVES_FILE = "curves.png"
REPORT_FILE = "report.html"
# Parts of the record that the page shows elsewhere, or that only a machine needs.
_NOT_ENVIRONMENT = ("settings", "content", "model_is_outdated")


def write_outputs(
    folder: RunFolder,
    settings: PretrainSettings,
    config: AlbertConfig,
    objective: Objective,
    tokenizer,
    keeps_masks: bool,
) -> None:
    """Writes curves, page and model card of a run that has reached its last step.

    Args:
        folder: `RunFolder`. Holds the metrics.
        settings: `PretrainSettings`.
        config: `AlbertConfig`. Config of the model.
        objective: `Objective`. What was learned.
        tokenizer: `Tokenizer`. The one that the records were made with.
        keeps_masks: bool. Whether the masks are those in the training records.
    """
    metrics = read_metrics(folder.join(METRICS_FILE))
    with drawn_if_possible(CURVES_FILE):
        curves = draw_pretraining_curves(metrics, objective.terms)
        files.write_bytes(folder.join(CURVES_FILE), curves)
    write_report(folder, settings, config, objective)
    skipped = SkippedBatches(folder, writes=False).entries
    text = model_card.describe(
        settings, config, objective, metrics, tokenizer, keeps_masks, skipped
    )
    files.write_text(folder.join("README.md"), text)


def write_report(
    folder: RunFolder,
    settings: PretrainSettings,
    config: AlbertConfig,
    objective: Objective,
) -> None:
    """Writes the page of a run, finished or stopped; a failure is only logged."""
    with drawn_if_possible(REPORT_FILE):
        metrics = read_metrics(folder.join(METRICS_FILE))
        last = max((line["step"] for line in metrics), default=0)
        warnings = []
        if last < settings.num_train_steps:
            warnings.append(
                f"The run was stopped after step {last:,} of "
                f"{settings.num_train_steps:,}; the same command continues it."
            )
        skipped = SkippedBatches(folder, writes=False).entries
        warnings += [describe(entry) for entry in skipped]
        record = folder.record()
        report = PretrainingReport(
            objective=objective,
            config=config,
            metrics=metrics,
            warnings=warnings,
            data_card=_data_card(settings.input_files()[-1]),
            settings={
                k: v for k, v in record["settings"].items() if v not in ("", None, [])
            },
            environment={k: v for k, v in record.items() if k not in _NOT_ENVIRONMENT},
        )
        files.write_bytes(folder.join(REPORT_FILE), make_report(report))


@contextlib.contextmanager
def report_of_a_stopped_run(
    folder: RunFolder,
    settings: PretrainSettings,
    config: AlbertConfig,
    objective: Objective,
) -> Iterator[None]:
    """Writes the page if training ends before its last step, whatever the reason."""
    try:
        yield
    except BaseException:
        write_report(folder, settings, config, objective)
        raise


def _data_card(pattern: str) -> Mapping[str, Any]:
    """Returns the data card of records, if all of them share one."""
    folders = {os.path.dirname(path) for path in shards.find_shards(pattern)}
    paths = [files.join(folder, card.CARD_NAME) for folder in folders]
    if len(paths) != 1 or not files.exists(paths[0]):
        return {}
    return files.read_json(paths[0])
