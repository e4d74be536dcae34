"""What a run leaves: curves, page and model card; metrics, predictions, the model."""

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
from absl import logging

from albert_tf.converters.keras_model import build_model, from_model
from albert_tf.converters.load import write_files
from albert_tf.figure import drawn_if_possible
from albert_tf.inference.forward import LENGTH_STEP, MAX_BATCH_TOKENS, compile_head
from albert_tf.reports.cards import model_card
from albert_tf.reports.figures import draw_curves
from albert_tf.reports.metrics_file import METRICS_FILE, UNFINISHED, read_metrics
from albert_tf.reports.run_files import REPORT_FILE as REPORT_DATA
from albert_tf.reports.run_files import read_run
from albert_tf.reports.run_page import render_run
from albert_tf.reports.task_report import Lengths, TaskReport
from albert_tf.storage import files
from albert_tf.tasks import saved
from albert_tf.tasks.batches import useful_token_rate
from albert_tf.tasks.task import warn_of_collapse
from albert_tf.training import replaced_folder
from albert_tf.training.evaluation import Evaluator
from albert_tf.training.examples import CALIBRATION, dev_splits
from albert_tf.training.run_folder import RunFolder

# Metrics on record -> what people call the split.
_SHOWN = {"eval": "dev"}


def finish(run: Any) -> dict[str, Any]:
    """Evaluates the trained model once more and puts the finished folder in place.

    The evaluation is that of `evaluate`, in float32, so that both give the same
    numbers.

    Args:
        run: `finetune.Finetuning`. Its model has the weights to keep, those of its
            `selection`.

    Returns:
        The content of `metrics.json`.
    """
    settings, task, selection = run.settings, run.task, run.selection
    run.step.mark_trained()
    model = _in_float32(run)
    evaluator = _evaluator(run, model)
    evaluator.calibrate()
    task = dataclasses.replace(task, options=evaluator.options)
    model.task = saved.describe(task)
    main = next(iter(evaluator.dev_splits()), None)
    lines = read_metrics(run.folder.join(METRICS_FILE))
    lines = [line for line in lines if line["split"] != UNFINISHED]
    warning = _without_best(run)
    if warning:
        logging.warning("%s", warning)
    results = _results(run, lines)
    if main is not None:
        # Metrics of the other dev splits already have the split's name before them.
        others = tuple(f"{name}_" for name in evaluator.dev_splits() if name != main)
        named = selection.metric.startswith(others)
        results["metric"] = selection.metric if named else f"{main}_{selection.metric}"
    contents: dict[str, bytes] = {}
    shown: dict[str, Any] = {}
    for name, split in run.data.splits.items():
        if name in ("train", CALIBRATION):
            continue
        answers = evaluator.answers(name)
        parts = task.family.prediction_files(
            task, split.examples, answers, evaluator.options
        )
        stem = "predictions" if name == main else f"{name}_predictions"
        contents |= {f"{stem}{end}": _bytes(text) for end, text in parts.items()}
        if split.is_labelled:
            values = evaluator.metrics(name, answers)
            results |= {f"{name}_{key}": value for key, value in values.items()}
            with drawn_if_possible(replaced_folder.REPORT):
                shown[name] = task.family.report(
                    task, split.examples, answers, split.encoded
                )
            warn_of_collapse(task, split.examples, answers)
    text = files.to_json(results, indent=2) + "\n"
    results = json.loads(text)
    contents["metrics.jsonl"] = _json_lines(lines)
    contents[replaced_folder.METRICS] = _bytes(text)
    history = [{**line, "split": _SHOWN.get(line["split"], "train")} for line in lines]
    best = selection.best_step if settings.keep == "best" else None
    with drawn_if_possible(CURVES_FILE):
        contents[CURVES_FILE] = draw_curves(history, selection.metric, best)
    with drawn_if_possible(replaced_folder.REPORT):
        report = _report(run, results, shown, warning)
        contents |= _page(run.folder.path, report)
    checkpoint = from_model(model, run.start.tokenizer)
    replaced_folder.write(
        run.folder, contents, lambda out: write_files(checkpoint, out, "albert_tf")
    )
    return results


def _page(path: str, report: TaskReport) -> dict[str, bytes]:
    """Returns the page of a run and the data that only this command knows."""
    data = files.to_json(dataclasses.asdict(report))
    report = TaskReport.from_dict(json.loads(data))
    page = render_run(read_run(path), is_finished=True, report=report)
    return {REPORT_DATA: _bytes(data), replaced_folder.REPORT: page}


