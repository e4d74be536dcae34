"""Masks tokens for language modeling: chooses them, then replaces them.

The same code, written once over `ops` and in integers, masks batches in NumPy (static
record files, Beam) and in tf.data, with the same bits: what is masked depends only on
(seed, epoch, example). The choice:

1. Each row is divided into n-grams whose lengths are drawn from p(n).
2. The n-grams are put into a random order, and the first ones that fill the budget are
   chosen. The last one may be cut short, by whole words from its front or its back.
3. The remaining budget goes to the next words in that order that fit.
4. If none fits, but some words together fill the budget exactly, those are chosen
   instead (see `_fill_exactly`).

Every n-gram thus has the same chance at every length and position, and the chosen
lengths follow p(n), except for n-grams cut by the end of a segment or by the budget.
The cut n-gram is more often a long one: in rows of 64 tokens the first and last tokens
of a segment are chosen up to 2% (ALBERT) or 7% (SpanBERT) more often than others; in
rows of 512 the difference is below the noise of 1.3%.

Legend: `B` rows, `T` tokens, `P` predictions, `V` vocabulary.
"""

from typing import Any, NamedTuple

import numpy as np

from albert_tf import features
from albert_tf.data.masking import keyed_random, ops
from albert_tf.data.masking.config import MaskingConfig, VocabInfo

_REVERSED = 2**19  # added to positions counted from the back; so T < 2**19
_LAST = 2 ** (keyed_random.NUM_BITS + 20)  # first sort key of tokens never masked


class Choice(NamedTuple):
    """The chosen tokens, ascending by position; unused entries are 0.

    Attributes:
        positions: int32 `[B, P]`, index into T.
        valid: bool `[B, P]`, whether the entry is used.
        ngrams: int32 `[B, P]`, equal for the tokens of one n-gram, counting up.
    """

    positions: Any
    valid: Any
    ngrams: Any


class _Ranked(NamedTuple):
    """The tokens of each row in the order they are considered, all `[B, T]`."""

    positions: Any  # int32
    words: Any  # int32, index of the word of each token
    sizes: Any  # int32, number of tokens of that word
    candidates: Any  # bool, false for special tokens and padding


def choose(
    token_ids,
    token_boundary,
    padding_mask,
    keys,
    config: MaskingConfig,
    vocab: VocabInfo,
    xp,
) -> Choice:
    """Chooses the tokens `[B, T]` to mask; special ids only if the rules say so.

    Args:
        token_boundary: int32 `[B, T]`. 1 where a token starts a word.
        keys: uint64 `[B]`, from `keyed_random.row_keys`.
        xp: `ops.NUMPY` or `ops_graph.TENSORFLOW`.
    """
    real = padding_mask > 0
    table = np.zeros(vocab.vocab_size, np.int32)
    if config.rules != "roberta":
        table[[vocab.cls_id, vocab.sep_id, vocab.mask_id, vocab.pad_id]] = 1
    if config.rules == "albert_tf":  # the original also masks unknown tokens
        table[list(vocab.special_ids)] = 1
    in_vocab = (token_ids >= 0) & (token_ids < vocab.vocab_size)  # else an error
    kinds = xp.lookup(xp.array(table, "int32"), xp.where(in_vocab, token_ids, 0))
    maskable = real & in_vocab & (kinds == 0)
    words, starts = _find_words(maskable, token_boundary, config, xp)
    ngrams = _find_ngrams(words, starts, maskable, keys, config, xp)
    ranked = _rank(words, ngrams, maskable, keys, xp)
    length = xp.array(xp.sum(real), "float64")
    budget = xp.round_half_even(length * config.masked_lm_prob)
    most = config.max_predictions_per_seq
    budget = xp.where(budget < 1, 1, xp.where(budget > most, most, budget))
    chosen, left = _fill(ranked, budget, xp)
    chosen = _fill_exactly(ranked, chosen, budget, left, most, xp)
    positions, valid = _gather(ranked.positions, chosen, most, xp)
    return Choice(positions, valid, xp.where(valid, xp.take(ngrams, positions), 0))


def _find_words(maskable, token_boundary, config, xp):
    """Returns the word of each token, `[B, T]` from 0, and whether it starts one."""
    if config.unit == "piece":
        starts = maskable
    elif config.rules != "original":
        starts = maskable & ((token_boundary > 0) | ~xp.shift(maskable, False))
    else:  # a word continues after [SEP] if it has no boundary
        starts = maskable & ((token_boundary > 0) | (xp.cumsum(maskable) == 1))
    words = xp.cumsum(starts) - 1
    return xp.where(words < 0, 0, words), starts


