"""Reads the folder of a run, finished or not, without the libraries that made it."""

import dataclasses
import functools
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from albert_tf.data.records import card, shards
from albert_tf.errors import DataError, UsageError, require
from albert_tf.reports.samples import Sample, read_samples
from albert_tf.storage import files, folders
from albert_tf.training.metrics_file import (
    METRICS_FILE,
    REPORT_FILE,
    SKIPPED_FILE,
    UNFINISHED,
    iterate_metrics,
)

PRETRAINING = "pretraining"
FINETUNING = "fine-tuning"
_RUN_FILE = "run.json"
_MODEL = "model"
# Kinds of runs, by the kind on record.
_KINDS = {"": PRETRAINING, "finetune": FINETUNING}
_OUTDATED = "model_is_outdated"
# Parts of the record with their own place on the page, or only for machines.
_NOT_ENVIRONMENT = ("settings", "content", "kind", "finished", _OUTDATED)
# Measurements that are not shown as curves: inputs of the clock, and the mark of an
# evaluation of a fine-tuning run that looked collapsed.
_TOKENS, _SPEED, _COLLAPSED = "tokens", "tokens_per_second", "collapsed"
# The current speed is computed from this many of the last lines.
_RECENT = 10
_ROLLBACK = ("diverged_at", "restored_step", "batch", "phase")


class Curve(NamedTuple):
    """The measurements of one quantity.

    Attributes:
        steps: float64 `[N]`. In the order of the log.
        values: float64 `[N]`. They may be NaN or infinite.
    """

    steps: np.ndarray
    values: np.ndarray


class Clock(NamedTuple):
    """The progress of a run over time, by step.

    Attributes:
        steps: float64 `[N]`. Steps of the lines of training.
        seconds: float64 `[N]`. Seconds of training since the start of the run.
        tokens: float64 `[N]`. Tokens since the start.
        step_seconds: float or None. Seconds of a step, according to the last lines.
    """

    steps: np.ndarray
    seconds: np.ndarray
    tokens: np.ndarray
    step_seconds: float | None


@dataclasses.dataclass(frozen=True)
class RunFiles:
    """The content of a run's folder.

    Attributes:
        name: str. Name of the run on the page.
        kind: str. `PRETRAINING` or `FINETUNING`.
        is_finished: bool. Whether the folder holds the model of the run's last step.
        config: dict. Config of the model; empty if it is not on record.
        measured: dict of `Curve` by split, name and weight, in the order of their
            appearance. The weight is empty for numbers of the whole model.
        last_step: int. The last step on record; 0 without lines.
        skipped: int. Number of lines that are not measurements.
        rollbacks: Sequence of dict. Divergences after which the run went back, as in
            `skipped_batches.json`.
        data_card: dict. Card of the training data; empty if it cannot be found.
        report: dict. Report of a finished fine-tuning run; see `task_report`.
        trials: dict. Of several seeds: the runs, and the name of the best one.
    """

    path: str
    name: str
    kind: str
    is_finished: bool
    settings: Mapping[str, Any]
    config: Mapping[str, Any]
    environment: Mapping[str, Any]
    measured: Mapping[tuple[str, str, str], Curve]
    last_step: int
    skipped: int
    rollbacks: Sequence[Mapping[str, Any]]
    data_card: Mapping[str, Any]
    report: Mapping[str, Any]
    trials: Mapping[str, Any]
    samples: Sequence[Sample]

    @property
    def curves(self) -> dict[tuple[str, str, str], Curve]:
        """The measurements that are shown as curves."""
        hidden = (_TOKENS, _COLLAPSED)
        return {key: c for key, c in self.measured.items() if key[1] not in hidden}

    def curve(self, split: str, name: str) -> Curve:
        """Returns the measurements of the whole model; they may be empty."""
        return self.measured.get((split, name, ""), Curve(np.zeros(0), np.zeros(0)))

    @functools.cached_property
    def clock(self) -> Clock | None:
        """The time of training; None if the log lacks it."""
        steps, tokens = self.curve("train", _TOKENS)
        timed, speeds = self.curve("train", _SPEED)
        if not len(steps) or not np.array_equal(steps, timed):
            return None
        valid = np.isfinite(tokens) & np.isfinite(speeds) & (tokens >= 0) & (speeds > 0)
        # Lines without these numbers would make the sums too small.
        if not valid.all():
            return None
        laps = tokens / speeds
        # The first line includes the time of compiling the step.
        first = max(len(laps) - _RECENT, min(1, len(laps) - 1))
        span = steps[-1] - (steps[first - 1] if first else 0)
        recent = float(laps[first:].sum() / span) if span > 0 else None
        return Clock(steps, laps.cumsum(), tokens.cumsum(), recent)

    @property
    def num_train_steps(self) -> int | None:
        """The number of steps that the run will have; None if it is not on record."""
        steps = self.settings.get("num_train_steps")
        return steps if _is_count(steps) and steps else None

    @property
    def notices(self) -> list[str]:
        """Messages that the reader must see."""
        notices = list(self.report.get("warnings", ()))
        if not self.measured:
            notices.append(f"{self.name}: nothing is on record yet.")
        if self.skipped:
            notices.append(
                f"{self.name}: {self.skipped:,} lines of {METRICS_FILE} have no step "
                "and are left out."
            )
        collapsed = self.curve("eval", _COLLAPSED).steps
        if len(collapsed):
            notices.append(
                f"{self.name}: training looked collapsed at step {collapsed[-1]:,.0f}: "
                "all answers were the same, or the loss was that of guessing."
            )
        return notices


