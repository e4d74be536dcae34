"""Masks tokens for language modeling: chooses them, then replaces them.

The same code masks batches in NumPy (static record files, Beam) and in tf.data, with
the same bits: what is masked depends only on (seed, epoch, example).

Legend: `B` rows, `T` tokens, `P` predictions, `V` vocabulary.
"""

from typing import Any

import numpy as np

from albert_tf import features
from albert_tf.data import keyed_random
from albert_tf.data.masking import ops
from albert_tf.data.masking.choice import Choice, choose, span_starts
from albert_tf.data.masking.config import MaskingConfig, VocabInfo


def apply(token_ids, choice: Choice, keys, config: MaskingConfig, vocab: VocabInfo, xp):
    """Puts [MASK], a random token or the token itself at the chosen positions.

    Args:
        token_ids: int32 `[B, T]`. Unmasked tokens.
        choice: `Choice`. The positions.
        keys: uint64 `[B]`. The keys given to `choose`.
        config: `MaskingConfig`. Probabilities of the replacements.
        vocab: `VocabInfo`. The vocabulary.
        xp: The array operations.

    Returns:
        masked ids int32 `[B, T]`, and the original ids at the positions int32 `[B, P]`.
    """
    ids = xp.where(choice.valid, xp.take(token_ids, choice.positions), 0)
    unit = choice.positions
    if config.replace_per == "span":
        unit = span_starts(choice, xp)
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
    batch: dict[str, Any],
    keys,
    config: MaskingConfig,
    vocab: VocabInfo,
    xp=ops.NUMPY,
) -> dict[str, Any]:
    """Masks a batch.

    Args:
        batch: dict with `token_ids`, `token_boundary` and `padding_mask`, int32
            `[B, T]`.
        keys: uint64 `[B]`, from `keyed_random.row_keys`.
        config: `MaskingConfig`. What to mask.
        vocab: `VocabInfo`. The vocabulary.
        xp: `ops.NUMPY` or `ops_graph.TENSORFLOW`.

    Returns:
        `token_ids` int32 `[B, T]` masked; `mask_positions`, `mask_ids`, `mask_ngrams`
        (see `Choice`) int32 `[B, P]` and `mask_weights` float32 `[B, P]`. P is
        `config.max_predictions_per_seq`.
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
