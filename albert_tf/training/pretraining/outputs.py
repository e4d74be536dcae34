"""What a pretraining run leaves beside its model: curves, a model card, a page."""

import contextlib
from collections.abc import Iterator
from typing import Any

from albert_tf.config import AlbertConfig
from albert_tf.objectives.objective import Objective
from albert_tf.reports import model_card
from albert_tf.reports.curves import draw_curves
from albert_tf.reports.metrics_file import METRICS_FILE, read_metrics
from albert_tf.reports.optional import drawn_if_possible
from albert_tf.reports.run_files import read_run
from albert_tf.reports.run_page import render_run
from albert_tf.storage import files
from albert_tf.training.pretraining.rollback import SkippedBatches
from albert_tf.training.pretraining.settings import PretrainSettings
from albert_tf.training.run_folder import RunFolder

CURVES_FILE = "curves.png"
REPORT_FILE = "report.html"


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
        files.write_bytes(folder.join(CURVES_FILE), draw_curves(metrics))
    write_report(folder, is_finished=True)
    skipped = SkippedBatches(folder, writes=False).entries
    text = model_card.describe(
        settings, config, objective, metrics, tokenizer, keeps_masks, skipped
    )
    files.write_text(folder.join("README.md"), text)


def write_report(folder: RunFolder, **known: Any) -> None:
    """Writes the page of a run; a failure is only logged.

    Args:
        folder: `RunFolder`.
        **known: Fields of `RunFiles` that the folder does not show yet.
    """
    with drawn_if_possible(REPORT_FILE):
        page = render_run(read_run(folder.path), **known)
        files.write_bytes(folder.join(REPORT_FILE), page)


@contextlib.contextmanager
def report_of_a_stopped_run(folder: RunFolder) -> Iterator[None]:
    """Writes the page if training ends before its last step, whatever the reason."""
    try:
        yield
    except BaseException:
        write_report(folder)
        raise
