"""Chooses the records of the parts for the files of a data set, and their order.

Without named sources, all records are used in the order of the text. With named
sources, there are as many training tokens as the text contains, and a source with a
wanted share p contributes a share p of them. A source with fewer tokens is repeated,
pass after pass; of a source with more, only a part is used. The blocks of each pass are
in a newly drawn order. The next block is always taken from the source that is furthest
behind, and the last block of each source is cut at the example that brings the source
nearest its share. At any place of the files, therefore, no source is ahead of its share
by more than a block, and at the end by more than an example.

With a temperature T, the shares are proportional to n^(1/T), where n is the number of
tokens of a source (T = 1: proportional to size; larger: more even), as in multilingual
BERT.

Held-out records are all used once, and each of their files holds records of a single
source. An evaluation can thus tell the sources apart by the data card, while the format
of records and batches does not change.

The plan is a function of the sizes of the parts, so it is the same for any number of
processes, on Beam, and in a resumed run.
"""

import dataclasses
import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from albert_tf.data.corpus.corpus import Corpus
from albert_tf.data.masking import keyed_random
from albert_tf.data.masking.keyed_random import KeyedRandom
from albert_tf.errors import DataError


class Piece(NamedTuple):
    """The first records of a part in a split."""

    path: str
    records: int
    tokens: int  # of these records


@dataclasses.dataclass
class Group:
    """The records of some files, in order.

    Attributes:
        source: str. Name of the common source, or "".
        pieces: list of `Piece`. A part can occur several times.
    """

    source: str = ""
    pieces: list[Piece] = dataclasses.field(default_factory=list)

    @property
    def records(self) -> int:
        """Number of records."""
        return sum(piece.records for piece in self.pieces)

    @property
    def tokens(self) -> int:
        """Number of tokens, special ones included."""
        return sum(piece.tokens for piece in self.pieces)


class Mixture(NamedTuple):
    """The records of a data set.

    Attributes:
        groups: dict. Groups of each split; no two share a file.
        sources: dict. Entries of the data card by named source.
    """

    groups: dict[str, list[Group]]
    sources: dict[str, dict[str, float]]


def plan_mixture(
    corpus: Corpus, summary, paths: Sequence[str], read_lengths, seed: int
) -> Mixture:
    """Plans the records of a data set.

    paths: Sequence. The parts.
    read_lengths: callable. Returns the lengths of the records of a part in the
        training split, int `[N]`.

    Raises `DataError` if a source gives no training example, or its share is too small.
    """
    by_split: dict[str, dict[str, Group]] = {}
    for split, parts in summary.parts.items():
        by_split[split] = {name: Group(name) for name in corpus.named or ("",)}
        for path, part in zip(paths, parts, strict=True):
            piece = Piece(path, part.records, part.tokens)
            by_split[split][corpus.sources[part.source].part_of].pieces.append(piece)
    if not corpus.named:
        return Mixture({s: list(groups.values()) for s, groups in by_split.items()}, {})
    tokens = {name: group.tokens for name, group in by_split["train"].items()}
    for name, number in tokens.items():
        if not number:
            raise DataError(f"input_file: source {name!r} gives no training example")
    shares = shares_of(corpus, tokens)
    quotas = {name: share * sum(tokens.values()) for name, share in shares.items()}
    mixed, used = _mix(by_split["train"], quotas, read_lengths, seed)
    for name, group in used.items():
        if not group.records:
            raise DataError(
                f"input_file: source {name!r} is too small a share, {shares[name]:g}, "
                f"to get one of the {mixed.records:,} training examples"
            )
    groups = {"train": [mixed], "eval": list(by_split["eval"].values())}
    text = summary.text_of_sources
    sources = {}
    for name, share in shares.items():
        own: Counter = Counter()
        for number, source in enumerate(corpus.sources):
            if source.part_of == name:
                own.update(text.get(number, {}))
        sources[name] = {
            "documents": own["documents"],
            "sentences": own["sentences"],
            "tokens": own["tokens"],
            "examples": used[name].records,
            "example_tokens": used[name].tokens,
            "held_out_examples": by_split["eval"][name].records,
            "share_wanted": share,
            "share_reached": used[name].tokens / mixed.tokens,
            "passes": used[name].tokens / tokens[name],
        }
    return Mixture(groups, sources)


def shares_of(corpus: Corpus, tokens: Mapping[str, int]) -> dict[str, float]:
    """Returns the wanted share of each source, from weights or sizes."""
    if corpus.source_temperature is None:
        return {name: source.weight for name, source in corpus.named.items()}
    most = max(tokens.values())
    weights = {
        k: (n / most) ** (1 / corpus.source_temperature) for k, n in tokens.items()
    }
    return {name: weight / sum(weights.values()) for name, weight in weights.items()}


def _mix(
    groups: Mapping[str, Group], quotas: Mapping[str, float], read_lengths, seed: int
) -> tuple[Group, dict[str, Group]]:
    """Returns the records in their order, and the records of each source."""
    mixed, used = Group(), {name: Group(name) for name in groups}
    passes = {
        name: _passes(group.pieces, seed, number)
        for number, (name, group) in enumerate(groups.items())
    }
    # (share of its quota that the source has, index): ties go to the first source.
    behind = [(0.0, number, name) for number, name in enumerate(groups)]
    taken = dict.fromkeys(groups, 0)
    while behind:
        _, number, name = heapq.heappop(behind)
        piece, left = next(passes[name]), quotas[name] - taken[name]
        is_last = piece.tokens >= left
        if piece.tokens > left:
            ends = np.cumsum([0, *read_lengths(piece.path)])
            records = int(np.argmin(np.abs(ends - left)))
            piece = Piece(piece.path, records, int(ends[records]))
        taken[name] += piece.tokens
        if piece.records:
            mixed.pieces.append(piece)
            used[name].pieces.append(piece)
        if not is_last:
            heapq.heappush(behind, (taken[name] / quotas[name], number, name))
    return mixed, used


def _passes(pieces: Sequence[Piece], seed: int, number: int) -> Iterator[Piece]:
    """Yields the parts of a source endlessly, each pass in another order."""
    filled = [piece for piece in pieces if piece.records]
    for time in range(1 << 62):
        rng = KeyedRandom(seed, keyed_random.MIXTURE, number, time)
        drawn = sorted((rng.bits(), k) for k in range(len(filled)))
        yield from (filled[k] for _, k in drawn)
