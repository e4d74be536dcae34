"""Questions about texts, and how SQuAD's JSON files, 1.1 and 2.0, are read.

The format is checked strictly, and more strictly for questions to train on.
"""

import collections
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from absl import logging

from albert_tf.errors import DataError, require
from albert_tf.storage import files
from albert_tf.tables.columns import BadRows, Ids, expect, shown, warn_of_skipped
from albert_tf.tables.tfds_source import TfdsRows
from albert_tf.tasks.task import FileSource


@dataclasses.dataclass(frozen=True)
class Question:
    """A question about a text.

    Attributes:
        context: Index of the text in `Questions.contexts`.
        answers: tuple of (str, int). Correct answers, and the character of the text at
            which each starts. Empty if the text does not answer the question, or if the
            answer is not known.
        is_impossible: Whether the text does not answer the question.
    """

    id: str
    text: str
    context: int
    answers: tuple[tuple[str, int], ...] = ()
    is_impossible: bool = False
    article: str = ""
    where: str = ""


@dataclasses.dataclass(frozen=True)
class Questions:
    """Examples of question answering.

    Attributes:
        contexts: The texts, which questions share.
        unanswerable: Whether some questions may have no answer in their text (SQuAD
            2.0).
    """

    path: str
    contexts: list[str]
    items: list[Question]
    unanswerable: bool = False
    training: bool = False
    labelled: bool = True
    problems = None  # see `Examples`: a file of questions has no rows

    def __len__(self) -> int:
        return len(self.items)

    @property
    def ids(self) -> list[str]:
        """The id of every question."""
        return [item.id for item in self.items]

    @property
    def labels(self) -> list[list[str]] | None:
        """The correct answers to every question, [] = there is none."""
        if not self.labelled:
            return None
        return [[text for text, _ in item.answers] for item in self.items]

    def select(self, rows: Sequence[int]) -> "Questions":
        """Returns the questions with these indices, and the texts they are about.

        Training questions keep all texts, because the digest by which a continued run
        recognizes its examples includes them.
        """
        items = [self.items[i] for i in rows]
        if self.training:
            return dataclasses.replace(self, items=items)
        used = sorted({item.context for item in items})
        new = {old: i for i, old in enumerate(used)}
        items = [dataclasses.replace(x, context=new[x.context]) for x in items]
        contexts = [self.contexts[i] for i in used]
        return dataclasses.replace(self, contexts=contexts, items=items)


def ask(questions: Sequence[str], contexts: Sequence[str], unanswerable: bool):
    """Returns questions to be answered, as `Questions` without labels.

    `contexts` holds the text of each question; if `unanswerable`, there may be no
    answer.
    """
    distinct = {text: i for i, text in enumerate(dict.fromkeys(contexts))}
    items = [
        Question(str(i), text, distinct[context], where=f"question {i}")
        for i, (text, context) in enumerate(zip(questions, contexts, strict=True))
    ]
    return Questions("questions", list(distinct), items, unanswerable, labelled=False)


def held_back_articles(
    questions: Questions, fraction: float, seed: int
) -> tuple[Questions, Questions]:
    """Splits training questions by article, so that no text is in both parts.

    The second part, which is for evaluation, has at least `fraction` of the questions.
    They must be about at least two articles.
    """
    counts = collections.Counter(item.article for item in questions.items)
    articles = sorted(counts)
    held, total = set(), 0
    for i in np.random.default_rng(seed).permutation(len(articles)).tolist()[:-1]:
        if total >= fraction * len(questions):
            break
        held.add(articles[i])
        total += counts[articles[i]]
    rest, back = [], []
    for i, item in enumerate(questions.items):
        (back if item.article in held else rest).append(i)
    later = dataclasses.replace(questions.select(back), training=False)
    return questions.select(rest), later