def _find_ngrams(words, starts, maskable, keys, config, xp):
    """Returns the index of the n-gram of each token, `[B, T]`, counting up in a row.

    Draw k is the length of n-gram k. A stretch between two special tokens that starts
    with word a uses draws a, a+1, ...; a stretch of m words needs at most m draws, so
    that stretches are independent of each other.
    """
    if config.max_ngram == 1:
        return words
    columns = xp.range(xp.num_columns(words))
    drawn = keyed_random.draws(keys, keyed_random.NGRAM_LENGTH, columns, xp)
    lengths = drawn * 0 + 1
    for cumulative in np.cumsum(config.ngram_probabilities())[:-1]:
        more = drawn >= keyed_random.threshold(cumulative)
        lengths = lengths + xp.array(more, "int32")
    ends = xp.cumsum(lengths)  # words covered by draws 0..k
    if config.rules == "original":
        return xp.searchsorted(ends, words, "right")
    stretches = xp.cumsum(~maskable)
    opening = xp.searchsorted(stretches, stretches, "left")
    words_before = xp.cumsum(starts) - xp.array(starts, "int32")
    first_word = xp.take(words_before, opening)
    skipped = xp.take(ends - lengths - columns, first_word)
    return xp.searchsorted(ends, words + skipped, "right")


def _rank(words, ngrams, maskable, keys, xp) -> _Ranked:
    """Sorts the tokens of each row into the order in which they are considered."""
    draws = keyed_random.draws(keys, keyed_random.NGRAM_ORDER, ngrams, xp)
    columns = xp.range(xp.num_columns(words))
    # The lowest bit of the draw decides from which side the budget cuts.
    place = xp.where((draws & 1) == 1, 2 * _REVERSED - 1 - columns, columns)
    order = xp.array(draws, "int64") * (2 * _REVERSED) + xp.array(place, "int64")
    rest = xp.array(columns, "int64") + _LAST
    order = xp.sort(xp.where(maskable, order, rest))
    place = xp.array(order & (2 * _REVERSED - 1), "int32")
    positions = xp.where(place >= _REVERSED, 2 * _REVERSED - 1 - place, place)
    counts = xp.scatter_sum(xp.array(maskable, "int32"), words, xp.num_columns(words))
    ranked_words = xp.take(words, positions)
    return _Ranked(
        positions, ranked_words, xp.take(counts, ranked_words), order < _LAST
    )


def _fill(ranked: _Ranked, budget, xp):
    """Chooses words, bool `[B, T]`, while they fit; also returns what is left."""

    def unfinished(chosen, left, taken):
        del chosen
        return xp.any((taken > 0) & (left > 0))

    def fill(chosen, left, taken):
        del taken
        room = left[:, None]
        fits = ranked.candidates & ~chosen & (ranked.sizes <= room)
        count = xp.cumsum(fits)
        # The word with the first token beyond the budget does not fit completely.
        beyond = fits & (count == room + 1)
        cut = xp.max(xp.where(beyond, ranked.words, -1))
        take = fits & (count <= room) & (ranked.words != cut[:, None])
        taken = xp.sum(take)
        return chosen | take, left - taken, taken

    none = ranked.candidates & ~ranked.candidates
    chosen, left, _ = xp.while_loop(unfinished, fill, (none, budget, budget))
    return chosen, left


def _fill_exactly(ranked: _Ranked, chosen, budget, left, most: int, xp):
    """Chooses other words in rows where they fill the budget better.

    A subset sum over the words in ranked order: `earliest[b, s]` is the rank at which
    the words so far first have a subset of s tokens. For words of 3, 2 and 2 tokens
    and a budget of 4, `_fill` takes the 3 and has 1 left. Here the sums reached are 0
    and 3 after the first word, 2 and 5 after the second, 4 (and 7) after the third:
    4 <= budget is better than 3, and walking back from 4 gives the second and the
    third word. Nothing changes in the usual case that a word of one token was left.
    """
    num_ranks = xp.num_columns(chosen)
    ranks, sums = xp.range(num_ranks), xp.range(most + 1)
    following = xp.take(
        ranked.words,
        xp.where(ranks + 1 < num_ranks, ranks + 1, 0)[None] + 0 * ranked.words,
    )
    # After the last candidate come special tokens, whose word indices are arbitrary.
    last = xp.sum(ranked.candidates)[:, None] - 1
    is_end = ranked.candidates & ((following != ranked.words) | (ranks == last))
    never = num_ranks + 0 * budget[:, None] + 0 * sums
    earliest = xp.where(sums == 0, -1, never)

    def unfinished(rank, earliest):
        reached = xp.take(earliest, budget[:, None])[:, 0] < num_ranks
        return (rank < num_ranks) & xp.any((left > 0) & ~reached)

    def add_word(rank, earliest):
        size = ranked.sizes[:, rank][:, None]
        without = sums - size
        before = xp.take(earliest, xp.where(without < 0, 0, without)) < rank
        new = is_end[:, rank][:, None] & (without >= 0) & before
        return rank + 1, xp.where(new & (earliest == num_ranks), rank, earliest)

    start = (xp.array(0, "int32"), earliest)
    _, earliest = xp.while_loop(unfinished, add_word, start)
    reached = (earliest < num_ranks) & (sums <= budget[:, None])
    best = xp.max(xp.where(reached, sums, 0))
    better = best > budget - left

    def incomplete(rest, marked):
        del marked
        return xp.any(rest > 0)

    def mark_word(rest, marked):
        rank = xp.take(earliest, rest[:, None])
        here = (ranks == rank) & (rest > 0)[:, None]
        size = xp.sum(xp.where(here, ranked.sizes, 0))
        return rest - size, marked | here

    rest = xp.where(better, best, 0)
    _, marked = xp.while_loop(incomplete, mark_word, (rest, chosen & ~chosen))
    words = xp.scatter_sum(xp.array(marked, "int32"), ranked.words, num_ranks)
    anew = ranked.candidates & (xp.take(words, ranked.words) > 0)
    return xp.where(better[:, None], anew, chosen)


