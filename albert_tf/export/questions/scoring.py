"""Reads the possible answers out of a model's outputs, inside a SavedModel.

It gives the candidates of `tasks.questions.squad_answers`, before those are compared
as texts.

Legend: `R` rows (windows), `T` sequence, `n` candidates of a row, `M` of all rows, `P`
tokens of all texts.
"""

from typing import NamedTuple

import keras
import tensorflow as tf

from albert_tf import features
from albert_tf.export.endpoints.row_steps import run_padded
from albert_tf.export.questions.windows import Windows
from albert_tf.models.question_answering import AlbertBeamQuestionAnswering
from albert_tf.tasks.definitions.family import Options


class RowCandidates(NamedTuple):
    """The candidates of rows, in the order in which Python finds them.

    Attributes:
        starts: int32 `[R, n]`. Column of the first token.
        ends: int32 `[R, n]`. Column of the last token.
        first: float64 `[R, n]`. Score of the first token.
        last: float64 `[R, n]`. Score of the last token.
        null: float64 `[R]`. Score of "there is no answer".
    """

    starts: tf.Tensor
    ends: tf.Tensor
    first: tf.Tensor
    last: tf.Tensor
    null: tf.Tensor


class Candidates(NamedTuple):
    """The candidates of all questions: by question, then best first.

    Attributes:
        question: int64 `[M]`.
        start: int64 `[M]`. First token, of `P`.
        end: int64 `[M]`. Last token, of `P`.
        score: float64 `[M]`.
    """

    question: tf.Tensor
    start: tf.Tensor
    end: tf.Tensor
    score: tf.Tensor


def run_model(
    model: keras.Model, inputs: dict[str, tf.Tensor], options: Options
) -> RowCandidates:
    """Runs a model over rows, a few at a time.

    Args:
        model: `AlbertQuestionAnswering` or `AlbertBeamQuestionAnswering`.
        inputs: dict of int32 `[R, T]`.
        options: `Options`.
    """
    # As many columns as candidates are chosen from.
    least = tf.minimum(options.n_best_size, tf.shape(inputs[features.TOKEN_IDS])[1])
    if isinstance(model, AlbertBeamQuestionAnswering):
        count = model.start_n_top * model.end_n_top
    else:
        count = least**2

    def answer(rows):
        outputs = model(rows, training=False)
        return read_outputs(outputs, rows[features.PADDING_MASK], options)

    none = tf.zeros([0, count], tf.float64)
    index = tf.cast(none, tf.int32)
    nothing = RowCandidates(index, index, none, none, tf.zeros([0], tf.float64))
    return run_padded(answer, inputs, nothing, least=least)


def read_outputs(
    outputs: dict[str, tf.Tensor], padding_mask: tf.Tensor, options: Options
) -> RowCandidates:
    """Returns the candidates of rows.

    Args:
        outputs: dict. What the model returns for the rows.
        padding_mask: int32 `[R, T]`.
        options: `Options`.
    """
    if "start_log_probs" in outputs:
        return _beams(outputs)
    most = tf.minimum(options.n_best_size, tf.shape(padding_mask)[1])
    found = []
    for name in ("start_logits", "end_logits"):
        logits = tf.cast(tf.cast(outputs[name], tf.float32), tf.float64)
        logits = tf.where(padding_mask == 1, logits, -float("inf"))
        # The earlier position on a tie.
        found.append((logits[:, 0], *tf.math.top_k(logits, most)))
    (first_cls, first, starts), (last_cls, last, ends) = found
    columns = (
        tf.repeat(starts, most, 1),
        tf.tile(ends, [1, most]),
        tf.repeat(first, most, 1),
        tf.tile(last, [1, most]),
    )
    return RowCandidates(*columns, first_cls + last_cls)


def _beams(outputs: dict[str, tf.Tensor]) -> RowCandidates:
    per_start = outputs["end_index"].shape[1] // outputs["start_index"].shape[1]
    return RowCandidates(
        tf.repeat(outputs["start_index"], per_start, 1),
        outputs["end_index"],
        tf.cast(tf.repeat(outputs["start_log_probs"], per_start, 1), tf.float64),
        tf.cast(outputs["end_log_probs"], tf.float64),
        tf.cast(outputs["cls_logits"], tf.float64),
    )


def select(found: RowCandidates, windows: Windows, options: Options) -> Candidates:
    """Returns the candidates that lie in their window, best first.

    Args:
        found: `RowCandidates`.
        windows: `Windows`. Those of the rows.
        options: `Options`.
    """
    begin, stop = windows.begin[:, None], (windows.begin + windows.size)[:, None]
    start = tf.cast(found.starts, tf.int64) + windows.shift[:, None]
    end = tf.cast(found.ends, tf.int64) + windows.shift[:, None]
    fits = (start >= begin) & (end < stop) & (start <= end)
    fits &= end - start < options.max_answer_length
    owner = _owners(windows)
    row = tf.range(tf.size(windows.question, tf.int64))[:, None]
    fits &= tf.gather(owner, tf.where(fits, start, 0)) == row
    question = windows.question[:, None] + tf.zeros_like(start)
    columns = (question, start, end, found.first + found.last)
    question, start, end, score = (tf.boolean_mask(c, fits) for c in columns)
    # Both sorts are stable: by question, then by score, then as they were found.
    order = tf.argsort(score, direction="DESCENDING", stable=True)
    order = tf.gather(order, tf.argsort(tf.gather(question, order), stable=True))
    return Candidates(*(tf.gather(c, order) for c in (question, start, end, score)))


def null_scores(found: RowCandidates, windows: Windows, count: tf.Tensor) -> tf.Tensor:
    """Returns the smallest score of "there is no answer" of each question, `[B]`."""
    return tf.math.unsorted_segment_min(found.null, windows.question, count)


def _owners(windows: Windows) -> tf.Tensor:
    """Returns the row that gives each token the most context, int64 `[P + 1]`.

    See `squad_features.max_context`. One entry more, so that there is one.
    """
    total = tf.size(windows.context.ids.values, tf.int64) + 1
    held = tf.RaggedTensor.from_row_lengths(
        tf.zeros([tf.reduce_sum(windows.size)]), windows.size, validate=False
    )
    row = held.value_rowids()
    left = tf.range(tf.size(row, tf.int64)) - tf.gather(held.row_starts(), row)
    size = tf.gather(windows.size, row)
    token = tf.gather(windows.begin, row) + left
    value = tf.cast(tf.minimum(left, size - 1 - left), tf.float64)
    value += 0.01 * tf.cast(size, tf.float64)
    best = tf.gather(tf.math.unsorted_segment_max(value, token, total), token)
    # The first one on a tie.
    best_rows = tf.where(value == best, row, row.dtype.max)
    return tf.math.unsorted_segment_min(best_rows, token, total)
