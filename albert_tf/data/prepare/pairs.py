"""Divides documents into training examples: segment pairs, or one segment.

Only lengths are considered. A document is the list of its segment borders in a flat
array of token ids, and an example consists of five numbers: the begin and end of A and
of B in that array, and the label. Policies with a label:

  * `clean`: consecutive text split in two, order swapped for half of the examples
    (sentence order prediction). A chunk of one segment is split at the word start
    nearest its middle if it has `MIN_SPLIT` tokens, else skipped. A last segment that
    does not fit opens the next example if 7/8 of the room is used without it; else the
    pair is truncated as in the original. Labels come in balanced pairs: of a block of
    documents, one label occurs at most once more often than the other.
  * `original`: as google-research/albert; a chunk of one segment takes B from another
    document with label 1, which makes 52-62% of the labels 1.
  * `nsp`: BERT's next sentence prediction; B is from another document half the time.

For the latter two, the other document is from the same block and split, or else one
that the caller adds. Pieces of a cut document count as one document. If no other
exists, `nsp` continues with the next text, label 0, and `original` skips the chunk.

Policies without a label (label 0, which is not recorded):

  * `none`: one segment, filled over document borders with [SEP] between documents.
  * `full_sentences`: RoBERTa's FULL-SENTENCES, as fairseq's `complete`: [SEP] after
    each sentence, and one more between documents.
  * `doc_sentences`: RoBERTa's DOC-SENTENCES (`complete_doc`): the same inside one
    document.
  * `doc`: one segment inside one document, without [SEP] in it (SpanBERT).
  * `segments`: ELECTRA's; two consecutive segments, and in a tenth of the examples one.
    Sentences are added until the length is reached, A ends near the middle, and the
    excess is cut off. In the original, a short sentence after the beginning of B may
    still go to A; here both are consecutive text.
"""

import functools
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from albert_tf import features
from albert_tf.data.masking import keyed_random
from albert_tf.data.masking.keyed_random import KeyedRandom
from albert_tf.errors import require

MIN_SPLIT = 8
MAX_SEQ_LENGTH = 1 << 16
_MIN_TARGET = 2
_MIN_SEGMENTS = 5  # shortest target of `segments`, [CLS] and [SEP] included
_ONE_SEGMENT = 0.1  # fraction of the examples of `segments` without B


class Policy(NamedTuple):
    """The form of the examples of a pair policy.

    Attributes:
        segments: int. Maximum number of segments.
        crosses: bool. Whether an example may continue in the next document.
        separated: str. The unit that ends with [SEP] inside a segment: "", "documents"
            or "sentences" (and, if examples cross documents, documents too).
        short_seq_prob: float. Default of `PairConfig`, as in the original.
        others: bool. Whether B may be from another document.
    """

    segments: int
    crosses: bool = False
    separated: str = ""
    short_seq_prob: float = 0.1
    others: bool = False


POLICIES = {
    "clean": Policy(2),
    "original": Policy(2, others=True),
    "nsp": Policy(2, others=True),
    "none": Policy(1, crosses=True, separated="documents"),
    "full_sentences": Policy(1, True, "sentences", 0.0),
    "doc_sentences": Policy(1, False, "sentences", 0.0),
    "doc": Policy(1, short_seq_prob=0.0),
    "segments": Policy(2, short_seq_prob=0.05),
}


