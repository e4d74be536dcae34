"""The tasks of GLUE: files, columns, labels, metrics and the paper's recipes.

`--data_dir` is either the folder that holds all of GLUE (the original's) or the task's
own folder: for SST-2, `DIR/SST-2/train.tsv` or `DIR/train.tsv`; the former is taken if
both exist. No file quotes its cells. Labels are in the order of the original code,
which for MNLI differs from that of Hugging Face and TensorFlow Datasets.
"""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Sequence

from absl import logging

from albert_tf.errors import MissingFileError, UsageError
from albert_tf.tables.tfds_source import PREFIX
from albert_tf.tasks.metrics import classification_metrics, regression_metrics
from albert_tf.tasks.task import REGRESSION, SINGLE_LABEL, Recipe, Task
from albert_tf.tasks.text_classification import FAMILY
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
# The original takes the last column as label, so that files of MNLI with 12 and with 16
# columns can be read.
_LAST = "-1"
# Other names of the labels, in the order of the task's; TFDS and Hugging Face use them.
LABEL_ALIASES: dict[str, tuple[tuple[str, ...], ...]] = {
    "cola": (("unacceptable", "acceptable"),),
    "sst2": (("negative", "positive"),),
    "mrpc": (("not_equivalent", "equivalent"),),
    "qqp": (("not_duplicate", "duplicate"),),
    "wnli": (("not_entailment", "entailment"),),
}
# Features of the texts in `tfds:glue/...`.
_TFDS_TEXTS = {
    "cola": ("sentence",),
    "sst2": ("sentence",),
    "qqp": ("question1", "question2"),
    "mnli": ("premise", "hypothesis"),
    "ax": ("premise", "hypothesis"),
    "qnli": ("question", "sentence"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class GlueSource(TableSource):
    """A file of GLUE as the source of examples.

    Attributes:
        task: str. Name of the task.
        label_names: tuple of str. For a file without a header: the labels. If the first
            line has something else in their place, it is a header and left out.
        instead: `GlueSource` or None. What is read where the file is not there: another
            release.
    """

    task: str = ""
    label_names: tuple[str, ...] = ()
    instead: "GlueSource | None" = None

    def read(self, folder: str) -> TextTable:
        """Returns the table, perhaps of the other release."""
        try:
            return super().read(folder)
        except MissingFileError:
            if self.instead:
                with contextlib.suppress(MissingFileError):
                    return self._other_release().read(folder)
            raise

    def read_file(self, path: str) -> TextTable:
        """Returns the table in a file, without a header line."""
        if self.instead and os.path.basename(path) in self.instead.names:
            return self._other_release().read_file(path)
        return self._checked(super().read_file(path))

    def set_split(self, name: str, split: str) -> str:
        """Returns what a split is called in a set of TensorFlow Datasets.

        Raises:
            UsageError: If the set is another task of GLUE.
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

    def _other_release(self) -> "GlueSource":
        return dataclasses.replace(self.instead, on_bad_input=self.on_bad_input)

    def _checked(self, table: TextTable) -> TextTable:
        if not self.label_names or len(table) < 2:
            return table
        first, second = table.labels[:2]
        if first in self.label_names or second not in self.label_names:
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


def _splits(
    folder: str,
    texts: Sequence[str],
    label: str = _LAST,
    dev: Sequence[str] = ("dev",),
    test: Sequence[str] = ("test",),
    short_rows: tuple[str, str] = ("stop", "stop"),
) -> dict[str, GlueSource]:
    """Returns the sources of a task whose files have a header.

    Args:
        folder: str. Name of the task's folder.
        texts: sequence of str. Columns of the texts.
        label: str. Column of the label.
        dev: sequence of str. Splits for evaluation.
        test: sequence of str. Splits without labels.
        short_rows: tuple of str. See `reader.ColumnReader`; with and without labels.
    """
    columns = _columns(texts)
    # "-" stands where the annotators did not agree.
    labelled = LabelledTableSettings(**columns, label_column=label, skip_label="-")
    sources = {
        name: _source(
            f"{folder}/{name}.tsv", columns=labelled, short_rows=short_rows[0]
        )
        for name in ("train", *dev)
    }
    for name in test:
        settings = TableSettings(**columns, id_column="0")
        sources[name] = _source(
            f"{folder}/{name}.tsv", columns=settings, short_rows=short_rows[1]
        )
    return sources


def _source(file: str, *others: str, **kwargs) -> GlueSource:
    """Returns the source of a file, whose folder may also be that of the data."""
    return GlueSource(names=(file, os.path.basename(file), *others), **kwargs)


def _columns(texts: Sequence[str]) -> dict:
    first, second = (*texts, "")[:2]
    return {"text_column": first, "text_pair_column": second, "quoting": False}


def _cola_splits() -> dict[str, GlueSource]:
    """Returns the sources of CoLA, where only the test file has a header."""
    columns = LabelledTableSettings(
        text_column="3", label_column="1", header=False, quoting=False
    )
    sources = {
        name: _source(f"CoLA/{name}.tsv", columns=columns, label_names=_BINARY)
        for name in ("train", "dev")
    }
    return sources | {"test": _splits("CoLA", ["sentence"])["test"]}


def _mrpc_splits() -> dict[str, GlueSource]:
    """Returns the sources of MRPC, in the release of GLUE or that of Microsoft.

    The latter has no dev examples; its test examples have labels.
    """
    sources = _splits("MRPC", ["#1 String", "#2 String"], "Quality")
    columns = dataclasses.replace(sources["train"].columns, delimiter="\t")
    for name in ("train", "test"):
        other = _source(f"MRPC/msr_paraphrase_{name}.txt", columns=columns)
        sources[name] = dataclasses.replace(sources[name], instead=other)
    return sources


def _ax_splits() -> dict[str, GlueSource]:
    """Returns the source of the diagnostics, which the model of MNLI answers."""
    settings = TableSettings(**_columns(_PAIR), id_column="0")
    others = ("AX/AX.tsv", "AX.tsv", "AX/diagnostic.tsv")
    return {"test": _source("diagnostic/diagnostic.tsv", *others, columns=settings)}


def _metrics(labels, predictions, *, names: Sequence[str]) -> dict[str, float]:
    if "pearson" in names:
        values = regression_metrics(labels, predictions)
    else:
        average = "binary" if "f1" in names else "macro"
        values = classification_metrics(labels, predictions, average)
    return {name: values[name] for name in names}


def _task(name, splits, labels, metrics, recipe) -> Task:
    """Returns a task of GLUE.

    Args:
        name: str. Name of the task.
        splits: dict. See `Task`.
        labels: tuple of str. See `Task`; none for scores.
        metrics: str. What the leaderboard reports for the task
            (https://gluebenchmark.com). The first one selects models.
        recipe: tuple. Row of Table 14, or None. In the paper, RTE, STS-B and MRPC start
            from a model fine-tuned on MNLI, and scores are medians of five runs.
    """
    classes = {label: label for label in labels}
    for alias in LABEL_ALIASES.get(name, ()):
        classes |= dict(zip(alias, labels, strict=True))
    texts = _columns(_TFDS_TEXTS.get(name, _PAIR))
    there = LabelledTableSettings(**texts, label_column="label", id_column="idx")
    more = {"task": name, "features": there, "classes": classes}
    names = metrics.split()
    return Task(
        name=name,
        head="text_classifier",
        metrics=functools.partial(_metrics, names=names),
        selecting_metric=names[0],
        splits={k: dataclasses.replace(v, **more) for k, v in splits.items()},
        labels=labels,
        positive_label="1" if labels == _BINARY else None,
        problem_type=SINGLE_LABEL if labels else REGRESSION,
        recipe=Recipe(*recipe) if recipe else None,
        family=FAMILY,
    )


_QNLI = _splits("QNLI", ["question", "sentence"])
# A few released rows are short. A row to predict is never dropped.
_QUESTIONS = ["question1", "question2"]
_QQP = _splits("QQP", _QUESTIONS, "is_duplicate", short_rows=("skip", "fill"))
_MNLI = _splits(
    "MNLI",
    _PAIR,
    dev=("dev_matched", "dev_mismatched"),
    test=("test_matched", "test_mismatched"),
)
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