def read_runs(paths: Sequence[str]) -> list[RunFiles]:
    """Reads the folders of runs, which may be remote; names of runs are unique.

    Seeds that have not been compared yet count as runs. Raises `UsageError` if a folder
    is given twice, and `DataError` if a folder does not hold a run, or a file in it is
    damaged.
    """
    plain = [path.rstrip("/") or "/" for path in paths]
    for path in plain:
        if plain.count(path) > 1:
            raise UsageError(f"{path}: must be given once, received it twice")
    names = [_name_of(path) for path in plain]
    runs = []
    for path, name in zip(plain, names, strict=True):
        # Folders of the same name are distinguished by their paths.
        run = read_run(path, name if names.count(name) == 1 else path)
        runs += _unfinished_trials(run) or [run]
    return runs


def _name_of(path: str) -> str:
    if files.is_remote(path):
        return os.path.basename(path)
    return os.path.basename(os.path.abspath(path)) or path


def _unfinished_trials(run: RunFiles) -> list[RunFiles]:
    """Returns the seeds of a run that has not selected one of them yet."""
    folder = files.join(run.path, "trials")
    if run.kind != FINETUNING or run.is_finished or not files.is_folder(folder):
        return []
    paths = [files.join(folder, name) for name in files.list_folder(folder)]
    return [
        read_run(path, f"{run.name}/{os.path.basename(path)}")
        for path in paths
        if files.is_folder(path) and files.exists(files.join(path, _RUN_FILE))
    ]


def read_run(
    path: str, name: str = "", record: Mapping[str, Any] | None = None
) -> RunFiles:
    """Reads the folder of one run.

    `name` is the run's name on the page, by default the folder's; `record` replaces the
    record in the folder. Raises `DataError` if the folder does not hold a run, or a
    file in it is damaged.
    """
    where = files.join(path, _RUN_FILE)
    if not files.is_folder(path) or not files.exists(where):
        raise DataError(
            f"{path}: must be the folder of a run of pretrain or finetune, "
            f"{'has no run.json' if files.exists(path) else 'does not exist'}"
        )
    record = files.read_json(where) if record is None else record
    kind, settings = record.get("kind") or "", record.get("settings")
    require(
        isinstance(kind, str) and kind in _KINDS and isinstance(settings, dict),
        f"{where}: must be the record of a run of pretrain or finetune",
        error=DataError,
    )
    model = files.join(path, _MODEL)
    complete = folders.is_complete(model) and not record.get(_OUTDATED)
    log = read_log(iterate_metrics(files.join(path, METRICS_FILE)))
    # This file holds all of them. The log may lack some: a run that continues from an
    # older checkpoint, because its last one is damaged, removes the later lines.
    skipped = files.join(path, SKIPPED_FILE)
    if files.exists(skipped):
        log["rollbacks"] = files.read_json(skipped).get("skipped")
    return RunFiles(
        path=path,
        name=name or _name_of(path),
        kind=_KINDS[kind],
        is_finished=bool(record.get("finished")) if kind else complete,
        settings=settings,
        config=_config(path, model, record.get("content")),
        environment={k: v for k, v in record.items() if k not in _NOT_ENVIRONMENT},
        data_card={} if kind else _data_card(path, settings),
        report=_report(path) if kind else {},
        trials=_trials(path) if kind else {},
        samples=() if kind else read_samples(path),
        **{**log, "rollbacks": list(_readable(log["rollbacks"]))},
    )