@dataclass(frozen=True)
class PairConfig:
    """The division of documents into examples.

    Args:
        policy: str. One of `POLICIES`.
        max_seq_length: int. Maximum number of tokens per example, [CLS] and [SEP]
            included.
        short_seq_prob: float. Probability of a shorter target length; None for the
            default of the policy. Drawn for each example; with `original` and `nsp` for
            each document, as in the original.
    """

    policy: str = "clean"
    max_seq_length: int = 512
    short_seq_prob: float | None = None
    seed: int = 12345

    def __post_init__(self):
        need = f"policy: must be one of {', '.join(POLICIES)}"
        require(self.policy in POLICIES, need, self.policy)
        if self.short_seq_prob is None:
            object.__setattr__(self, "short_seq_prob", self.rules.short_seq_prob)
        fits = 8 <= self.max_seq_length <= MAX_SEQ_LENGTH
        expected = f"max_seq_length: must be from 8 to {MAX_SEQ_LENGTH}"
        require(fits, expected, self.max_seq_length)

    @property
    def rules(self) -> Policy:
        """Returns the properties of the policy."""
        return POLICIES[self.policy]

    @property
    def is_labelled(self) -> bool:
        """Returns whether an example has a label."""
        return self.policy not in features.UNLABELLED_POLICIES

    @property
    def max_tokens(self) -> int:
        """Returns the room for text: without [CLS] and one [SEP] per segment."""
        return self.max_seq_length - 1 - self.rules.segments

    def target(self, rng: KeyedRandom) -> int:
        """Draws the target number of text tokens."""
        if rng.random() < self.short_seq_prob:
            return rng.integer(_MIN_TARGET, self.max_tokens)
        return self.max_tokens


class Example(NamedTuple):
    """Borders in the flat token array; B may be empty."""

    a_start: int
    a_end: int
    b_start: int
    b_end: int
    label: int


class Document(NamedTuple):
    """One document of a block: its key (source, index) and segment borders."""

    key: tuple[int, int]
    borders: list[int]
    whole: tuple[int, int] = (0, 0)  # key of the document that it was cut from


def _balanced_labels(*key: int) -> Iterator[int]:
    """Yields labels 0 and 1 in random order within each pair."""
    rng = KeyedRandom(*key)
    while True:
        label = rng.bits() & 1
        yield label
        yield 1 - label


def make_documents(
    keys: Sequence[tuple[int, int]],
    sentence_splits: np.ndarray,
    document_splits: np.ndarray,
    wholes: Sequence[tuple[int, int]] = (),
) -> list[Document]:
    """Returns the documents of one block, without empty sentences and documents.

    Splits are offsets of tokens and of sentences. `wholes` are the keys of the
    documents that they were cut from, if any was cut.
    """
    documents = []
    for k, key in enumerate(keys):
        begin, end = document_splits[k], document_splits[k + 1]
        borders = np.unique(sentence_splits[begin : end + 1]).tolist()
        if len(borders) > 1:
            documents.append(Document(key, borders, wholes[k] if wholes else key))
    return documents


def plan_examples(
    documents: Sequence[Document],
    config: PairConfig,
    word_starts: np.ndarray,
    repeat: int = 0,
    others: Sequence[Document] = (),
) -> tuple[list[Example], Counter]:
    """Divides a block's documents into examples, in order, and counts dropped text.

    The documents are in the order of their text in the flat array, with the separators
    of the policy (see `separate`), whose positions in `word_starts` may be split.
    `others` are more documents for B if `documents` are pieces of one.
    """
    counts: Counter = Counter()
    if not documents:
        return [], counts
    if config.rules.others:
        return _plan_with_others(documents, others, config, repeat, counts), counts
    key = documents[0].key
    if config.policy == "clean":
        labels = _balanced_labels(config.seed, keyed_random.LABELS, repeat, *key)
        plan = functools.partial(_plan_clean, labels)
    else:
        plan = _plan_segments if config.rules.segments == 2 else _plan_one
    separators = _separators(documents, config.rules)
    if config.rules.crosses:
        inner = [border for document in documents for border in document.borders[1:]]
        documents = [Document(key, documents[0].borders[:1] + inner)]
    # A separator at the end of an example coincides with its final [SEP].
    room = config.max_tokens + (config.rules.separated == "sentences")
    examples: list[Example] = []
    for key, borders, _ in documents:
        rng = KeyedRandom(config.seed, keyed_random.DOCUMENT, repeat, *key)
        borders = _cut_long(borders, room, word_starts, counts)
        examples += plan(borders, config, word_starts, separators, rng, counts)
    return examples, counts


