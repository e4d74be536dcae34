"""Turns blocks of documents into serialized records: the unit of parallel work.

Legend: `N` examples, `S` sequence length, `P` predictions.

A block is a sequence of documents of about `BLOCK_CHARS` characters. How the corpus is
divided into blocks, and the records of a block, depend only on the corpus and the
settings, never on the number of processes. A block is processed with array operations
over all its tokens; loops run only over sentences and examples.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from albert_tf.data.corpus.corpus import Corpus
from albert_tf.data.corpus.documents import RawDocument, document_sentences
from albert_tf.data.masking import keyed_random
from albert_tf.data.masking.config import MaskingConfig
from albert_tf.data.masking.keyed_random import KeyedRandom
from albert_tf.data.prepare import pairs
from albert_tf.data.prepare.assemble import assemble, serialize, shuffled
from albert_tf.data.prepare.pairs import PairConfig

BLOCK_CHARS = 1 << 20
SPLITS = ("train", "eval")


@dataclass(frozen=True)
class RecordConfig:
    """The kind of records made from text, locally or with Beam.

    Args:
        mask: `MaskingConfig`. How examples are masked; for dynamic records, only the
            statistics of the card use it.
        masking: str. "dynamic" (records without masks) or "static" (the original's).
        dupe_factor: int. Number of passes over each document, each with other random
            choices.
        sample_masks: bool. Whether to mask some dynamic records for the card.
    """

    pairs: PairConfig = field(default_factory=PairConfig)
    mask: MaskingConfig = field(default_factory=MaskingConfig)
    masking: str = "dynamic"
    language: str = "en"
    dupe_factor: int = 1
    eval_fraction: float = 0.0
    sample_masks: bool = True

    def split(self, document: RawDocument) -> str:
        """Returns the split of a document; it depends only on the document's key."""
        key = (document.source, document.number)
        rng = KeyedRandom(self.pairs.seed, keyed_random.SPLIT, *key)
        return "eval" if rng.random() < self.eval_fraction else "train"


class Records(NamedTuple):
    """The records of a block in one split."""

    payloads: list[bytes]  # serialized examples
    counts: Counter  # sums for the data card
    sizes: np.ndarray  # int32 [N], number of tokens of each record
    lengths: np.ndarray  # int64 [S + 1], number of examples of each length
    longest: tuple[int, int, int]  # tokens, source, number of the longest document


def source_groups(corpus: Corpus) -> list[list[int]]:
    """Groups neighbouring small files, so that blocks are not tiny.

    Each group has one named source and is read by one reader; blocks never span groups.
    """
    groups: list[list[int]] = []
    room = 0
    for k, source in enumerate(corpus.sources):
        named = groups and corpus.sources[groups[-1][0]].part_of
        if not groups or room <= 0 or not source.size or source.part_of != named:
            groups.append([])
            room = BLOCK_CHARS if source.size else 0
        groups[-1].append(k)
        room -= source.size
    return groups


def make_blocks(documents: Iterable[RawDocument]) -> Iterator[list[RawDocument]]:
    """Divides the documents of one group of sources into blocks."""
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
    block: Sequence[RawDocument],
    config: RecordConfig,
    tokenizer,
    corpus: Corpus | None = None,
) -> dict[str, Records]:
    """Turns a block into records, by split.

    The corpus, if any, provides other documents if the block has none.
    """
    by_split: dict[str, list[RawDocument]] = {split: [] for split in SPLITS}
    for document in block:
        by_split[config.split(document)].append(document)
    made = {}
    for split, documents in by_split.items():
        if documents:
            others = _others(split, documents, block, config, corpus)
            made[split] = _process(documents, others, config, tokenizer)
    return made


def _others(split, documents, block, config, corpus) -> list[RawDocument]:
    """Returns other documents for B if a block and split has only one document."""
    # They come from the rest of the block, then from the sources after it, starting
    # with sources of the same name. Training examples never use held-out text.
    wholes = {document.whole for document in documents}
    if not config.pairs.rules.others or len(wholes) > 1:
        return []
    candidates: Iterable[RawDocument] = block
    if corpus:
        last, names = block[-1].source, [source.part_of for source in corpus.sources]
        order = sorted(
            range(len(names)), key=lambda k: (names[k] != names[last], k <= last, k)
        )
        candidates = itertools.chain(block, corpus.restarted().documents(order))
    others = []
    wanted, left = BLOCK_CHARS // 4, 8 * BLOCK_CHARS  # characters to take, to look at
    for document in candidates:
        size = sum(map(len, document.texts))
        left -= size
        if document.whole not in wholes and config.split(document) in ("train", split):
            others.append(document)
            wanted -= size
        if min(wanted, left) <= 0:
            break
    return others


def _process(documents, others, config: RecordConfig, tokenizer) -> Records:
    sentences, document_splits = [], [0]
    everything = [*documents, *others]
    for document in everything:
        sentences += document_sentences(document, config.language)
        document_splits.append(len(sentences))
    rules = config.pairs.rules
    if rules.separated != "sentences":
        # The splitter dropped the space before a sentence. After a [SEP], a sentence
        # starts without one, as in RoBERTa.
        first, after = set(document_splits), tokenizer.after_word
        sentences = [s if k in first else after(s) for k, s in enumerate(sentences)]
    ids, sentence_splits = tokenizer.encode_batch_flat(sentences)
    keys = [(document.source, document.number) for document in everything]
    splits = sentence_splits, np.array(document_splits)
    kept = pairs.make_documents(keys, *splits, [d.whole for d in everything])
    sentences = sentences[: document_splits[len(documents)]]
    own_ids = ids[: sentence_splits[len(sentences)]]
    others = [d for d in kept if d.borders[0] >= len(own_ids)]
    kept = kept[: len(kept) - len(others)]
    sizes = [document.borders[-1] - document.borders[0] for document in kept]
    counts = Counter(
        documents=len(documents),
        documents_without_tokens=len(documents) - len(kept),
        sentences=len(sentences),
        characters=sum(map(len, sentences)),
        tokens=len(own_ids),
        unknown_tokens=int(np.count_nonzero(own_ids == tokenizer.unk_id)),
    )
    longest = max(zip(sizes, [d.key for d in kept], strict=True), default=(0, (0, 0)))
    ids, kept = pairs.separate(ids, kept, rules, tokenizer.sep_id)
    word_starts = tokenizer.word_start_table()[ids]
    payloads: list[bytes] = []
    tokens = [np.zeros(0, np.int32)]
    lengths = np.zeros(config.pairs.max_seq_length + 1, np.int64)
    for repeat in range(config.dupe_factor):
        plan, dropped = pairs.plan_examples(
            kept, config.pairs, word_starts, repeat, others
        )
        counts.update(dropped)
        if not plan:
            continue
        batch = assemble(ids, word_starts, np.array(plan), tokenizer)
        lengths += np.bincount(batch.lengths, minlength=len(lengths))
        counts["examples"] += len(plan)
        counts["output_tokens"] += int(batch.lengths.sum())
        counts["labels_1"] += int(batch.labels.sum())
        tokens.append(batch.lengths.astype(np.int32))
        payloads += serialize(batch, kept[0].key, repeat, config, tokenizer, counts)
    counts["bytes"] = sum(map(len, payloads))
    sizes = np.concatenate(tokens)
    if config.masking == "static":
        order = shuffled(len(payloads), config.pairs.seed, keys[0])
        payloads, sizes = [payloads[k] for k in order], sizes[order]
    return Records(payloads, counts, sizes, lengths, (longest[0], *longest[1]))