def _report(run, results, shown, warning: str) -> TaskReport:
    settings, selection = run.settings, run.selection
    return TaskReport(
        task=run.task.name,
        model=settings.init_checkpoint or "random weights",
        metric=selection.metric,
        best_step=selection.best_step if settings.keep == "best" else None,
        warnings=list(filter(None, [warning, run.data.truncation()])),
        results={k: v for k, v in results.items() if isinstance(v, (int, float, str))},
        splits=shown,
        lengths={
            name: Lengths(
                split.encoded.rows.lengths.tolist(),
                settings.max_seq_length,
                len(split.examples),
                int(np.count_nonzero(split.encoded.truncated)),
            )
            for name, split in run.data.splits.items()
        },
        useful_token_rate=results["useful_token_rate"],
    )


def _without_best(run) -> str:
    """Returns what to say if no evaluation can be the best one."""
    selection = run.selection
    if run.settings.keep != "best" or not selection.has_no_number:
        return ""
    return (
        f"The {selection.metric} was not a number at any evaluation: the weights are "
        "those of the last step."
    )


def _in_float32(run) -> keras.Model:
    model = run.step.model
    if model.compute_dtype == "float32":
        return model
    with from_model(model, run.start.tokenizer) as checkpoint:
        rebuilt = build_model(checkpoint, report=logging.info)
    rebuilt.max_seq_length = model.max_seq_length
    return rebuilt


def _evaluator(run, model: keras.Model) -> Evaluator:
    """Returns what runs the model on the rows and in the batches of `evaluate`."""
    shape = dataclasses.replace(run.shape, parts=1, step=LENGTH_STEP)
    return Evaluator(
        run.task,
        run.data.splits,
        dataclasses.replace(shape, fixed_length=False),
        run.settings.eval_batch_size,
        compile_head(model, run.task.head),
        MAX_BATCH_TOKENS,
    )


def _results(run, lines: list[dict]) -> dict[str, Any]:
    """Returns what `metrics.json` says about the run itself."""
    settings, task, selection = run.settings, run.task, run.selection
    last = max((line["step"] for line in lines), default=settings.num_train_steps)
    kept = last
    if settings.keep == "best" and selection.best_step is not None:
        kept = selection.best_step
    results: dict[str, Any] = {
        "task": task.name,
        "num_train_steps": settings.num_train_steps,
        "step": kept,
        "stopped_early": last < settings.num_train_steps,
        "max_seq_length": settings.max_seq_length,
        "seed": settings.seed,
        "useful_token_rate": round(
            useful_token_rate(
                run.data.train, run.shape, settings.train_batch_size, settings.seed
            ),
            4,
        ),
    }
    for name, split in run.data.splits.items():
        results[f"{name}_examples"] = len(split.examples)
        results[f"{name}_truncated"] = int(np.count_nonzero(split.encoded.truncated))
    if settings.keep == "best" and selection.best_step is not None:
        dev, share = dev_splits(run.data.splits)[0], settings.dev_fraction
        results["selected_on"] = f"{dev}, {share} of train" if share else dev
    if task.labels:
        results["labels"] = list(task.labels)
    return results


def _json_lines(lines: list[dict]) -> bytes:
    return "".join(files.to_json(line) + "\n" for line in lines).encode()


def _bytes(text: str | bytes) -> bytes:
    # Texts may hold lone surrogates, which are no UTF-8.
    return text if isinstance(text, bytes) else text.encode("utf-8", "backslashreplace")


CURVES_FILE = "curves.png"


def write_outputs(run: Any) -> None:
    """Writes curves, page and model card of a run that has reached its last step.

    Args:
        run: `pretrain.Pretraining`.
    """
    folder = run.folder
    metrics = read_metrics(folder.join(METRICS_FILE))
    with drawn_if_possible(CURVES_FILE):
        files.write_bytes(folder.join(CURVES_FILE), draw_curves(metrics))
    write_report(folder, is_finished=True)
    text = model_card(
        *(run.settings, run.config, run.objective, metrics, run.tokenizer),
        *(run.data.keeps_masks, run.data.skipped.entries),
    )
    files.write_text(folder.join("README.md"), text)


def write_report(folder: RunFolder, **known: Any) -> None:
    """Writes the page of a run; a failure is only logged.

    Args:
        folder: `RunFolder`.
        **known: Fields of `RunFiles` that the folder does not show yet.
    """
    with drawn_if_possible(replaced_folder.REPORT):
        page = render_run(read_run(folder.path), **known)
        files.write_bytes(folder.join(replaced_folder.REPORT), page)


@contextlib.contextmanager
def report_of_a_stopped_run(folder: RunFolder) -> Iterator[None]:
    """Writes the page if training ends before its last step, whatever the reason."""
    try:
        yield
    except BaseException:
        write_report(folder)
        raise