class _Reader:
    """Collects the questions of one file, taken apart level by level."""

    # An item of a level is a tuple of its place, the values from the levels above, and
    # its content.

    def __init__(self, path, unanswerable: bool, training: bool, on_bad_input: str):
        self.path = path
        self.unanswerable = unanswerable
        self.training = training
        self.bad = BadRows(on_bad_input)
        self.contexts: dict[str, int] = {}
        self.ids = Ids()

    def questions(self, rows: Iterable[tuple], *levels: Callable) -> Questions:
        """Returns the questions in the rows of the first level."""
        why = "questions that cannot be used"
        for level in (*levels, self._question):
            made = self.bad.usable(why, rows, level, self._place)
            rows = itertools.chain.from_iterable(made)
        items = list(rows)
        warn_of_skipped(self.path, self.bad.counts, self.bad.first)
        first = f"; the first one: {self.bad.first}" if self.bad.first else ""
        message = f"{self.path}: expected questions, received none{first}"
        require(items, message, error=DataError)
        labelled = any(item.answers or item.is_impossible for item in items)
        if labelled and not self.training:
            items = self._scored(items)
        kind = (self.unanswerable, self.training, labelled or self.training)
        return Questions(self.path, list(self.contexts), items, *kind)

    def paragraphs(self, row: tuple[str, int, Any]) -> list[tuple]:
        """Returns the paragraphs of an article."""
        where, number, article = row
        parts = _field(article, "paragraphs", list)
        title = article.get("title")
        title = title if title and isinstance(title, str) else f"article {number}"
        return [(f"{where}.paragraphs[{i}]", title, x) for i, x in enumerate(parts)]

    def asked(self, row: tuple[str, str, Any]) -> list[tuple]:
        """Returns the questions about a paragraph."""
        where, title, paragraph = row
        context = self._context(paragraph)
        parts = _field(paragraph, "qas", list)
        return [(f"{where}.qas[{i}]", title, context, x) for i, x in enumerate(parts)]

    def of_tfds(self, row: tuple[str, dict]) -> list[tuple]:
        """Returns the question in a row of TensorFlow Datasets."""
        where, content = row
        context, title = self._context(content), content.get("title")
        answers = content.get("answers")
        if isinstance(answers, dict):
            texts, starts = answers.get("text"), answers.get("answer_start")
            lists = isinstance(texts, list) and isinstance(starts, list)
            if lists and len(texts) == len(starts):
                pairs = zip(texts, starts, strict=True)
                answers = [{"text": t, "answer_start": s} for t, s in pairs]
                content = {**content, "answers": answers}
        # Without titles, the questions about one text belong together.
        title = title if isinstance(title, str) else context
        return [(where, title, context, content)]

    def _context(self, paragraph: Any) -> str:
        context = _field(paragraph, "context", str)
        self.contexts.setdefault(context, len(self.contexts))
        return context

    def _place(self, row: tuple) -> str:
        """Returns the place of an item, with the id if it is a question."""
        where, *_, content = row
        name = content.get("id") if isinstance(content, dict) else None
        shown_id = f" (id {shown(name)})" if isinstance(name, str) else ""
        return f"{self.path}: {where}{shown_id}"

    def _scored(self, items: list[Question]) -> list[Question]:
        """Returns questions to score; those without answers count as impossible."""
        for item in items:
            need = (
                f"{self.path}: {item.where} (id {shown(item.id)}): expected an "
                "answer, as every question of SQuAD 1.1 has, received none; use "
                "--task=squad2 if a text need not answer its questions"
            )
            require(item.answers or self.unanswerable, need, error=DataError)
        both = [item.where for item in items if item.answers and item.is_impossible]
        if both:
            logging.warning(
                "%s: %d questions are impossible but have answers, and are scored by "
                "their answers, as by the official script; the first is %s",
                *(self.path, len(both), both[0]),
            )
        return [dataclasses.replace(x, is_impossible=not x.answers) for x in items]

    def _question(self, row: tuple[str, str, str, Any]) -> list[Question]:
        where, title, context, qa = row
        name = _field(qa, "id", str)
        self.ids.add(name, where)
        text = _field(qa, "question", str)
        impossible = _field(qa, "is_impossible", bool, False)
        listed = []
        if "answers" in qa or self.training:
            listed = _field(qa, "answers", list)
        answers = tuple(
            tuple(
                _field(answer, key, kind, of=f"answers[{i}]")
                for key, kind in (("text", str), ("answer_start", int))
            )
            for i, answer in enumerate(listed)
        )
        if self.training:
            self._check(context, answers, impossible)
        about = (text, self.contexts[context], answers, impossible, title)
        return [Question(name, *about, where)]

    def _check(self, context: str, answers, impossible: bool) -> None:
        """Raises a `DataError` if a question cannot be trained on."""
        if impossible and not self.unanswerable:
            raise DataError(
                "expected an answer, as every question of SQuAD 1.1 has, received "
                "is_impossible=true; use --task=squad2"
            )
        if impossible and answers:
            text = shown(answers[0][0])
            raise DataError(f"is_impossible, but has the answer {text}")
        if impossible:
            return
        message = "expected exactly one answer in training"
        require(len(answers) == 1, message, len(answers), error=DataError)
        text, start = answers[0]
        require(text.strip(), "expected an answer with text", text, error=DataError)
        if not 0 <= start <= len(context) or not context.startswith(text, start):
            there = context[start : start + len(text)] if start >= 0 else ""
            raise DataError(
                f"answer_start {start}: expected the answer {shown(text)} there, "
                f"received {shown(there)}"
            )


def _field(content: Any, name: str, kind: type, default: Any = None, of: str = ""):
    """Returns a field of an object, after checking the types of both."""
    value = expect(content, dict, of).get(name, default)
    return expect(value, kind, f"{of}.{name}" if of else name)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadSource(FileSource):
    """A file in SQuAD's format."""

    unanswerable: bool
    training: bool = False

    def read(self, folder: str = "") -> Questions:
        """Returns the questions in a folder, or in a `.json` file given instead."""
        is_file = folder.endswith(".json")
        return self.read_file(folder) if is_file else super().read(folder)

    def read_file(self, path: str) -> Questions:
        """Returns the questions of a file.

        To be trained on, each needs exactly one answer, at its place in the text, or
        must be impossible. Raises `DataError` if the file is not in this format.
        """
        articles = files.read_json(path).get("data")
        if not isinstance(articles, list):
            problem = f"{path}: not a SQuAD file: expected a list named data"
            raise DataError(f"{problem}, received {shown(articles)}")
        reader = self._reader(path)
        rows = ((f"data[{i}]", i, article) for i, article in enumerate(articles))
        return reader.questions(rows, reader.paragraphs, reader.asked)

    def from_rows(self, found: TfdsRows) -> Questions:
        """Returns the questions of a set of TensorFlow Datasets, one in each row.

        A row has `id`, `context`, `question`, `answers` (an object with the lists
        `text` and `answer_start`), and perhaps `title`, `is_impossible`.
        """
        reader = self._reader(found.name)
        rows = ((f"row {i}", row) for i, row in enumerate(found.rows))
        return reader.questions(rows, reader.of_tfds)

    def _reader(self, name: str) -> _Reader:
        return _Reader(name, self.unanswerable, self.training, self.on_bad_input)
