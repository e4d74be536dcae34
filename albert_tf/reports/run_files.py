"""Reads the folder of a run, finished or not, without the libraries that made it."""

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from albert_tf.data.records import card, shards
from albert_tf.errors import DataError, UsageError
from albert_tf.reports.measurements import COLLAPSED, Measurements, collect
from albert_tf.reports.metrics_file import METRICS_FILE, SKIPPED_FILE, iterate_metrics
from albert_tf.reports.page import as_text
from albert_tf.reports.samples import Sample, read_samples
from albert_tf.reports.task_report import TaskReport
from albert_tf.storage import files, folders

PRETRAINING = "pretraining"
FINETUNING = "fine-tuning"
_RUN_FILE = "run.json"
_MODEL = "model"
_TRIALS_FOLDER = "trials"
_TRIALS_FILE = "trials.json"
_METRICS = "metrics.json"
REPORT_FILE = "report.json"
# By the kind on record.
_KINDS = {"": PRETRAINING, "finetune": FINETUNING}
_OUTDATED = "model_is_outdated"
# Parts of the record that have a place of their own, or that only a machine needs.
_NOT_ENVIRONMENT = ("settings", "content", "kind", "finished", _OUTDATED)
_ROLLBACK_COUNTS = ("diverged_at", "restored_step", "batch")
_LOST = "not finite"


@dataclasses.dataclass(frozen=True)
class Rollback:
    """A divergence after which a run went back to a checkpoint.

    Attributes:
        diverged_at: int. The step at which it was noticed.
        restored_step: int. The step of the checkpoint.
        batch: int. Index of the batch that is left out from then on, from 0.
        phase: int. Step at which the phase began whose batches are counted.
        loss: float or None. Loss of the step; None if it was not finite.
        grad_norm: float or None. Global norm of its gradients; the same.
    """

    diverged_at: int
    restored_step: int
    batch: int
    phase: int = 0
    loss: float | None = None
    grad_norm: float | None = None

    def describe(self) -> str:
        """Returns a line for people."""
        phase = f" of the phase from step {self.phase:,}" if self.phase else ""
        return (
            f"diverged at step {self.diverged_at:,}: loss {known_text(self.loss)}, "
            f"gradient norm {known_text(self.grad_norm)}; batch {self.batch:,}{phase} "
            f"left out, back to step {self.restored_step:,}"
        )


@dataclasses.dataclass(frozen=True)
class RunFiles:
    """What the folder of a run contains.

    Attributes:
        path: str. The folder.
        name: str. What the page calls the run.
        kind: str. `PRETRAINING` or `FINETUNING`.
        is_finished: bool. Whether the folder holds the model of the run's last step.
        settings: dict. What the command was given.
        config: dict. Config of the model; empty if it is not on record.
        environment: dict. Versions, code and machine.
        measurements: `Measurements`.
        data_card: Mapping. Card of the training data; empty if it cannot be found.
        report: `TaskReport` or None. What a finished fine-tuning run answers.
        trials: Sequence of dict. Results of the seeds.
        best_trial: str. Name of the one that was kept.
        rollbacks: Sequence of `Rollback`. Divergences after which the run went back.
        samples: Sequence of `Sample`. What was answered to masked sentences.
    """

    path: str
    name: str
    kind: str
    is_finished: bool
    settings: Mapping[str, Any]
    config: Mapping[str, Any]
    environment: Mapping[str, Any]
    measurements: Measurements
    data_card: Mapping[str, Any]
    report: TaskReport | None = None
    trials: Sequence[Mapping[str, Any]] = ()
    best_trial: str = ""
    rollbacks: Sequence[Rollback] = ()
    samples: Sequence[Sample] = ()

    @property
    def num_train_steps(self) -> int | None:
        """The number of steps that the run will have; None if it is not on record."""
        steps = self.settings.get("num_train_steps")
        known = isinstance(steps, int) and not isinstance(steps, bool) and steps > 0
        return steps if known else None

    @property
    def notices(self) -> list[str]:
        """What the reader must know."""
        name, measurements = self.name, self.measurements
        notices = list(self.report.warnings) if self.report else []
        if not measurements.curves:
            notices.append(f"{name}: nothing is on record yet.")
        if measurements.skipped:
            notices.append(
                f"{name}: {measurements.skipped:,} lines of {METRICS_FILE} have no "
                "step and are left out."
            )
        collapsed = measurements.curve("eval", COLLAPSED).steps
        if collapsed:
            notices.append(
                f"{name}: training looked collapsed at step {collapsed[-1]:,.0f}: all "
                "answers were the same, or the loss was that of guessing."
            )
        return notices


