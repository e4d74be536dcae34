"""Vectors of texts: which texts are near each other.

Legend: `N` examples, `U` units (the same), `K` texts of an example, `R` rows, one per
text, `E` numbers of a vector.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf import features
from albert_tf.errors import DataError, UsageError, require
from albert_tf.heads import prompts_of
from albert_tf.tasks import metrics
from albert_tf.tasks.embedding_files import SCORES, TEXTS, TUPLES, TextTuples, of_table
from albert_tf.tasks.nearest import nearest, of_length_1
from albert_tf.tasks.task import (
    LONGEST_TEXT,
    MOST_ERRORS,
    REGRESSION,
    EncodedExamples,
    FileSource,
    Task,
)
from albert_tf.text import inputs

EMBEDDER = "embedder"  # the value of `--answer_head`
# Ranks beyond this count as not found.
_MOST_RANKS = 10
# Vectors whose cosines vary less are all the same.
_SAME = 1e-4


@dataclasses.dataclass(frozen=True)
class VectorAnswers:
    """The answers to `N` examples.

    Attributes:
        vectors: float32 `[R, E]`, of length 1.
        scores: float32 `[N]`. Cosine of the first two texts; NaN for texts alone.
        ranks: int64 `[N]` or None. Of tuples: rank of the best positive of each first
            text among the other texts of all examples, from 1; 0 beyond 10.
        best: list of str or None. Of tuples: the text with the first rank.
    """

    vectors: np.ndarray
    scores: np.ndarray
    ranks: np.ndarray | None = None
    best: list[str] | None = None


@dataclasses.dataclass(frozen=True)
class EmbeddingTask(Task):
    """The family of tasks that train and compare vectors; see `task.Task`.

    Attributes:
        prompts: Text before the first text of an example, "query", and before the
            others, "passage"; "" before both.
        teacher: File of vectors (.npy), a row for each row of texts alone.
        taught: Whether a teacher gives the vectors of texts alone, from a file or not.
    """

    prompts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    teacher: str = ""
    taught: bool = False

    def encode(self, examples, tokenizer) -> EncodedExamples:
        """Returns one row per text; a text alone has two, which dropout tells apart."""
        twice = examples.form == TEXTS and not (self.taught or self.teacher)
        texts = [row * 2 if twice else row for row in examples.texts]
        counts = np.array([len(row) for row in texts])
        query, passage = prompts_of(self.prompts)
        if examples.form != TUPLES:
            query = passage = self.prompts.get("", "")
        flat = [
            (passage if i else query) + text
            for row in texts
            for i, text in enumerate(row)
        ]
        length = self.options.max_seq_length
        rows = inputs.encode_texts(tokenizer, flat, max_seq_length=length)
        units = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        numbers = {text: i for i, text in enumerate(dict.fromkeys(_all(texts)), 1)}
        ids = np.zeros((len(texts), counts.max()), np.int32)
        for i, row in enumerate(texts):
            ids[i, : len(row)] = [numbers[text] for text in row]
        targets = {features.TEXT_IDS: ids}
        if examples.form == SCORES and examples.labels is not None:
            targets[features.LABELS] = np.array(examples.labels, np.float32)
        if self.teacher:
            targets[features.LABELS] = _of_teacher(self.teacher, examples)
        lost = np.logical_or.reduceat(rows.truncated, units[:-1])
        return EncodedExamples(rows, units, targets, lost)

    def answers(self, examples, encoded, outputs) -> VectorAnswers:
        """Returns cosines, and for tuples the ranks of the positives."""
        vectors = unit_vectors(outputs["logits"])
        firsts = encoded.unit_splits[:-1]
        if np.diff(encoded.unit_splits).min() < 2:
            return VectorAnswers(vectors, np.full(len(firsts), np.nan, np.float32))
        scores = (vectors[firsts] * vectors[firsts + 1]).sum(-1)
        if examples.form != TUPLES:
            return VectorAnswers(vectors, scores)
        ranks, best = _ranks(examples.texts, vectors, firsts)
        return VectorAnswers(vectors, scores, ranks, best)

    def compare(self, examples, answers) -> dict[str, float]:
        """Returns the correlations with the scores, or how often a positive is first.

        For tuples, `accuracy_at_1` and `mrr_at_10` rank the other texts of all examples
        for each first text, and `chance_accuracy` results from guessing.
        """
        if examples.form == SCORES:
            return _correlations(examples.labels, answers.scores)
        ranks = answers.ranks.astype(np.float64)
        inverse = np.divide(1, ranks, out=np.zeros_like(ranks), where=ranks > 0)
        candidates = len({text for row in examples.texts for text in row[1:]})
        return {
            "accuracy_at_1": float(np.mean(ranks == 1)),
            "mrr_at_10": float(inverse.mean()),
            "chance_accuracy": 1 / candidates,
        }

    def metric_names(self, examples) -> list[str]:
        """Returns the names of the metrics that can select a model."""
        if examples.form == SCORES:
            return ["spearman", "pearson"]
        return ["accuracy_at_1", "mrr_at_10"]

    def collapse(self, examples, answers) -> str:
        """Returns a message if all texts have the same vector."""
        if not np.isfinite(answers.vectors).all():
            return "the model's outputs are not finite"
        spread = np.ptp(answers.vectors @ answers.vectors[0])
        distinct = len(set(_all(examples.texts))) > 1
        return "all texts have the same vector" * bool(distinct and spread < _SAME)

    def strata(self, examples) -> list[tuple]:
        """Returns the first text of each example, whose examples stay together."""
        return [(row[0], "") for row in examples.texts]

    def rows(self, examples, answers) -> list[dict[str, Any]]:
        """Returns the cosine of each pair, for tuples with rank and nearest text."""
        rows = []
        for i, name in enumerate(examples.ids):
            row = {"id": name, "cosine": round(float(answers.scores[i]), 6)}
            if examples.form == SCORES and examples.labels is not None:
                row["label"] = examples.labels[i]
            if answers.ranks is not None:
                row |= {"rank": int(answers.ranks[i]), "nearest": answers.best[i]}
            rows.append(row)
        return rows

    def cells(self, examples, answers) -> list[list[str]]:
        """Returns the values of `rows` below their names."""
        rows = self.rows(examples, answers)
        return [list(rows[0]), *([str(x) for x in row.values()] for row in rows)]

    def report(self, examples, answers, encoded) -> dict[str, Any]:
        """Returns the content of a report: scores next to cosines, worst examples."""
        if examples.labels is None:
            return {}
        report: dict[str, Any] = {}
        if examples.form == SCORES:
            labels = np.array(examples.labels, np.float64)
            pairs = np.stack([labels, answers.scores], -1)
            report["scatter"] = pairs.tolist()
            # The order counts, so the errors are differences of ranks.
            losses = np.abs(_order(labels) - _order(answers.scores)) / len(labels)
            predictions = [round(float(x), 4) for x in answers.scores]
            wrong = np.ones(len(labels), bool)
        else:
            losses, wrong = -answers.scores, answers.ranks != 1
            predictions = [text[:LONGEST_TEXT] for text in answers.best]
        order = np.argsort(-losses, kind="stable")
        report["errors"] = [
            {
                "index": examples.ids[i],
                "text": _shown(examples, i),
                "label": _label(examples.labels[i]),
                "prediction": predictions[i],
                "score": float(answers.scores[i]),
                "truncated": bool(encoded.truncated[i]),
            }
            for i in order[wrong[order]][:MOST_ERRORS].tolist()
        ]
        return report


def embedding_task(
    name: str,
    splits: Mapping[str, FileSource] | None = None,
    form: str = TUPLES,
    **values,
) -> EmbeddingTask:
    """Returns a task of vectors, selected by the metric of its dev examples' form."""
    return EmbeddingTask(
        name=name,
        head="text_embedder",
        metrics=_correlations,
        selecting_metric="spearman" if form == SCORES else "accuracy_at_1",
        splits=splits or {},
        **values,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoredPairs(FileSource):
    """The source of pairs with scores that a task of regression reads, too.

    Attributes:
        table: The source of that task.
        highest: Score of equal texts.
    """

    table: FileSource
    highest: float

    def read(self, folder: str) -> TextTuples:
        """Returns the examples of the split, from the data folder."""
        return of_table(self._table().read(folder), self.highest)

    def read_file(self, path: str) -> TextTuples:
        """Returns the examples in a file."""
        return of_table(self._table().read_file(path), self.highest)

    def from_rows(self, data) -> TextTuples:
        """Returns the examples of a set of TensorFlow Datasets."""
        return of_table(self._table().from_rows(data), self.highest)

    def _table(self) -> FileSource:
        policy = {"on_bad_input": self.on_bad_input, "labelled": self.labelled}
        return dataclasses.replace(self.table, **policy)


def as_embedding(task: Task) -> EmbeddingTask:
    """Returns a task of scores for pairs of texts as a task of vectors.

    Raises `UsageError` if it has other answers.
    """
    if isinstance(task, EmbeddingTask):
        return task
    if task.problem_type != REGRESSION or not task.has_pairs:
        raise UsageError(
            f"task: {task.name} has no scores for pairs of texts, which vectors are "
            "compared with; stsb has"
        )
    splits = {
        name: ScoredPairs(table=source, highest=_HIGHEST, labelled=source.labelled)
        for name, source in task.splits.items()
    }
    return embedding_task(task.name, splits, form=SCORES)


_HIGHEST = 5.0  # of STS-B


def unit_vectors(values: np.ndarray) -> np.ndarray:
    """Returns vectors `[R, E]` divided by their lengths, float32."""
    return of_length_1(np.asarray(values, np.float32))


def load_vectors(path: str) -> np.ndarray:
    """Returns the vectors `[N, E]` of a local file, mapped into memory.

    Raises `DataError` if it is not an array of vectors.
    """
    expected = f"{path}: expected an array of vectors (.npy) on this machine"
    try:
        vectors = np.load(path, mmap_mode="r")
    except (OSError, ValueError) as e:
        raise DataError(f"{expected}: {e}") from None
    fits = vectors.ndim == 2 and vectors.dtype.kind == "f"
    kind = f"{vectors.dtype} {vectors.shape}"
    require(fits, expected, kind, error=DataError)
    return vectors


def _of_teacher(path: str, examples: TextTuples) -> np.ndarray:
    """Returns the vectors `[N, E]` of a file for the rows of the examples."""
    rows = [int(name) for name in examples.ids]
    found = np.asarray(load_vectors(path)[rows], np.float32)
    expected = f"teacher_vectors: {path}: holds a vector that is not finite"
    require(np.isfinite(found).all(), expected, error=DataError)
    return found


def _ranks(
    texts: Sequence[Sequence[str]], vectors: np.ndarray, firsts: np.ndarray
) -> tuple[np.ndarray, list[str]]:
    """Returns the rank of each example's best positive, and the text with rank 1."""
    flat = list(_all(texts))
    first_rows = set(firsts.tolist())
    others = {t: i for i, t in enumerate(flat) if i not in first_rows}
    names, rows = list(others), np.array(list(others.values()))
    positives: dict[str, set[str]] = {}
    for row in texts:
        positives.setdefault(row[0], set()).add(row[1])
    # The first text itself may be among the others, and is left out.
    if not np.isfinite(vectors).all():  # `collapse` says so
        return np.zeros(len(texts), np.int64), [""] * len(texts)
    _, found = nearest(vectors[firsts], vectors[rows], _MOST_RANKS + 1)
    ranks, best = np.zeros(len(texts), np.int64), []
    for i, row in enumerate(texts):
        own = positives[row[0]]  # even the text itself, if it is its own positive
        ranked = [names[j] for j in found[i] if names[j] in own or names[j] != row[0]]
        ranked = ranked or [names[0]]
        hits = [r for r, text in enumerate(ranked, 1) if text in own]
        ranks[i] = hits[0] if hits and hits[0] <= _MOST_RANKS else 0
        best.append(ranked[0])
    return ranks, best


def _correlations(labels, predictions) -> dict[str, float]:
    values = metrics.regression_metrics(labels, predictions)
    return {name: values[name] for name in ("spearman", "pearson")}


def _order(values: np.ndarray) -> np.ndarray:
    return np.argsort(np.argsort(values, kind="stable"), kind="stable")


def _all(texts: Sequence[Sequence[str]]):
    return (text for row in texts for text in row)


def _label(value: Any) -> Any:
    is_number = isinstance(value, float) and not math.isnan(value)
    return round(value, 4) if is_number else str(value)[:LONGEST_TEXT]


def _shown(examples: TextTuples, i: int) -> str:
    texts = examples.texts[i][: 2 if examples.form == SCORES else 1]
    return " ‖ ".join(text[: LONGEST_TEXT // 2] for text in texts)
