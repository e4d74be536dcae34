"""Makes records as the original does: one process, plain Python, all in memory.

The algorithm of google-research/albert's `create_pretraining_data.py`, reimplemented: a
call of SentencePiece per line, pieces as strings, pairs from a document or, for a chunk
of one segment, from a random one, n-grams tried in random order, and a
`tf.train.Example` per record. It is the baseline of a benchmark and not used elsewhere.
"""

import random
import unicodedata
from typing import NamedTuple

import numpy as np
import sentencepiece
import tensorflow as tf

from albert_tf import features

_UNDERLINE = "▁"
_PUNCTUATION = '!"#$%&"()*+,-./:;?@[\\]^_`{|}~'
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_PLAIN = frozenset(_LETTERS + _PUNCTUATION)


class Masked(NamedTuple):
    """A masked token."""

    position: int
    label: str


class OriginalPipeline:
    """Turns text into records as the original does.

    Args:
        model: path of the SentencePiece model.
        max_seq_length: S.
        max_predictions_per_seq: P.
        dupe_factor: passes over the text.
        seed: of everything random.
        sets_for_each_piece: whether to check the start of a word like the original,
            which builds two sets of characters for the piece and their union for each
            character of it, twice per piece. Most of its time is spent there.
            Otherwise, the sets are built once.
    """

    def __init__(
        self,
        model: str,
        max_seq_length: int = 512,
        max_predictions_per_seq: int = 20,
        dupe_factor: int = 2,
        short_seq_prob: float = 0.1,
        masked_lm_prob: float = 0.15,
        seed: int = 12345,
        sets_for_each_piece: bool = True,
    ):
        self._processor = sentencepiece.SentencePieceProcessor(model_file=model)
        size = self._processor.get_piece_size()
        self._vocabulary = [self._processor.id_to_piece(i) for i in range(size)]
        self._length = max_seq_length
        self._predictions = max_predictions_per_seq
        self._dupe_factor = dupe_factor
        self._short_seq_prob = short_seq_prob
        self._masked_lm_prob = masked_lm_prob
        self._random = random.Random(seed)
        self._numpy_random = np.random.RandomState(seed)
        self._starts_word = _starts_word if sets_for_each_piece else _starts_word_quick

    def run(self, input_file: str, output_file: str) -> int:
        """Writes one record file from a file with one sentence per line.

        Returns:
            The number of tokens in the records, without padding.
        """
        documents = self._read(input_file)
        instances = [
            instance
            for _ in range(self._dupe_factor)
            for number in range(len(documents))
            for instance in self._instances(documents, number)
        ]
        self._random.shuffle(instances)
        with tf.io.TFRecordWriter(output_file) as writer:
            for instance in instances:
                writer.write(self._example(*instance).SerializeToString())
        return sum(len(instance[0]) for instance in instances)

    def _read(self, path: str) -> list[list[list[str]]]:
        documents: list[list[list[str]]] = [[]]
        with open(path, encoding="utf-8") as file:
            for line in file:
                line = line.strip()
                if not line:
                    documents.append([])
                elif pieces := self._tokenize(line):
                    documents[-1].append(pieces)
        documents = [document for document in documents if document]
        self._random.shuffle(documents)
        return documents

    def _tokenize(self, line: str) -> list[str]:
        text = unicodedata.normalize("NFKD", " ".join(line.split()))
        text = "".join(c for c in text if not unicodedata.combining(c)).lower()
        pieces = []
        for piece in self._processor.encode(text, out_type=str):
            if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit():
                number = piece[:-1].replace(_UNDERLINE, "")
                again = self._processor.encode(number, out_type=str)
                if piece[0] != _UNDERLINE and again[0][0] == _UNDERLINE:
                    again[0] = again[0][1:]
                pieces += [part for part in again if part] + [","]
            else:
                pieces.append(piece)
        return pieces

    def _target(self) -> int:
        most = self._length - 3
        if self._random.random() < self._short_seq_prob:
            return self._random.randint(2, most)
        return most

    def _instances(self, documents, number):
        document, target = documents[number], self._target()
        chunk, size, i = [], 0, 0
        while i < len(document):
            chunk.append(document[i])
            size += len(document[i])
            if i == len(document) - 1 or size >= target:
                cut = self._random.randint(1, len(chunk) - 1) if len(chunk) > 1 else 1
                first = [piece for segment in chunk[:cut] for piece in segment]
                second = [piece for segment in chunk[cut:] for piece in segment]
                swapped = 0
                if len(chunk) == 1:
                    swapped = 1
                    second = self._from_another(documents, number, target - len(first))
                    i -= len(chunk) - cut
                elif self._random.random() < 0.5:
                    swapped = 1
                    first, second = second, first
                self._truncate(first, second)
                if first and second:
                    yield self._mask(first, second, swapped)
                chunk, size = [], 0
            i += 1

    def _from_another(self, documents, number, wanted) -> list[str]:
        for _ in range(10):
            other = self._random.randint(0, len(documents) - 1)
            if other != number:
                break
        document, pieces = documents[other], []
        for segment in document[self._random.randint(0, len(document) - 1) :]:
            pieces.extend(segment)
            if len(pieces) >= wanted:
                break
        return pieces

    def _truncate(self, first: list[str], second: list[str]) -> None:
        while len(first) + len(second) > self._length - 3:
            longer = first if len(first) > len(second) else second
            if self._random.random() < 0.5:
                del longer[0]
            else:
                longer.pop()

    def _mask(self, first, second, swapped):
        """Returns one instance: tokens, segments, word starts, masked tokens, label."""
        pieces = ["[CLS]", *first, "[SEP]", *second, "[SEP]"]
        segments = [0] * (len(first) + 2) + [1] * (len(second) + 1)
        words, boundary = [], [0] * len(pieces)
        for i, piece in enumerate(pieces):
            if piece in ("[CLS]", "[SEP]"):
                boundary[i] = 1
                continue
            if words and not self._starts_word(piece):
                words[-1].append(i)
            else:
                words.append([i])
            boundary[i] = int(self._starts_word(piece))
        wanted = max(1, round(len(pieces) * self._masked_lm_prob))
        wanted = min(self._predictions, wanted)
        output, masked = list(pieces), []
        for places in self._choose(words, wanted):
            for place in places:
                masked.append(Masked(place, pieces[place]))
                output[place] = self._replacement(pieces[place])
        masked.sort()
        return output, segments, boundary, masked, swapped

    def _choose(self, words: list[list[int]], wanted: int):
        """Masks n-grams of words, in random order, until enough tokens are masked."""
        lengths = np.arange(1, 4)
        chances = 1.0 / lengths
        grams = [
            [words[start : start + n] for n in lengths if start + n <= len(words)]
            for start in range(len(words))
        ]
        self._random.shuffle(grams)
        covered: set[int] = set()
        for options in grams:
            if len(covered) >= wanted:
                break
            if any(place in covered for word in options[0] for place in word):
                continue
            chance = chances[: len(options)] / chances[: len(options)].sum()
            n = self._numpy_random.choice(lengths[: len(options)], p=chance)
            places = [place for word in options[n - 1] for place in word]
            while len(covered) + len(places) > wanted and n > 1:
                n -= 1
                places = [place for word in options[n - 1] for place in word]
            if len(covered) + len(places) > wanted:
                continue
            if any(place in covered for place in places):
                continue
            covered.update(places)
            yield places

    def _replacement(self, piece: str) -> str:
        if self._random.random() < 0.8:
            return "[MASK]"
        if self._random.random() < 0.5:
            return piece
        return self._vocabulary[self._random.randint(0, len(self._vocabulary) - 1)]

    def _example(self, pieces, segments, boundary, masked, swapped):
        ids = [self._processor.piece_to_id(piece) for piece in pieces]
        labels = [self._processor.piece_to_id(one.label) for one in masked]

        def fill(values, width):
            return list(values) + [0] * (width - len(values))

        columns = {
            features.INPUT_IDS: fill(ids, self._length),
            features.INPUT_MASK: fill([1] * len(ids), self._length),
            features.SEGMENT_IDS: fill(segments, self._length),
            features.TOKEN_BOUNDARY: fill(boundary, self._length),
            features.MASKED_LM_POSITIONS: fill(
                [m.position for m in masked], self._predictions
            ),
            features.MASKED_LM_IDS: fill(labels, self._predictions),
            features.NEXT_SENTENCE_LABELS: [swapped],
        }
        weights = fill([1.0] * len(masked), self._predictions)
        feature = {
            name: tf.train.Feature(int64_list=tf.train.Int64List(value=values))
            for name, values in columns.items()
        }
        feature[features.MASKED_LM_WEIGHTS] = tf.train.Feature(
            float_list=tf.train.FloatList(value=weights)
        )
        return tf.train.Example(features=tf.train.Features(feature=feature))


def _starts_word(piece: str) -> bool:
    special, english = set(_PUNCTUATION), set(_LETTERS)
    return (
        piece.startswith((_UNDERLINE, "<"))
        or piece in special
        or not all([c.lower() in english.union(special) for c in piece])  # noqa: C419
    )


def _starts_word_quick(piece: str) -> bool:
    if piece.startswith((_UNDERLINE, "<")):
        return True
    if len(piece) == 1 and piece in _PUNCTUATION:
        return True
    return any(character.lower() not in _PLAIN for character in piece)
