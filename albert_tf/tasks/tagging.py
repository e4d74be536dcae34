"""Tagging of words: CoNLL-2003, WNUT17 and the user's own sentences.

Legend: `N` sentences, `R` rows, `P` words of all sentences, `C` tags.

The model predicts a word's tag at the word's first token. Every word is tokenized
separately, as if it followed another word, and every word gets a tag: a word without
tokens is read as `<unk>`, and a sentence that is too long continues in another row.
"""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from absl import logging

from albert_tf import features
from albert_tf.errors import DataError, require
from albert_tf.tables import class_ids
from albert_tf.tasks import iob, metrics
from albert_tf.tasks.tagging_files import ConllSource, TaggedExamples, TaggedSource
from albert_tf.tasks.task import (
    LONGEST_TEXT,
    MOST_ERRORS,
    EncodedExamples,
    FileSource,
    Task,
)
from albert_tf.text import inputs
from albert_tf.text.tokenizer import Tokenizer

# More tags than this are rarely intended: often the wrong column was named.
_MANY_TAGS = 300


@dataclasses.dataclass(frozen=True)
class TaggingAnswers:
    """Tags for the words of `N` sentences.

    Attributes:
        scores: list of float arrays. Probability of each predicted tag.
    """

    tags: list[list[str]]
    scores: list[np.ndarray]


class TaggingTask(Task):
    """The family of tagging tasks; see `task.Task`."""

    def encode(self, examples, tokenizer) -> EncodedExamples:
        """Returns rows `[CLS] words [SEP]`; see `task.Task` and `encode_words`.

        Raises `UsageError` if the length leaves no room for text, and `DataError` if a
        tag is not one of the task's.
        """
        inputs.check_max_seq_length(self.options.max_seq_length, pairs=False)
        encoded = encode_words(examples.tokens, tokenizer, self.options.max_seq_length)
        if examples.labels is None:
            return encoded
        targets = {features.LABELS: _label_ids(self, examples)}
        return dataclasses.replace(encoded, targets=targets)

    def answers(self, examples, encoded, outputs) -> TaggingAnswers:
        """Returns a tag for every word; rows of one sentence are joined."""
        probabilities = metrics.softmax(np.asarray(outputs["logits"], np.float32))
        best = probabilities.argmax(-1)
        scores = np.take_along_axis(probabilities, best[:, None], -1)[:, 0]
        ends = np.cumsum([len(sentence) for sentence in examples.tokens])
        return TaggingAnswers(
            [[self.labels[i] for i in row] for row in np.split(best, ends[:-1])],
            np.split(scores, ends[:-1]),
        )

    def compare(self, examples, answers) -> dict[str, float]:
        """Returns the task's metrics, `f1_surface`, and `majority_accuracy`.

        `f1_surface` is the F1 of distinct entities; `majority_accuracy` is the accuracy
        of words if all had the most frequent tag, which for entities is `O`.
        """
        predicted = iob.in_iob2(answers.tags, self.labels)
        values = dict(self.metrics(examples.labels, predicted))
        if iob.mark_entities(self.labels):
            values["f1_surface"] = iob.surface_f1(
                examples.tokens, examples.labels, predicted
            )
        counts = Counter(iob.flat(examples.labels))
        values["majority_accuracy"] = max(counts.values()) / counts.total()
        return values

    def metric_names(self, examples) -> list[str]:
        """Returns the names of the metrics that can select a model."""
        tags = [list(self.labels)]
        marked = iob.mark_entities(self.labels)
        return [*self.metrics(tags, tags), *(["f1_surface"] if marked else [])]

    def strata(self, examples) -> list[tuple[int, list]]:
        """Returns the index of each sentence with the tags that occur in it."""
        return [(i, sorted({*tags})) for i, tags in enumerate(examples.labels)]

    def collapse(self, examples, answers) -> str:
        """Returns a message describing signs of collapse; see `task.Task`."""
        if examples.labels is None:
            return ""
        predicted = set(iob.flat(answers.tags))
        correct = set(iob.flat(examples.labels))
        if len(predicted) == 1 and len(correct) > 1:
            return f"the model gives every word the tag {predicted.pop()}"
        return ""

    def rows(self, examples, answers) -> list[dict]:
        """Returns the words and tags of each sentence."""
        correct = examples.labels or []
        rows = zip(examples.ids, examples.tokens, answers.tags, strict=True)
        rows = [{"id": i, "tokens": w, "prediction": t} for i, w, t in rows]
        for row, tags in zip(rows, correct, strict=False):
            row["label"] = tags
        return rows

    def cells(self, examples, answers) -> list[list[str]]:
        """Returns CoNLL's columns, as read by conlleval; an empty row ends a sentence.

        The columns are the word, its correct tag if known, and the predicted tag.
        """
        correct = [examples.labels] if examples.labels is not None else []
        rows = []
        for words, *tags in zip(examples.tokens, *correct, answers.tags, strict=True):
            words = (" ".join(word.split()) for word in words)
            rows += [*map(list, zip(words, *tags, strict=True)), []]
        return rows

    def report(self, examples, answers, encoded) -> dict:
        """Returns the content of a report; see `task.Task`.

        The confusion matrix and the calibration are about words, `per_class` is about
        types of entities.
        """
        if examples.labels is None:
            return {}
        tags = iob.in_iob2(answers.tags, self.labels)
        answers = dataclasses.replace(answers, tags=tags)
        correct = iob.flat(examples.labels)
        predicted = iob.flat(answers.tags)
        labels = list(dict.fromkeys([*self.labels, *correct, *predicted]))
        index = {label: i for i, label in enumerate(labels)}
        cells = [[index[tag] for tag in tags] for tags in (correct, predicted)]
        scores = np.concatenate(answers.scores).tolist()
        content = {
            "labels": labels,
            "confusion": metrics.confusion(*cells, len(index)),
            "calibration": [
                [score, int(a == b)]
                for score, a, b in zip(scores, correct, predicted, strict=True)
            ],
            "errors": _errors(self, examples, answers, encoded.truncated),
        }
        if iob.mark_entities(self.labels):
            content["per_class"] = iob.per_type(examples.labels, answers.tags)
        return content


