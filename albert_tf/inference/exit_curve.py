"""Measures the costs and benefits of stopping a text classifier early.

The metrics come from one pass that returns the logits of every layer; the times are
measured with the same model under each rule.

Legend: `N` examples, `L` layers, `C` labels.
"""

import math
import timeit
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging
from keras import ops

from albert_tf import features
from albert_tf.converters.keras_model import from_model
from albert_tf.errors import require
from albert_tf.figure import drawn_if_possible, new_figure, to_png
from albert_tf.heads import problem_type_of
from albert_tf.inference.forward import as_forward
from albert_tf.inference.predictor import Predictor
from albert_tf.models.exit_rules import ENTROPY, LAYERS, PATIENCE, ExitRule
from albert_tf.models.exits import ElasticClassifier
from albert_tf.storage import files

# Thresholds of the entropy, as shares of the maximum entropy.
SHARES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9)
MAX_PATIENCE = 6
MAX_DROP = 0.5
_STYLES = {
    "layers": ("o-", "the same for all texts"),
    "entropy": ("s--", "by entropy"),
    "patience": ("^:", "by patience"),
}


def measure_exits(
    predictor: Predictor, examples: Any, rounds: int = 3, max_timed: int = 256
) -> dict[str, Any]:
    """Measures metric and time with each number of layers and under several rules.

    In each of the `rounds`, the whole model and all rules take turns on about
    `max_timed` rows, in batches spread evenly over the lengths. Raises `UsageError` if
    the model has no exits.

    Returns:
        dict, ready for JSON: the model's digest as `weights`, the name of the metric,
        `full` (metric and seconds per example of the whole model), a list of `points`
        and `best`: of the points whose metric is at most half a point (hundredth)
        below the whole model's, the fastest one, or None. A point has the rule
        (`exit`), the mean number of layers, the metric, and `time`, the share of the
        whole model's time: the median over the rounds.
    """
    model = predictor.model
    ElasticClassifier(model)  # raises if the model has no exits
    kind = problem_type_of(model)
    rules = rules_of(model.config.num_hidden_layers, model.num_labels, kind)
    encoded = predictor.encoded(examples)

    def every_layer(inputs, training):
        outputs = model.every_exit(inputs, training=training)
        return ops.stack([*outputs["exit_logits"], outputs["logits"]], axis=1)

    every = as_forward(every_layer, predictor.head)
    logits = predictor.outputs(encoded, every)["logits"]
    name = predictor.task.selecting_metric

    def metric_of(layers: np.ndarray) -> float:
        chosen = {"logits": logits[np.arange(len(logits)), layers - 1]}
        answers = predictor.task.answers(examples, encoded, chosen)
        return float(predictor.metrics(examples, answers)[name])

    batches = _some_batches(predictor, encoded, max_timed)
    seconds, shares = _times(predictor, rules, batches, rounds)
    full = metric_of(np.full(len(logits), logits.shape[1]))
    points = []
    for rule, share in zip(rules, shares, strict=True):
        layers = layers_of(rule, logits, kind)
        points.append(
            {
                "exit": str(rule),
                "mean_layers": float(layers.mean()),
                name: metric_of(layers),
                "time": share,
            }
        )
    good = [point for point in points if 100 * (full - point[name]) <= MAX_DROP]
    with from_model(model) as checkpoint:
        digest = checkpoint.digest()
    return {
        "weights": digest,
        "task": predictor.task.name,
        "metric": name,
        "examples": len(logits),
        "timed_rows": _num_rows(batches),
        "rounds": rounds,
        "batch_size": predictor.batch_size,
        "num_layers": model.config.num_hidden_layers,
        "full": {name: full, "seconds_per_example": seconds},
        "points": points,
        "max_drop_in_points": MAX_DROP,
        "best": min(good, key=lambda point: point["time"], default=None),
    }


def check_curve(
    path: str, predictor: Predictor, splits: Sequence[str], overwrite: bool
) -> None:
    """Raises `UsageError` early if `write_curve` could not do its work.

    Nothing is checked if the path is empty. The model must have exits, there must be a
    single split, and the picture must not exist unless it may be overwritten.
    """
    if not path:
        return
    ElasticClassifier(predictor.model)  # raises if the model has no exits
    expected = "exits_curve: measures one split; choose with --split, received "
    require(len(splits) == 1, f"{expected}{', '.join(splits)}")
    files.check_new("exits_curve", _picture(path), overwrite)


def _picture(path: str) -> str:
    return path.removesuffix(".json") + ".png"


