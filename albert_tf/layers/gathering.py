"""Rows of sequences at positions, the spans that those form, and logits of labels.

Legend: `B` batch, `T` sequence, `P` positions, `D` hidden.
"""

from typing import Any, NamedTuple

from keras import ops

from albert_tf.kernels.device import is_cuda


def gather_positions(x, positions):
    """Returns the rows of `x` `[B, T, D]` at `positions` int `[B, P]`: `[B, P, D]`."""
    # Gather whole rows of a matrix: `take_along_axis` gathers single numbers.
    B, T, D = ops.shape(x)
    first = ops.expand_dims(ops.arange(B, dtype="int32") * T, 1)
    rows = ops.cast(positions, "int32") + first
    return ops.take(ops.reshape(x, (-1, D)), rows, axis=0)


def gather_places(x, places):
    """Returns the rows of `x` `[B, T, D]` at `places`: `[*places.shape, D]`.

    The places, of any shape, are indices of the rows of `[B * T, D]`.
    """
    return ops.take(ops.reshape(x, (-1, x.shape[-1])), places, axis=0)


def gather_labels(logits, labels):
    """Returns the logits `[...]`, of float32 `[..., C]`, of int labels `[...]`."""
    labels = ops.expand_dims(labels, -1)
    if is_cuda():
        # The gradient of a look-up would first be scattered to float32 numbers in
        # memory. On an H100 this form halves the traffic of the head.
        is_label = ops.equal(ops.arange(logits.shape[-1], dtype=labels.dtype), labels)
        return ops.sum(ops.where(is_label, logits, 0.0), axis=-1)
    return ops.squeeze(ops.take_along_axis(logits, labels, axis=-1), -1)


class MaskedSpans(NamedTuple):
    """The span that each masked token belongs to, all int32 `[B, P]`.

    Attributes:
        before: The position before the span; -1 if it starts the row.
        after: The position after the span; T if it ends the row.
        places: The index of the token within its span.
    """

    before: Any
    after: Any
    places: Any


def masked_spans(positions, weights) -> MaskedSpans:
    """Returns the runs of neighbouring positions `[B, P]`, ascending within each row.

    Only entries with weights above 0 are used; results of others are meaningless.
    """
    positions = ops.cast(positions, "int32")
    entries = ops.arange(ops.shape(positions)[1], dtype="int32")
    # Within a run, position and index grow together. P is small enough to compare
    # all pairs, which needs no loop over the entries.
    runs = ops.where(ops.cast(weights, "float32") > 0, positions - entries, -1)
    same = ops.equal(ops.expand_dims(runs, 2), ops.expand_dims(runs, 1))
    earlier = entries[None, :] < entries[:, None]
    places = ops.sum(ops.cast(ops.logical_and(same, earlier), "int32"), -1)
    lengths = ops.sum(ops.cast(same, "int32"), -1)
    starts = positions - places
    return MaskedSpans(starts - 1, starts + lengths, places)
