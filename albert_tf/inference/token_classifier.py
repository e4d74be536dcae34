"""Finds entities in texts, or tags their words."""

import itertools
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np

from albert_tf.heads import TAGS, answering
from albert_tf.inference import predictor
from albert_tf.tasks import tag_schemes
from albert_tf.tasks.tagging_files import TaggedExamples
from albert_tf.tasks.tagging_metrics import entities

_NOT_SPACE = re.compile(r"\S+")


class TokenClassifier(predictor.Predictor):
    """Tags words, and joins the words of entities.

    A text is split into words at white space; punctuation at the start or the end of a
    word is a word of its own (`"Bonn."` is `Bonn` and `.`, `"U.S.-based"` is one word),
    as in most data that models are fine-tuned on. Every word gets the tag of its first
    token. Texts that are too long for a row continue in another one.

    Args:
        model: `AlbertTokenClassifier`.
        tokenizer: `Tokenizer`.
        **kwargs: `max_seq_length` (default: as in fine-tuning) and `batch_size`.

    Example:
        >>> find = TokenClassifier.from_pretrained("my_ner_model")
        >>> find("Anna Seghers lived in Mainz.")
        [{'entity': 'PER', 'score': 0.9, 'word': 'Anna Seghers', 'start': 0, 'end': 12},
         {'entity': 'LOC', 'score': 0.9, 'word': 'Mainz', 'start': 22, 'end': 27}]
    """

    heads = answering(TAGS)

    def __call__(
        self,
        texts: str | Sequence[str] | Sequence[Sequence[str]],
        *,
        aggregate: bool = True,
        is_split_into_words: bool = False,
    ) -> list:
        """Returns the entities of texts, or the tag of every word.

        Args:
            texts: str; sequence of str, several texts; or sequence of sequences of str,
                the words of several sentences. UTF-8 bytes are accepted, too.
            aggregate: bool. Whether to join words to entities, as conlleval would, and
                to leave out words outside of them. If False, or if the model's tags
                mark no entities (parts of speech), every word has its entry.
            is_split_into_words: bool. Whether a sequence of str is the words of one
                sentence, instead of several texts.

        Returns:
            A list of dicts: `entity` (type of the entity, or tag of the word), `score`
            (probability of the tag, for entities the mean of their words), `word`,
            `start` and `end`: `text[start:end]` is the word, counted in characters.
            Where the words were given, `words[start:end]` are those of the entity. For
            several texts or sentences, a list of such lists.

        Raises:
            UsageError: If `texts` is of another type.
        """
        if isinstance(texts, str | bytes):
            return self._tag(predictor.as_unicode("texts", texts), None, aggregate)[0]
        predictor.check_list("texts", texts)
        texts = list(texts)
        if is_split_into_words and all(isinstance(t, str | bytes) for t in texts):
            words = predictor.as_unicode("texts", texts)
            return self._tag(None, [words], aggregate)[0]
        if not is_split_into_words and any(isinstance(t, str | bytes) for t in texts):
            return self._tag(predictor.as_unicode("texts", texts), None, aggregate)
        sentences = []
        for i, row in enumerate(texts):
            predictor.check_list(f"texts[{i}]", row)
            sentences.append(predictor.as_unicode(f"texts[{i}]", row))
        return self._tag(None, sentences, aggregate)

    def _tag(
        self,
        texts: list[str] | None,
        sentences: list[list[str]] | None,
        aggregate: bool,
    ) -> list[list[dict[str, Any]]]:
        """Returns the entries of texts, or of sentences of words."""
        if texts is not None:
            spans = [split_words(text) for text in texts]
            sentences = [
                [text[a:b] for a, b in row]
                for text, row in zip(texts, spans, strict=True)
            ]
        else:
            spans = [[(j, j + 1) for j in range(len(row))] for row in sentences]
        if not sentences:
            return []
        numbers = list(range(len(sentences)))
        answers = self.answers(
            TaggedExamples("texts", [str(i) for i in numbers], sentences, None, numbers)
        )
        join = aggregate and tag_schemes.mark_entities(self.task.labels)
        results = []
        for i, tags in enumerate(answers.tags):
            groups = [(tag, j, j) for j, tag in enumerate(tags)]
            if join:
                groups = entities(tags)
            source = sentences[i] if texts is None else texts[i]
            results.append(
                [
                    _entry(kind, spans[i][a][0], spans[i][b][1], source, scores)
                    for kind, a, b in groups
                    for scores in [answers.scores[i][a : b + 1]]
                ]
            )
        return results


def split_words(text: str) -> list[tuple[int, int]]:
    """Returns where the words of a text start and end, in characters.

    Args:
        text: str. Words are divided by white space. Punctuation and symbols before and
            after a word are words, equal ones in a row (`...`) one word.
    """
    spans = []
    for match in _NOT_SPACE.finditer(text):
        start, end = match.span()
        a, b = start, end
        while a < end and _is_mark(text[a]):
            a += 1
        while b > a and _is_mark(text[b - 1]):
            b -= 1
        spans += _runs(text, start, a)
        if a < b:
            spans.append((a, b))
        spans += _runs(text, b, end)
    return spans


def _is_mark(character: str) -> bool:
    return unicodedata.category(character)[0] in "PS"


def _runs(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Returns the spans of equal characters between two places."""
    lengths = [len(list(run)) for _, run in itertools.groupby(text[start:end])]
    ends = list(itertools.accumulate(lengths, initial=start))
    return list(itertools.pairwise(ends))


def _entry(
    kind: str, start: int, end: int, source: str | list[str], scores: np.ndarray
) -> dict[str, Any]:
    word = source[start:end]
    return {
        "entity": kind,
        "score": float(np.mean(scores)),
        "word": word if isinstance(word, str) else " ".join(word),
        "start": start,
        "end": end,
    }
