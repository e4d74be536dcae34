"""Cuts questions and their texts into windows: the rows of question answering.

A row is `[CLS] question [SEP] window of the text [SEP]`, as in the original's
`convert_examples_to_features` (`squad_utils.py`). Each text is tokenized once, however
many questions are about it.

Legend: `N` questions, `R` rows (windows), `P` tokens of a text.
"""

import dataclasses

import numpy as np
from absl import logging

from albert_tf import features
from albert_tf.errors import DataError, require
from albert_tf.tables.columns import BadRows, warn_of_skipped
from albert_tf.tasks.squad_files import Question, Questions
from albert_tf.tasks.task import EncodedExamples, Options
from albert_tf.text.inputs import EncodedTexts, join_segments
from albert_tf.text.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class Context:
    """The tokens of a text.

    Attributes:
        ids: int32 `[P]`.
        starts: int32 `[P]`. First character of each token in the text.
        ends: int32 `[P]`. End of each token (exclusive).
    """

    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


@dataclasses.dataclass(frozen=True)
class Windows:
    """Maps positions in rows to parts of the texts; `EncodedExamples.detail`.

    Attributes:
        contexts: `Context` by index of the text in `Questions.contexts`.
        question: int32 `[R]`. Index of each row's question.
        first: int32 `[R]`. Token of the text at which the window begins.
        size: int32 `[R]`. Number of tokens of the text in the window.
    """

    contexts: dict[int, Context]
    question: np.ndarray
    first: np.ndarray
    size: np.ndarray


def check_options(options: Options, special: int = 3) -> None:
    """Raises a `UsageError` if the sizes leave no room for a text.

    `special` is the number of special tokens in a row.
    """
    for name in ("max_query_length", "n_best_size", "max_answer_length"):
        value = getattr(options, name)
        require(value >= 1, f"{name} must be at least 1", value)
    budget = options.max_seq_length - options.max_query_length - special
    least = options.max_query_length + special + 1
    require(
        budget >= 1,
        f"max_seq_length must be at least max_query_length + {special + 1} = "
        f"{least}, so that there is room for the text, received "
        f"{options.max_seq_length}; a smaller max_query_length shortens the questions",
    )
    need = (
        f"doc_stride must be from 1 to {budget} (max_seq_length - max_query_length - "
        f"{special}), or tokens would be lost between two windows"
    )
    require(1 <= options.doc_stride <= budget, need, options.doc_stride)