def write_curve(path: str, predictor: Predictor, examples: Any) -> None:
    """Measures exits, and writes the numbers to a JSON file and a picture next to it.

    The picture's name ends with `.png` instead. See `measure_exits`.
    """
    measured = measure_exits(predictor, examples)
    files.write_text(path, files.to_json(measured, indent=2) + "\n")
    picture = _picture(path)
    if files.exists(picture):
        files.remove(picture)  # it shows other numbers, if no new one can be drawn
    with drawn_if_possible(picture):
        files.write_bytes(picture, draw_exits(measured))
    best = measured["best"]
    logging.info("within half a point of the whole model: %s", best or "no rule")


def draw_exits(measured: Mapping[str, Any]) -> bytes:
    """Returns a PNG of the metric against the layers, and against the time.

    `measured` is the result of `measure_exits`.
    """
    name = measured["metric"]
    figure = new_figure(10, 4, layout="constrained")
    plots = figure.subplots(1, 2, sharey=True)
    for axes, x in zip(plots, ("mean_layers", "time"), strict=True):
        for kind, (style, title) in _STYLES.items():
            points = [p for p in measured["points"] if p["exit"].startswith(f"{kind}:")]
            pairs = sorted((point[x], point[name]) for point in points)
            if pairs:
                axes.plot(*zip(*pairs, strict=True), style, label=title)
        axes.axhline(measured["full"][name], color="gray", lw=1, label="whole model")
        axes.grid(alpha=0.3)
    plots[0].set(xlabel="mean number of layers", ylabel=name.replace("_", " "))
    plots[1].set(xlabel="time, as a share of the whole model's")
    plots[0].legend()
    return to_png(figure)


def rules_of(num_layers: int, num_labels: int, problem_type: str) -> list[ExitRule]:
    """Returns the rules to compare: the ones that such a model can follow."""
    rules = [ExitRule(LAYERS, n) for n in range(1, num_layers + 1)]
    if problem_type == "single_label_classification":
        most = math.log(num_labels)
        rules += [ExitRule(ENTROPY, round(share * most, 4)) for share in SHARES]
    if problem_type != "regression":
        most = min(MAX_PATIENCE, num_layers - 1)
        rules += [ExitRule(PATIENCE, n) for n in range(1, most + 1)]
    return rules


def layers_of(rule: ExitRule, logits: np.ndarray, problem_type: str) -> np.ndarray:
    """Returns the number of layers after which each example stops, int `[N]`.

    `logits` has every layer's, float32 `[N, L, C]`.
    """
    N, L, _ = logits.shape
    if rule.kind == LAYERS:
        return np.full(N, rule.value)
    if rule.kind == ENTROPY:
        shifted = logits - logits.max(-1, keepdims=True)
        log_p = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
        stops = -(np.exp(log_p) * log_p).sum(-1) < rule.value
    else:
        multi_label = problem_type == "multi_label_classification"
        predicted = logits > 0 if multi_label else logits.argmax(-1)[..., None]
        same = (predicted[:, 1:] == predicted[:, :-1]).all(-1)
        stops, count = np.zeros((N, L), bool), np.zeros(N, int)
        for layer in range(1, L):
            count = np.where(same[:, layer - 1], count + 1, 0)
            stops[:, layer] = count >= rule.value
    stops[:, -1] = True
    return stops.argmax(1) + 1


def _some_batches(predictor, encoded, max_timed: int) -> list[dict]:
    """Returns batches of all lengths, as used in evaluation."""
    batches: list[dict] = []

    def keep(batch):
        batches.append(batch)
        return np.zeros((_num_rows([batch]), 1), np.float32)

    predictor.outputs(encoded, keep)
    count = min(len(batches), -(-max_timed // predictor.batch_size))
    numbers = np.linspace(0, len(batches) - 1, count).round().astype(int)
    return [batches[number] for number in numbers]


def _num_rows(batches: list[dict]) -> int:
    return sum(len(batch[features.TOKEN_IDS]) for batch in batches)


def _times(predictor, rules, batches, rounds) -> tuple[float, list[float]]:
    """Returns the whole model's seconds per row, and each rule's share of them."""
    model, head = predictor.model, predictor.head
    # Not the model itself: JAX would compile it, but not the models with a rule.
    runs: list[Callable] = [as_forward(lambda *a, **k: model(*a, **k), head)]
    runs += [as_forward(ElasticClassifier(model, rule), head) for rule in rules]
    for run in runs:
        for batch in (batches[0], batches[-1]):  # traced, and used once
            run(batch)
    calls = [lambda run=run: [run(batch) for batch in batches] for run in runs]
    times = np.array(
        [[timeit.timeit(call, number=1) for call in calls] for _ in range(rounds)]
    )
    shares = np.median(times[:, 1:] / times[:, :1], axis=0).tolist()
    return float(np.median(times[:, 0])) / _num_rows(batches), shares
