"""Turns the states of the tokens of a text into one vector.

Legend: `B` rows, `T` sequence, `D` hidden, `S` examples in a row, `U` examples, `K`
texts of an example.
"""

from keras import ops

from albert_tf import features
from albert_tf.layers.gathering import gather_places


def pool_texts(x, inputs, mask, pooling: str):
    """Returns the vectors of texts, float32.

    The mean and the maximum are over all tokens of a text, special tokens included, as
    in sentence-transformers' `Pooling`. With `places` `[U, K]` in the inputs, where
    each text starts as an index of the flattened rows, the result is `[U, K, D]`,
    otherwise `[B, D]`. With `pack_ids`, rows hold several texts.
    """
    places = inputs.get(features.PLACES)
    if pooling == "cls":
        first = x[:, 0] if places is None else gather_places(x, places)
        return ops.cast(first, "float32")
    x, pack_ids = ops.cast(x, "float32"), inputs.get(features.PACK_IDS)
    rows, T = ops.shape(x)[0], ops.shape(x)[1]
    if pack_ids is None:
        mask = ops.ones_like(x[..., 0]) if mask is None else ops.cast(mask, "float32")
        pooled = _over_tokens(x, mask[:, None], pooling)
    else:
        # Packed rows are only made where shapes may differ from batch to batch.
        numbers = ops.arange(1, ops.max(pack_ids) + 1, dtype="int32")
        of_text = ops.cast(pack_ids, "int32")[:, None] == numbers[:, None]
        pooled = _over_tokens(x, ops.cast(of_text, "float32"), pooling)
    if places is None:
        return pooled[:, 0]
    slots = (
        0 if pack_ids is None else ops.take(ops.reshape(pack_ids, (-1,)), places) - 1
    )
    per_row = ops.shape(pooled)[1]
    flat = ops.reshape(pooled, (rows * per_row, x.shape[-1]))
    return ops.take(flat, places // T * per_row + slots, axis=0)


def _over_tokens(x, weights, pooling: str):
    """Returns `[B, S, D]` for states `[B, T, D]` and `[B, S, T]`, 1 for the tokens."""
    if pooling == "mean":
        total = ops.matmul(weights, x)
        return total / ops.maximum(ops.sum(weights, -1, keepdims=True), 1.0)
    hidden = ops.where(ops.cast(weights, "bool")[..., None], x[:, None], -1e9)
    return ops.max(hidden, axis=2)


def unit_length(x):
    """Returns vectors as float32, divided by their L2 norms; a zero one stays zero."""
    x = ops.cast(x, "float32")
    squares = ops.sum(ops.square(x), axis=-1, keepdims=True)
    # The norm itself has no gradient where a vector is zero.
    return x / ops.sqrt(ops.maximum(squares, 1e-24))
