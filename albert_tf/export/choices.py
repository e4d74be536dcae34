"""The signatures of a multiple choice model.

Legend: `B` questions, `K` choices, `R` rows, one per choice; `T` sequence.

Rows are those of `tasks.multiple_choice`, which Python's `MultipleChoice` uses.
"""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from albert_tf.export.row_steps import in_steps, run_padded
from albert_tf.export.text_inputs import (
    MAX_TEXT_BYTES,
    Signature,
    TextInputs,
    checked,
    ints,
    strings,
    texts,
)
from albert_tf.models.classifiers import AlbertMultipleChoice
from albert_tf.tasks import saved
from albert_tf.text import inputs_graph
from albert_tf.text.tokenizer_graph import as_utf8

# Instead of minus infinity, which JSON does not have.
_NO_TOKEN = -1
NO_CHOICE = -1e9


def choice_options(model: AlbertMultipleChoice) -> dict[str, int | bool]:
    """Returns what decides on the rows besides their length, as in fine-tuning."""
    task = saved.task_of(model, model.head, None)
    return {
        "max_qa_length": task.options.max_qa_length,
        "fills_blanks": task.name == "race",
    }


def make_choice_signatures(
    model: AlbertMultipleChoice, text_inputs: TextInputs, from_tokens: Callable
) -> dict[str, Signature]:
    """Returns the signatures of a multiple choice model.

    `serving_default(context, question, choices)` takes strings `[B]`, `[B]` and
    `[B, K]`. A row with fewer choices than the others ends in empty strings, as in
    tables of choices; the first choice always counts. `counted(context, question,
    choices, num_choices)` takes their number, int32 `[B]`, instead, so that empty
    strings are choices like others. `tokens(token_ids, lengths, segment_ids)` takes
    int32 `[B, K, T]`, `[B, K]`, `[B, K, T]`; a length of 0 is no choice.

    All return `probabilities` and `logits` `[B, K]`, 0 and -1e9 where there is no
    choice, and `index` int32 `[B]`, the first of the likeliest choices. Those that take
    strings also return `choice` `[B]`.
    """
    make_rows = ChoiceRows(text_inputs, **choice_options(model))

    def score(inputs):
        """Returns the logit of each row, as of the choices of one question."""
        return model({k: v[None] for k, v in inputs.items()}, training=False)[0]

    def counted(context, question, choices, num_choices):
        width = _checked_width(choices, "choices")
        counts = tf.clip_by_value(num_choices, 1, width)
        is_choice = tf.sequence_mask(counts, width)
        rows = make_rows(context, question, choices, is_choice)
        values = in_steps(
            lambda numbers, width: score(make_rows.padded(*rows, numbers)),
            tf.cast(rows[0].row_lengths() + rows[1].row_lengths(), tf.int32) + 3,
            tf.zeros([0]),
        )
        nothing = tf.fill(tf.shape(choices), NO_CHOICE)
        logits = tf.tensor_scatter_nd_update(nothing, tf.where(is_choice), values)
        answers = _answers(logits)
        chosen = tf.gather(choices, answers["index"], batch_dims=1)
        return answers | {"choice": chosen}

    def default(context, question, choices):
        places = tf.range(1, _checked_width(choices, "choices") + 1)
        counts = tf.reduce_max(tf.where(choices == "", 0, places), 1)
        return counted(context, question, choices, counts)

    def tokens(token_ids, lengths, segment_ids):
        width = _checked_width(token_ids, "token_ids")
        is_choice = (lengths > 0) | (tf.range(width) == 0)
        flat = [-1, tf.shape(token_ids)[2]]
        rows = from_tokens(
            tf.reshape(token_ids, flat),
            tf.reshape(tf.where(is_choice, lengths, 1), [-1]),
            tf.reshape(segment_ids, flat),
        )
        values = run_padded(score, rows, tf.zeros([0]))
        logits = tf.reshape(values, tf.shape(lengths))
        return _answers(tf.where(is_choice, logits, NO_CHOICE))

    parts = (strings("context"), strings("question"), strings("choices", rank=2))
    return {
        "serving_default": Signature(default, parts, _texts, every_length=True),
        "counted": Signature(counted, (*parts, ints("num_choices", 1)), _counted),
        "tokens": Signature(
            tokens,
            (ints("token_ids", 3), ints("lengths", 2), ints("segment_ids", 3)),
            _tokens,
            every_length=True,
        ),
    }


