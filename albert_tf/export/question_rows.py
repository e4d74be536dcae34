"""Cuts questions and their texts into rows, and extracts candidates from the outputs.

The rows are cut as in `tasks.squad_features`, with bounded work, and the candidates are
found as in `tasks.squad_answers`, before they are compared as texts.

Legend: `B` questions, `R` rows (windows), `T` sequence, `n` candidates of a row, `M` of
all rows, `P` tokens of all texts.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from albert_tf import features
from albert_tf.converters.keras_model import head_of
from albert_tf.export.row_steps import run_padded
from albert_tf.export.text_inputs import MAX_TEXT_BYTES, TextInputs
from albert_tf.heads import HEADS
from albert_tf.text import inputs_graph
from albert_tf.text.tokenizer_graph import TokensWithOffsets

# A server batches the questions of many clients, so the work for one must be bounded.
MAX_WINDOWS = 64


@dataclasses.dataclass(frozen=True)
class Answering:
    """The options of answering questions, which are fixed when a model is exported.

    Attributes:
        max_seq_length, doc_stride, max_query_length, n_best_size, max_answer_length,
            null_threshold: As in `tasks.task.Options`.
        unanswerable: bool. Whether a text may have no answer.
    """

    max_seq_length: int
    doc_stride: int
    max_query_length: int
    n_best_size: int
    max_answer_length: int
    null_threshold: float
    unanswerable: bool

    def describe(self) -> dict[str, Any]:
        """Returns the entry of the manifest, which has the length for all models."""
        described = dataclasses.asdict(self) | {"max_windows": MAX_WINDOWS}
        del described["max_seq_length"]
        threshold = described["null_threshold"]
        if not self.unanswerable:
            del described["null_threshold"]
        elif abs(threshold) >= 1e300:
            described["null_threshold"] = str(threshold)  # JSON has no infinity
        return described


class Windows(NamedTuple):
    """The rows of `B` questions, in order.

    Attributes:
        inputs: dict of int32 `[R, T]`. Model inputs.
        context: `TokensWithOffsets`. The tokens of the texts.
        question: int64 `[R]`. Index of each row's question, ascending.
        shift: int64 `[R]`. Column `t` of the row has the token `t + shift` of `P`.
        begin: int64 `[R]`. First token of the window, of `P`.
        size: int64 `[R]`. Number of tokens of the window.
    """

    inputs: dict[str, tf.Tensor]
    context: TokensWithOffsets
    question: tf.Tensor
    shift: tf.Tensor
    begin: tf.Tensor
    size: tf.Tensor


def cut_windows(
    text_inputs: TextInputs,
    offsets: Callable[[tf.Tensor], TokensWithOffsets],
    answering: Answering,
    question: tf.Tensor,
    context: tf.Tensor,
) -> Windows:
    """Cuts questions and their texts, strings `[B]`; any bytes are accepted.

    The first `MAX_TEXT_BYTES` and `MAX_WINDOWS` of a text are read.
    """
    query = text_inputs.graph_tokenizer(text_inputs.shortened(question))
    context = offsets(tf.strings.substr(context, 0, MAX_TEXT_BYTES))
    asked = tf.minimum(query.row_lengths(), answering.max_query_length)
    separators = text_inputs.tokenizer.pair_separators
    budget = answering.max_seq_length - 2 - separators - asked
    stride = answering.doc_stride
    length = context.ids.row_lengths()
    length = tf.minimum(length, budget + (MAX_WINDOWS - 1) * stride)
    # Rounded up; a text without tokens has one window.
    count = 1 + tf.maximum((length - budget + stride - 1) // stride, 0)
    number = tf.repeat(tf.range(tf.size(count, tf.int64)), count)
    place = tf.range(tf.size(number, tf.int64))
    first = (place - tf.gather(tf.cumsum(count, exclusive=True), number)) * stride
    size = tf.minimum(tf.gather(length, number) - first, tf.gather(budget, number))
    begin = tf.gather(context.ids.row_starts(), number) + first
    query = tf.gather(inputs_graph.first_tokens(query, asked), number)
    text = tf.ragged.range(begin, begin + size)
    text = text.with_values(tf.gather(context.ids.values, text.values))
    before = query.row_lengths() + 1 + separators  # the text's first token
    shift = begin - before
    rows = inputs_graph.padded_rows(
        text_inputs.tokenizer, query, text, answering.max_seq_length
    )
    column = tf.range(tf.shape(rows[features.TOKEN_IDS])[1])
    last = tf.reduce_sum(rows[features.PADDING_MASK], 1, keepdims=True) - 1
    # Answers are tokens of the text, or `[CLS]`.
    before = tf.cast(before[:, None], tf.int32)
    outside = (column < before) | (column >= last)
    rows[features.P_MASK] = tf.cast(outside & (column > 0), tf.int32)
    return Windows(rows, context, number, shift, begin, size)


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
    model: keras.Model, inputs: dict[str, tf.Tensor], answering: Answering
) -> RowCandidates:
    """Runs a model over rows, inputs int32 `[R, T]`, a few at a time."""
    # Candidates are chosen from at least this many columns.
    least = tf.minimum(answering.n_best_size, tf.shape(inputs[features.TOKEN_IDS])[1])
    if HEADS[head_of(model)].has_beam:
        count = model.start_n_top * model.end_n_top
    else:
        count = least**2

    def answer(rows):
        outputs = model(rows, training=False)
        return read_outputs(outputs, rows[features.PADDING_MASK], answering.n_best_size)

    none = tf.zeros([0, count], tf.float64)
    index = tf.cast(none, tf.int32)
    nothing = RowCandidates(index, index, none, none, tf.zeros([0], tf.float64))
    return run_padded(answer, inputs, nothing, least=least)


def read_outputs(
    outputs: dict[str, tf.Tensor], padding_mask: tf.Tensor, n_best_size: int
) -> RowCandidates:
    """Returns the candidates of rows, of the 2-logit head `n_best_size` each."""
    if "start_log_probs" in outputs:
        names = ("start_index", "start_log_probs", "end_index", "end_log_probs")
        starts, first, ends, last = (outputs[name] for name in names)
        per_start = ends.shape[1] // starts.shape[1]
        starts, first = (tf.repeat(x, per_start, 1) for x in (starts, first))
        scores = (first, last, outputs["cls_logits"])
        scores = (tf.cast(score, tf.float64) for score in scores)
        return RowCandidates(starts, ends, *scores)
    most = tf.minimum(n_best_size, tf.shape(padding_mask)[1])
    chosen = []
    for name in ("start_logits", "end_logits"):
        logits = tf.cast(tf.cast(outputs[name], tf.float32), tf.float64)
        logits = tf.where(padding_mask == 1, logits, -float("inf"))
        # On a tie, the earlier position comes first.
        chosen.append((logits[:, 0], *tf.math.top_k(logits, most)))
    (first_cls, first, starts), (last_cls, last, ends) = chosen
    starts, first = (tf.repeat(x, most, 1) for x in (starts, first))
    ends, last = (tf.tile(x, [1, most]) for x in (ends, last))
    return RowCandidates(starts, ends, first, last, first_cls + last_cls)


def select(row_candidates: RowCandidates, windows: Windows, most: int) -> Candidates:
    """Returns candidates of at most `most` tokens within their windows, best first."""
    begin, stop = windows.begin[:, None], (windows.begin + windows.size)[:, None]
    start = tf.cast(row_candidates.starts, tf.int64) + windows.shift[:, None]
    end = tf.cast(row_candidates.ends, tf.int64) + windows.shift[:, None]
    fits = (start >= begin) & (end < stop) & (start <= end)
    fits &= end - start < most
    owner = _owners(windows)
    row = tf.range(tf.size(windows.question, tf.int64))[:, None]
    fits &= tf.gather(owner, tf.where(fits, start, 0)) == row
    question = windows.question[:, None] + tf.zeros_like(start)
    columns = (question, start, end, row_candidates.first + row_candidates.last)
    question, start, end, score = (tf.boolean_mask(c, fits) for c in columns)
    # Both sorts are stable: by question, then by score, then as they were found.
    order = tf.argsort(score, direction="DESCENDING", stable=True)
    order = tf.gather(order, tf.argsort(tf.gather(question, order), stable=True))
    return Candidates(*(tf.gather(c, order) for c in (question, start, end, score)))


def null_scores(found: RowCandidates, windows: Windows, count: tf.Tensor) -> tf.Tensor:
    """Returns the smallest score of "there is no answer" of each question, `[B]`."""
    return tf.math.unsorted_segment_min(found.null, windows.question, count)


def _owners(windows: Windows) -> tf.Tensor:
    """Returns the row that gives each token the most context, int64 `[P + 1]`."""
    # See squad_features.max_context. The additional entry avoids an empty tensor.
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
    # On a tie, the first row is used.
    best_rows = tf.where(value == best, row, row.dtype.max)
    return tf.math.unsorted_segment_min(best_rows, token, total)
