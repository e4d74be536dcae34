"""The tasks of GLUE: files, columns, labels, metrics and the paper's recipes.

`--data_dir` is either the folder that holds all of GLUE (the original's) or the task's
own folder: for SST-2, `DIR/SST-2/train.tsv` or `DIR/train.tsv`; the former is used if
both exist. No file quotes its cells. Labels are in the order of the original code,
which for MNLI differs from the order in Hugging Face and TensorFlow Datasets.
"""

import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence

from absl import logging

from albert_tf.errors import UsageError
from albert_tf.tables.columns import file_format
from albert_tf.tables.tfds_source import PREFIX
from albert_tf.tasks.metrics import classification_metrics, regression_metrics
from albert_tf.tasks.task import REGRESSION, SINGLE_LABEL, Recipe, Task
from albert_tf.tasks.text_classification import TextTask
from albert_tf.tasks.text_tables import (
    LabelledTableSettings,
    TableSettings,
    TableSource,
    TextTable,
)

_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_NLI = ("contradiction", "entailment", "neutral")
_PAIR = ("sentence1", "sentence2")
# Label names in TFDS and Hugging Face, in the order of the task's labels.
_OTHER_LABELS = {
    "cola": ("unacceptable", "acceptable"),
    "sst2": ("negative", "positive"),
    "mrpc": ("not_equivalent", "equivalent"),
    "qqp": ("not_duplicate", "duplicate"),
    "wnli": ("not_entailment", "entailment"),
}
# Text features in `tfds:glue/...` whose names differ from the files' columns.
_TFDS_TEXTS = {
    "mrpc": _PAIR,
    "mnli": ("premise", "hypothesis"),
    "ax": ("premise", "hypothesis"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class GlueSource(TableSource):
    """A file of GLUE as the source of examples.

    Attributes:
        others: Columns of the files that differ from `columns`, by file name.
    """

    task: str = ""
    others: Mapping[str, TableSettings] = dataclasses.field(default_factory=dict)

    def read_file(self, path: str) -> TextTable:
        """Returns the table in a file, without a header line that should not be there.

        The first line is a header if its label cell does not hold a label. Only in CSV,
        which GLUE does not release, quotes enclose cells.
        """
        columns = self.others.get(os.path.basename(path), self.columns)
        if file_format(path) == "commas":  # not a released file
            columns = dataclasses.replace(columns, quoting=True)
        table = TableSource.read_file(dataclasses.replace(self, columns=columns), path)
        if columns.header or len(table) < 2:
            return table
        first, second = table.labels[:2]
        labels = self.classes.values()
        if first in labels or second not in labels:
            return table
        if any(c.isdecimal() for c in first) or not first:
            return table
        logging.warning(
            "%s: line 1 is a header (its label is %r) and is left out; the released "
            "file has none",
            table.path,
            first,
        )
        rest = table.select(range(1, len(table)))
        skipped = {**table.skipped, "header lines": 1}
        return dataclasses.replace(rest, ids=None, skipped=skipped)

    def set_split(self, name: str, split: str) -> str:
        """Returns the name of a split in a set of TensorFlow Datasets.

        Raises `UsageError` if the set is another task of GLUE.
        """
        title = name.removeprefix(PREFIX).partition(":")[0]
        builder, _, config = title.partition("/")
        mnli, _, part = config.partition("_")
        if builder == "glue" and self.task not in (config, mnli if part else config):
            raise UsageError(
                f"data_dir: task {self.task} needs {PREFIX}glue/{self.task}, received "
                f"{name}"
            )
        return super().set_split(name, split).removesuffix(f"_{part}")


def _splits(
    folder: str,
    texts: Sequence[str],
    label: str = "-1",
    splits: Sequence[str] = ("train", "dev", "test"),
    short_rows: tuple[str, str] = ("stop", "stop"),
) -> dict[str, GlueSource]:
    """Returns the sources of a task whose files have a header."""
    # The original's label is the last column, so that files of MNLI with 12 and with 16
    # columns can be read. Test files have no labels.
    # "-" stands where the annotators did not agree.
    labels = {"label_column": label, "skip_label": "-"}
    columns = (
        LabelledTableSettings(**_columns(texts), **labels),
        TableSettings(**_columns(texts), id_column="0"),
    )
    return {
        name: GlueSource(
            names=(f"{folder}/{name}.tsv", f"{name}.tsv"),
            columns=columns[name.startswith("test")],
            short_rows=short_rows[name.startswith("test")],
        )
        for name in splits
    }


def _columns(texts: Sequence[str]) -> dict:
    first, second = (*texts, "")[:2]
    return {"text_column": first, "text_pair_column": second, "quoting": False}


def _cola_splits() -> dict[str, GlueSource]:
    """Returns the sources of CoLA, where only the test file has a header."""
    columns = LabelledTableSettings(
        text_column="3", label_column="1", header=False, quoting=False
    )
    sources = _splits("CoLA", ["sentence"])
    for name in ("train", "dev"):
        sources[name] = dataclasses.replace(sources[name], columns=columns)
    return sources


def _mrpc_splits() -> dict[str, GlueSource]:
    """Returns the sources of MRPC, in the release of GLUE or of Microsoft."""
    # The latter has no dev examples; its test examples have labels.
    sources = _splits("MRPC", ["#1 String", "#2 String"], "Quality")
    columns = dataclasses.replace(sources["train"].columns, delimiter="\t")
    for name in ("train", "test"):
        file = f"msr_paraphrase_{name}.txt"
        names = (*sources[name].names, f"MRPC/{file}", file)
        more = {"names": names, "others": {file: columns}}
        sources[name] = dataclasses.replace(sources[name], **more)
    return sources


def _ax_splits() -> dict[str, GlueSource]:
    """Returns the source of the diagnostics, which the model of MNLI answers."""
    names = ("diagnostic/diagnostic.tsv", "diagnostic.tsv")
    names += ("AX/AX.tsv", "AX.tsv", "AX/diagnostic.tsv")
    test = _splits("AX", _PAIR)["test"]
    return {"test": dataclasses.replace(test, names=names)}


def _metrics(labels, predictions, *, names: Sequence[str]) -> dict[str, float]:
    if "pearson" in names:
        values = regression_metrics(labels, predictions)
    else:
        average = "binary" if "f1" in names else "macro"
        values = classification_metrics(labels, predictions, average)
    return {name: values[name] for name in names}


def _task(name, splits, labels, metrics, recipe) -> Task:
    """Returns a task of GLUE; `recipe` is a row of Table 14, or None."""
    # The metrics are the leaderboard's for the task (https://gluebenchmark.com); the
    # first one selects models. In the paper, RTE, STS-B and MRPC start from a model
    # fine-tuned on MNLI, and scores are medians of five runs.
    other = _OTHER_LABELS.get(name, labels)
    classes = dict(zip((*labels, *other), labels * 2, strict=True))
    file = splits["test" if "test" in splits else "train"].columns
    texts = _TFDS_TEXTS.get(name, (file.text_column, file.text_pair_column))
    there = {**_columns(texts), "label_column": "label", "id_column": "idx"}
    more = {"task": name, "features": LabelledTableSettings(**there)}
    names = metrics.split()
    return TextTask(
        name=name,
        head="text_classifier",
        metrics=functools.partial(_metrics, names=names),
        selecting_metric=names[0],
        splits={
            split: dataclasses.replace(source, classes=classes, **more)
            for split, source in splits.items()
        },
        labels=labels,
        other_labels=other,
        positive_label="1" if labels == _BINARY else None,
        problem_type=SINGLE_LABEL if labels else REGRESSION,
        recipe=Recipe(*recipe) if recipe else None,
    )


_MNLI = _splits(
    "MNLI",
    _PAIR,
    splits=(
        "train",
        *("dev_matched", "dev_mismatched", "test_matched", "test_mismatched"),
    ),
)
_QNLI = _splits("QNLI", ["question", "sentence"])
# A few released rows are short. A row to predict is never dropped.
_QUESTIONS = ["question1", "question2"]
_QQP = _splits("QQP", _QUESTIONS, "is_duplicate", short_rows=("skip", "fill"))
_SST2 = _splits("SST-2", ["sentence"], "label")
_STSB, _RTE, _WNLI = (_splits(name, _PAIR) for name in ("STS-B", "RTE", "WNLI"))
TASKS = (
    _task("cola", _cola_splits(), _BINARY, "matthews", (1e-5, 16, 0.0, 5336, 320)),
    _task("stsb", _STSB, (), "pearson spearman", (2e-5, 16, 0.0, 3598, 214)),
    _task("sst2", _SST2, _BINARY, "accuracy", (1e-5, 32, 0.0, 20935, 1256)),
    _task("mnli", _MNLI, _NLI, "accuracy", (3e-5, 128, 0.0, 10000, 1000)),
    _task("qnli", _QNLI, _ENTAILMENT, "accuracy", (1e-5, 32, 0.0, 33112, 1986)),
    _task("qqp", _QQP, _BINARY, "accuracy f1", (5e-5, 128, 0.1, 14000, 1000)),
    _task("rte", _RTE, _ENTAILMENT, "accuracy", (3e-5, 32, 0.1, 800, 200)),
    _task("mrpc", _mrpc_splits(), _BINARY, "accuracy f1", (2e-5, 32, 0.0, 800, 200)),
    _task("wnli", _WNLI, _BINARY, "accuracy", (2e-5, 16, 0.1, 2000, 250)),
    _task("ax", _ax_splits(), _NLI, "matthews", None),
)