def tagging_task(
    name: str,
    labels: Sequence[str] = (),
    splits: Mapping[str, FileSource] | None = None,
) -> Task:
    """Returns a task of tagging words, with the tags of the training data by default.

    Entities are scored by seqeval, and their F1 selects a model; tags that mark no
    entities are scored word by word, and accuracy selects.
    """
    names = iob.standard_names(labels)
    labels = [names.get(label, label) for label in labels]
    marked = not labels or iob.mark_entities(labels)
    words, entities = iob.word_metrics, iob.entity_metrics
    return TaggingTask(
        name=name,
        head="token_classifier",
        metrics=entities if marked else words,
        selecting_metric="f1" if marked else "accuracy",
        splits=splits or {},
        labels=tuple(labels),
    )


def with_labels(
    task: Task,
    train: TaggedExamples,
    others: Sequence[TaggedExamples] = (),
    many_labels: bool = False,
) -> Task:
    """Returns the task with the tags of its data, unless it has tags.

    The tags are sorted, `O` first. Tags that occur only in other splits are added, with
    a warning, because the model cannot learn to predict them. Raises `DataError` if
    there is only one tag, or the tags are class ids, and `UsageError` if there are more
    than 300 without `many_labels`, or if some of the task's tags mark entities and
    others are of another form.
    """
    if task.labels:
        odd = iob.of_no_scheme(task.labels)
        message = "labels: expected only O, B-type and I-type, as other labels are"
        require(not odd, message, *odd[:1])
        return task
    used = set(iob.flat(train.labels))
    if class_ids.are_ids(used):
        ids = ", ".join(sorted(used, key=int))
        raise DataError(
            f"{train.path}: the tags are class ids, {ids:.60}, without names; give the "
            "names in the order of the ids, as --labels=O,B-PER,I-PER or one per line "
            "in a file labels.txt next to the data"
        )
    for other in others:
        more = set(iob.flat(other.labels or [])) - used
        if more:
            names = ", ".join(sorted(more))
            logging.warning(
                "%s: the tags %s do not occur in %s", other.path, names, train.path
            )
            used |= more
    first = min(used)
    need = f"{train.path}: expected at least 2 different tags, received only {first!r}"
    require(len(used) >= 2, need, error=DataError)
    require(
        len(used) <= _MANY_TAGS or many_labels,
        f"{train.path}: expected at most {_MANY_TAGS} different tags, received "
        f"{len(used)}, such as {first!r:.80}; if they are tags, confirm with "
        "--many_labels",
    )
    labels = sorted(used, key=lambda tag: (tag != iob.OUTSIDE, tag))
    new = tagging_task(task.name, labels, task.splits)
    if not iob.mark_entities(labels):
        logging.info(
            "%s: tags such as %s mark no entities (B-type, I-type): words are scored, "
            "and %s selects the model",
            *(train.path, labels[-1], new.selecting_metric),
        )
    return dataclasses.replace(new, recipe=task.recipe, options=task.options)


def _label_ids(task: Task, examples: TaggedExamples) -> np.ndarray:
    """Returns the index of each word's tag, int32 `[P]`."""
    index = {label: i for i, label in enumerate(task.labels)}
    # The tags are in IOB2, but a model of another scheme spells some of them otherwise.
    for i, label in enumerate(task.labels if iob.mark_entities(task.labels) else ()):
        if label[0] in "ISUEL":
            index.setdefault(("I" if label[0] in "EL" else "B") + label[1:], i)
    ids = []
    for i, tags in enumerate(examples.labels):
        for j, tag in enumerate(tags):
            if tag not in index:
                names = ", ".join(task.labels[:20])
                names += ", ..." if len(task.labels) > 20 else ""
                raise DataError(
                    f"{examples.place(i, j)}: expected one of the tags {names}, "
                    f"received {tag!r:.80}"
                )
            ids.append(index[tag])
    return np.array(ids, np.int32)