def separate(ids, documents: Sequence[Document], rules: Policy, sep_id: int):
    """Inserts [SEP] where a policy wants it inside a segment.

    The [SEP] of a sentence is part of it, the additional one between documents is a
    segment of its own, and the [SEP] of a document is part of its last segment. Returns
    the ids, int `[tokens + separators]`, and the documents with borders in them.
    """
    if not rules.separated:
        return ids, documents
    places, shifted = [], []
    for key, (start, *ends), _ in documents:
        borders = [start + len(places)]
        for end in ends:
            if rules.separated == "sentences" or end == ends[-1]:
                places.append(end)
            borders.append(end + len(places))
        if rules.separated == "sentences" and rules.crosses:
            places.append(ends[-1])
            borders.append(borders[-1] + 1)
        shifted.append(Document(key, borders))
    return np.insert(ids, places, sep_id), shifted


def _separators(documents, rules: Policy) -> set[int]:
    """Returns the borders that follow a separator."""
    if rules.separated == "sentences":
        return {border for document in documents for border in document.borders[1:]}
    return {document.borders[-1] for document in documents if rules.separated}


def _plan_clean(labels, borders, config, word_starts, separators, rng, counts):
    del separators
    last = len(borders) - 1
    i = 0
    while i < last:
        start = borders[i]
        j = min(bisect_left(borders, start + config.target(rng), i + 1), last)
        too_long = borders[j] - start > config.max_tokens and j - i > 2
        if too_long and 8 * (borders[j - 1] - start) >= 7 * config.max_tokens:
            j -= 1
        end = borders[j]
        if j - i > 1:
            middle = borders[i + rng.integer(1, j - i - 1)]
        else:
            middle = _middle(start, end, word_starts)
            name = "segments_split" if middle else "segments_skipped"
            counts[name] += 1
        if middle:
            label = next(labels)
            first, second = (start, middle), (middle, end)
            if label:
                first, second = second, first
            yield _truncate(*first, *second, label, config, rng, counts)
        else:
            counts["tokens_skipped"] += end - start
        i = j


def _plan_with_others(documents, others, config, repeat, counts):
    """Follows create_instances_from_document, of the original or of BERT."""
    examples = []
    for document in documents:
        rng = KeyedRandom(config.seed, keyed_random.DOCUMENT, repeat, *document.key)
        borders = document.borders
        last = len(borders) - 1
        target = config.target(rng)
        i = 0
        while i < last:
            start = borders[i]
            j = min(bisect_left(borders, start + target, i + 1), last)
            a_end = i + (rng.integer(1, j - i - 1) if j - i > 1 else 1)
            middle, end = borders[a_end], borders[j]
            second = pair = ()
            if j - i == 1 or (config.policy == "nsp" and rng.random() < 0.5):
                length = target - (middle - start)
                second = _from_other(document, documents, others, length, rng)
                counts["pairs_without_another_document"] += not second
            if second:
                pair = (start, middle, *second, 1)
                counts["random_documents"] += 1
                j = a_end
            elif j - i == 1:
                counts["tokens_skipped"] += end - start
            elif config.policy == "original" and rng.random() < 0.5:
                pair = (middle, end, start, middle, 1)
            else:
                pair = (start, middle, middle, end, 0)
            if pair:
                examples.append(_truncate(*pair, config, rng, counts))
            i = j
    return examples


def _from_other(document, documents, others, length, rng):
    """Returns text of another document, at least `length` tokens if possible, or ()."""
    # The first draws are as in the original, which then uses the same document.
    for _ in range(10):
        other = documents[rng.integer(0, len(documents) - 1)]
        if other.whole != document.whole:
            break
    else:
        different = [d for d in (*documents, *others) if d.whole != document.whole]
        if not different:
            return ()
        other = different[rng.integer(0, len(different) - 1)]
    borders = other.borders
    last = len(borders) - 1
    begin = rng.integer(0, last - 1)
    end = min(bisect_left(borders, borders[begin] + length, begin + 1), last)
    return borders[begin], borders[end]