class ChoiceRows:
    """Turns questions with choices into rows, as `MultipleChoice.encode` does.

    Args:
        text_inputs: `TextInputs`.
        max_qa_length: int. Maximum number of tokens of a question with a choice.
        fills_blanks: bool. Whether a choice replaces each `_` of its question.
    """

    def __init__(self, text_inputs: TextInputs, max_qa_length: int, fills_blanks: bool):
        self._text_inputs = text_inputs
        self._tokenize = text_inputs.graph_tokenizer
        # Byte-level BPE has no normalization.
        self._normalize = getattr(self._tokenize, "normalize", as_utf8)
        self._room = text_inputs.max_seq_length - 3
        self._most = min(max_qa_length, self._room)
        self._fills_blanks = fills_blanks

    def __call__(
        self, contexts, questions, choices, is_choice
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        """Returns both segments of each row, ragged int32 `[R, None]`.

        Args:
            contexts, questions: string `[B]`.
            choices: string `[B, K]`.
            is_choice: bool `[B, K]`.
        """
        question_of = tf.where(is_choice)[:, 0]
        first = self._tokenize(self._normalize(self._text_inputs.shortened(contexts)))
        second = self._second(
            questions, tf.boolean_mask(choices, is_choice), question_of
        )
        first = tf.gather(first[:, : self._room], question_of)
        left = self._room - second.row_lengths()
        kept = tf.minimum(first.row_lengths(), left)
        return inputs_graph.first_tokens(first, kept), second

    def padded(self, first, second, numbers) -> dict[str, tf.Tensor]:
        """Returns the rows of these numbers as inputs of the model."""
        first, second = tf.gather(first, numbers), tf.gather(second, numbers)
        texts = self._text_inputs
        return inputs_graph.padded_rows(
            texts.tokenizer, first, second, texts.max_seq_length
        )

    def _second(self, questions, choices, question_of) -> tf.RaggedTensor:
        """Returns segment B of each row.

        A few rows at a time: every choice has a copy of its question, and of their
        tokens the last ones are kept.
        """
        questions, choices = (
            self._normalize(self._text_inputs.shortened(texts, keep_end=True))
            for texts in (questions, choices)
        )

        def encode(numbers, width):
            del width
            texts = self._second_texts(
                tf.gather(questions, tf.gather(question_of, numbers)),
                tf.gather(choices, numbers),
            )
            ids = self._tokenize(texts)[:, -self._most :]
            return ids.to_tensor(_NO_TOKEN, shape=[None, self._most])

        nothing = tf.zeros([0, self._most], tf.int32)
        ids = in_steps(encode, tf.ones_like(choices, tf.int32), nothing)
        return tf.RaggedTensor.from_tensor(ids, padding=_NO_TOKEN)

    def _second_texts(self, questions, choices) -> tf.Tensor:
        """Returns the texts of segment B, string `[R]`, from normalized texts."""
        joined = tf.strings.join([questions, choices], " ")
        joined = tf.where(questions == "", choices, joined)
        if not self._fills_blanks:
            return joined
        parts = tf.strings.split(questions, "_")
        return tf.where(parts.row_lengths() > 1, _filled(parts, choices), joined)


def _filled(parts: tf.RaggedTensor, choices: tf.Tensor) -> tf.Tensor:
    """Joins the parts of each question by its choice.

    Of many blanks only the last ones are filled, and what is before them is left out:
    a question of blanks with a long choice would fill the memory, and of the text the
    last tokens alone are read.
    """
    row_of, num_rows = parts.value_rowids(), parts.nrows()
    place = tf.range(tf.size(row_of, tf.int64))
    ends = tf.gather(parts.row_splits, row_of + 1)
    is_last = place == ends - 1
    fills = tf.where(is_last, 0, tf.gather(tf.strings.length(choices), row_of))
    sizes = tf.cast(tf.strings.length(parts.values) + fills, tf.int64)
    before = tf.concat([[0], tf.cumsum(sizes)], 0)
    kept = tf.gather(before, ends) - before[1:] < MAX_TEXT_BYTES
    values, row_of = tf.boolean_mask(parts.values, kept), tf.boolean_mask(row_of, kept)
    fill = tf.where(tf.boolean_mask(is_last, kept), "", tf.gather(choices, row_of))
    pieces = tf.strings.join([values, fill])
    return tf.strings.unsorted_segment_join(pieces, row_of, num_rows)


def _answers(logits: tf.Tensor) -> dict[str, tf.Tensor]:
    return {
        "probabilities": tf.nn.softmax(logits),
        "logits": logits,
        "index": tf.argmax(logits, -1, tf.int32),
    }


def _checked_width(choices: tf.Tensor, name: str) -> tf.Tensor:
    width = tf.shape(choices)[1]
    return checked(width, (width > 0, f"{name}: at least one choice"))


def _texts(length: int, size: int) -> dict[str, np.ndarray]:
    text = texts(length, size)
    choices = np.full((size, 2), b"a", object)
    return {"context": text, "question": texts(1, size), "choices": choices}


def _counted(length: int, size: int) -> dict[str, np.ndarray]:
    return _texts(length, size) | {"num_choices": np.full(size, 2, np.int32)}


def _tokens(length: int, size: int) -> dict[str, np.ndarray]:
    ids = np.zeros((size, 2, length), np.int32)
    lengths = np.full((size, 2), length, np.int32)
    return {"token_ids": ids, "lengths": lengths, "segment_ids": ids}
