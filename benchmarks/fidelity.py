"""Repeats a recorded run of the original and compares every step.

A recording is a folder: `init/` holds the original's checkpoint before training,
`batches.npz` the records of every step by their names in record files, `[S, B, ...]`,
and `log.json` the original's log, per optimizer. tests/golden/README.md describes one.
"""

import io
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tqdm

from albert_tf import features
from albert_tf.converters.load import from_pretrained
from albert_tf.converters.tf1 import name_table
from albert_tf.errors import DataError
from albert_tf.models.base import ConfiguredModel, weight_names
from albert_tf.objectives.pretraining import ALBERT
from albert_tf.optimizers.create import create_optimizer
from albert_tf.storage import files
from albert_tf.training.tensorflow.step import TrainStep, distribute
from benchmarks.fidelity_curves import LossCurves, draw_fidelity
from benchmarks.report import Report, Row

# Our name of a measurement in each step: its name in log.json.
_LOGGED = {
    "loss": "loss",
    "mlm_loss": "mlm_loss",
    "sop_loss": "sop_loss",
    "grad_norm": "grad_norm_before_clip",
    "learning_rate": "lr_effective",
}
# Argument of `create_optimizer`: the original's name.
_ARGUMENTS = {
    "learning_rate": "init_lr",
    "num_train_steps": "num_train_steps",
    "num_warmup_steps": "num_warmup_steps",
    "weight_decay_rate": "weight_decay_rate",
    "clip_norm": "clip_norm",
    "poly_power": "poly_power",
    "start_warmup_step": "start_warmup_step",
}
_TITLES = {"lamb": "LAMB", "adamw": "AdamW"}
# The exact gradient of the key's bias is 0 (softmax ignores it), so that its updates
# are rounding noise divided by rounding noise.
_NOISE = "key/bias"


class Run(NamedTuple):
    """A run of one optimizer, ours next to the original's.

    Attributes:
        ours: dict. float64 `[S]` by name: losses, norm and rate of every step.
        original: dict. The same of the original.
        weight_norms: dict. Relative differences of the norms of the final weights, by
            the original's name; empty if they were not recorded for this step.
    """

    ours: Mapping[str, np.ndarray]
    original: Mapping[str, np.ndarray]
    weight_norms: Mapping[str, float]

    def difference(self, name: str) -> np.ndarray:
        """Returns the absolute differences of every step, float64 `[S]`."""
        return np.abs(self.ours[name] - self.original[name])

    def relative(self, name: str) -> np.ndarray:
        """Returns the differences over the original's value; 0 where both are 0."""
        scale = np.abs(self.original[name])
        return self.difference(name) / np.where(scale, scale, 1.0)


def run(folder: str) -> Report:
    """Trains with every recorded optimizer; returns the differences and a picture.

    Args:
        folder: str. A recording.

    Raises:
        DataError: If the folder does not hold a recording.
    """
    log = read_log(folder)
    noise = {
        name: _difference(one["loss"], log["runs"][name]["loss"])
        for name, one in log.get("noise_floor", {}).items()
    }
    rows: list[Row] = []
    curves, series = [], {}
    for name in log["runs"]:
        trained = train(folder, name)
        rows += _rows(_TITLES.get(name, name), trained, log.get("limits", {}))
        curves.append(
            LossCurves(
                _TITLES.get(name, name),
                trained.original["loss"],
                trained.ours["loss"],
                noise.get(name),
            )
        )
        series[name] = {
            key: {
                "original": _as_float32(trained.original[key]),
                "albert_tf": _as_float32(trained.ours[key]),
            }
            for key in _LOGGED
        }
    for name, values in noise.items():
        title = f"{_TITLES.get(name, name)}: the original against itself, its initial "
        title += f"weights changed by 1e-7, loss, largest of {len(values)} steps"
        rows.append(Row(title, float(values.max()), "nats"))
    title = f"Training beside the original: {log['original']}"
    return Report(title, rows, series, draw_fidelity(curves))


def read_log(folder: str) -> dict[str, Any]:
    """Returns `log.json` of a recording.

    Raises:
        DataError: If it is missing or of another form.
    """
    path = files.join(folder, "log.json")
    log = files.read_json(path)
    runs = log.get("runs")
    if not isinstance(runs, dict) or not runs:
        raise DataError(f"{path}: must have runs by optimizer, received {runs!r:.60}")
    for name, one in runs.items():
        if missing := sorted({"arguments", *_LOGGED.values()} - set(one)):
            raise DataError(f"{path}: the run {name} lacks {', '.join(missing)}")
    return log


