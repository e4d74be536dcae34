"""Finds entities in texts, or tags their words."""

import re
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np

from albert_tf.heads import TAGS, answering
from albert_tf.inference import predictor
from albert_tf.tasks.iob import OUTSIDE, entities, mark_entities
from albert_tf.tasks.tagging_files import TaggedExamples

_NOT_SPACE = re.compile(r"\S+")
# A word among the kinds of its characters, and a run of equal characters.
_WORD = re.compile("L(.*L)?")
_EQUAL = re.compile(r"(.)\1*", re.DOTALL)


class TokenClassifier(predictor.Predictor):
    """Tags words, and joins the words of entities.

    A text is split into words at white space; punctuation at the start or the end of a
    word is a separate word (`"Bonn."` is `Bonn` and `.`, `"U.S.-based"` is one word),
    as in most data that models are fine-tuned on. Every word gets the tag of its first
    token. Texts that are too long for a row continue in another one.

    Args:
        model: `AlbertTokenClassifier`.
        tokenizer: `Tokenizer`.
        **kwargs: `max_seq_length` (default: as in fine-tuning) and `batch_size`.

    Example:
        >>> import albert_tf
        >>> find = albert_tf.TokenClassifier.from_pretrained("my_ner_model")
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
            aggregate: bool. Whether to join words to entities, like conlleval, and to
                leave out words with the tag `O`. If the model's tags mark no entities
                (parts of speech), every other word has its own entry. If False, every
                word has one.
            is_split_into_words: bool. Whether a sequence of str is the words of one
                sentence, instead of several texts.

        Returns:
            A list of dicts: `entity` (type of the entity, or tag of the word), `score`
            (probability of the tag, for entities the mean of their words), `word`,
            `start` and `end`: `text[start:end]` is the word, counted in characters.
            If words were given, `words[start:end]` are the words of the entity. For
            several texts or sentences, a list of such lists.

        Raises:
            UsageError: If `texts` is of another type.
        """
        single = isinstance(texts, str | bytes)
        if not single:
            predictor.check_list("texts", texts)
            texts = list(texts)
        strings = [isinstance(text, str | bytes) for text in texts]
        if single or (any(strings) and not is_split_into_words):
            sources = predictor.as_unicode("texts", texts)
        elif is_split_into_words and all(strings):
            single, sources = True, [predictor.as_unicode("texts", texts)]
        else:
            sources = []
            for i, row in enumerate(texts):
                predictor.check_list(f"texts[{i}]", row)
                sources.append(predictor.as_unicode(f"texts[{i}]", row))
        tagged = self._tag(sources, aggregate) if sources else []
        return tagged[0] if single else tagged

    def _tag(self, sources: list, aggregate: bool) -> list[list[dict[str, Any]]]:
        """Returns the entries of texts, or of sentences of words."""
        spans, sentences = [], []
        for source in sources:
            if isinstance(source, str):
                spans.append(split_words(source))
                sentences.append([source[a:b] for a, b in spans[-1]])
            else:
                spans.append([(j, j + 1) for j in range(len(source))])
                sentences.append(source)
        numbers = list(range(len(sources)))
        answers = self.answers(
            TaggedExamples("texts", list(map(str, numbers)), sentences, None, numbers)
        )
        join = aggregate and mark_entities(self.task.labels)
        results = []
        for i, tags in enumerate(answers.tags):
            outside = {OUTSIDE} if aggregate else {}
            groups = [(t, j, j) for j, t in enumerate(tags) if t not in outside]
            groups = entities(tags) if join else groups
            entries = []
            for kind, first, last in groups:
                start, end = spans[i][first][0], spans[i][last][1]
                word = sources[i][start:end]
                score = np.mean(answers.scores[i][first : last + 1])
                entries.append(
                    {
                        "entity": kind,
                        "score": float(score),
                        "word": word if isinstance(word, str) else " ".join(word),
                        "start": start,
                        "end": end,
                    }
                )
            results.append(entries)
        return results


def split_words(text: str) -> list[tuple[int, int]]:
    """Returns the start and end of each word of a text, in characters.

    Words are divided by white space. Punctuation and symbols before and after a word
    are separate words; equal ones in a row (`...`) form one word.
    """
    spans = []
    for match in _NOT_SPACE.finditer(text):
        kinds = "".join(map(_kind, match[0]))
        word = _WORD.search(kinds)
        a, b = word.span() if word else (len(kinds), len(kinds))
        start, a, b = match.start(), match.start() + a, match.start() + b
        spans += [run.span() for run in _EQUAL.finditer(text, start, a)]
        spans += [(a, b)] * (a < b)
        spans += [run.span() for run in _EQUAL.finditer(text, b, match.end())]
    return spans


def _kind(character: str) -> str:
    """Returns "P" for punctuation and symbols, "L" for anything else."""
    return "P" if unicodedata.category(character)[0] in "PS" else "L"
