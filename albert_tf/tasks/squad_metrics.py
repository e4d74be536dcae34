"""Scores of SQuAD 1.1 and 2.0, as the official evaluation scripts compute them.

Written from the scripts' behaviour (`evaluate-v1.1.py`, `evaluate-v2.0.py`), including
the rounding of their sums, so that scores are equal and not only close. All scores are
percentages.
"""

import collections
import math
import re
import string
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from albert_tf.errors import DataError, require

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")

Gold = Mapping[str, Sequence[str]]


def normalize_answer(text: str) -> str:
    """Lower-cases, deletes ASCII punctuation and articles, collapses white space."""
    text = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def exact_score(gold: str, prediction: str) -> int:
    """Returns 1 if two answers are equal once normalized, and 0 otherwise."""
    return int(normalize_answer(gold) == normalize_answer(prediction))


def f1_score(gold: str, prediction: str, both_empty: float = 1.0) -> float:
    """Returns the F1 of the words of two normalized answers.

    `both_empty` is the result if neither has words: 1 in SQuAD 2.0, 0 in 1.1.
    """
    expected = normalize_answer(gold).split()
    received = normalize_answer(prediction).split()
    if not expected and not received:
        return both_empty
    same = collections.Counter(expected) & collections.Counter(received)
    count = sum(same.values())
    if not count:
        return 0.0
    precision, recall = count / len(received), count / len(expected)
    return 2 * precision * recall / (precision + recall)


def evaluate_v1(gold: Gold, predictions: Mapping[str, str]) -> dict[str, float]:
    """Returns `exact_match` and `f1` of SQuAD 1.1; a missing prediction scores 0."""
    exact, f1 = raw_scores(gold, predictions, unanswerable=False)
    return {
        "exact_match": 100.0 * sum(exact.values()) / len(gold),
        "f1": 100.0 * _sum(f1.values()) / len(gold),
    }


def evaluate_v2(
    gold: Gold,
    predictions: Mapping[str, str],
    null_scores: Mapping[str, float] | None = None,
    threshold: float = 1.0,
) -> dict[str, float]:
    """Returns the scores of SQuAD 2.0, where `[]` and `""` mean no answer.

    These are `exact`, `f1`, `total`; the same for questions with an answer (`HasAns_*`)
    and without (`NoAns_*`), if there are any; with null scores also `best_exact`,
    `best_exact_thresh`, `best_f1`, `best_f1_thresh`. A question whose null score
    (`null_odds.json`) is above the threshold counts as not answered; questions without
    prediction are left out.
    """
    exact, f1 = raw_scores(gold, predictions, unanswerable=True)
    answerable = {name: bool(gold[name]) for name in exact}
    null = null_scores or {}
    empty = {n: float(not answerable[n]) for n in exact if null.get(n, 0.0) > threshold}
    values = [{**scores, **empty} for scores in (exact, f1)]
    result = {}
    for prefix, wanted in (("", None), ("HasAns_", True), ("NoAns_", False)):
        names = [n for n in exact if wanted is None or answerable[n] == wanted]
        if names:
            for name, scores in zip(("exact", "f1"), values, strict=True):
                # The official script does not sum a group in the order of the file;
                # the result of `fsum` does not depend on the order.
                add = math.fsum if prefix else _sum
                total = add(scores[n] for n in names)
                result[prefix + name] = 100.0 * total / len(names)
            result[f"{prefix}total"] = len(names)
    if null_scores is not None:
        for name, scores in (("exact", exact), ("f1", f1)):
            best, at = best_threshold(scores, predictions, null_scores, answerable)
            result[f"best_{name}"], result[f"best_{name}_thresh"] = best, at
    return result


def raw_scores(
    gold: Gold, predictions: Mapping[str, str], *, unanswerable: bool
) -> tuple[dict[str, float], dict[str, float]]:
    """Returns the exact score and the F1 of each question, from 0 to 1, by id.

    Each is the maximum over the correct answers (see `evaluate_v1` for the arguments).
    In SQuAD 2.0 (`unanswerable`), answers without words are ignored, and a question
    with no other answer has the answer "". Raises `DataError` if there is nothing to
    score.
    """
    exact, f1 = {}, {}
    for name, answers in gold.items():
        prediction = predictions.get(name)
        if unanswerable:
            if name not in predictions:
                continue
            answers = [text for text in answers if normalize_answer(text)] or [""]
        need = (
            f"question {name!r}: expected a correct answer, received none, which only "
            "SQuAD 2.0 allows"
        )
        require(answers, need, error=DataError)
        exact[name], f1[name] = 0, 0.0
        if prediction is not None:
            exact[name] = max(exact_score(text, prediction) for text in answers)
            both_empty = float(unanswerable)
            f1[name] = max(f1_score(text, prediction, both_empty) for text in answers)
    message = "expected predictions for the questions, received none"
    require(exact, message, error=DataError)
    return exact, f1


def best_threshold(
    scores: Mapping[str, float],
    predictions: Mapping[str, str],
    null_scores: Mapping[str, float],
    answerable: Mapping[str, bool],
) -> tuple[float, float]:
    """Searches the threshold with the best score (`find_best_thresh`).

    The search starts with no question answered, at the threshold 0, and answers them in
    the order of their null scores. The official search may cut between questions of
    equal null score, which no threshold can.

    Args:
        scores: Score of each answer if it is given, by id.
        answerable: Whether each question has an answer, by id.

    Returns:
        The best score in percent, and the highest null score that is still answered.
    """
    current = best = sum(not value for value in answerable.values())
    at = 0.0
    for name in sorted(null_scores, key=null_scores.__getitem__):
        if name not in scores:
            continue
        current += _gain(name, scores, predictions, answerable)
        if current > best:
            best, at = current, null_scores[name]
    return 100.0 * best / len(scores), at


def calibrate_threshold(
    gold: Gold, predictions: Mapping[str, str], null_scores: Mapping[str, float]
) -> float:
    """Returns the null score up to which questions should be answered.

    Use it on questions that are neither trained on nor reported: the best threshold of
    the reported questions themselves is optimistic. The result is the middle between
    the highest null score that is answered and the lowest that is not; questions of
    equal null score are never separated. Raises `DataError` if no question has a
    prediction and a null score.

    Args:
        predictions: The best answer to each question, by id, regardless of its null
            score.
    """
    gold = {n: a for n, a in gold.items() if n in predictions and n in null_scores}
    message = "expected questions to choose the threshold on, received none"
    require(gold, message, error=DataError)
    _, scores = raw_scores(gold, predictions, unanswerable=True)
    answerable = {name: bool(gold[name]) for name in scores}
    order = sorted(scores, key=null_scores.__getitem__)
    values = [float(null_scores[name]) for name in order]
    gains = [_gain(name, scores, predictions, answerable) for name in order]
    totals = np.append(0.0, np.cumsum(gains))
    totals[1:-1][np.diff(values) == 0] = -np.inf
    cut = int(totals.argmax())
    if cut == 0:
        return math.nextafter(values[0], -math.inf)
    if cut == len(order):
        return values[-1]
    middle = values[cut - 1] + (values[cut] - values[cut - 1]) / 2
    return middle if middle < values[cut] else values[cut - 1]


def _sum(scores: Iterable[float]) -> float:
    """Sums one by one; since Python 3.12, `sum` compensates rounding errors."""
    total = 0.0
    for score in scores:
        total += score
    return total


def _gain(name, scores, predictions, answerable) -> float:
    """Returns the change of the total score if a question is answered."""
    if answerable[name]:
        return scores[name]
    return -1 if predictions[name] else 0