def read_runs(paths: Sequence[str]) -> list[RunFiles]:
    """Reads the folders of runs; seeds and trials that are not compared yet are runs.

    Args:
        paths: Sequence of str. The folders; they may be remote.

    Returns:
        list of `RunFiles`, with names that differ.

    Raises:
        UsageError: If a folder is given twice.
        DataError: If a folder holds no run, or a file in it is damaged.
    """
    plain = [path.rstrip("/") or "/" for path in paths]
    for path in plain:
        if plain.count(path) > 1:
            raise UsageError(f"{path}: must be given once, received it twice")
    names = [_name_of(path) for path in plain]
    runs = []
    for path, name in zip(plain, names, strict=True):
        # Folders of the same name are distinguished by their paths.
        runs += _read(path, name if names.count(name) == 1 else path)
    return runs


def is_finetuning(path: str) -> bool:
    """Returns whether a folder is that of a fine-tuning run."""
    where = files.join(path, _RUN_FILE)
    if not files.exists(where):
        return False
    try:
        return bool(files.read_json(where).get("kind"))
    except DataError:
        return False


def _name_of(path: str) -> str:
    if files.is_remote(path):
        return os.path.basename(path)
    return os.path.basename(os.path.abspath(path)) or path


def _read(path: str, name: str) -> list[RunFiles]:
    run = read_run(path, name)
    if run.kind == FINETUNING and not run.is_finished:
        trials = _unfinished_trials(path, name)
        if trials:
            return trials
    return [run]


def read_run(
    path: str, name: str = "", record: Mapping[str, Any] | None = None
) -> RunFiles:
    """Reads the folder of one run.

    Args:
        path: str. The folder.
        name: str. What the page calls the run. Default: the folder's name.
        record: Mapping. Used instead of the record in the folder.

    Raises:
        DataError: If the folder holds no run, or a file in it is damaged.
    """
    where = files.join(path, _RUN_FILE)
    if not files.is_folder(path) or not files.exists(where):
        raise DataError(
            f"{path}: must be the folder of a run of pretrain or finetune, "
            f"{'has no run.json' if files.exists(path) else 'does not exist'}"
        )
    if record is None:
        record = files.read_json(where)
    kind = record.get("kind") or ""
    settings = record.get("settings")
    known = isinstance(kind, str) and kind in _KINDS
    if not known or not isinstance(settings, dict):
        raise DataError(f"{where}: must be the record of a run of pretrain or finetune")
    content = record.get("content")
    content = content if isinstance(content, dict) else {}
    measurements = collect(iterate_metrics(files.join(path, METRICS_FILE)))
    report = _report(path) if kind else None
    return RunFiles(
        path=path,
        name=name or _name_of(path),
        kind=_KINDS[kind],
        is_finished=_is_finished(path, kind, record),
        settings=settings,
        config=_config(path, content),
        environment={k: v for k, v in record.items() if k not in _NOT_ENVIRONMENT},
        measurements=measurements,
        data_card={} if kind else _data_card(path, _records(settings)),
        report=report,
        trials=_trials(path) if kind else (),
        best_trial=_best_trial(path) if kind else "",
        rollbacks=_read_rollbacks(path, measurements.rollbacks),
        samples=() if kind else read_samples(path),
    )


def _records(settings: Mapping[str, Any]) -> Any:
    """Returns the pattern of the records, of several lengths those of the longest."""
    pattern = settings.get("input_file")
    if isinstance(pattern, str):
        pattern = pattern.replace("{length}", str(settings.get("max_seq_length")))
    return pattern


def _is_finished(path: str, kind: str, record: Mapping[str, Any]) -> bool:
    if kind:
        return bool(record.get("finished"))
    complete = folders.is_complete(files.join(path, _MODEL))
    return complete and not record.get(_OUTDATED)


