"""Questions about texts, and how SQuAD's JSON files, 1.1 and 2.0, are read.

What a file must look like is checked strictly. Of training questions, one that cannot
be used is kept with the reason in `Question.problem`, so that `--on_bad_input` can
decide later; a file with questions to be answered must be right in all of them.
"""

import collections
import dataclasses
import json
import os
from collections.abc import Sequence

import numpy as np
from absl import logging

from albert_tf.errors import DataError, require
from albert_tf.storage import files
from albert_tf.tables.tfds_source import TfdsRows
from albert_tf.tasks.task import FileSource

_KINDS = {
    str: "a string",
    int: "a whole number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


@dataclasses.dataclass(frozen=True)
class Question:
    """A question about a text.

    Attributes:
        id: str. Its id in the file.
        text: str. The question.
        context: int. Index of the text in `Questions.contexts`; -1 without one.
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
        """Returns the questions of these indices, with the texts they are about.

        Training questions keep all texts: the digests by which a run that continues
        knows its examples cover them.
        """
        items = [self.items[i] for i in rows]
        if self.training:
            return dataclasses.replace(self, items=items)
        used = sorted({item.context for item in items} - {-1})
        new = {-1: -1} | {old: i for i, old in enumerate(used)}
        items = [dataclasses.replace(x, context=new[x.context]) for x in items]
        contexts = [self.contexts[i] for i in used]
        return dataclasses.replace(self, contexts=contexts, items=items)


def ask(questions: Sequence[str], contexts: Sequence[str], unanswerable: bool):
    """Returns questions to be answered, as `Questions` without labels.

    Args:
        questions: sequence of `N` str.
        contexts: sequence of `N` str. The text that each question is about.
        unanswerable: bool. Whether a question may have no answer.
    """
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
    problems = [item.problem for item in questions.items if item.problem]
    leave_out(questions, problems, on_bad_input)
    kept = [i for i, item in enumerate(questions.items) if not item.problem]
    return dataclasses.replace(questions.select(kept), training=False)


def leave_out(questions: Questions, reasons: Sequence[str], on_bad_input: str) -> None:
    """Logs how many questions are left out, with the reason for the first one.

    Args:
        questions: `Questions`. All of them.
        reasons: sequence of str. Why each that is left out cannot be used.
        on_bad_input: str. "stop" or "skip".

    Raises:
        DataError: If there are such questions and `on_bad_input` is "stop", or if no
            others are left.
    """
    path = questions.path
    if reasons and on_bad_input != "skip":
        hint = "(--on_bad_input=skip leaves such questions out)"
        raise DataError(f"{path}: {reasons[0]} {hint}")
    if reasons:
        logging.warning(
            "%s: left out %d of %d questions; the first: %s",
            *(path, len(reasons), len(questions), reasons[0]),
        )
    require(
        len(reasons) < len(questions),
        f"{path}: expected questions that can be used, received none "
        f"(left out: {len(reasons)})",
        error=DataError,
    )


def held_back_articles(
    questions: Questions, fraction: float, seed: int
) -> tuple[Questions, Questions]:
    """Splits training questions by article, so that no text is in both parts.

    Args:
        questions: `Questions`. To be trained on, about two articles or more.
        fraction: float in (0, 1). Share of the questions to hold back, at least.
        seed: int. Seed of the draw of articles.

    Returns:
        The questions to train on, and those held back, which are for evaluation and
        have no problems.
    """
    usable = [i for i, item in enumerate(questions.items) if not item.problem]
    counts = collections.Counter(questions.items[i].article for i in usable)
    articles = sorted(counts)
    held, total = set(), 0
    for i in np.random.default_rng(seed).permutation(len(articles)).tolist()[:-1]:
        if total >= fraction * len(usable):
            break
        held.add(articles[i])
        total += counts[articles[i]]
    back = [i for i in usable if questions.items[i].article in held]
    rest = sorted(set(range(len(questions))) - set(back))
    later = dataclasses.replace(questions.select(back), training=False)
    return questions.select(rest), later


class _ProblemError(ValueError):
    """Something in a file is not as it must be; the message says where and what."""


def read_questions(
    path: str | os.PathLike, *, unanswerable: bool, training: bool = False
) -> Questions:
    """Reads a file in SQuAD's format.

    Args:
        path: str. JSON file, local or remote.
        unanswerable: bool. Whether questions may have no answer (SQuAD 2.0).
        training: bool. Whether the questions are to be trained on: then each needs
            exactly one answer, at its place in the text, or must be impossible.

    Raises:
        DataError: If the file is not in this format. For questions that are to be
            trained on, `Question.problem` says so instead.
    """
    path = os.fspath(path)
    content = files.read_json(path)
    reader = _Reader(path, unanswerable, training)
    if not isinstance(articles := content.get("data"), list):
        raise DataError(
            f"{path}: not a SQuAD file: expected a list named data, received "
            f"{_shown(articles)}"
        )
    for i, article in enumerate(articles):
        with_title = isinstance(article, dict) and article.get("title")
        title = with_title if isinstance(with_title, str) else f"article {i}"
        reader.add_article(article, title, f"data[{i}]")
    return reader.questions()


class _Reader:
    """Collects the questions of one file."""

    def __init__(self, path: str, unanswerable: bool, training: bool):
        self.path = path
        self.unanswerable = unanswerable
        self.training = training
        self.contexts: dict[str, int] = {}
        self.items: list[Question] = []
        self.seen: dict[str, str] = {}

    def add_article(self, article, title: str, where: str, is_row: bool = False):
        """Reads the questions of an article, or of a row that holds only one."""
        try:
            paragraphs = _field(article, "paragraphs", list, where)
        except _ProblemError as e:
            self._refuse(e, where, title)
            return
        for i, paragraph in enumerate(paragraphs):
            place = where if is_row else f"{where}.paragraphs[{i}]"
            try:
                context = _field(paragraph, "context", str, place)
                asked = _field(paragraph, "qas", list, place)
            except _ProblemError as e:
                self._refuse(e, place, title)
                continue
            self.contexts.setdefault(context, len(self.contexts))
            for j, qa in enumerate(asked):
                self._add(qa, context, title, place if is_row else f"{place}.qas[{j}]")

    def questions(self) -> Questions:
        """Returns all questions read."""
        items = self.items
        require(
            items, f"{self.path}: expected questions, received none", error=DataError
        )
        known = any(item.answers or item.is_impossible for item in items)
        if known and not self.training:
            items = self._scored()
        kind = (self.unanswerable, self.training, known or self.training)
        return Questions(self.path, list(self.contexts), items, *kind)

    def _scored(self) -> list[Question]:
        """Returns questions that count as impossible if they have no answers."""
        for item in self.items:
            require(
                item.answers or self.unanswerable,
                f"{self.path}: {item.where} (id {_shown(item.id)}): expected an "
                "answer, as every question of SQuAD 1.1 has, received none; use "
                "--task=squad2 if a text need not answer its questions",
                error=DataError,
            )
        both = [
            item.where for item in self.items if item.answers and item.is_impossible
        ]
        if both:
            logging.warning(
                "%s: %d questions are impossible but have answers, and are scored by "
                "their answers, as by the official script; the first is %s",
                *(self.path, len(both), both[0]),
            )
        return [dataclasses.replace(x, is_impossible=not x.answers) for x in self.items]

    def _refuse(self, reason: Exception, where: str, title: str, name: str = ""):
        """Notes what cannot be trained on; raises an error for what is answered."""
        if not self.training:
            raise DataError(f"{self.path}: {reason}")
        self.items.append(
            Question(name, "", -1, article=title, where=where, problem=str(reason))
        )

    def _add(self, qa, context: str, title: str, place: str) -> None:
        name, where = "", place
        try:
            name = _field(qa, "id", str, place)
            where = f"{place} (id {_shown(name)})"
            if name in self.seen:
                raise _ProblemError(
                    f"{where}: the id was used before, at {self.seen[name]}"
                )
            self.seen[name] = place
            text = _field(qa, "question", str, where)
            impossible = _field(qa, "is_impossible", bool, where, False)
            answers = self._answers(qa, where)
        except _ProblemError as e:
            self._refuse(e, where, title, name)
            return
        problem = self.training and self._problem(context, answers, impossible)
        problem = f"{where}: {problem}" if problem else ""
        about = (text, self.contexts[context], answers, impossible, title)
        self.items.append(Question(name, *about, place, problem))

    def _answers(self, qa: dict, where: str) -> tuple[tuple[str, int], ...]:
        if "answers" not in qa and not self.training:
            return ()
        found = []
        for k, answer in enumerate(_field(qa, "answers", list, where)):
            place = f"{where}: answers[{k}]"
            text = _field(answer, "text", str, place)
            found.append((text, _field(answer, "answer_start", int, place)))
        return tuple(found)

    def _problem(self, context: str, answers, impossible: bool) -> str:
        """Returns why a question cannot be trained on, or an empty string."""
        if impossible and not self.unanswerable:
            return (
                "expected an answer, as every question of SQuAD 1.1 has, received "
                "is_impossible=true; use --task=squad2"
            )
        if impossible and answers:
            return f"is_impossible, but has the answer {_shown(answers[0][0])}"
        if impossible:
            return ""
        if len(answers) != 1:
            return f"expected exactly one answer in training, received {len(answers)}"
        text, start = answers[0]
        if not text.strip():
            return f"expected an answer with text, received {_shown(text)}"
        if not 0 <= start <= len(context) or not context.startswith(text, start):
            there = context[start : start + len(text)] if start >= 0 else ""
            return (
                f"answer_start {start}: expected the answer {_shown(text)} there, "
                f"received {_shown(there)}"
            )
        return ""


def _field(content, name: str, kind: type, where: str, default=None):
    """Returns a field of an object, if both are of the right kind."""
    expected = f"{where}: expected {_KINDS[kind]} named {name}, found none"
    _check(content, dict, where)
    value = content.get(name, default)
    require(name in content or default is not None, expected, error=_ProblemError)
    _check(value, kind, f"{where}: {name}")
    return value


def _check(value, kind: type, where: str) -> None:
    # `isinstance` would take true for a number.
    if type(value) is not kind:
        expected = f"{where}: expected {_KINDS[kind]}"
        raise _ProblemError(f"{expected}, received {_shown(value)}")


def _shown(value) -> str:
    """Returns a value in a message: on one line, not too long."""
    if isinstance(value, dict | list):
        return f"{_KINDS[type(value)]} of {len(value)}"
    text = json.dumps(value[:61] if isinstance(value, str) else value, default=str)
    return text if len(text) <= 64 else f"{text[:60]}..."


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadSource(FileSource):
    """A file in SQuAD's format; `on_bad_input` counts when questions become rows.

    Attributes:
        unanswerable: bool. Whether questions may have no answer (SQuAD 2.0).
        training: bool. Whether the questions are to be trained on.
    """

    unanswerable: bool
    training: bool = False

    def read(self, folder: str = "") -> Questions:
        """Returns the questions in a folder, or in a `.json` file given instead."""
        is_file = folder.endswith(".json")
        return self.read_file(folder) if is_file else super().read(folder)

    def read_file(self, path: str) -> Questions:
        """Returns the questions of any file in this format."""
        return read_questions(
            path, unanswerable=self.unanswerable, training=self.training
        )

    def from_rows(self, found: TfdsRows) -> Questions:
        """Returns the questions of a set of TensorFlow Datasets, one in each row.

        A row has `id`, `context`, `question`, `answers` (an object with the lists
        `text` and `answer_start`), and perhaps `title`, `is_impossible`.
        """
        reader = _Reader(found.name, self.unanswerable, self.training)
        for i, row in enumerate(found.rows):
            answers = row.get("answers")
            if isinstance(answers, dict):
                texts, starts = answers.get("text"), answers.get("answer_start")
                lists = isinstance(texts, list) and isinstance(starts, list)
                if lists and len(texts) == len(starts):
                    pairs = zip(texts, starts, strict=True)
                    answers = [{"text": t, "answer_start": s} for t, s in pairs]
                    row = {**row, "answers": answers}
            title = row.get("title")
            article = {"paragraphs": [{"context": row.get("context"), "qas": [row]}]}
            # Without titles, the questions about one text belong together.
            if not isinstance(title, str):
                title = str(row.get("context"))
            reader.add_article(article, title, f"row {i}", is_row=True)
        return reader.questions()