def with_room(options: Options, special: int = 3) -> Options:
    """Returns options that leave room for a text, for models without a record.

    The usual sizes are kept if they fit in a row with `special` special tokens.
    Otherwise a question gets at most a quarter of a row, and windows overlap by half.
    """
    room = options.max_seq_length - special
    if options.doc_stride <= room - options.max_query_length:
        return options
    query = min(options.max_query_length, max(1, options.max_seq_length // 4))
    stride = min(options.doc_stride, max(1, (room - query) // 2))
    return dataclasses.replace(options, max_query_length=query, doc_stride=stride)


def encode_questions(
    questions: Questions, tokenizer: Tokenizer, options: Options
) -> EncodedExamples:
    """Returns the windows of questions, one unit each, with targets if known.

    The target of a window is the answer if the window contains it whole, and otherwise
    `[CLS]` at both ends with `is_impossible` 1, in SQuAD 1.1 too. In evaluation the
    first correct answer is the target of the loss. If `on_bad_input` is "skip",
    questions that cannot be trained on have no rows. Raises `UsageError` if the sizes
    leave no room for a text.
    """
    special = 2 + tokenizer.pair_separators
    check_options(options, special)
    items = questions.items
    used = sorted({q.context for q in items})
    contexts = {
        i: Context(*tokenizer.encode_with_offsets(questions.contexts[i])) for i in used
    }
    ids, splits = tokenizer.encode_batch_flat([q.text for q in items])
    lengths = np.diff(splits)
    limited = np.minimum(lengths, options.max_query_length)
    windows, positions = _cut(questions, contexts, limited.tolist(), special, options)
    rows = _rows(windows, items, (ids, splits[:-1], limited), tokenizer)
    targets = {}
    if questions.labelled:
        names = (features.START_POSITIONS, features.END_POSITIONS)
        targets = dict(zip(names, positions.T.copy(), strict=True))
        # Position 0 is `[CLS]`, where no answer can start.
        targets[features.IS_IMPOSSIBLE] = (positions[:, 0] == 0).astype(np.int32)
    truncated = lengths > limited
    return EncodedExamples(
        rows, np.arange(len(rows) + 1), targets, truncated, detail=windows
    )


def max_context(first: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Returns the window, of `[W]`, that gives each token of a text the most context.

    This is the window with the largest `min(tokens to the left, tokens to the right) +
    0.01 * tokens in the window`, the first one on a tie (the original's
    `_check_is_max_context`).
    """
    length = int((first + size).max())
    best, score = np.zeros(length, np.int64), np.full(length, -np.inf)
    for window, (start, count) in enumerate(zip(first, size, strict=True)):
        left = np.arange(count)
        value = np.minimum(left, count - 1 - left) + 0.01 * count
        part = slice(start, start + count)
        better = value > score[part]
        score[part] = np.where(better, value, score[part])
        best[part] = np.where(better, window, best[part])
    return best


def _cut(
    questions: Questions, contexts, queries: list[int], special: int, options: Options
) -> tuple[Windows, np.ndarray]:
    """Returns the windows, and the first and last token of their answers, `[R, 2]`."""
    bad, rows, misplaced = BadRows(options.on_bad_input), [], []
    for i, (question, query) in enumerate(zip(questions.items, queries, strict=True)):
        context = contexts[question.context]
        answer = _answer(question, questions.contexts[question.context], context)
        if question.answers and answer is None:
            misplaced.append(_place(question))
        budget, length = options.max_seq_length - query - special, len(context.ids)
        windows = []
        stride = options.doc_stride
        # Stops at the window with the last token; a text without tokens has one window.
        for first in range(0, max(length - budget + stride, 1), stride):
            size = min(length - first, budget)
            held = answer and first <= answer[0] and answer[1] < first + size
            shift = query + special - 1 - first
            tokens = [token + shift for token in answer] if held else [0, 0]
            windows.append((i, first, size, *tokens))
        wanted = questions.training and not question.is_impossible
        if wanted and not any(row[-1] for row in windows):
            problem = _no_window(question, answer, budget)
            bad.report("questions without a window", f"{questions.path}: {problem}")
        else:
            rows += windows
    warn_of_skipped(questions.path, bad.counts, bad.first)
    message = f"{questions.path}: expected questions with a window, received none"
    require(rows, f"{message}; the first one: {bad.first}", error=DataError)
    if misplaced:
        logging.warning(
            "%s: %d answers are not at their answer_start; they are scored by their "
            "text, but the loss counts them as missing; the first: %s",
            *(questions.path, len(misplaced), misplaced[0]),
        )
    table = np.array(rows, np.int32)
    return Windows(contexts, *table.T[:3].copy()), table[:, 3:]


def _answer(question: Question, text: str, context: Context) -> tuple[int, int] | None:
    """Returns the first and last token of the answer, or None if there is no answer."""
    if question.answers:
        answer, start = question.answers[0]
        if answer and 0 <= start <= len(text) and text.startswith(answer, start):
            first = int(np.searchsorted(context.ends, start, side="right"))
            end = start + len(answer) - 1
            last = int(np.searchsorted(context.starts, end, side="right")) - 1
            if first <= last:
                return first, last
    return None


def _no_window(question: Question, answer, budget: int) -> str:
    """Returns the reason why no window of a question contains its answer."""
    if answer is None:
        return f"{_place(question)}: expected an answer with tokens, received none"
    return (
        f"{_place(question)}: no window holds the whole answer of "
        f"{answer[1] - answer[0] + 1} tokens; windows hold {budget}: raise "
        "max_seq_length or lower doc_stride"
    )


def _place(question: Question) -> str:
    return f"{question.where} (id {question.id!r})"


def _rows(windows: Windows, items, queries, tokenizer: Tokenizer) -> EncodedTexts:
    """Joins the tokens of the rows."""
    ids, starts, counts = queries
    used = list(windows.contexts)
    texts = [windows.contexts[i].ids for i in used]
    begins = dict(zip(used, np.cumsum([0, *map(len, texts)]), strict=False))
    begins = np.array([begins[items[i].context] for i in windows.question])
    return join_segments(
        tokenizer,
        (ids, starts[windows.question], counts[windows.question]),
        (np.concatenate(texts), begins + windows.first, windows.size),
    )