def _errors(task, examples, answers, truncated) -> list[dict]:
    """Returns the sentences whose wrong words have the highest sum of probabilities."""
    ranked = []
    for i, (gold, tags) in enumerate(zip(examples.labels, answers.tags, strict=True)):
        wrong = [j for j, (a, b) in enumerate(zip(gold, tags, strict=True)) if a != b]
        if wrong:
            ranked.append((float(answers.scores[i][wrong].sum()), i))
    ranked.sort(key=lambda item: (-item[0], item[1]))
    return [
        {
            "index": i,
            "text": " ".join(examples.tokens[i])[:LONGEST_TEXT],
            "label": _in_words(task, examples.tokens[i], examples.labels[i]),
            "prediction": _in_words(task, examples.tokens[i], answers.tags[i]),
            "score": score,
            "truncated": bool(truncated[i]),
        }
        for score, i in ranked[:MOST_ERRORS]
    ]


def _in_words(task: Task, words: Sequence[str], tags: Sequence[str]) -> str:
    """Returns the entities of a sentence, or all its tags, in readable form."""
    if iob.mark_entities(task.labels):
        parts = [
            f"{kind}: {' '.join(words[start : end + 1])}"
            for kind, start, end in iob.entities(tags)
        ]
        return ("; ".join(parts) or "no entity")[:LONGEST_TEXT]
    return " ".join(tags)[:LONGEST_TEXT]


def encode_words(
    sentences: Sequence[Sequence[str]], tokenizer: Tokenizer, max_seq_length: int
) -> EncodedExamples:
    """Returns rows of words, each tokenized separately as if it followed another word.

    A word without tokens, such as a lone accent, becomes `<unk>`. A sentence that does
    not fit continues, from the next word on, in another row. Only a word that is longer
    than a row loses tokens. A sentence without words has no row. `max_seq_length`
    includes special tokens.
    """
    words = [word for row in sentences for word in row]
    sizes = [len(row) for row in sentences]
    distinct = {word: i for i, word in enumerate(dict.fromkeys(words))}
    ids, splits = tokenizer.encode_batch_flat(map(tokenizer.after_word, distinct))
    which = np.array([distinct[word] for word in words], np.int64)
    full = np.diff(splits)[which]
    begins = np.where(full > 0, splits[which], len(ids))
    ids = np.append(ids, np.int32(tokenizer.unk_id))
    kept = np.clip(full, 1, max_seq_length - 2)
    truncated = np.zeros(len(sizes), np.bool_)
    truncated[np.repeat(np.arange(len(sizes)), sizes)[full > kept]] = True
    firsts = _first_words(kept.tolist(), sizes, max_seq_length - 2)
    before = np.append(0, np.cumsum(kept))  # tokens before each word
    starts, counts = before[firsts[:-1]], np.diff(before[firsts])
    places = before[:-1] - np.repeat(starts, np.diff(firsts)) + 1
    tokens = ids[inputs.ranges(begins, kept)]
    return EncodedExamples(
        rows=inputs.join_segments(tokenizer, (tokens, starts, counts)),
        unit_splits=np.arange(len(counts) + 1, dtype=np.int64),
        targets={},
        truncated=truncated,
        place_splits=firsts,
        places=places.astype(np.int32),
    )


def _first_words(lengths: list[int], sizes: list[int], room: int) -> np.ndarray:
    """Returns the index of each row's first word, then `P`, int64 `[R + 1]`."""
    firsts, word = [], 0
    for size in sizes:
        used = room  # a sentence starts a row
        for i, length in enumerate(lengths[word : word + size], start=word):
            if used + length > room:
                firsts.append(i)
                used = 0
            used += length
        word += size
    return np.array([*firsts, word], np.int64)


def _iob2(*kinds: str) -> tuple[str, ...]:
    return ("O", *(f"{prefix}-{kind}" for kind in kinds for prefix in "BI"))


_CONLL = {"folders": ("", "conll2003", "CoNLL-2003", "conll-2003")}
_WNUT = {"folders": ("", "wnut17", "WNUT17", "emerging_entities_17")}
_TEST = ("emerging.test.annotated", "emerging.test.conll", "emerging.test")
TASKS = (
    tagging_task(
        "conll2003",
        # In the order of TensorFlow Datasets and Hugging Face.
        _iob2("PER", "ORG", "LOC", "MISC"),
        {
            "train": ConllSource(names=("eng.train", "train.txt"), **_CONLL),
            "dev": ConllSource(names=("eng.testa", "valid.txt", "dev.txt"), **_CONLL),
            "test": ConllSource(
                names=("eng.testb", "test.txt"), labelled=False, **_CONLL
            ),
        },
    ),
    tagging_task(
        "wnut17",
        _iob2("corporation", "creative-work", "group", "location", "person", "product"),
        {
            "train": TaggedSource(
                names=("wnut17train.conll", "emerging.train.conll"), **_WNUT
            ),
            "dev": TaggedSource(names=("emerging.dev.conll",), **_WNUT),
            "test": TaggedSource(names=_TEST, labelled=False, **_WNUT),
        },
    ),
)
