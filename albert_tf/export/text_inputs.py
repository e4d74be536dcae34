"""The inputs of signatures: their names, and the conversion of strings to rows.

The names of inputs and outputs are the interface of a served model. All outputs are
dense with the batch first, as the row format of TensorFlow Serving's REST API requires.
The work for any text is bounded.

Legend: `B` batch, `T` sequence.
"""

import inspect
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from albert_tf import features
from albert_tf.converters.keras_model import head_of
from albert_tf.heads import find
from albert_tf.text import inputs_graph, normalization
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.text.tokenizer_graph import as_utf8

# From tensors to a dict of tensors; its arguments are named like the inputs.
Signature = Callable[..., dict[str, tf.Tensor]]
STRINGS = tf.TensorSpec([None], tf.string)
# A server accepts messages of any size and batches the texts of many clients, so the
# cost of one text must be bounded: first the raw bytes, which are cheap to read; then,
# after runs of white space are collapsed, the bytes that go through the Unicode tables.
MAX_RAW_BYTES = 1 << 20
MAX_TEXT_BYTES = 1 << 16


def make_inputs(
    signature: Signature,
    model: keras.Model,
    length: int,
    size: int,
    word: bytes = b"a ",
) -> dict[str, np.ndarray]:
    """Returns `size` inputs of a signature, with rows of `length` tokens.

    Texts, without special tokens, are repetitions of `word`, which is one token.
    """
    head = find(head_of(model))
    # One token of a question and its [SEP] are also in the row.
    size_of_context = length - 4 if head.answers_spans else length - 2
    text, context, question = (
        np.array([word * max(count, 1)] * size, object)
        for count in (length - 2, size_of_context, 1)
    )
    # In multiple choice, each of two choices has a row.
    rows = (size, 2)[: head.input_rank - 1]
    ids = np.zeros((*rows, length), np.int32)  # a token of every vocabulary
    # Every depth, so that no layer is run for the first time by a client.
    depths = np.arange(size) * model.config.num_hidden_layers // size + 1
    values = {
        "text": text,
        "text_pair": text,
        "inputs": np.array([b""] * size, object),  # an empty `tf.Example`
        "layer": np.full(size, -1, np.int32),
        "num_layers": depths.astype(np.int32),
        "token_ids": ids,
        "lengths": np.full(rows, length, np.int32),
        "segment_ids": ids,
        "mask_positions": np.zeros((size, 1), np.int32),
        "words": np.full((size, length), b"a", object),
        "num_words": np.full(size, length, np.int32),
        "context": context,
        "question": question,
        "choices": np.full((size, 2), b"a", object),
        "num_choices": np.full(size, 2, np.int32),
    }
    return {name: values[name] for name in inspect.signature(signature).parameters}


def specs_of(signature: Signature, model: keras.Model) -> list[tf.TensorSpec]:
    """Returns the names, types and ranks of a signature's inputs."""
    return [
        tf.TensorSpec([None] * value.ndim, value.dtype, name)
        for name, value in make_inputs(signature, model, 1, 1).items()
    ]


def shared(function: Callable, *specs: Any) -> Callable:
    """Returns a function that is traced, stored and loaded once for all signatures."""
    return tf.function(function, specs, autograph=False)