def _config(path: str, content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the config on record, or else that of the model in the folder."""
    if isinstance(content.get("config"), dict):
        return content["config"]
    for where in (files.join(path, _MODEL, "config.json"), f"{path}/config.json"):
        if files.exists(where):
            return files.read_json(where)
    return {}


def _data_card(run: str, pattern: Any) -> Mapping[str, Any]:
    """Returns the card of a run's records, if it is where it was and is only one."""
    if not isinstance(pattern, str) or not pattern:
        return {}
    if files.is_remote(pattern) and not files.is_remote(run):
        return {}  # reading it would take TensorFlow
    try:
        found = {os.path.dirname(path) for path in shards.find_shards(pattern)}
        paths = [files.join(folder, card.CARD_NAME) for folder in found]
        if len(paths) == 1 and files.exists(paths[0]):
            return files.read_json(paths[0])
    except (DataError, UsageError):
        pass
    return {}


def _report(path: str) -> TaskReport | None:
    """Returns what a finished fine-tuning run answers, if its page could be drawn."""
    where = files.join(path, REPORT_FILE)
    if not files.exists(where):
        return None
    try:
        return TaskReport.from_dict(files.read_json(where))
    except (TypeError, ValueError, AttributeError) as e:
        raise DataError(f"{where}: must be the report of a run: {e}") from None


def _best_trial(path: str) -> str:
    """Returns the name of the trial that a finished run has kept."""
    where = files.join(path, _METRICS)
    summary = files.read_json(where).get("trials") if files.exists(where) else None
    return str(summary.get("best")) if isinstance(summary, Mapping) else ""


def _trials(path: str) -> list[Mapping[str, Any]]:
    """Returns the trials on record of a finished run."""
    where = files.join(path, _TRIALS_FILE)
    if not files.exists(where):
        return []
    try:
        trials = json.loads(files.read_text(where))
    except (ValueError, RecursionError):
        trials = None
    if not isinstance(trials, list):
        raise DataError(f"{where}: must be a JSON list of trials")
    return [trial for trial in trials if isinstance(trial, Mapping)]


def _unfinished_trials(path: str, name: str) -> list[RunFiles]:
    """Returns the seeds or trials of a run that has not chosen one of them yet."""
    folder = files.join(path, _TRIALS_FOLDER)
    found = files.list_folder(folder) if files.is_folder(folder) else []
    runs = []
    for trial in found:
        where = files.join(folder, trial)
        if files.is_folder(where) and files.exists(files.join(where, _RUN_FILE)):
            runs += _read(where, f"{name}/{trial}")
    return runs


def _read_rollbacks(folder: str, lines: Sequence[Any]) -> list[Rollback]:
    """Returns the rollbacks of a run in the order in which they happened.

    Args:
        folder: str. The folder of the run.
        lines: Sequence of what JSON may hold. The lines of its log about them, for a
            folder that only has the log.

    Raises:
        DataError: If the record of the run is damaged.
    """
    # Holds all of them. The log may lack some: a run that goes on from an older
    # checkpoint, because its last one is damaged, removes the later lines.
    where = files.join(folder, SKIPPED_FILE)
    if files.exists(where):
        recorded = files.read_json(where).get("skipped")
        lines = recorded if isinstance(recorded, list) else []
    return list(_parse_rollbacks(lines))


def _parse_rollbacks(lines: Iterable[Any]) -> Iterable[Rollback]:
    """Yields what can be read; a file that a person has changed ends no page."""
    for line in lines:
        line = line if isinstance(line, Mapping) else {}
        counts = [line.get(name) for name in _ROLLBACK_COUNTS]
        phase = line.get("phase", 0)
        if all(map(_is_count, [*counts, phase])):
            numbers = [line.get(name) for name in ("loss", "grad_norm")]
            known = [value if type(value) is float else None for value in numbers]
            yield Rollback(*counts, phase, *known)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**53


def known_text(value: float | None) -> str:
    """Returns a number of a rollback as text; None is one that was not finite."""
    return _LOST if value is None else as_text(value)
