"""Turns questions with choices into rows `[CLS] context [SEP] question choice [SEP]`.

Legend: `R` rows, one per choice.
"""

from collections.abc import Iterable

import numpy as np

from albert_tf.errors import UsageError
from albert_tf.tasks.choice_files import ChoiceExamples
from albert_tf.text import inputs
from albert_tf.text.normalization import to_unicode
from albert_tf.text.tokenizer import Tokenizer


def encode_choices(
    examples: ChoiceExamples,
    tokenizer: Tokenizer,
    max_seq_length: int,
    max_qa_length: int,
) -> tuple[inputs.EncodedTexts, np.ndarray]:
    """Returns the rows of all choices, and which of them lost tokens.

    As the original's `RaceProcessor` and `convert_single_example` do it: all texts are
    normalized; a choice replaces every `_` of its question, if the examples say so and
    there is one, and follows the question otherwise; the last `max_qa_length` tokens
    of the two are kept, and as many of the context, from its start, as then fit.

    Args:
        examples: `ChoiceExamples`.
        tokenizer: `Tokenizer`.
        max_seq_length: int. Maximum length of a row, special tokens included.
        max_qa_length: int. Maximum number of tokens of a question with a choice.

    Returns:
        `EncodedTexts` of `R` rows, and bool `[R]`.

    Raises:
        UsageError: If `max_qa_length` is not positive.
    """
    if max_qa_length < 1:
        raise UsageError(f"max_qa_length must be positive, received {max_qa_length}")
    counts = [len(row) for row in examples.choices]
    # Questions share an article: it is tokenized once.
    distinct = {text: i for i, text in enumerate(dict.fromkeys(examples.contexts))}
    first = tokenizer.encode_batch_flat(_normalized(tokenizer, distinct))
    second = tokenizer.encode_batch_flat(_second_texts(tokenizer, examples))
    context = np.repeat([distinct[text] for text in examples.contexts], counts)
    return _assemble(
        tokenizer, first, second, context, max_seq_length - 3, max_qa_length
    )


def _normalized(tokenizer: Tokenizer, texts: Iterable[str]) -> list[str]:
    """Returns texts as the tokenizer sees them; byte BPE has no normalization."""
    return list(map(getattr(tokenizer, "normalize", to_unicode), texts))


def _second_texts(tokenizer: Tokenizer, examples: ChoiceExamples) -> list[str]:
    """Returns segment B of each row, from normalized texts as in the original."""
    questions = _normalized(tokenizer, examples.questions)
    texts = []
    for question, row in zip(questions, examples.choices, strict=True):
        choices = _normalized(tokenizer, row)
        if examples.fills_blanks and "_" in question:
            texts += [question.replace("_", choice) for choice in choices]
        elif question:
            texts += [f"{question} {choice}" for choice in choices]
        else:
            texts += choices
    return texts


def _assemble(
    tokenizer: Tokenizer, first, second, context, room: int, max_qa_length: int
) -> tuple[inputs.EncodedTexts, np.ndarray]:
    """Joins tokens of contexts and of choices, of which the end is kept."""
    (a_ids, a_splits), (b_ids, b_splits) = first, second
    full_b = np.diff(b_splits)
    kept_b = np.minimum(full_b, min(max_qa_length, room))
    full_a = np.diff(a_splits)[context]
    kept_a = np.minimum(full_a, room - kept_b)
    splits = np.concatenate([[0], np.cumsum(kept_a + kept_b + 3)]).astype(np.int64)
    ids = np.full(splits[-1], tokenizer.sep_id, np.int32)
    ids[splits[:-1]] = tokenizer.cls_id
    starts_a = a_splits[context]
    for row, start in enumerate(splits[:-1] + 1):
        middle = start + kept_a[row]
        ids[start:middle] = a_ids[starts_a[row] : starts_a[row] + kept_a[row]]
        end = b_splits[row + 1]
        ids[middle + 1 : middle + 1 + kept_b[row]] = b_ids[end - kept_b[row] : end]
    lost = (kept_a < full_a) | (kept_b < full_b)
    lengths = (kept_a + 2).astype(np.int32)
    return inputs.EncodedTexts(ids, splits, lengths, int(lost.sum())), lost