class TextInputs(tf.Module):
    """Turns texts and pairs of texts into model inputs.

    It must be saved with the functions that use it, or the vocabulary is lost.

    `max_seq_length` is the maximum length of a row, including special tokens.
    """

    def __init__(self, tokenizer: Tokenizer, max_seq_length: int):
        super().__init__(name="text_inputs")
        self.tokenizer = tokenizer
        self.graph_tokenizer = tokenizer.graph
        self.max_seq_length = max_seq_length
        encode = shared(self._encode, STRINGS)
        self._encode_once = lambda texts: encode(texts)  # is not saved by itself

    def __call__(self, texts, text_pairs=None) -> dict[str, tf.Tensor]:
        """Encodes strings `[B]`; see `inputs_graph.join_segments`.

        Any bytes are accepted, so that no text makes the whole batch fail: as in
        `Tokenizer.encode`, bytes that are not UTF-8 count as spaces, and nothing after
        such a byte or after a NUL is lost.
        """
        if text_pairs is None:
            return self._encode_once(texts)
        return self._encode(texts, text_pairs)

    def masked(self, texts) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Encodes strings `[B]` in which `[MASK]` marks masked tokens.

        A text that is too long becomes a row without tokens: a cut could remove a mask,
        or the context that determines its token.

        Returns the model inputs (see `inputs_graph.join_segments`), and bool `[B]`,
        whether a text is too long.
        """
        bound = self.shortened(texts)
        ids = self.graph_tokenizer.tokenize_masked(bound)
        too_long = (
            (ids.row_lengths() > self.max_seq_length - 2)
            | (tf.strings.length(texts) > MAX_RAW_BYTES)
            | (tf.strings.length(bound) >= MAX_TEXT_BYTES)
        )
        fits = tf.gather(~too_long, ids.value_rowids())
        ids = tf.ragged.boolean_mask(ids, ids.with_values(fits))
        rows = inputs_graph.join_segments(
            self.tokenizer, ids, None, self.max_seq_length
        )
        return rows, too_long

    def _encode(self, texts, text_pairs=None) -> dict[str, tf.Tensor]:
        second = None if text_pairs is None else self._tokenize(text_pairs)
        return inputs_graph.join_segments(
            self.tokenizer, self._tokenize(texts), second, self.max_seq_length
        )

    def _tokenize(self, texts) -> tf.RaggedTensor:
        return self.graph_tokenizer(self.shortened(texts))

    def shortened(self, texts: tf.Tensor, keep_end: bool = False) -> tf.Tensor:
        """Returns texts `[B]` of bounded length, without their end, or their start."""
        part = _end if keep_end else _start
        if not self.tokenizer.collapses_white_space:
            return part(texts, MAX_TEXT_BYTES)
        # Before white space is replaced, because an invalid byte would end the search.
        texts = as_utf8(part(texts, MAX_RAW_BYTES))
        white_space = normalization.white_space_pattern()
        texts = tf.strings.strip(tf.strings.regex_replace(texts, white_space, " "))
        # The cut may split a character; the tokenizer treats its rest as a space.
        return part(texts, MAX_TEXT_BYTES)


def _start(texts: tf.Tensor, size: int) -> tf.Tensor:
    return tf.strings.substr(texts, 0, size)


def _end(texts: tf.Tensor, size: int) -> tf.Tensor:
    before = tf.maximum(tf.strings.length(texts) - size, 0)
    return tf.strings.substr(texts, before, tf.fill(tf.shape(texts), size))


def token_inputs(
    model: keras.Model,
    token_ids: tf.Tensor,
    lengths: tf.Tensor,
    segment_ids: tf.Tensor,
) -> dict[str, tf.Tensor]:
    """Returns model inputs for tokens sent by a client, int32 `[B, T]` and `[B]`.

    The mask is computed from `lengths`: a server that merges requests pads a matrix
    with its first element (`pad_variable_length_inputs`), which for a mask would be 1.
    A value out of range is an InvalidArgumentError when run.
    """
    config = model.config
    vocab_size, type_vocab_size = config.vocab_size, config.type_vocab_size
    most = config.max_position_embeddings
    rows, width = tf.unstack(tf.shape(token_ids))
    # Without this check, different shapes would be broadcast.
    same_shape = tf.reduce_all(tf.shape(segment_ids) == [rows, width])
    mask = checked(
        tf.sequence_mask(lengths, width, tf.int32),
        (tf.shape(lengths)[0] == rows, "lengths: one for each row of token_ids"),
        (same_shape, "segment_ids: of the shape of token_ids"),
    )
    padding = max(config.position_offset - 1, 0)
    token_ids = tf.where(mask > 0, token_ids, padding)
    segment_ids *= mask
    rules = [
        (width <= most, f"token_ids: at most {most} columns"),
        (within(lengths, 1, width + 1), "lengths: from 1 to the columns of token_ids"),
        (within(token_ids, 0, vocab_size), f"token_ids: from 0 to {vocab_size - 1}"),
        (
            within(segment_ids, 0, type_vocab_size),
            f"segment_ids: from 0 to {type_vocab_size - 1}",
        ),
    ]
    inputs = {
        features.TOKEN_IDS: token_ids,
        features.SEGMENT_IDS: segment_ids,
        features.PADDING_MASK: mask,
    }
    return checked(inputs, *rules)


def checked(values: Any, *rules: tuple) -> Any:
    """Returns tensors that raise InvalidArgumentError at run time if a rule fails.

    Each rule is a tuple of a condition, a message, and perhaps tensors to show.
    """
    checks = [tf.debugging.Assert(rule, shown) for rule, *shown in rules]
    with tf.control_dependencies(checks):
        return tf.nest.map_structure(tf.identity, values)


def in_range(name: str, values: tf.Tensor, low: int, most: int) -> tf.Tensor:
    """Returns integers that are checked to be from `low` to `most` when run."""
    message = f"{name}: from {low} to {most}, received"
    return checked(values, (within(values, low, most + 1), message, values))


def within(values: tf.Tensor, low, high) -> tf.Tensor:
    """Returns whether all values are at least `low` and below `high`."""
    return tf.reduce_all((values >= low) & (values < high))
