"""Shows the cost of sharing weights, and its effect if labels are few.

As in Table 4 of the paper (arXiv:1909.11942), encoders of every kind of sharing are
pretrained alike. Then the shared and the unshared one are fine-tuned on increasing
numbers of labels. A model that has memorized its examples scores higher on them than on
others: this gap is its overfitting.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from albert_tf.config import AlbertConfig
from albert_tf.storage import files
from benchmarks import claims
from benchmarks.held_out import held_out_score
from benchmarks.objectives import each
from benchmarks.objectives_jobs import Study, done_once, forget_graphs
from benchmarks.objectives_picture import Panel, draw_study, points
from benchmarks.objectives_report import (
    METRICS,
    TITLES,
    Estimate,
    estimate,
    to_table,
    verdicts,
)
from benchmarks.report import Report, Row

SHARINGS = ("all", "attention", "ffn", "none")
CURVES = ("all", "none")
_LABELS = {"full": (40, 100, 250, 600, 2000), "small": (16, 40)}
SCALES = {
    "full": dataclasses.replace(
        claims.full_scale(2_500_000),
        learning_rate=1e-3,
        num_seeds=dict.fromkeys(SHARINGS, 3),
        finetune_steps=200,
    ),
    "small": dataclasses.replace(claims.SMALL, num_seeds=dict.fromkeys(SHARINGS, 1)),
}
_NOTES = (
    "Scores are means over pretraining seeds with the 95% interval of Student's t "
    "distribution. Every seed draws its own examples, smaller sets are subsets of "
    "larger ones, and both encoders get the same examples. A fine-tuning run has the "
    "same number of steps for every number of labels, and its last weights are "
    "evaluated. MLM and SOP are accuracies on documents that no model has read; the "
    "SOP accuracy is balanced.",
)
_NONE_SEPARATED = (
    "The two encoders are not separated for any number of labels, neither on dev nor "
    "in the gap."
)


def run(study: Study, scale: str) -> Report:
    """Computes the missing parts of a study, and reports on all of it.

    Args:
        study: `Study`, of one task.
        scale: str. "full" or "small"; determines the numbers of labels.

    Raises:
        UsageError: If the folder holds another study.
        DataError: If the text or the data of the task cannot be read.
    """
    models = claims.train_all(study)
    calls = [(held_out_score, (study, one.model, "albert", False)) for one in models]
    learned = each(calls, "held-out records")
    counts, (task,) = _LABELS[scale], study.tasks
    asked = [
        (one, count)
        for count in counts
        for one in models
        if count == max(counts) or one.run.sharing in CURVES
    ]
    calls = [
        (labelled_scores, (study, one.model, task, count, one.run.seed))
        for one, count in asked
    ]
    curves = [
        {"sharing": one.run.sharing, "seed": one.run.seed, "labels": count, **found}
        for (one, count), found in zip(asked, each(calls, "fine-tuning"), strict=True)
    ]
    quality = [
        {
            "sharing": one.run.sharing,
            **one.cost(),
            "MLM": found["mlm"],
            "SOP": found["pairs"],
        }
        for one, found in zip(models, learned, strict=True)
    ]
    sizes = {
        name: AlbertConfig.from_json(study.config(name)).num_parameters()
        for name in SHARINGS
    }
    return _report(quality, curves, sizes, task)


def labelled_scores(
    study: Study, model: str, task: str, count: int, seed: int
) -> dict[str, float]:
    """Fine-tunes a model on some of the training examples.

    Args:
        study: `Study`.
        model: str. Its name in the study's folder of models.
        task: str. Name of the task.
        count: int. Number of examples.
        seed: int. Seed of their choice, and of the run.

    Returns: dict. The task's metric: `dev` on the dev examples, `train` on the training
        ones.
    """
    path = study.join("scores", f"{model}-{task}-{count}.json")
    if files.exists(path):
        return files.read_json(path)
    from albert_tf.inference.predictor import Predictor
    from albert_tf.training.finetune_settings import FinetuneSettings
    from albert_tf.training.seeds import finetune

    folder = study.join("labels", f"{model}-{task}-{count}")
    for name in ("train", "dev"):
        source = files.join(study.tasks[task], f"{name}.tsv")
        header, *rows = files.read_text(source).rstrip("\n").split("\n")
        if name == "train":
            drawn = np.random.default_rng(seed).permutation(len(rows))[:count]
            rows = [rows[i] for i in np.sort(drawn)]
        files.make_folder(folder)
        text = "\n".join([header, *rows]) + "\n"
        files.write_text(files.join(folder, f"{name}.tsv"), text, True)
    scale, tuned = study.scale, files.join(folder, "run")
    found = finetune(
        FinetuneSettings(
            task=task,
            data_dir=folder,
            init_checkpoint=study.join("models", model),
            output_dir=tuned,
            max_seq_length=scale.sizes["max_position_embeddings"],
            train_batch_size=32,
            learning_rate=scale.finetune_rate,
            num_train_steps=scale.finetune_steps,
            dropout=0.1,
            eval_steps=0,
            keep="last",
            seed=seed,
        )
    )
    answering = Predictor.from_pretrained(tuned)
    learned = answering.task.splits["train"].read(folder)
    scores = answering.metrics(learned, answering.answers(learned))
    metric = found["metric"].removeprefix("dev_")
    result = done_once(path, {"dev": found[found["metric"]], "train": scores[metric]})
    files.remove_tree(folder)
    forget_graphs()
    return result


def _report(
    quality: Sequence[dict[str, Any]],
    curves: Sequence[dict[str, Any]],
    sizes: dict[str, int],
    task: str,
) -> Report:
    most = max(one["labels"] for one in curves)
    downstream = f"{TITLES[task]}, {most:,} labels"
    columns = ("tokens", "CPU seconds", "MLM", "SOP")
    modes: dict[str, dict[str, Any]] = {}
    for name in SHARINGS:
        mine = [one for one in quality if one["sharing"] == name]
        modes[name] = {
            "parameters": f"{sizes[name]:,}",
            **{c: claims.cell(c, [one[c] for one in mine]) for c in columns},
            downstream: estimate(_values(curves, name, most, "dev")),
        }
    lines = ["## Ways of sharing", "", *to_table(modes), ""]
    compared = ("MLM", "SOP", downstream)
    by_mode = {c: {name: modes[name][c] for name in SHARINGS} for c in compared}
    lines += verdicts(by_mode)
    lines.append("")
    lines += [f"## {TITLES[task]} with few labels: {METRICS[task]}", ""]
    by_labels = _by_labels(curves)
    lines += [*to_table(by_labels), ""]
    both = {
        f"{labels}, {part}": {name: cells[f"{name}, {part}"] for name in CURVES}
        for labels, cells in by_labels.items()
        for part in ("dev", "gap")
    }
    lines += verdicts(both, _NONE_SEPARATED)
    rows = [
        Row(f"{row}, {column}", one.mean, "")
        for table in (modes, by_labels)
        for row, cells in table.items()
        for column, one in cells.items()
        if isinstance(one, Estimate)
    ]
    return Report(
        "What sharing weights costs, and does where labels are few",
        rows,
        series={"quality": list(quality), "curves": list(curves)},
        picture=draw_study(_panels(quality, curves, task), share_y=False),
        notes=_NOTES,
        text="\n".join(lines),
    )


def _values(curves, sharing: str, labels: int, part: str) -> list[float]:
    """Returns a score of every seed; "gap" is training score minus dev score."""
    mine = [
        one for one in curves if (one["sharing"], one["labels"]) == (sharing, labels)
    ]
    if part == "gap":
        return [one["train"] - one["dev"] for one in mine]
    return [one[part] for one in mine]


def _by_labels(curves) -> dict[str, dict[str, Estimate]]:
    counts = sorted({one["labels"] for one in curves})
    return {
        f"{count:,} labels": {
            f"{name}, {part}": estimate(_values(curves, name, count, part))
            for part in ("dev", "train", "gap")
            for name in CURVES
        }
        for count in counts
    }


def _panels(quality, curves, task: str) -> list[list[Panel]]:
    counts = sorted({one["labels"] for one in curves})
    ticks = {float(count): f"{count:,}" for count in counts}
    above = []
    for part, title in (("dev", "dev examples"), ("gap", "training less dev examples")):
        found = {
            name: points({c: _values(curves, name, c, part) for c in counts})
            for name in CURVES
        }
        panel = Panel(
            title, METRICS[task], found, {}, x="labels", ticks=ticks, log=True
        )
        above.append(panel)
    places = dict(enumerate(SHARINGS))
    below = []
    for column in ("MLM", "SOP"):
        found = {
            name: points({x: [q[column] for q in quality if q["sharing"] == name]})
            for x, name in places.items()
        }
        title = f"{column}, held-out documents"
        below.append(Panel(title, "accuracy", found, {}, x="shared", ticks=places))
    return [above, below]


def make_study(
    folder: str, input_file: str, tokenizer: str, scale: str, tasks: dict[str, str]
) -> Study:
    """Returns the study of a scale: `full`, or `small` to test that it runs."""
    return Study(folder, input_file, tokenizer, tasks, ("albert",), SCALES[scale])
