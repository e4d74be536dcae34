"""Defines the signature that fills in the masked words of texts.

Legend: `B` batch, `T` sequence, `D` hidden, `V` vocabulary, `N` masks of all texts, `M`
masks of the text with the most, `K` tokens per mask.
"""

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from albert_tf import features
from albert_tf.errors import UsageError
from albert_tf.export.endpoints.row_steps import run_padded
from albert_tf.export.endpoints.signature import Signature, strings
from albert_tf.export.endpoints.text_inputs import TextInputs
from albert_tf.text.tokenizer import MASK

TOP_K = 10
TOO_LONG = -1  # instead of the number of masks
# Scores of the whole vocabulary are computed for so many masks at a time. A client may
# send texts of nothing but masks, whose scores together would fill the memory.
_MASKS_AT_A_TIME = 256


def fill_mask_signature(
    model: keras.Model, text_inputs: TextInputs, top_k: int
) -> Signature:
    """Returns `fill_mask(text)`, which gives the answers of `FillMask` in Python.

    A text has any number of `[MASK]`. The answer has, for each of them in the order of
    the text, the most probable tokens, best first:

    * `tokens` string, `token_ids` int32 and `scores` float32, all `[B, M, K]`. A text
      with fewer than `M` masks has `""`, -1 and 0 in the rest.
    * `num_masks` int32 `[B]`: the number of masks; 0 if the text has none; -1 if it is
      too long. Such texts, which Python refuses, do not fail the batch.

    Args:
        model: `AlbertMaskedLM` or `AlbertPretrainer`.
        text_inputs: `TextInputs`.
        top_k: int. `K`, at most the size of the vocabulary.

    Raises:
        UsageError: If `top_k` is out of range.
    """
    size = text_inputs.tokenizer.vocab_size
    if not 1 <= top_k <= size:
        raise UsageError(f"top_k must be from 1 to {size}, received {top_k}")
    fill_mask = _fill_mask(model, text_inputs, top_k)
    return Signature(fill_mask, (strings("text"),), _request, every_length=True)


def _fill_mask(model, text_inputs: TextInputs, top_k: int) -> Callable:
    tokenizer = text_inputs.tokenizer
    names = tf.constant([tokenizer.id_to_text(i) for i in range(tokenizer.vocab_size)])

    def run(inputs, is_mask):
        x = model.backbone(inputs, training=False)["sequence_output"]
        is_mask = is_mask[:, : tf.shape(x)[1]]
        places = tf.where(tf.reshape(is_mask, [-1]))[:, 0]
        return _best(model, x, places, tokenizer.vocab_size, top_k)

    def fill_mask(text):
        inputs, too_long = text_inputs.masked(text)
        is_mask = (inputs[features.TOKEN_IDS] == tokenizer.mask_id) & (
            inputs[features.PADDING_MASK] == 1
        )
        counts = tf.math.count_nonzero(is_mask, 1)
        nothing = (tf.zeros([0, top_k]), tf.zeros([0, top_k], tf.int32))
        scores, token_ids = run_padded(run, inputs, nothing, counts, is_mask=is_mask)

        def dense(values, default):
            rows = tf.RaggedTensor.from_row_lengths(values, counts, validate=False)
            return rows.to_tensor(default)

        return {
            "tokens": dense(tf.gather(names, token_ids), ""),
            "token_ids": dense(token_ids, -1),
            "scores": dense(scores, 0.0),
            "num_masks": tf.where(too_long, TOO_LONG, tf.cast(counts, tf.int32)),
        }

    return fill_mask


def _best(model, x, places, vocab_size: int, top_k: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the scores and ids of the best tokens.

    Args:
        model: `AlbertMaskedLM` or `AlbertPretrainer`.
        x: `[B, T, D]`. Output of its encoder.
        places: int64 `[N]`. The masks, as numbers of the rows of `[B * T, D]`.
        vocab_size: int. `V`. The model's table may be larger.
        top_k: int. `K`.

    Returns:
        Float32 and int32 `[N, K]`.
    """
    rows = tf.reshape(x, [-1, x.shape[-1]])

    def unfinished(start, scores, token_ids):
        del scores, token_ids
        return start < tf.size(places)

    def answer(start, scores, token_ids):
        masked = tf.gather(rows, places[start : start + _MASKS_AT_A_TIME])
        table = model.backbone.word_embeddings
        logits = model.mlm_head(masked[None], table)[0, :, :vocab_size]
        best = tf.math.top_k(tf.nn.softmax(logits), top_k)
        return (
            start + _MASKS_AT_A_TIME,
            tf.concat([scores, best.values], 0),
            tf.concat([token_ids, best.indices], 0),
        )

    _, scores, token_ids = tf.while_loop(
        unfinished,
        answer,
        (0, tf.zeros([0, top_k]), tf.zeros([0, top_k], tf.int32)),
        shape_invariants=(
            tf.TensorShape([]),
            tf.TensorShape([None, top_k]),
            tf.TensorShape([None, top_k]),
        ),
        parallel_iterations=1,
    )
    return scores, token_ids


def _request(length: int, size: int) -> dict[str, np.ndarray]:
    # With [CLS] and [SEP], a text of so many tokens in every vocabulary.
    return {"text": np.array([MASK.encode() * (length - 2)] * size, object)}