def _json(*names: str) -> Mapping[str, Any]:
    """Returns the content of a file; empty if it does not exist."""
    path = files.join(*names)
    return files.read_json(path) if files.exists(path) else {}


def _report(path: str) -> Mapping[str, Any]:
    report = _json(path, REPORT_FILE)
    lengths = report.get("lengths", {})
    names = {"values", "max_seq_length", "examples", "truncated"}
    complete = isinstance(lengths, Mapping) and all(
        isinstance(one, Mapping) and names <= one.keys() for one in lengths.values()
    )
    expected = f"{files.join(path, REPORT_FILE)}: must be the report of a run: lengths"
    require(complete, expected, error=DataError)
    return report


def _trials(path: str) -> Mapping[str, Any]:
    """Returns the seeds on record; empty if their runs are not."""
    trials = _json(path, "metrics.json").get("trials")
    if not isinstance(trials, Mapping) or "runs" not in trials:
        return {}
    runs = trials["runs"]
    listed = isinstance(runs, list) and all(isinstance(run, Mapping) for run in runs)
    need = f"{files.join(path, 'metrics.json')}: trials: runs must be a list of objects"
    require(listed, need, error=DataError)
    return trials


def _config(path: str, model: str, content: Any) -> Mapping[str, Any]:
    """Returns the config on record, or else the config of the model in the folder."""
    recorded = content.get("config") if isinstance(content, dict) else None
    if isinstance(recorded, dict):
        return recorded
    return _json(model, "config.json") or _json(path, "config.json")


def _data_card(run: str, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the card of a run's records, if it is unique and in its old place."""
    pattern = settings.get("input_file")
    if not isinstance(pattern, str) or not pattern:
        return {}
    # With several lengths, these are the records of the longest one.
    pattern = pattern.replace("{length}", str(settings.get("max_seq_length")))
    if files.is_remote(pattern) and not files.is_remote(run):
        return {}  # reading it would take TensorFlow
    try:
        card_folders = {os.path.dirname(path) for path in shards.find_shards(pattern)}
        return _json(*card_folders, card.CARD_NAME) if len(card_folders) == 1 else {}
    except (DataError, UsageError):
        return {}


def read_log(lines: Iterable[Any]) -> dict[str, Any]:
    """Sorts the lines of a run.

    Each line is the content of a JSON line. Numbers within an object, such as the trust
    ratios, each belong to a weight. Returns `measured`, `last_step`, `skipped` and
    `rollbacks` of a `RunFiles`.
    """
    points: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    last, skipped, rollbacks = 0, 0, []
    for line in lines:
        step = line.get("step") if isinstance(line, Mapping) else None
        if not _is_number(step) or not 0 <= step < 2**53:
            skipped += 1
            continue
        last = max(last, int(step))
        split = line.get("split", "train")
        split = split if isinstance(split, str) else "train"
        if split == "skipped":
            rollbacks.append(line)
        if split in ("skipped", UNFINISHED):
            continue
        for name, value in line.items():
            inner = value if isinstance(value, Mapping) else {"": value}
            for weight, number in inner.items():
                if _is_number(number) and name != "step":
                    point = step, _as_float(number)
                    points.setdefault((split, name, weight), []).append(point)
    measured = {name: Curve(*np.array(values).T) for name, values in points.items()}
    return {
        "measured": measured,
        "last_step": last,
        "skipped": skipped,
        "rollbacks": rollbacks,
    }


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _as_float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer of hundreds of digits
        return math.inf if value > 0 else -math.inf


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**53


def _readable(lines: Any) -> Iterable[Mapping[str, Any]]:
    """Yields the rollbacks; a file that was edited by hand must not break the page."""
    for line in lines if isinstance(lines, list) else ():
        line = {"phase": 0, **line} if isinstance(line, Mapping) else {}
        if all(_is_count(line.get(name)) for name in _ROLLBACK):
            numbers = {name: line.get(name) for name in ("loss", "grad_norm")}
            finite = {k: v if type(v) is float else None for k, v in numbers.items()}
            yield {**line, **finite}
