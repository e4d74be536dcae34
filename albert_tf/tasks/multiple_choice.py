"""Multiple choice: RACE, SWAG, CODAH and the user's own tables.

Legend: `N` questions, each of which is one unit; `K` choices, which may differ from
question to question; `R` rows, one per choice.

The model scores every choice in a row of its own, `[CLS] context [SEP] question choice
[SEP]`, and chooses by a softmax over the rows of a question (the original's
`race_utils`).
"""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from albert_tf import features
from albert_tf.errors import require
from albert_tf.tasks import metrics
from albert_tf.tasks.choice_files import (
    ChoiceExamples,
    RaceSource,
    codah_source,
    swag_source,
)
from albert_tf.tasks.task import (
    LONGEST_TEXT,
    MOST_ERRORS,
    EncodedExamples,
    Recipe,
    Task,
)
from albert_tf.text import inputs
from albert_tf.text.normalization import to_unicode

# Probabilities that differ by less than this count as equal.
_SAME = 1e-4
# With fewer questions, giving all of them the same answer is no sign of collapse.
_FEWEST = 8


@dataclasses.dataclass(frozen=True)
class ChoiceAnswers:
    """The answers to `N` questions.

    Attributes:
        predictions: int64 `[N]`. Indices of the choices.
        probabilities: list of float `[K]`. Probabilities of each question's choices.
    """

    predictions: np.ndarray
    probabilities: list[np.ndarray]


class ChoiceTask(Task):
    """The family of multiple choice tasks; see `task.Task`."""

    def encode(self, examples, tokenizer) -> EncodedExamples:
        """Returns one row per choice; see `task.Task`.

        The steps follow the original's `RaceProcessor` and `convert_single_example`:
        all texts are normalized; a choice replaces every `_` of its question, if the
        examples ask for it and there is one, and follows the question otherwise; the
        last `max_qa_length` tokens of the two are kept, and then as many tokens from
        the start of the context as fit. Raises `UsageError` if a length leaves no room
        for text.
        """
        length, separators = self.options.max_seq_length, tokenizer.pair_separators
        inputs.check_max_seq_length(length, pairs=True, separators=separators)
        longest = self.options.max_qa_length
        require(longest > 0, "max_qa_length must be positive", longest)
        # Byte BPE has no normalization.
        normalize = getattr(tokenizer, "normalize", to_unicode)
        second = []
        for question, row in zip(examples.questions, examples.choices, strict=True):
            question = normalize(question)
            for choice in map(normalize, row):
                if examples.fills_blanks and "_" in question:
                    second.append(question.replace("_", choice))
                else:
                    second.append(f"{question} {choice}" if question else choice)
        # Questions share an article: it is tokenized once.
        distinct = {text: i for i, text in enumerate(dict.fromkeys(examples.contexts))}
        a_ids, a_splits = tokenizer.encode_batch_flat(list(map(normalize, distinct)))
        b_ids, b_splits = tokenizer.encode_batch_flat(second)
        counts = [len(row) for row in examples.choices]
        context = np.repeat([distinct[text] for text in examples.contexts], counts)
        full_a, full_b = np.diff(a_splits)[context], np.diff(b_splits)
        budget = length - 2 - separators
        kept_b = np.minimum(full_b, min(longest, budget))
        kept_a = np.minimum(full_a, budget - kept_b)
        first = (a_ids, a_splits[context], kept_a)
        last = (b_ids, b_splits[1:] - kept_b, kept_b)
        rows = inputs.join_segments(tokenizer, first, last)
        units = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        lost = (kept_a < full_a) | (kept_b < full_b)
        truncated = np.logical_or.reduceat(lost, units[:-1])
        targets = {}
        if examples.labels is not None:
            targets[features.LABELS] = np.array(examples.labels, np.int32)
        return EncodedExamples(rows, units, targets, truncated)

    def answers(self, examples, encoded, outputs) -> ChoiceAnswers:
        """Returns the likeliest choice of each question, the first one on a tie."""
        logits = np.asarray(outputs["logits"], np.float32).reshape(-1)
        questions = np.split(logits, encoded.unit_splits[1:-1])
        predictions = np.array([row.argmax() for row in questions], np.int64)
        return ChoiceAnswers(predictions, [metrics.softmax(row) for row in questions])

    def compare(self, examples, answers) -> dict[str, float]:
        """Returns accuracy, also of each group, and the accuracy of two trivial models.

        `majority_accuracy` results from always naming the most frequent index,
        `chance_accuracy` from guessing.
        """
        labels = np.array(examples.labels, np.int64)
        values = dict(self.metrics(labels, answers.predictions))
        for group, members in _groups(examples).items():
            subset = self.metrics(labels[members], answers.predictions[members])
            values |= {f"{name}_{group}": value for name, value in subset.items()}
        values["majority_accuracy"] = float(np.bincount(labels).max() / len(labels))
        chance = [1 / len(row) for row in examples.choices]
        values["chance_accuracy"] = float(np.mean(chance))
        return values

    def metric_names(self, examples) -> list[str]:
        """Returns the names of the metrics that can select a model."""
        names = list(self.metrics([0], [0]))
        endings = ["", *(f"_{group}" for group in _groups(examples))]
        return [f"{name}{end}" for end in endings for name in names]

    def strata(self, examples) -> list[tuple]:
        """Returns the context of each question, if there is one, and its label."""
        units = [context or i for i, context in enumerate(examples.contexts)]
        return list(zip(units, examples.labels, strict=True))

    def collapse(self, examples, answers) -> str:
        """Returns a message describing signs of collapse; see `task.Task`."""
        if len(examples) < _FEWEST:
            return ""
        if all(np.ptp(row) < _SAME for row in answers.probabilities):
            return "all choices of every question have the same probability"
        labels = examples.labels
        chosen = np.unique(answers.predictions)
        if labels is not None and len(chosen) == 1 and len(set(labels)) > 1:
            name = examples.choice_name(int(chosen[0]))
            return f"the model answers {name} to every question"
        return ""

    def rows(self, examples, answers) -> list[dict]:
        """Returns the answers; choices are A, B, ... in RACE, 0, 1, ... elsewhere."""
        name, rows = examples.choice_name, []
        for i, scores in enumerate(answers.probabilities):
            chosen = int(answers.predictions[i])
            row = {
                "id": examples.ids[i],
                "prediction": name(chosen),
                "choice": examples.choices[i][chosen],
                "probabilities": [round(float(score), 6) for score in scores],
            }
            if examples.groups[i]:
                row["group"] = examples.groups[i]
            if examples.labels is not None:
                row["label"] = name(examples.labels[i])
            rows.append(row)
        return rows

    def cells(self, examples, answers) -> list[list[str]]:
        """Returns id, correct answer if known, predicted answer, and probabilities."""
        width = max(map(len, examples.choices))
        names = [f"probability_{examples.choice_name(i)}" for i in range(width)]
        label = [] if examples.labels is None else ["label"]
        columns, table = ["id", *label, "prediction"], []
        for row, scores in zip(
            self.rows(examples, answers), answers.probabilities, strict=True
        ):
            cells = [f"{score:.6f}" for score in scores] + [""] * (width - len(scores))
            table.append([*map(row.get, columns), *cells])
        return [columns + names, *table]

    def report(self, examples, answers, encoded) -> dict:
        """Returns the content of a report; see `task.Task`.

        The confusion matrix counts positions of choices: its columns show whether the
        model prefers one. The errors are the most confident wrong answers.
        """
        if examples.labels is None:
            return {}
        labels, predictions = np.array(examples.labels, np.int64), answers.predictions
        size = max(len(row) for row in examples.choices)
        right = labels == predictions
        scores = [float(row.max()) for row in answers.probabilities]
        worst = sorted(np.flatnonzero(~right).tolist(), key=lambda i: -scores[i])
        return {
            "labels": [examples.choice_name(i) for i in range(size)],
            "confusion": metrics.confusion(labels, predictions, size),
            "calibration": [[x, int(y)] for x, y in zip(scores, right, strict=True)],
            "groups": [
                {"name": group, **self.metrics(labels[members], predictions[members])}
                for group, members in _groups(examples).items()
            ],
            "errors": [
                {
                    "index": i,
                    "text": _question(examples, i),
                    "label": _choice(examples, i, labels[i]),
                    "prediction": _choice(examples, i, predictions[i]),
                    "score": scores[i],
                    "truncated": bool(encoded.truncated[i]),
                }
                for i in worst[:MOST_ERRORS]
            ],
        }


