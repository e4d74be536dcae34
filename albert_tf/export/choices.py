"""The signatures of a multiple choice model.

Legend: `B` questions, `K` choices, `R` rows, one per choice; `T` sequence.

Rows are encoded as in `tasks.multiple_choice`, which Python's `MultipleChoice` uses.
"""

import tensorflow as tf

from albert_tf.export.row_steps import in_steps, run_padded
from albert_tf.export.text_inputs import (
    MAX_TEXT_BYTES,
    STRINGS,
    Signature,
    TextInputs,
    checked,
    shared,
    token_inputs,
)
from albert_tf.models.classifiers import AlbertMultipleChoice
from albert_tf.tasks import saved
from albert_tf.text import inputs_graph
from albert_tf.text.tokenizer_graph import as_utf8

# Used instead of minus infinity, which JSON does not have.
_NO_TOKEN = -1
NO_CHOICE = -1e9


def choice_options(model: AlbertMultipleChoice) -> dict[str, int | bool]:
    """Returns the options that determine rows besides their length, as in fine-tuning.

    These are `max_qa_length`, the maximum number of tokens of a question with a choice,
    and `fills_blanks`, whether a choice replaces each `_` of its question.
    """
    task = saved.task_of(model, model.head, None)
    return {
        "max_qa_length": task.options.max_qa_length,
        "fills_blanks": task.name == "race",
    }


def make_choice_signatures(
    model: AlbertMultipleChoice, text_inputs: TextInputs
) -> dict[str, Signature]:
    """Returns the signatures of a multiple choice model.

    `serving_default(context, question, choices)` takes strings `[B]`, `[B]` and
    `[B, K]`. A row with fewer choices than the others ends in empty strings, as in
    tables of choices; the first choice always counts. `counted(context, question,
    choices, num_choices)` takes their number, int32 `[B]`, instead, so that empty
    strings are choices like others. `tokens(token_ids, lengths, segment_ids)` takes
    int32 `[B, K, T]`, `[B, K]`, `[B, K, T]`; a length of 0 is no choice.

    All return `probabilities` and `logits` `[B, K]`, 0 and -1e9 where there is no
    choice, and `index` int32 `[B]`, the first of the most probable choices. Signatures
    that take strings also return `choice` `[B]`.
    """
    options = choice_options(model)
    tokenizer, length = text_inputs.tokenizer, text_inputs.max_seq_length

    def score(inputs):
        """Returns the logit of each row, treating rows as choices of one question."""
        return model({k: v[None] for k, v in inputs.items()}, training=False)[0]

    def counted(context, question, choices, num_choices):
        width = _checked_width(choices, "choices")
        counts = tf.clip_by_value(num_choices, 1, width)
        is_choice = tf.sequence_mask(counts, width)
        first, second = choice_rows(
            text_inputs, context, question, choices, is_choice, **options
        )

        def answer(numbers, width):
            del width
            part = (tf.gather(segment, numbers) for segment in (first, second))
            return score(inputs_graph.padded_rows(tokenizer, *part, length))

        lengths = tf.cast(first.row_lengths() + second.row_lengths(), tf.int32)
        lengths += 2 + tokenizer.pair_separators
        values = in_steps(answer, lengths, tf.zeros([0]))
        nothing = tf.fill(tf.shape(choices), NO_CHOICE)
        logits = tf.tensor_scatter_nd_update(nothing, tf.where(is_choice), values)
        answers = _answers(logits)
        chosen = tf.gather(choices, answers["index"], batch_dims=1)
        return answers | {"choice": chosen}

    ranks = tf.TensorSpec([None, None], tf.string), tf.TensorSpec([None], tf.int32)
    counted = shared(counted, STRINGS, STRINGS, *ranks)

    def default(context, question, choices):
        places = tf.range(1, _checked_width(choices, "choices") + 1)
        counts = tf.reduce_max(tf.where(choices == "", 0, places), 1)
        return counted(context, question, choices, counts)

    def tokens(token_ids, lengths, segment_ids):
        width = _checked_width(token_ids, "token_ids")
        is_choice = (lengths > 0) | (tf.range(width) == 0)
        flat = [-1, tf.shape(token_ids)[2]]
        rows = token_inputs(
            model,
            tf.reshape(token_ids, flat),
            tf.reshape(tf.where(is_choice, lengths, 1), [-1]),
            tf.reshape(segment_ids, flat),
        )
        values = run_padded(score, rows, tf.zeros([0]))
        logits = tf.reshape(values, tf.shape(lengths))
        return _answers(tf.where(is_choice, logits, NO_CHOICE))

    return {"serving_default": default, "counted": counted, "tokens": tokens}


