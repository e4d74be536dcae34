"""From a block of documents to serialized records: the unit of parallel work.

Legend: `N` examples, `S` sequence length, `P` predictions.

A block is a run of about `BLOCK_CHARS` characters of documents. How the corpus falls
into blocks and what a block becomes depend on the corpus and the settings only, never
on the number of processes. The work on a block is done with array operations over all
its tokens; only sentences and examples are looped over.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from albert_tf import features
from albert_tf.data import (
    array_ops,
    examples,
    keyed_random,
    masking,
    pairs,
    random_bits,
)
from albert_tf.data.corpus import Corpus, RawDocument, document_sentences
from albert_tf.data.keyed_random import KeyedRandom
from albert_tf.data.masking_config import MaskingConfig, VocabInfo
from albert_tf.data.pairs import PairConfig
from albert_tf.errors import UsageError

BLOCK_CHARS = 1 << 20
_MASK_ROWS = 256  # rows masked at a time
_SAMPLE_ROWS = 16  # rows of a block masked for the data card only
SPLITS = ("train", "eval")
_TOKEN_FEATURES = (
    features.TOKEN_IDS,
    features.PADDING_MASK,
    features.SEGMENT_IDS,
    features.TOKEN_BOUNDARY,
)
_MASK_FEATURES = (features.MASK_POSITIONS, features.MASK_IDS, features.MASK_WEIGHTS)


@dataclass(frozen=True)
class RecordConfig:
    """What records are made of text, whoever runs it.

    Args:
        pairs: how examples are cut.
        mask: how they are masked; with dynamic records only the card uses it.
        masking: "dynamic" (records without masks) or "static" (the original's).
        language: of the sentence splitter.
        dupe_factor: passes over each document, with other random choices each.
        eval_fraction: share of the documents kept for evaluation.
        sample_masks: whether dynamic records are masked now and then for the card.
    """

    pairs: PairConfig = field(default_factory=PairConfig)
    mask: MaskingConfig = field(default_factory=MaskingConfig)
    masking: str = "dynamic"
    language: str = "en"
    dupe_factor: int = 1
    eval_fraction: float = 0.0
    sample_masks: bool = True

    def __post_init__(self):
        if self.masking not in ("dynamic", "static"):
            raise UsageError(
                f"masking: expected 'dynamic' or 'static', got {self.masking!r}"
            )
        if self.dupe_factor < 1:
            raise UsageError(f"dupe_factor: must be positive, got {self.dupe_factor}")
        if not 0 <= self.eval_fraction < 1:
            raise UsageError(
                f"eval_fraction: must be in [0, 1), got {self.eval_fraction}"
            )

    def split(self, document: RawDocument) -> str:
        """Which split a document belongs to; a function of its key alone."""
        key = (document.source, document.number)
        rng = KeyedRandom(self.pairs.seed, keyed_random.SPLIT, *key)
        return "eval" if rng.random() < self.eval_fraction else "train"


class Records(NamedTuple):
    """What a block became in one split."""

    payloads: list[bytes]  # serialized examples
    counts: Counter  # sums for the data card
    lengths: np.ndarray  # int64 [S + 1], how many examples of each length
    longest: tuple[int, int, int]  # tokens, source, number of the longest document


class Batch(NamedTuple):
    """Examples end to end."""

    token_ids: np.ndarray  # int32 [sum of lengths]
    segment_ids: np.ndarray  # int32 [sum of lengths]
    token_boundary: np.ndarray  # int32 [sum of lengths]
    lengths: np.ndarray  # int64 [N]
    labels: np.ndarray  # int64 [N]


def source_groups(corpus: Corpus) -> list[list[int]]:
    """Groups neighbouring small files, so that blocks are not tiny.

    A group is read by one reader; blocks never cross groups.
    """
    groups: list[list[int]] = []
    room = 0
    for k, source in enumerate(corpus.sources):
        if not groups or room <= 0 or not source.size:
            groups.append([])
            room = BLOCK_CHARS if source.size else 0
        groups[-1].append(k)
        room -= source.size
    return groups


def make_blocks(documents: Iterable[RawDocument]) -> Iterator[list[RawDocument]]:
    """Cuts the documents of one group of sources into blocks."""
    block: list[RawDocument] = []
    length = 0
    for document in documents:
        block.append(document)
        length += sum(map(len, document.texts))
        if length >= BLOCK_CHARS:
            yield block
            block, length = [], 0
    if block:
        yield block


def process_block(
    block: Sequence[RawDocument], config: RecordConfig, tokenizer
) -> dict[str, Records]:
    """Turns a block into records, by split.

    Args:
        block: documents in corpus order.
        config: what to make of them.
        tokenizer: has `encode_batch_flat`, `word_start_table` and the special ids.
    """
    by_split: dict[str, list[RawDocument]] = {split: [] for split in SPLITS}
    for document in block:
        by_split[config.split(document)].append(document)
    return {
        split: _process(documents, config, tokenizer)
        for split, documents in by_split.items()
        if documents
    }


def _process(documents, config: RecordConfig, tokenizer) -> Records:
    sentences, document_splits = [], [0]
    for document in documents:
        sentences += document_sentences(document, config.language)
        document_splits.append(len(sentences))
    if not getattr(tokenizer, "collapses_white_space", True):
        # There the space before a word is part of it, and the splitter dropped it.
        first = set(document_splits)
        sentences = [s if k in first else f" {s}" for k, s in enumerate(sentences)]
    ids, sentence_splits = tokenizer.encode_batch_flat(sentences)
    keys = [(document.source, document.number) for document in documents]
    cut = pairs.make_documents(keys, sentence_splits, np.array(document_splits))
    sizes = [document.borders[-1] - document.borders[0] for document in cut]
    counts = Counter(
        documents=len(documents),
        documents_without_tokens=len(documents) - len(cut),
        sentences=len(sentences),
        characters=sum(map(len, sentences)),
        tokens=len(ids),
        unknown_tokens=int(np.count_nonzero(ids == tokenizer.unk_id)),
    )
    longest = max(zip(sizes, [d.key for d in cut], strict=True), default=(0, (0, 0)))
    if config.pairs.policy == "none":
        ids, cut = _separate(ids, cut, tokenizer.sep_id)
    word_starts = tokenizer.word_start_table()[ids]
    payloads: list[bytes] = []
    lengths = np.zeros(config.pairs.max_seq_length + 1, np.int64)
    for repeat in range(config.dupe_factor):
        plan, dropped = pairs.plan_examples(cut, config.pairs, word_starts, repeat)
        counts.update(dropped)
        if not plan:
            continue
        batch = assemble(ids, word_starts, np.array(plan), tokenizer)
        lengths += np.bincount(batch.lengths, minlength=len(lengths))
        counts["examples"] += len(plan)
        counts["output_tokens"] += len(batch.token_ids)
        counts["labels_1"] += int(batch.labels.sum())
        payloads += _serialize(batch, cut[0].key, repeat, config, tokenizer, counts)
    counts["bytes"] = sum(map(len, payloads))
    if config.masking == "static":
        payloads = _shuffled(payloads, config.pairs.seed, keys[0])
    return Records(payloads, counts, lengths, (longest[0], *longest[1]))


def _separate(ids, documents, sep_id: int):
    """Puts [SEP] after each document, as part of its last segment."""
    ends = [document.borders[-1] for document in documents]
    moved = []
    for k, document in enumerate(documents):
        borders = [border + k for border in document.borders]
        borders[-1] += 1
        moved.append(pairs.Document(document.key, borders))
    return np.insert(ids, ends, sep_id), moved


def assemble(ids, word_starts, plan: np.ndarray, tokenizer) -> Batch:
    """[CLS] A [SEP] B [SEP] of all examples of a plan, or [CLS] A [SEP].

    Args:
        ids: int `[tokens]`, the flat array the plan points into.
        word_starts: bool `[tokens]`.
        plan: int `[N, 5]`, the fields of `pairs.Example`.
        tokenizer: has `cls_id` and `sep_id`.
    """
    a_start, a_end, b_start, b_end, labels = plan.astype(np.int64).T
    a_size, b_size = a_end - a_start, b_end - b_start
    has_b = b_size > 0
    lengths = a_size + b_size + 2 + has_b
    total = int(lengths.sum())
    starts = np.cumsum(lengths) - lengths
    out = np.empty(total, np.int32)
    boundary = np.ones(total, np.int32)
    segments = np.zeros(total, np.int32)
    out[starts] = tokenizer.cls_id
    out[starts + a_size + 1] = tokenizer.sep_id
    out[starts + lengths - 1] = tokenizer.sep_id
    for first, size, place in (
        (a_start, a_size, starts + 1),
        (b_start, b_size, starts + a_size + 2),
    ):
        count = np.arange(int(size.sum()))
        before = np.cumsum(size) - size
        source = count + np.repeat(first - before, size)
        target = count + np.repeat(place - before, size)
        out[target] = ids[source]
        boundary[target] = word_starts[source]
    segments[target] = 1  # the last round was B
    segments[(starts + lengths - 1)[has_b]] = 1
    return Batch(out, segments, boundary, lengths, labels)


def _serialize(batch, key, repeat, config, tokenizer, counts) -> list[bytes]:
    """Serialized examples of a batch; masks them, or a few of them for the card."""
    seed = config.pairs.seed
    base = KeyedRandom(seed, keyed_random.EXAMPLE, *key).bits() >> 2
    numbers = base + np.arange(len(batch.lengths))
    keys = random_bits.row_keys(
        seed, np.full(len(numbers), repeat), numbers, array_ops.NUMPY
    )
    vocab = VocabInfo.from_tokenizer(tokenizer)
    if config.masking == "static":
        payloads = [b""] * len(keys)
        # Rows of like length together, so that little padding is worked on.
        order = np.argsort(batch.lengths, kind="stable")
        for first in range(0, len(keys), _MASK_ROWS):
            rows = order[first : first + _MASK_ROWS]
            made = _static(_padded(batch, rows), keys[rows], config, vocab, counts)
            for row, payload in zip(rows.tolist(), made, strict=True):
                payloads[row] = payload
        return payloads
    if config.sample_masks and repeat == 0:
        rows = np.arange(min(_SAMPLE_ROWS, len(keys)))
        padded = _padded(batch, rows)
        _count_masks(
            padded,
            masking.mask_batch(padded, keys[rows], config.mask, vocab),
            counts,
        )
    ones = np.ones(len(batch.lengths), np.int64)
    columns = {
        "input_ids": (batch.token_ids, batch.lengths),
        "segment_ids": (batch.segment_ids, batch.lengths),
        "token_boundary": (batch.token_boundary, batch.lengths),
    }
    if config.pairs.policy != "none":  # one segment has no order to be learned
        columns["next_sentence_labels"] = (batch.labels, ones)
    return examples.serialize_batch(columns)


def _padded(batch: Batch, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Some examples of a batch as int32 `[rows, longest of them]`, by batch key."""
    lengths = batch.lengths[rows]
    starts = np.cumsum(batch.lengths)[rows] - lengths
    columns = np.arange(lengths.max())
    real = columns < lengths[:, None]
    tokens = (starts[:, None] + columns)[real]
    padded = {features.PADDING_MASK: real.astype(np.int32)}
    for name, values in (
        (features.TOKEN_IDS, batch.token_ids),
        (features.SEGMENT_IDS, batch.segment_ids),
        (features.TOKEN_BOUNDARY, batch.token_boundary),
    ):
        padded[name] = np.zeros(real.shape, np.int32)
        padded[name][real] = values[tokens]
    padded[features.SENTENCE_ORDER_LABELS] = batch.labels[rows, None]
    return padded


def _static(padded, keys, config, vocab, counts) -> list[bytes]:
    """Records with the original's eight features of fixed length."""
    masked = masking.mask_batch(padded, keys, config.mask, vocab)
    _count_masks(padded, masked, counts)
    real = padded[features.PADDING_MASK] > 0
    used = masked[features.MASK_WEIGHTS] > 0
    everything = np.ones((len(keys), 1), bool)
    source = padded | {features.TOKEN_IDS: masked[features.TOKEN_IDS]}
    columns, widths = {}, {}
    for names, values, kept, width in (
        (_TOKEN_FEATURES, source, real, config.pairs.max_seq_length),
        (_MASK_FEATURES, masked, used, config.mask.max_predictions_per_seq),
        ((features.SENTENCE_ORDER_LABELS,), source, everything, 1),
    ):
        for name in names:
            record_name = features.RECORD_NAMES.get(name, name)
            columns[record_name] = values[name][kept], kept.sum(axis=1)
            widths[record_name] = width
    return examples.serialize_batch(columns, widths)


def _count_masks(padded, masked, counts: Counter) -> None:
    used = masked[features.MASK_WEIGHTS] > 0
    counts["mask_sample_tokens"] += int(padded[features.PADDING_MASK].sum())
    counts["mask_sample_masked"] += int(used.sum())
    # Pieces of one n-gram share a number; its words are the word starts among them.
    positions = masked[features.MASK_POSITIONS]
    starts = np.take_along_axis(padded[features.TOKEN_BOUNDARY], positions, axis=1)
    rows = np.arange(len(used), dtype=np.int64)[:, None]
    grams = rows * (1 << 32) + masked[features.MASK_NGRAMS]
    _, gram = np.unique(grams[used], return_inverse=True)
    words = np.maximum(np.bincount(gram, weights=starts[used]), 1).astype(int)
    for n, grams in enumerate(np.bincount(words).tolist()):
        if grams:
            counts[f"masked_ngrams_of_{n}"] += grams


def _shuffled(payloads: list[bytes], seed: int, key: tuple[int, int]) -> list[bytes]:
    """A keyed order: the original's scripts read static files front to back."""
    rng = KeyedRandom(seed, keyed_random.ORDER, *key)
    order = sorted((rng.bits(), k) for k in range(len(payloads)))
    return [payloads[k] for _, k in order]
