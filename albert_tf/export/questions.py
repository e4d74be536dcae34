"""Answers questions inside an exported model, as `QuestionAnswerer` does.

Legend: `B` questions, `K` answers of each (`n_best_size`), `M` candidates of all, `n`
characters of all texts; `T` sequence, `S` starts and `E` ends of each start of the beam
head.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from albert_tf.converters.keras_model import head_of
from albert_tf.errors import DataError, UsageError, require
from albert_tf.export.question_rows import (
    Answering,
    Candidates,
    cut_windows,
    null_scores,
    run_model,
    select,
)
from albert_tf.export.row_steps import run_padded
from albert_tf.export.text_inputs import (
    MAX_TEXT_BYTES,
    Signature,
    TextInputs,
    token_inputs,
)
from albert_tf.heads import HEADS
from albert_tf.settings import checked
from albert_tf.tasks import saved, squad_features
from albert_tf.text.offsets_graph import counts_before, is_space
from albert_tf.text.tokenizer_graph import TokensWithOffsets

_IMPOSSIBLE = -2e6  # score of a made-up answer, see `squad_answers`
# Two hashes of texts: (prime, base).
_HASHES = ((2147483647, 1000003), (2147483629, 998244353))
_DIGIT = 256  # a power is the product of two of this many in tables


def answering_of(
    model: keras.Model, max_seq_length: int | None, options: Mapping[str, Any]
) -> Answering:
    """Returns the options of answering, by default as in `QuestionAnswerer`.

    Raises `UsageError` if the sizes leave no room for a text, or an option is unknown.
    """
    task = saved.task_of(model, head_of(model), None)
    options = {name: value for name, value in options.items() if value is not None}
    fields = [field.name for field in dataclasses.fields(Answering)][1:]
    unknown = ", ".join(str(name) for name in options if name not in fields)
    need = f"answering: expected options among {', '.join(fields)}, received {unknown}"
    require(not unknown, need)
    if max_seq_length is not None:
        options["max_seq_length"] = max_seq_length
    try:
        checked(options, Answering)
    except DataError as e:
        raise UsageError(f"answering: {e}") from None
    names = {field.name for field in dataclasses.fields(Answering)} - {"unanswerable"}
    recorded = {name: getattr(task.options, name) for name in names}
    may_lack = "null_threshold" in options or saved.may_lack_answers(task)
    answering = Answering(**{"unanswerable": may_lack, **recorded, **options})
    special = 4 if model.config.num_segments == 1 else 3
    if not getattr(model, "task", None):
        answering = squad_features.with_room(answering, special)
        answering = dataclasses.replace(answering, **options)
    squad_features.check_options(answering, special)
    threshold = answering.null_threshold
    is_number = threshold == threshold
    require(is_number, "answering: null_threshold must be a number", threshold)
    return answering


def make_question_signatures(
    model: keras.Model, text_inputs: TextInputs, answering: Answering
) -> dict[str, Signature]:
    """Returns the signatures of a model that answers questions.

    * `serving_default(question, context)`, both `[B]`: `answer` (string), `score` (its
      probability), `start` and `end` (int32: the characters of the context, counted as
      code points), all `[B]`, and the same of the best answers in order,
      `n_best_answers`, `n_best_scores`, `n_best_starts` and `n_best_ends` `[B, K]`,
      padded with "", 0, -1 and -1. "There is no answer" is "" from 0 to 0. If texts
      may have no answer, also `null_score` `[B]`: a question is answered if this is
      not above the threshold of the manifest.
    * `tokens(token_ids, lengths, segment_ids)`: outputs of the model for rows
      `[CLS] question [SEP] text [SEP]`, `start_logits` and `end_logits` `[B, T]`, or of
      the beam head `start_log_probs` and `start_index` `[B, S]`, `end_log_probs` and
      `end_index` `[B, S * E]`, and `cls_logits` `[B]`.

    Raises `UsageError` if the graph cannot do what the tokenizer does.
    """
    is_beam = HEADS[head_of(model)].has_beam
    offsets = text_inputs.tokenizer.graph_offsets

    def answer(question, context):
        windows = cut_windows(text_inputs, offsets, answering, question, context)
        row_candidates = run_model(model, windows.inputs, answering)
        return answers_of(row_candidates, windows, answering, is_beam)

    def tokens(token_ids, lengths, segment_ids):
        rows = token_inputs(model, token_ids, lengths, segment_ids)
        width = tf.shape(token_ids)[1]
        if is_beam:
            count = model.start_n_top
            nothing = {"cls_logits": tf.zeros([0])}
            for name, most in (("start", count), ("end", count * model.end_n_top)):
                nothing[f"{name}_log_probs"] = tf.zeros([0, most])
                nothing[f"{name}_index"] = tf.zeros([0, most], tf.int32)
        else:
            names = ("start_logits", "end_logits")
            nothing = {name: tf.zeros([0, width]) for name in names}
        run = functools.partial(model, training=False)
        return run_padded(run, rows, nothing, least=width)

    return {"serving_default": answer, "tokens": tokens}


def answers_of(row_candidates, windows, answering: Answering, is_beam: bool):
    """Returns the answers of questions, from the `RowCandidates` of their `Windows`."""
    context = windows.context
    count = context.codes.nrows()
    # In the list of the 2-logit head, "no answer" is the only empty text.
    with_empty = is_beam or not answering.unanswerable
    candidates = select(row_candidates, windows, answering.max_answer_length)
    answers = distinct(
        candidates, context, count, answering.n_best_size, with_empty=with_empty
    )
    if not answering.unanswerable:
        ranked = rank_answerable(answers)
    else:
        null = null_scores(row_candidates, windows, count)
        rank = rank_beams if is_beam else rank_logits
        ranked = rank(answers, null, answering.null_threshold)
    return outputs(answers, ranked, context.codes, has_null=answering.unanswerable)


class Found(NamedTuple):
    """The distinct answers of each question, best first, without "no answer".

    Attributes:
        score: float64 `[B, K]`.
        start: int64 `[B, K]`. First of the `n` characters.
        end: int64 `[B, K]`. The one after the last.
        count: int64 `[B]`. Number of answers; later entries have no meaning.
    """

    score: tf.Tensor
    start: tf.Tensor
    end: tf.Tensor
    count: tf.Tensor


class Ranked(NamedTuple):
    """The ranking of the answers.

    Attributes:
        score: float64 `[B, K]`. Probability of each answer.
        count: int64 `[B]`. Number of answers.
        place: int64 `[B]`. Rank of "no answer"; answers from that rank on follow it.
        none: float64 `[B]`. Probability of "no answer".
        null: float64 `[B]`. Its null score.
    """

    score: tf.Tensor
    count: tf.Tensor
    place: tf.Tensor
    none: tf.Tensor
    null: tf.Tensor


def distinct(
    candidates: Candidates,
    context: TokensWithOffsets,
    count: tf.Tensor,
    most: int,
    *,
    with_empty: bool,
) -> Found:
    """Returns the `most` best candidates with different texts for `count` texts.

    `with_empty` says whether a text without characters counts.
    """
    question = candidates.question
    base = tf.gather(context.codes.row_starts(), question)
    start = base + tf.cast(tf.gather(context.starts.values, candidates.start), tf.int64)
    end = base + tf.cast(tf.gather(context.ends.values, candidates.end), tf.int64)
    start, end = _stripped(context.codes.values, start, end)
    key = _keys(context.codes, start, end)
    # `tf.unique` numbers values by their first place, so `first` ascends.
    kinds, number = tf.unique(key, tf.int64)
    _, number = tf.unique(question * tf.size(kinds, tf.int64) + number, tf.int64)
    place = tf.range(tf.size(number, tf.int64))
    size = tf.reduce_max(tf.concat([[0], number + 1], 0))
    first = tf.math.unsorted_segment_min(place, number, size)
    owner = tf.gather(question, first)
    counts = tf.math.unsorted_segment_sum(tf.ones_like(owner), owner, count)
    rank = tf.range(tf.size(owner, tf.int64))
    rank -= tf.gather(tf.cumsum(counts, exclusive=True), owner)
    # Python drops empty texts after the list was cut.
    is_kept = rank < most
    if not with_empty:
        is_kept &= tf.gather(start < end, first)
    first = tf.boolean_mask(first, is_kept)
    owner = tf.gather(question, first)
    counts = tf.math.unsorted_segment_sum(tf.ones_like(owner), owner, count)

    def dense(values, nothing):
        rows = tf.gather(values, first)
        rows = tf.RaggedTensor.from_row_lengths(rows, counts, validate=False)
        return rows.to_tensor(nothing, shape=[None, most])

    score = dense(candidates.score, -float("inf"))
    return Found(score, dense(start, 0), dense(end, 0), counts)


def rank_answerable(found: Found) -> Ranked:
    """Ranks answers where every text has one (SQuAD 1.1)."""
    score = _softmax(found.score)
    nothing = tf.zeros_like(score[:, 0])
    # "No answer" is returned only if no answer was found.
    place = tf.cast(found.count > 0, tf.int64) * score.shape[1]
    return Ranked(score, found.count, place, nothing, nothing)


def rank_beams(found: Found, null: tf.Tensor, threshold: float) -> Ranked:
    """Ranks the answers of the beam head and "no answer".

    `null` is the logit of "no answer", float64 `[B]`. A question is answered if its
    null score is not above the threshold.
    """
    none = tf.sigmoid(tf.maximum(null, -700.0))
    score = _softmax(found.score) * (1 - none)[:, None]
    none = tf.where(found.count > 0, none, 1.0)
    answered = (found.start[:, 0] < found.end[:, 0]) & (null <= threshold)
    return _placed(score, found.count, answered, none, null)


def rank_logits(found: Found, null: tf.Tensor, threshold: float) -> Ranked:
    """Ranks the answers of the 2-logit head and "no answer" (SQuAD 2.0).

    No text of the answers is empty. `null` is the sum of the logits of `[CLS]`, float64
    `[B]`. A question is answered if its null score is not above the threshold.
    """
    most = found.score.shape[1]
    best = tf.where(found.count > 0, found.score[:, 0], _IMPOSSIBLE)
    odds = null - best
    # "No answer" is one of the candidates if it is among the best.
    before = tf.reduce_sum(tf.cast(found.score >= null[:, None], tf.int64), 1)
    listed = before < most
    count = tf.minimum(found.count, most - tf.cast(listed, tf.int64))
    inside = tf.range(most, dtype=tf.int64) < count[:, None]
    scores = tf.where(inside, found.score, -float("inf"))
    null = tf.where(listed, null, -float("inf"))
    score = _softmax(tf.concat([scores, null[:, None]], 1))
    score, none = score[:, :most], score[:, most]
    none = tf.where(listed, none, score[:, 0] * tf.exp(tf.minimum(odds, 0.0)))
    if most == 1:
        # A list of one entry, which is "no answer".
        only = (count == 0) & (found.count > 0)
        score = tf.where(only[:, None], tf.exp(tf.minimum(-odds, 0.0))[:, None], score)
        count = found.count
    none = tf.where(count > 0, none, 1.0)
    answered = (found.count > 0) & (odds <= threshold)
    return _placed(score, count, answered, none, odds)


def outputs(found: Found, ranked: Ranked, codes: tf.RaggedTensor, has_null: bool):
    """Returns the outputs of the signature.

    `codes` is ragged int32 `[B, None]`, the characters of the texts.
    """
    most = found.score.shape[1]
    slot = tf.range(most, dtype=tf.int64)
    place = ranked.place[:, None]
    source = slot - tf.cast(slot > place, tf.int64)
    is_none = slot == place
    is_answer = ~is_none & (source < ranked.count[:, None])
    start, end, score = (
        tf.gather(column, source, batch_dims=1)
        for column in (found.start, found.end, ranked.score)
    )
    end = tf.where(is_answer, end, start)
    texts = tf.ragged.range(tf.reshape(start, [-1]), tf.reshape(end, [-1]))
    texts = texts.with_values(tf.gather(codes.values, texts.values))
    texts = tf.strings.unicode_encode(texts, "UTF-8")
    base = codes.row_starts()[:, None]
    rest = tf.where(is_none, tf.constant(0, tf.int64), -1)
    score = tf.where(is_none, ranked.none[:, None], tf.where(is_answer, score, 0.0))
    listed = {
        "answer": tf.reshape(texts, tf.shape(score)),
        "score": tf.cast(score, tf.float32),
        "start": tf.cast(tf.where(is_answer, start - base, rest), tf.int32),
        "end": tf.cast(tf.where(is_answer, end - base, rest), tf.int32),
    }
    result = {name: values[:, 0] for name, values in listed.items()}
    result |= {f"n_best_{name}s": values for name, values in listed.items()}
    if has_null:
        result["null_score"] = tf.cast(ranked.null, tf.float32)
    return result


def _placed(score, count, answered, none, null) -> Ranked:
    """Puts "no answer" first, or behind answers by its score, last on a tie."""
    slot = tf.range(score.shape[1], dtype=tf.int64)
    above = (score >= none[:, None]) & (slot > 0) & (slot < count[:, None])
    behind = 1 + tf.reduce_sum(tf.cast(above, tf.int64), 1)
    return Ranked(score, count, tf.where(answered, behind, 0), none, null)


def _softmax(scores: tf.Tensor) -> tf.Tensor:
    """Returns probabilities over the last axis, 0 for minus infinity."""
    top = tf.reduce_max(scores, 1, keepdims=True)
    shares = tf.exp(scores - tf.maximum(top, scores.dtype.min))
    return shares / tf.maximum(tf.reduce_sum(shares, 1, keepdims=True), 1e-300)


def _stripped(codes: tf.Tensor, start, end):
    """Strips white space at both ends of parts of texts, like `str.strip`."""
    word = ~is_space(codes)
    before = counts_before(word)
    places = tf.concat([tf.where(word)[:, 0], [tf.size(codes, tf.int64)]], 0)
    first, stop = tf.gather(before, start), tf.gather(before, end)
    start = tf.minimum(tf.gather(places, first), end)
    last = tf.gather(places, tf.maximum(stop - 1, 0))
    return start, tf.where(stop > first, last + 1, start)


def _keys(codes: tf.RaggedTensor, start, end) -> tf.Tensor:
    """Returns numbers, int64 `[M]`, that differ if parts of texts differ."""
    # Two hashes of 31 bits each: a comparison of all texts could cost a thousand times
    # more. Different texts have the same number in one of 10^18 pairs.
    rows = codes.value_rowids()
    place = tf.range(tf.size(rows, tf.int64)) - tf.gather(codes.row_starts(), rows)
    origin = tf.gather(place, tf.minimum(start, tf.size(rows, tf.int64) - 1))
    values = tf.cast(codes.values, tf.int64) + 1
    key = tf.zeros_like(start)
    for prime, base in _HASHES:
        sums = tf.cumsum(values * _power(base, place, prime) % prime)
        sums = tf.concat([[0], sums], 0)
        part = (tf.gather(sums, end) - tf.gather(sums, start)) % prime
        # Normalized as if every part began at the last place.
        part = part * _power(base, MAX_TEXT_BYTES - origin, prime) % prime
        key = key * prime + part
    return key


def _power(base: int, exponents: tf.Tensor, prime: int) -> tf.Tensor:
    """Returns `base ** exponents % prime`, for exponents up to `MAX_TEXT_BYTES`."""
    low, high = (
        tf.constant([pow(base, i * step, prime) for i in range(count)], tf.int64)
        for step, count in ((1, _DIGIT), (_DIGIT, MAX_TEXT_BYTES // _DIGIT + 1))
    )
    high = tf.gather(high, exponents // _DIGIT)
    return high * tf.gather(low, exponents % _DIGIT) % prime