def _plan_one(borders, config, word_starts, separators, rng, counts):
    """Fills examples of one segment with whole sentences."""
    del word_starts, counts
    slack = config.rules.separated == "sentences"
    last = len(borders) - 1
    i = 0
    while i < last:
        start = borders[i]
        if not slack:
            start += start + 1 in separators  # a cut can leave a separator in front
        most = start + config.target(rng)
        j = max(bisect_right(borders, most + slack, i + 1) - 1, i + 1)
        end = borders[j] - (borders[j] in separators)
        if end > most and j > i + 1:  # the last sentence was cut and has no [SEP]
            j -= 1
            end = borders[j] - (borders[j] in separators)
        if end > start:
            yield Example(start, end, end, end, 0)
        i = j


def _plan_segments(borders, config, word_starts, separators, rng, counts):
    """Follows ELECTRA's ExampleBuilder, with consecutive segments."""
    del word_starts, separators
    size = config.max_seq_length
    last = len(borders) - 1
    i = 0
    while i < last:
        start, target = borders[i], size
        if rng.random() < config.short_seq_prob:
            target = rng.integer(_MIN_SEGMENTS, size)
        j = min(bisect_left(borders, start + target, i + 1), last)
        half = (target - 3) // 2
        k = j if rng.random() < _ONE_SEGMENT else i + 1
        while k < j and (
            borders[k + 1] - start < half
            or (borders[k] - start < half and rng.random() < 0.5)
        ):
            k += 1
        middle, end = borders[k], borders[j]
        a_end = min(middle, start + size - 2)
        b_end = min(end, max(middle, middle + size - 3 - (a_end - start)))
        cut = (middle - a_end) + (end - b_end)
        counts["examples_truncated"] += cut > 0
        counts["tokens_truncated"] += cut
        yield Example(start, a_end, middle, b_end, 0)
        i = j


def _cut_long(borders, max_tokens, word_starts, counts):
    """Cuts segments longer than an example, at word starts, to half an example each."""
    if max(map(int.__sub__, borders[1:], borders)) <= max_tokens:
        return borders
    step = max_tokens // 2
    cut = borders[:1]
    for end in borders[1:]:
        while end - cut[-1] > max_tokens:
            window = word_starts[cut[-1] + 1 : cut[-1] + step + 1]
            starts = np.flatnonzero(window)
            cut.append(cut[-1] + (int(starts[-1]) + 1 if len(starts) else step))
            counts["segments_cut"] += 1
        cut.append(end)
    return cut


def _middle(start, end, word_starts):
    """Returns the word start nearest the middle of a segment; None if too short."""
    if end - start < MIN_SPLIT:
        return None
    inside = np.flatnonzero(word_starts[start + 1 : end]) + start + 1
    if not len(inside):
        return None
    return int(inside[np.argmin(np.abs(2 * inside - (start + end)))])


def _truncate(a_start, a_end, b_start, b_end, label, config, rng, counts):
    """Shortens a pair to fit, like truncate_seq_pair of the original."""
    # Tokens are removed one by one from the longer side, B on a tie, from the front or
    # the back at random.
    excess = (a_end - a_start) + (b_end - b_start) - config.max_tokens
    if excess > 0:
        counts["examples_truncated"] += 1
        counts["tokens_truncated"] += excess
        difference = (a_end - a_start) - (b_end - b_start)
        uneven = min(excess, abs(difference))
        even = excess - uneven
        drop_a = even // 2 + (uneven if difference > 0 else 0)
        drop_b = excess - drop_a
        front_a, front_b = rng.heads(drop_a), rng.heads(drop_b)
        a_start, a_end = a_start + front_a, a_end - (drop_a - front_a)
        b_start, b_end = b_start + front_b, b_end - (drop_b - front_b)
    return Example(a_start, a_end, b_start, b_end, label)