def choice_rows(
    text_inputs: TextInputs,
    contexts: tf.Tensor,
    questions: tf.Tensor,
    choices: tf.Tensor,
    is_choice: tf.Tensor,
    *,
    max_qa_length: int,
    fills_blanks: bool,
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Returns both segments of each row, ragged int32 `[R, None]`.

    The rows equal the ones of `tasks.multiple_choice`; see also `choice_options`.
    Contexts and questions are `[B]`, `choices` and `is_choice` `[B, K]`.
    """
    tokenize = text_inputs.graph_tokenizer
    # Byte-level BPE has no normalization.
    normalize = getattr(tokenize, "normalize", as_utf8)
    separators = text_inputs.tokenizer.pair_separators
    room = text_inputs.max_seq_length - 2 - separators
    most = min(max_qa_length, room)
    question_of = tf.where(is_choice)[:, 0]
    first = tokenize(normalize(text_inputs.shortened(contexts)))
    # The last tokens of a question with its choice are used.
    questions, choices = (
        normalize(text_inputs.shortened(texts, keep_end=True))
        for texts in (questions, tf.boolean_mask(choices, is_choice))
    )

    def encode(numbers, width):
        del width
        texts = _second_texts(
            tf.gather(questions, tf.gather(question_of, numbers)),
            tf.gather(choices, numbers),
            fills_blanks,
        )
        return tokenize(texts)[:, -most:].to_tensor(_NO_TOKEN, shape=[None, most])

    # A few rows at a time: every choice has a copy of its question.
    nothing = tf.zeros([0, most], tf.int32)
    ids = in_steps(encode, tf.ones_like(choices, tf.int32), nothing)
    second = tf.RaggedTensor.from_tensor(ids, padding=_NO_TOKEN)
    first = tf.gather(first[:, :room], question_of)
    sizes = tf.minimum(first.row_lengths(), room - second.row_lengths())
    return inputs_graph.first_tokens(first, sizes), second


def _second_texts(questions, choices, fills_blanks: bool) -> tf.Tensor:
    """Returns the texts of segment B, string `[R]`, from normalized texts."""
    joined = tf.strings.join([questions, choices], " ")
    joined = tf.where(questions == "", choices, joined)
    if not fills_blanks:
        return joined
    parts = tf.strings.split(questions, "_")
    return tf.where(parts.row_lengths() > 1, _filled(parts, choices), joined)


def _filled(parts: tf.RaggedTensor, choices: tf.Tensor) -> tf.Tensor:
    """Joins the parts of each question by its choice."""
    # Of many blanks, only the last ones are filled, and the text before them is left
    # out: a question of blanks with a long choice would fill the memory, and only the
    # last tokens of the text are read.
    row_of, num_rows = parts.value_rowids(), parts.nrows()
    place = tf.range(tf.size(row_of, tf.int64))
    ends = tf.gather(parts.row_splits, row_of + 1)
    is_last = place == ends - 1
    fills = tf.where(is_last, 0, tf.gather(tf.strings.length(choices), row_of))
    sizes = tf.cast(tf.strings.length(parts.values) + fills, tf.int64)
    before = tf.concat([[0], tf.cumsum(sizes)], 0)
    read = tf.gather(before, ends) - before[1:] < MAX_TEXT_BYTES
    values, row_of = tf.boolean_mask(parts.values, read), tf.boolean_mask(row_of, read)
    fill = tf.where(tf.boolean_mask(is_last, read), "", tf.gather(choices, row_of))
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