def train(folder: str, name: str) -> Run:
    """Trains from the recorded checkpoint on the recorded batches.

    Args:
        folder: str. A recording.
        name: str. Optimizer, a key of the log's `runs`.
    """
    recorded = read_log(folder)["runs"][name]
    count = len(recorded["loss"])
    batches = _read_batches(folder, count)
    model = from_pretrained(files.join(folder, "init"), "pretraining")
    arguments = recorded["arguments"]
    # step_offset 0: the recording orders the step counter after the update.
    optimizer = create_optimizer(
        name, **{ours: arguments[theirs] for ours, theirs in _ARGUMENTS.items()}
    )
    strategy = tf.distribute.get_strategy()
    step = TrainStep(model, ALBERT, optimizer, strategy)
    dataset = tf.data.Dataset.from_tensor_slices(batches)
    iterator = iter(distribute(strategy, lambda pipelines, number: dataset))
    values: dict[str, list[float]] = {key: [] for key in _LOGGED}
    for _ in tqdm.tqdm(range(count), desc=f"training with {_TITLES.get(name, name)}"):
        results = step.train(iterator, 1)
        results |= {"grad_norm": results["grad_norms"][0], **ALBERT.metrics(results)}
        for key in _LOGGED:
            values[key].append(float(results[key]))
    original = {key: recorded[theirs] for key, theirs in _LOGGED.items()}
    norms = recorded.get("final_weight_norms", {})
    finished = count == arguments["num_train_steps"]
    return Run(
        {key: _exact(one) for key, one in values.items()},
        {key: _exact(one) for key, one in original.items()},
        _compare_norms(model, norms) if finished else {},
    )


def _read_batches(folder: str, num_steps: int) -> dict[str, np.ndarray]:
    """Returns the arrays of all batches under our names, `[S, B, ...]`."""
    path = files.join(folder, "batches.npz")
    stored = np.load(io.BytesIO(files.read_bytes(path)))
    for name in features.RECORD_NAMES.values():
        found = len(stored[name]) if name in stored else 0
        if found < num_steps:
            raise DataError(
                f"{path}: {name} must have the {num_steps} steps of log.json, "
                f"received {found}"
            )
    batches = {k: stored[n].astype("int32") for k, n in features.RECORD_NAMES.items()}
    weights = batches[features.MASK_WEIGHTS].astype("float32")
    labels = batches[features.SENTENCE_ORDER_LABELS][..., 0]  # [S, B, 1] in records
    return batches | {
        features.MASK_WEIGHTS: weights,
        features.SENTENCE_ORDER_LABELS: labels,
    }


def _compare_norms(
    model: ConfiguredModel, recorded: Mapping[str, float]
) -> dict[str, float]:
    """Returns relative differences of the norms of the weights that were recorded."""
    weights = weight_names(model)
    found = {}
    for row in name_table(model.config):
        if row.theirs in recorded and not row.theirs.endswith(_NOISE):
            norm = np.linalg.norm(np.asarray(weights[row.ours], np.float64))
            expected = recorded[row.theirs]
            found[row.theirs] = abs(float(norm) - expected) / expected
    return found


def _rows(title: str, trained: Run, limits: Mapping[str, float]) -> list[Row]:
    def row(what, value, unit="", limit=None):
        aim = f"at most {limits[limit]:g}" if limit in limits else ""
        return Row(f"{title}: {what}", float(value), unit, aim)

    loss = trained.difference("loss")
    steps = f"largest difference of {len(loss)} steps"
    rows = [
        row(f"loss, {steps}", loss.max(), "nats", "max"),
        row("loss, mean difference", loss.mean(), "nats", "mean"),
        row("loss, mean difference of the last 20 steps", loss[-20:].mean(), "nats"),
    ]
    for key, name in (("mlm_loss", "masked-LM"), ("sop_loss", "sentence-order")):
        value = trained.difference(key).max()
        rows.append(row(f"{name} loss, {steps}", value, "nats"))
    names = {"grad_norm": "gradient norm before clipping", "learning_rate": "rate"}
    for key, name in names.items():
        value = trained.relative(key).max()
        rows.append(row(f"{name}, largest relative difference", value))
    if trained.weight_norms:
        what = "norms of the final weights, largest relative difference"
        worst = max(trained.weight_norms.values())
        rows.append(row(what, worst, limit="weights_relative"))
    return rows


def _difference(some: Sequence[float], others: Sequence[float]) -> np.ndarray:
    """Returns the differences of the steps that both have."""
    count = min(len(some), len(others))
    return np.abs(_exact(some[:count]) - _exact(others[:count]))


def _exact(values: Sequence[float]) -> np.ndarray:
    """Returns the float32 values, in float64, that nine decimal digits represent."""
    return np.asarray(values, np.float32).astype(np.float64)


def _as_float32(values: np.ndarray) -> list[float]:
    """Returns the shortest decimal numbers of the same float32 values."""
    return [float(str(one)) for one in values.astype(np.float32)]
