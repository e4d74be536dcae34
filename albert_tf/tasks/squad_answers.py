"""Turns the outputs of a model into answers: n-best lists and null scores.

Follows the original's `write_predictions_v1` and `_v2` (`squad_utils.py`). For the
2-logit head on SQuAD 2.0, which the original does not have, the null score is Hugging
Face's: the logits of `[CLS]` minus the logits of the best answer. Unlike there, an
answer counts only in the window that gives its start the most context, so that
overlapping windows do not list it twice. Padding is never among the best starts and
ends.

Legend: `N` questions, `R` rows, `S` starts and `E` ends per start of the beam head.
"""

import dataclasses
import itertools
from collections.abc import Mapping

import numpy as np

from albert_tf.errors import DataError, require
from albert_tf.tasks import metrics
from albert_tf.tasks.squad_features import max_context
from albert_tf.tasks.squad_files import Questions
from albert_tf.tasks.task import EncodedExamples, Options

_IMPOSSIBLE = -1e6  # score of a placeholder if there is no answer

Outputs = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A possible answer to a question.

    Attributes:
        text: The part of the text, "" = there is no answer.
        start_score: Logit or log-probability of its first token.
        end_score: Logit or log-probability of its last token.
        probability: Softmax of the sum of both over the listed candidates.
        start: First character in the text; -1 without answer.
        end: End of the answer (exclusive); -1 without answer.
    """

    text: str
    start_score: float
    end_score: float
    probability: float = 0.0
    start: int = -1
    end: int = -1

    @property
    def score(self) -> float:
        """Sum of both scores."""
        return self.start_score + self.end_score


@dataclasses.dataclass(frozen=True)
class Answers:
    """Answers to `N` questions.

    Attributes:
        best: The best answer, regardless of the null score.
        nbest: Answers to each question, best first.
        null_scores: Certainty that there is no answer; None for SQuAD 1.1.
        threshold: A question is answered if its null score is not above it.
        is_beam: Whether the scores are log-probabilities of the beam head, whose list
            does not include "no answer"; otherwise they are logits.
    """

    ids: list[str]
    best: list[Candidate]
    nbest: list[list[Candidate]]
    null_scores: list[float] | None
    threshold: float
    is_beam: bool

    @property
    def texts(self) -> list[str]:
        """The answer to each question, "" = none."""
        if self.null_scores is None:
            return [candidate.text for candidate in self.best]
        return [
            candidate.text if null <= self.threshold else ""
            for candidate, null in zip(self.best, self.null_scores, strict=True)
        ]


def make_answers(
    questions: Questions, encoded: EncodedExamples, outputs: Outputs, options: Options
) -> Answers:
    """Returns the answers to questions from a model's outputs for all encoded rows.

    Raises `DataError` if an output is not finite, and `UsageError` if questions were
    left out of the rows.
    """
    for name, values in outputs.items():
        need = (
            f"{questions.path}: the model's {name} are not finite; its weights are "
            "damaged, or training diverged"
        )
        require(np.isfinite(values).all(), need, error=DataError)
    is_beam = "start_log_probs" in outputs
    numbers = np.arange(len(questions) + 1)
    bounds = np.searchsorted(encoded.detail.question, numbers).tolist()
    best, nbest, null_scores = [], [], []
    for number, bound in enumerate(itertools.pairwise(bounds)):
        require(
            rows := range(*bound),
            f"{questions.path}: {questions.items[number].where} was left out of the "
            "training examples and cannot be answered",
        )
        found, null = _of_question(questions, encoded, number, rows, outputs, options)
        top, listed = _choose(found, null, questions.unanswerable, is_beam, options)
        nbest.append(listed)
        best.append(top)
        null_scores.append(null if is_beam else null - top.score)
    return Answers(
        questions.ids,
        best,
        nbest,
        null_scores if questions.unanswerable else None,
        options.null_threshold,
        is_beam,
    )


def _logit_pairs(outputs: Outputs, part: slice, count: int) -> tuple:
    """Returns pairs of a row's best starts and ends, and the sum for `[CLS]`."""
    columns = (outputs["start_logits"][part], outputs["end_logits"][part])
    start, end = (np.asarray(column, np.float64) for column in columns)
    # A stable sort prefers the earlier position on a tie.
    starts, ends = (np.argsort(-x, kind="stable")[:count] for x in (start, end))
    starts, ends = np.repeat(starts, len(ends)), np.tile(ends, len(starts))
    return starts, ends, start[starts], end[ends], start[0] + end[0]


