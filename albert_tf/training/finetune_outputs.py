"""Evaluates a fine-tuned model and writes what its run leaves behind."""

import json
from typing import Any

import keras
import numpy as np
from absl import logging

from albert_tf.converters.keras_model import build_model, from_model
from albert_tf.converters.load import write_files
from albert_tf.figure import drawn_if_possible
from albert_tf.inference.formats import prediction_files
from albert_tf.inference.predictor import Predictor
from albert_tf.storage import files
from albert_tf.tasks import saved
from albert_tf.tasks.batches import BatchShape, useful_token_rate
from albert_tf.tasks.task import warn_of_collapse
from albert_tf.training import metrics_file
from albert_tf.training.context import RunContext
from albert_tf.training.evaluation import calibrated
from albert_tf.training.examples import CALIBRATION
from albert_tf.training.run_folder import METRICS
from albert_tf.training.weights import mark_trained


def finish(run: RunContext, shape: BatchShape) -> dict[str, Any]:
    """Evaluates the trained model once more and puts the finished folder in place.

    The evaluation works as in `evaluate`, in float32, so that both give the same
    numbers. The model of the run must have the weights that its `selection` keeps.
    `shape` is the one of training batches. Returns the content of `metrics.json`.
    """
    mark_trained(run.step.model, run.step.optimizer)
    data, tokenizer, size = run.data, run.tokenizer, run.settings.eval_batch_size
    model = _in_float32(run)
    model.task = saved.describe(data.task)
    predictor = Predictor(model, tokenizer, task=data.task, batch_size=size)
    predictor.checks_finite = False  # otherwise the run could never end
    task = calibrated(data.task, data.splits, predictor.outputs)
    predictor.task, model.task = task, saved.describe(task)
    lines = metrics_file.read_metrics(run.folder.join(metrics_file.METRICS_FILE))
    lines = [line for line in lines if line["split"] != metrics_file.UNFINISHED]
    log = "".join(files.to_json(line) + "\n" for line in lines)
    contents, shown = {metrics_file.METRICS_FILE: log.encode()}, {}
    results = _results(run, shape, lines)
    for name, split in data.splits.items():
        if name in ("train", CALIBRATION):
            continue
        examples = split.examples
        answers = predictor.answers(examples, split.encoded, title="evaluate")
        parts = prediction_files(task, examples, answers)
        is_main = name in data.dev_splits[:1]
        stem = "predictions" if is_main else f"{name}_predictions"
        contents |= {f"{stem}{end}": _bytes(text) for end, text in parts.items()}
        if split.is_labelled:
            values = predictor.metrics(examples, answers)
            results |= {f"{name}_{key}": value for key, value in values.items()}
            with drawn_if_possible(metrics_file.PAGE_FILE):
                shown[name] = task.report(examples, answers, split.encoded)
            warn_of_collapse(task, examples, answers)
    text = files.to_json(results, indent=2) + "\n"
    results = json.loads(text)
    contents[METRICS] = _bytes(text)
    report = files.to_json(_report(run, results, shown))
    contents[metrics_file.REPORT_FILE] = _bytes(report)
    curves = {"metric": run.selection.metric, "best_step": _best_step(run)}
    known = {"is_finished": True, "report": json.loads(report)}
    contents |= run.draw(run.folder.path, curves=curves, **known)
    with from_model(model, tokenizer) as checkpoint:
        run.folder.complete(
            contents, lambda out: write_files(checkpoint, out, "albert_tf")
        )
    return results


def _in_float32(run: RunContext) -> keras.Model:
    model = run.step.model
    if model.compute_dtype == "float32":
        return model
    with from_model(model, run.tokenizer) as checkpoint:
        rebuilt = build_model(checkpoint, report=logging.info)
    rebuilt.max_seq_length = model.max_seq_length
    return rebuilt


def _best_step(run: RunContext) -> int | None:
    return run.selection.best_step if run.settings.keep == "best" else None


def _results(run: RunContext, shape: BatchShape, lines: list[dict]) -> dict[str, Any]:
    """Returns the entries of `metrics.json` about the run itself."""
    settings, data, best = run.settings, run.data, _best_step(run)
    last = max((line["step"] for line in lines), default=settings.num_train_steps)
    useful = useful_token_rate(
        data.train, shape, settings.train_batch_size, settings.seed
    )
    results: dict[str, Any] = {
        "task": data.task.name,
        "num_train_steps": settings.num_train_steps,
        "step": last if best is None else best,
        "stopped_early": last < settings.num_train_steps,
        "max_seq_length": settings.max_seq_length,
        "seed": settings.seed,
        "useful_token_rate": round(useful, 4),
    }
    for name, split in data.splits.items():
        results[f"{name}_examples"] = len(split.examples)
        results[f"{name}_truncated"] = int(np.count_nonzero(split.encoded.truncated))
    dev, share = data.dev_splits, settings.dev_fraction
    if best is not None:
        results["selected_on"] = f"{dev[0]}, {share} of train" if share else dev[0]
    if data.task.labels:
        results["labels"] = list(data.task.labels)
    if dev:
        # Metrics of the other dev splits already begin with the name of the split.
        others, metric = tuple(f"{name}_" for name in dev[1:]), run.selection.metric
        is_named = metric.startswith(others)
        results["metric"] = metric if is_named else f"{dev[0]}_{metric}"
    return results


def _report(run: RunContext, results: dict, shown: dict) -> dict[str, Any]:
    """Returns what the page shows about the answers; see `reports.task_report`."""
    settings, selection = run.settings, run.selection
    numbers = {k: v for k, v in results.items() if isinstance(v, int | float | str)}
    warnings = [run.data.truncation()]
    if settings.keep == "best" and selection.has_no_number:
        warnings[:0] = [
            f"The {selection.metric} was not a number at any evaluation: the weights "
            "are those of the last step."
        ]
        logging.warning("%s", warnings[0])
    return {
        "task": run.data.task.name,
        "model": settings.init_checkpoint or "random weights",
        "metric": selection.metric,
        "best_step": _best_step(run),
        "warnings": list(filter(None, warnings)),
        "results": numbers,
        "splits": shown,
        "lengths": {
            name: {
                "values": split.encoded.rows.lengths.tolist(),
                "max_seq_length": settings.max_seq_length,
                "examples": results[f"{name}_examples"],
                "truncated": results[f"{name}_truncated"],
            }
            for name, split in run.data.splits.items()
        },
        "useful_token_rate": results["useful_token_rate"],
    }


def _bytes(text: str | bytes) -> bytes:
    # Texts may hold lone surrogates, which UTF-8 cannot encode.
    return text if isinstance(text, bytes) else text.encode("utf-8", "backslashreplace")