def _accuracy(labels: Sequence[int], predictions: Sequence[int]) -> dict[str, float]:
    """Returns the share of correct choices."""
    return {"accuracy": float(np.mean(np.asarray(labels) == predictions))}


def _groups(examples: ChoiceExamples) -> dict[str, np.ndarray]:
    """Returns the indices of the questions of each group that has a name."""
    names = np.array(examples.groups)
    return {
        name: np.flatnonzero(names == name)
        for name in dict.fromkeys(examples.groups)
        if name
    }


def _question(examples: ChoiceExamples, i: int) -> str:
    """Returns context and question, cut at the start if they are too long."""
    parts = (examples.contexts[i], examples.questions[i])
    text = " | ".join(filter(None, parts))
    return text if len(text) <= LONGEST_TEXT else f"…{text[1 - LONGEST_TEXT :]}"


def _choice(examples: ChoiceExamples, i: int, choice: int) -> str:
    text = examples.choices[i][choice][:LONGEST_TEXT]
    return f"{examples.choice_name(int(choice))}: {text}"


# Creates a task of multiple choice from its name, and optionally its splits, recipe and
# options.
choice_task = functools.partial(
    ChoiceTask, head="multiple_choice", metrics=_accuracy, selecting_metric="accuracy"
)
_SPLITS = ("train", "dev", "test")
TASKS = (
    choice_task(
        "race",
        splits={split: RaceSource(split=split) for split in _SPLITS},
        recipe=Recipe(2e-5, 32, 0.1, 12000, 1000),
    ),
    choice_task("swag", splits={split: swag_source(split) for split in _SPLITS}),
    choice_task("codah", splits={split: codah_source(split) for split in _SPLITS}),
)