def _beam_pairs(outputs: Outputs, row: int) -> tuple:
    """Returns the beam head's pairs for a row, and the logit of no answer."""
    names = ("start_index", "start_log_probs", "end_index", "end_log_probs")
    starts, first, ends, last = (np.asarray(outputs[name][row]) for name in names)
    starts, first = (np.repeat(x, len(ends) // len(x)) for x in (starts, first))
    scores = (first.astype(np.float64), last.astype(np.float64))
    return starts, ends, *scores, outputs["cls_logits"][row]


def _of_question(
    questions, encoded, number, rows, outputs, options
) -> tuple[list[Candidate], float]:
    """Returns the candidates of all windows, best first, and the lowest null score."""
    windows = encoded.detail
    item = questions.items[number]
    text, context = questions.contexts[item.context], windows.contexts[item.context]
    owner = max_context(windows.first[rows], windows.size[rows])
    spans, nulls = [], []
    for window, row in enumerate(rows):
        if "start_log_probs" in outputs:
            *columns, null = _beam_pairs(outputs, row)
        else:
            part = slice(*encoded.rows.splits[row : row + 2])
            *columns, null = _logit_pairs(outputs, part, options.n_best_size)
        nulls.append(float(null))
        begin, size = windows.first[row], windows.size[row]
        shift = begin - encoded.rows.first_lengths[row]
        starts, ends = columns[0] + shift, columns[1] + shift
        fits = (starts >= begin) & (ends < begin + size) & (starts <= ends)
        fits &= ends - starts < options.max_answer_length
        fits[fits] = owner[starts[fits]] == window
        columns = (column[fits].tolist() for column in (starts, ends, *columns[2:]))
        spans += zip(*columns, strict=True)
    spans.sort(key=lambda one: one[2] + one[3], reverse=True)
    listed: dict[str, Candidate] = {}
    for start, end, first, second in spans:
        if len(listed) == options.n_best_size:
            break
        a, b = int(context.starts[start]), int(context.ends[end])
        answer = text[a:b].strip()
        if answer not in listed:
            a += len(text[a:b]) - len(text[a:b].lstrip())
            listed[answer] = Candidate(answer, first, second, 0.0, a, a + len(answer))
    return list(listed.values()), min(nulls)


def _choose(
    found: list[Candidate], null: float, unanswerable: bool, is_beam: bool, options
) -> tuple[Candidate, list[Candidate]]:
    """Returns the best answer and the n-best list, with probabilities."""
    if unanswerable and not is_beam:
        # Hugging Face's list includes "no answer", and its best answer has a text.
        found = [c for c in found if c.text]
        top = found[0] if found else Candidate("", _IMPOSSIBLE, _IMPOSSIBLE)
        found.append(Candidate("", null / 2, null / 2))
        found.sort(key=lambda c: c.score, reverse=True)
        return top, _with_probabilities(found[: options.n_best_size])
    if not found:
        made_up = (_IMPOSSIBLE, _IMPOSSIBLE) if unanswerable else (0.0, 0.0)
        found = [Candidate("" if unanswerable else "empty", *made_up)]
    listed = _with_probabilities(found)
    return listed[0], listed


def _with_probabilities(listed: list[Candidate]) -> list[Candidate]:
    shares = metrics.softmax(np.array([c.score for c in listed])).tolist()
    return [
        dataclasses.replace(c, probability=p)
        for c, p in zip(listed, shares, strict=True)
    ]