def _gather(ranked_positions, chosen, most: int, xp):
    """Returns the chosen positions, ascending, and whether each entry is used."""
    chosen = xp.array(chosen, "int32")
    mask = xp.scatter_sum(chosen, ranked_positions, xp.num_columns(chosen))
    count = xp.cumsum(mask)
    total = xp.max(count)[:, None]
    entry = xp.range(most)[None] + 0 * total
    positions = xp.searchsorted(count, entry + 1, "left")
    valid = entry < total
    return xp.where(valid, positions, 0), valid


def _span_starts(choice: Choice, xp):
    """Returns the start of the run of adjacent chosen tokens for each entry."""
    positions, valid = choice.positions, choice.valid
    # Runs are numbered from 1; the unused entries form one additional run.
    opens = valid & (positions != xp.shift(positions, -2) + 1)
    run = xp.where(valid, xp.cumsum(opens), xp.num_columns(positions) + 1)
    return xp.take(positions, xp.searchsorted(run, run, "left"))


def apply(token_ids, choice: Choice, keys, config: MaskingConfig, vocab: VocabInfo, xp):
    """Puts [MASK], a random token or the token itself at the chosen positions.

    `keys` is uint64 `[B]`, the keys passed to `choose`. Returns masked ids int32 `[B,
    T]`, and the original ids at the positions int32 `[B, P]`.
    """
    ids = xp.where(choice.valid, xp.take(token_ids, choice.positions), 0)
    unit = choice.positions
    if config.replace_per == "span":
        unit = _span_starts(choice, xp)
    action = keyed_random.draws(keys, keyed_random.ACTION, unit, xp)
    drawn = keyed_random.draws(keys, keyed_random.REPLACEMENT, choice.positions, xp)
    if config.rules == "original":
        candidates = np.arange(vocab.vocab_size, dtype=np.int32)
    else:
        candidates = vocab.text_ids()
    scaled = xp.array(drawn, "int64") * len(candidates)
    index = xp.array(xp.shift_right(scaled, keyed_random.NUM_BITS), "int32")
    random_ids = xp.lookup(xp.array(candidates, "int32"), index)
    below = keyed_random.threshold(config.mask_fraction)
    random_below = keyed_random.threshold(config.mask_fraction + config.random_fraction)
    new = xp.where(action < random_below, random_ids, ids)
    new = xp.where(action < below, vocab.mask_id, new)
    change = xp.where(choice.valid, new - xp.take(token_ids, choice.positions), 0)
    width = xp.num_columns(token_ids)
    return token_ids + xp.scatter_sum(change, choice.positions, width), ids


def mask_batch(
    batch: dict[str, Any], keys, config: MaskingConfig, vocab: VocabInfo, xp=ops.NUMPY
) -> dict[str, Any]:
    """Masks a batch, as described at the top of this module.

    It has `token_ids`, `token_boundary` and `padding_mask`, int32 `[B, T]`. Returns
    masked `token_ids`; `mask_positions`, `mask_ids` int32 `[B, P]`, `mask_weights`
    float32 `[B, P]`, and `mask_ngrams` int32 `[B, P]` (see `Choice`). P is
    `config.max_predictions_per_seq`; `keys` and `xp` are as for `choose`.
    """
    token_ids = batch[features.TOKEN_IDS]
    choice = choose(
        token_ids,
        batch[features.TOKEN_BOUNDARY],
        batch[features.PADDING_MASK],
        keys,
        config,
        vocab,
        xp,
    )
    masked, ids = apply(token_ids, choice, keys, config, vocab, xp)
    return {
        features.TOKEN_IDS: masked,
        features.MASK_POSITIONS: choice.positions,
        features.MASK_IDS: ids,
        features.MASK_WEIGHTS: xp.array(choice.valid, "float32"),
        features.MASK_NGRAMS: choice.ngrams,
    }
