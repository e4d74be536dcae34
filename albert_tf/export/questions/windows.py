"""Cuts questions and their texts into rows inside a SavedModel, with bounded work.

It gives the rows of `tasks.questions.squad_features`.

Legend: `B` questions, `R` rows (windows), `T` sequence, `P` tokens of all texts.
"""

from typing import NamedTuple

import tensorflow as tf

from albert_tf import features
from albert_tf.export.endpoints.text_inputs import MAX_TEXT_BYTES, shorten
from albert_tf.tasks.definitions.family import Options
from albert_tf.text.inputs import length_buckets
from albert_tf.text.offsets_graph import GraphOffsets, TokensWithOffsets
from albert_tf.text.tokenizer import Tokenizer

# A server batches the questions of many clients: the work for one must be bounded.
MAX_WINDOWS = 64


class Windows(NamedTuple):
    """The rows of `B` questions, in order.

    Attributes:
        inputs: dict of int32 `[R, T]`. What the model reads.
        context: `TokensWithOffsets`. The tokens of the texts.
        question: int64 `[R]`. Number of each row's question, ascending.
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


class QuestionInputs(tf.Module):
    """Turns questions and texts into windows.

    Of a text, the first `MAX_TEXT_BYTES` and `MAX_WINDOWS` are read. Attach it to the
    exported model (`archive.track`); otherwise the vocabulary is lost.

    Args:
        tokenizer: `Tokenizer`.
        options: `Options`. The sizes of the windows.

    Raises:
        UsageError: If the graph cannot say where tokens come from.
    """

    def __init__(self, tokenizer: Tokenizer, options: Options):
        super().__init__(name="question_inputs")
        self._offsets = GraphOffsets(tokenizer)
        self._cls, self._sep = tokenizer.cls_id, tokenizer.sep_id
        self._pad = tokenizer.pad_id
        self.options = options

    def __call__(self, question: tf.Tensor, context: tf.Tensor) -> Windows:
        """Cuts strings `[B]`; any bytes are accepted."""
        query = self._offsets.graph_tokenizer(shorten(question))
        context = self._offsets(tf.strings.substr(context, 0, MAX_TEXT_BYTES))
        asked = tf.minimum(query.row_lengths(), self.options.max_query_length)
        budget = self.options.max_seq_length - 3 - asked
        stride = self.options.doc_stride
        length = context.ids.row_lengths()
        length = tf.minimum(length, budget + (MAX_WINDOWS - 1) * stride)
        # Rounded up; a text without tokens has one window.
        count = 1 + tf.maximum((length - budget + stride - 1) // stride, 0)
        windows = tf.RaggedTensor.from_row_lengths(
            tf.zeros([tf.reduce_sum(count)]), count, validate=False
        )
        number = windows.value_rowids()
        place = tf.range(tf.size(number, tf.int64))
        first = (place - tf.gather(windows.row_starts(), number)) * stride
        size = tf.minimum(tf.gather(length, number) - first, tf.gather(budget, number))
        begin = tf.gather(context.ids.row_starts(), number) + first
        asked = tf.gather(asked, number)
        query_begin = tf.gather(query.row_starts(), number)
        inputs = self._rows(query, context.ids, asked, query_begin, begin, size)
        return Windows(inputs, context, number, begin - asked - 2, begin, size)

    def _rows(self, query, context, asked, query_begin, begin, size):
        """Returns `[CLS] question [SEP] window [SEP]` as inputs of the model."""
        lengths = asked + size + 3
        buckets = tf.constant(length_buckets(self.options.max_seq_length), tf.int64)
        longest = tf.reduce_max(tf.concat([lengths, buckets[:1]], 0))
        width = tf.reduce_min(tf.boolean_mask(buckets, buckets >= longest))
        column = tf.range(width)[None]
        asked, size, lengths = asked[:, None], size[:, None], lengths[:, None]
        in_query = (column > 0) & (column <= asked)
        in_text = (column >= asked + 2) & (column < lengths - 1)
        from_query = _at(query.values, query_begin[:, None] + column - 1, in_query)
        from_text = _at(context.values, begin[:, None] + column - asked - 2, in_text)
        ids = tf.where(in_text, from_text, self._sep)
        ids = tf.where(in_query, from_query, ids)
        ids = tf.where(column == 0, self._cls, ids)
        mask = tf.cast(column < lengths, tf.int32)
        return {
            features.TOKEN_IDS: tf.where(mask == 1, ids, self._pad),
            features.SEGMENT_IDS: mask * tf.cast(column >= asked + 2, tf.int32),
            features.PADDING_MASK: mask,
            features.P_MASK: tf.cast(~in_text & (column > 0), tf.int32),
        }


def _at(values, places, wanted) -> tf.Tensor:
    """Returns the values at the places that are wanted, and anything elsewhere."""
    values = tf.concat([values, [0]], 0)
    return tf.gather(values, tf.where(wanted, places, tf.size(values, tf.int64) - 1))
