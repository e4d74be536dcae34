"""Questions about texts: the examples of question answering."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from absl import logging

from albert_tf.errors import DataError, UsageError

SKIP_HINT = "(--on_bad_input=skip leaves such questions out)"


@dataclasses.dataclass(frozen=True)
class Question:
    """A question about a text.

    Attributes:
        id: str. Its id in the file.
        text: str. The question.
        context: int. Index of the text in `Questions.contexts`.
        answers: tuple of (str, int). Correct answers, and where each starts in the
            text, in characters. Empty if the text does not answer the question, or if
            the answer is not known.
        is_impossible: bool. Whether the text does not answer the question.
        article: str. Title of the article that the text is from.
        where: str. Place in the file, for messages.
        problem: str. Why it cannot be trained on, or empty.
    """

    id: str
    text: str
    context: int
    answers: tuple[tuple[str, int], ...] = ()
    is_impossible: bool = False
    article: str = ""
    where: str = ""
    problem: str = ""


@dataclasses.dataclass(frozen=True)
class Questions:
    """Examples of question answering.

    Attributes:
        path: str. File they were read from, for messages.
        contexts: list of str. The texts, which questions share.
        items: list of `Question`.
        unanswerable: bool. Whether some questions may have no answer in their text
            (SQuAD 2.0).
        training: bool. Whether they are to be trained on, and may be left out.
        labelled: bool. Whether the correct answers are known.
    """

    path: str
    contexts: list[str]
    items: list[Question]
    unanswerable: bool = False
    training: bool = False
    labelled: bool = True

    def __len__(self) -> int:
        return len(self.items)

    @property
    def ids(self) -> list[str]:
        """The id of every question."""
        return [item.id for item in self.items]

    @property
    def labels(self) -> list[list[str]] | None:
        """The correct answers to every question, [] = it has none."""
        if not self.labelled:
            return None
        return [[text for text, _ in item.answers] for item in self.items]

    def select(self, rows: Sequence[int]) -> "Questions":
        """Returns the questions of these numbers."""
        return dataclasses.replace(self, items=[self.items[i] for i in rows])


def ask(questions: Sequence[str], contexts: Sequence[str], unanswerable: bool):
    """Returns questions to be answered, as `Questions` without labels.

    Args:
        questions: sequence of `N` str.
        contexts: sequence of `N` str. The text that each question is about.
        unanswerable: bool. Whether a question may have no answer.

    Raises:
        UsageError: If their numbers differ.
    """
    if len(questions) != len(contexts):
        raise UsageError(
            f"contexts: expected one for each of {len(questions)} questions, received "
            f"{len(contexts)}"
        )
    distinct = {text: i for i, text in enumerate(dict.fromkeys(contexts))}
    items = [
        Question(str(i), text, distinct[context], where=f"question {i}")
        for i, (text, context) in enumerate(zip(questions, contexts, strict=True))
    ]
    return Questions("questions", list(distinct), items, unanswerable, labelled=False)


def to_be_scored(questions: Questions, on_bad_input: str) -> Questions:
    """Returns training questions as questions to be answered and scored.

    One that is too long for a window can be scored, although it cannot be trained on.

    Args:
        questions: `Questions`. Others than training questions are returned as they are.
        on_bad_input: str. "stop", or "skip" to leave out the questions with a problem.

    Raises:
        DataError: If a question has a problem and `on_bad_input` is "stop", or if all
            of them have one.
    """
    if not questions.training:
        return questions
    bad = [item.problem for item in questions.items if item.problem]
    if bad and on_bad_input != "skip":
        raise DataError(f"{questions.path}: {bad[0]} {SKIP_HINT}")
    if bad:
        warn_of_skipped(questions, bad)
    kept = [i for i, item in enumerate(questions.items) if not item.problem]
    if not kept:
        raise none_usable(questions, bad)
    return dataclasses.replace(questions.select(kept), training=False)


def warn_of_skipped(questions: Questions, reasons: Sequence[str]) -> None:
    """Says how many questions are left out, and the reason for the first one."""
    logging.warning(
        "%s: left out %d of %d questions; the first: %s",
        *(questions.path, len(reasons), len(questions), reasons[0]),
    )


def none_usable(questions: Questions, reasons: Sequence[str]) -> DataError:
    """Returns the error for a file whose questions are all left out."""
    return DataError(
        f"{questions.path}: expected questions that can be used, received none "
        f"(left out: {len(reasons)})"
    )


def held_back_articles(
    questions: Questions, fraction: float, seed: int
) -> tuple[Questions, Questions]:
    """Splits training questions by article, so that no text is in both parts.

    Args:
        questions: `Questions`. To be trained on.
        fraction: float in (0, 1). Share of the questions to hold back, at least.
        seed: int. Seed of the draw of articles.

    Returns:
        The questions to train on, and those held back, which are for evaluation and
        have no problems.

    Raises:
        UsageError: If the fraction is not in (0, 1).
        DataError: If there are not two articles.
    """
    if not 0 < fraction < 1:
        raise UsageError(f"fraction must be in (0, 1), received {fraction}")
    usable = [i for i, item in enumerate(questions.items) if not item.problem]
    articles = sorted({questions.items[i].article for i in usable})
    if len(articles) < 2:
        raise DataError(
            f"{questions.path}: expected questions about at least 2 articles, so that "
            f"one can be held back to choose the threshold, received {len(articles)}"
        )
    order = np.random.default_rng(seed).permutation(len(articles)).tolist()
    counts = dict.fromkeys(articles, 0)
    for i in usable:
        counts[questions.items[i].article] += 1
    held, total = set(), 0
    for number in order[:-1]:
        if total >= fraction * len(usable):
            break
        held.add(articles[number])
        total += counts[articles[number]]
    back = [i for i in usable if questions.items[i].article in held]
    rest = sorted(set(range(len(questions))) - set(back))
    later = dataclasses.replace(questions.select(back), training=False)
    return questions.select(rest), later
