"""The tasks of GLUE: files, columns, labels, metrics and the paper's recipes.

Files are named relative to the folder that holds all of GLUE (the original's
`--data_dir`). None of them quotes its cells. Labels are in the order of the original
code, which for MNLI differs from that of Hugging Face and TensorFlow Datasets.
"""

import functools
from collections.abc import Sequence

from albert_tf.tasks.metrics import classification_metrics, regression_metrics
from albert_tf.tasks.tables import LabelledTableSettings, TableSettings, TableSource
from albert_tf.tasks.task import REGRESSION, SINGLE_LABEL, Recipe, Task

_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_NLI = ("contradiction", "entailment", "neutral")


def _splits(
    folder: str,
    texts: Sequence[str],
    label: str,
    dev: Sequence[str] = ("dev",),
    test: Sequence[str] = ("test",),
) -> dict[str, TableSource]:
    """Returns the sources of a task whose files have a header."""
    columns = _columns(texts)
    labelled = LabelledTableSettings(**columns, label_column=label)
    sources = dict.fromkeys(("train", *dev), labelled)
    sources |= {name: TableSettings(**columns) for name in test}
    return {
        name: TableSource(f"{folder}/{name}.tsv", source)
        for name, source in sources.items()
    }


def _columns(texts: Sequence[str]) -> dict:
    first, second = (*texts, "")[:2]
    return {"text_column": first, "text_pair_column": second, "quoting": False}


def _cola_splits() -> dict[str, TableSource]:
    """Returns the sources of CoLA, where only the test file has a header."""
    columns = LabelledTableSettings(
        text_column="3", label_column="1", header=False, quoting=False
    )
    return {
        "train": TableSource("CoLA/train.tsv", columns),
        "dev": TableSource("CoLA/dev.tsv", columns),
        "test": TableSource("CoLA/test.tsv", TableSettings(**_columns(["sentence"]))),
    }


def _metrics(labels, predictions, *, names: Sequence[str]) -> dict[str, float]:
    if "pearson" in names:
        values = regression_metrics(labels, predictions)
    else:
        average = "binary" if "f1" in names else "macro"
        values = classification_metrics(labels, predictions, average)
    return {name: values[name] for name in names}


def _task(name, splits, labels, metrics, recipe, **kwargs) -> Task:
    """Returns a task of GLUE.

    Args:
        name: str. Name of the task.
        splits: dict. See `Task`.
        labels: tuple of str. See `Task`.
        metrics: tuple of str. What the leaderboard reports for the task
            (https://gluebenchmark.com). The first one selects models.
        recipe: `Recipe`. Row of Table 14. In the paper, RTE, STS-B and MRPC start from
            a model fine-tuned on MNLI, and scores are medians of five runs.
        **kwargs: Other fields of `Task`.
    """
    return Task(
        name,
        "text_classifier",
        functools.partial(_metrics, names=metrics),
        metrics[0],
        splits,
        labels,
        **{"problem_type": SINGLE_LABEL, **kwargs},
        recipe=recipe,
    )


_PAIR = ("sentence1", "sentence2")
TASKS = (
    _task(
        "cola",
        _cola_splits(),
        _BINARY,
        ("matthews",),
        Recipe(1e-5, 16, 0.0, 5336, 320),
    ),
    _task(
        "stsb",
        _splits("STS-B", _PAIR, "score"),
        (),
        ("pearson", "spearman"),
        Recipe(2e-5, 16, 0.0, 3598, 214),
        problem_type=REGRESSION,
    ),
    _task(
        "sst2",
        _splits("SST-2", ["sentence"], "label"),
        _BINARY,
        ("accuracy",),
        Recipe(1e-5, 32, 0.0, 20935, 1256),
    ),
    _task(
        "mnli",
        _splits(
            "MNLI",
            _PAIR,
            "gold_label",
            dev=("dev_matched", "dev_mismatched"),
            test=("test_matched", "test_mismatched"),
        ),
        _NLI,
        ("accuracy",),
        Recipe(3e-5, 128, 0.0, 10000, 1000),
    ),
    _task(
        "qnli",
        _splits("QNLI", ["question", "sentence"], "label"),
        _ENTAILMENT,
        ("accuracy",),
        Recipe(1e-5, 32, 0.0, 33112, 1986),
    ),
    _task(
        "qqp",
        _splits("QQP", ["question1", "question2"], "is_duplicate"),
        _BINARY,
        ("accuracy", "f1"),
        Recipe(5e-5, 128, 0.1, 14000, 1000),
    ),
    _task(
        "rte",
        _splits("RTE", _PAIR, "label"),
        _ENTAILMENT,
        ("accuracy",),
        Recipe(3e-5, 32, 0.1, 800, 200),
    ),
    _task(
        "mrpc",
        _splits("MRPC", ["#1 String", "#2 String"], "Quality"),
        _BINARY,
        ("accuracy", "f1"),
        Recipe(2e-5, 32, 0.0, 800, 200),
    ),
    _task(
        "wnli",
        _splits("WNLI", _PAIR, "label"),
        _BINARY,
        ("accuracy",),
        Recipe(2e-5, 16, 0.1, 2000, 250),
    ),
    # Diagnostic examples, predicted by the model of MNLI.
    _task(
        "ax",
        {
            "test": TableSource(
                "diagnostic/diagnostic.tsv", TableSettings(**_columns(_PAIR))
            )
        },
        _NLI,
        ("matthews",),
        None,
    ),
)
