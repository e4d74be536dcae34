"""Defines the signatures of an exported model that answers questions.

Legend: `B` batch, `T` sequence, `K` answers (`n_best_size`), `S` starts and `E` ends of
each start of the beam head.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from albert_tf.errors import UsageError
from albert_tf.export.endpoints.row_steps import run_padded
from albert_tf.export.endpoints.signature import (
    Signature,
    ints,
    strings,
    texts,
    token_request,
)
from albert_tf.export.questions import ranking, scoring
from albert_tf.export.questions.windows import MAX_WINDOWS, QuestionInputs
from albert_tf.heads import HEADS
from albert_tf.models.question_answering import AlbertBeamQuestionAnswering
from albert_tf.tasks import saved
from albert_tf.tasks.definitions.family import Options
from albert_tf.tasks.questions import squad_features

_KINDS = {name: head.load_class() for name, head in HEADS.items() if head.answers_spans}


# What may be chosen when a model is exported.
_OPTIONS = {
    "doc_stride": int,
    "max_query_length": int,
    "n_best_size": int,
    "max_answer_length": int,
    "null_threshold": int | float,
    "unanswerable": bool,
}
_KIND_NAMES = {int: "an integer", int | float: "a number", bool: "True or False"}


@dataclasses.dataclass(frozen=True)
class Answering:
    """How questions are answered, which is fixed when a model is exported.

    Attributes:
        options: `Options`. The sizes of windows and answers, and the threshold.
        unanswerable: bool. Whether a text may have no answer.
    """

    options: Options
    unanswerable: bool

    def describe(self) -> dict[str, Any]:
        """Returns the entry of the manifest."""
        described = dataclasses.asdict(self.options)
        for name in ("max_seq_length", "max_qa_length", "on_bad_input"):
            del described[name]
        if not self.unanswerable:
            del described["null_threshold"]
        # JSON has no infinity.
        described = {k: v if abs(v) < 1e300 else str(v) for k, v in described.items()}
        extra = {"unanswerable": self.unanswerable, "max_windows": MAX_WINDOWS}
        return described | extra


def is_answering(model: keras.Model) -> bool:
    """Returns whether the model answers questions."""
    return isinstance(model, tuple(_KINDS.values()))


def answering_of(
    model: keras.Model, max_seq_length: int | None, given: Mapping[str, Any]
) -> Answering:
    """Returns how a model answers, by default as `QuestionAnswerer` with the model.

    Args:
        model: `AlbertQuestionAnswering` or `AlbertBeamQuestionAnswering`.
        max_seq_length: int or None. Maximum length of a row.
        given: mapping. Other options to change, and `unanswerable`.

    Raises:
        UsageError: If the sizes leave no room for a text, or an option is unknown.
    """
    head = next(name for name, kind in _KINDS.items() if isinstance(model, kind))
    task = saved.task_of(model, head, None)
    given = {name: value for name, value in given.items() if value is not None}
    _check(given)
    changed = {k: v for k, v in given.items() if k != "unanswerable"}
    if max_seq_length is not None:
        changed["max_seq_length"] = max_seq_length
    options = dataclasses.replace(task.options, **changed)
    if not getattr(model, "task", None):
        options = dataclasses.replace(squad_features.with_room(options), **changed)
    squad_features.check_options(options)
    recorded = "null_threshold" in changed or saved.may_lack_answers(task)
    return Answering(options, given.get("unanswerable", recorded))


def _check(given: Mapping[str, Any]) -> None:
    """Raises a UsageError if an option is unknown or of another type."""
    for name, value in given.items():
        if name not in _OPTIONS:
            raise UsageError(
                f"answering: expected options among {', '.join(_OPTIONS)}, received "
                f"{name}"
            )
        kinds = _OPTIONS[name]
        right = isinstance(value, kinds) and (kinds is bool or value is not True)
        if not right or value != value:
            raise UsageError(
                f"answering: {name} must be {_KIND_NAMES[kinds]}, received {value!r}"
            )


def make_question_signatures(
    model: keras.Model, inputs: QuestionInputs, answering: Answering, from_tokens
) -> dict[str, Signature]:
    """Returns the signatures of a model that answers questions.

    * `serving_default(question, context)`, both `[B]`: `answer` (string), `score` (its
      probability), `start` and `end` (int32: the characters of the context, counted as
      code points), all `[B]`, and the same of the best answers in order,
      `n_best_answers`, `n_best_scores`, `n_best_starts` and `n_best_ends` `[B, K]`,
      filled up with "", 0, -1 and -1. "There is no answer" is "" from 0 to 0. If texts
      may have no answer, also `null_score` `[B]`: a question is answered if this is
      not above the threshold of the manifest.
    * `tokens(token_ids, lengths, segment_ids)`: what the model returns for rows
      `[CLS] question [SEP] text [SEP]`, `start_logits` and `end_logits` `[B, T]`, or of
      the beam head `start_log_probs` and `start_index` `[B, S]`, `end_log_probs` and
      `end_index` `[B, S * E]`, and `cls_logits` `[B]`.

    Args:
        model: `AlbertQuestionAnswering` or `AlbertBeamQuestionAnswering`.
        inputs: `QuestionInputs`.
        answering: `Answering`.
        from_tokens: callable. Checks the inputs of `tokens`.
    """
    tokens = (ints("token_ids", 2), ints("lengths", 1), ints("segment_ids", 2))

    def from_rows(token_ids, lengths, segment_ids):
        rows = from_tokens(token_ids, lengths, segment_ids)
        width = tf.shape(token_ids)[1]
        if _is_beam(model):
            starts, ends = model.start_n_top, model.start_n_top * model.end_n_top
            nothing = {
                "start_log_probs": tf.zeros([0, starts]),
                "start_index": tf.zeros([0, starts], tf.int32),
                "end_log_probs": tf.zeros([0, ends]),
                "end_index": tf.zeros([0, ends], tf.int32),
                "cls_logits": tf.zeros([0]),
            }
        else:
            names = ("start_logits", "end_logits")
            nothing = {name: tf.zeros([0, width]) for name in names}
        run = functools.partial(model, training=False)
        return run_padded(run, rows, nothing, least=width)

    return {
        "serving_default": Signature(
            make_answer(model, inputs, answering),
            (strings("question"), strings("context")),
            _request,
            every_length=True,
        ),
        "tokens": Signature(from_rows, tokens, token_request, every_length=True),
    }


def make_answer(model: keras.Model, inputs: QuestionInputs, answering: Answering):
    """Returns the function from questions and contexts to answers."""

    def answer(question, context):
        same = tf.debugging.Assert(
            tf.size(question) == tf.size(context),
            ["context: expected one for each question"],
        )
        with tf.control_dependencies([same]):
            windows = inputs(question, context)
        found = scoring.run_model(model, windows.inputs, answering.options)
        return answers_of(found, windows, answering, _is_beam(model))

    return answer


def answers_of(found, windows, answering: Answering, is_beam: bool):
    """Returns the answers of questions.

    Args:
        found: `RowCandidates`.
        windows: `Windows`.
        answering: `Answering`.
        is_beam: bool. Whether the candidates are those of the beam head.
    """
    options, context = answering.options, windows.context
    count = context.codes.nrows()
    # Of the 2-logit head's list, "no answer" is the only empty text.
    with_empty = is_beam or not answering.unanswerable
    candidates = scoring.select(found, windows, options)
    answers = ranking.distinct(
        candidates, context, count, options, with_empty=with_empty
    )
    if not answering.unanswerable:
        ranked = ranking.rank_answerable(answers)
    else:
        null = scoring.null_scores(found, windows, count)
        rank = ranking.rank_beams if is_beam else ranking.rank_logits
        ranked = rank(answers, null, options.null_threshold)
    return ranking.outputs(
        answers, ranked, context.codes, has_null=answering.unanswerable
    )


def _is_beam(model: keras.Model) -> bool:
    return isinstance(model, AlbertBeamQuestionAnswering)


def _request(length: int, size: int) -> dict[str, np.ndarray]:
    # One token of the question and its [SEP] are in the row, too.
    return {"question": texts(1, size), "context": texts(length - 2, size)}
