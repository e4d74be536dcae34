"""Finds the answers to questions in texts."""

import math
from collections.abc import Sequence
from typing import Any

import keras

from albert_tf.errors import require
from albert_tf.heads import SPANS, answering
from albert_tf.inference import predictor
from albert_tf.tasks import saved
from albert_tf.tasks.squad_answers import Answers, Candidate
from albert_tf.tasks.squad_files import ask
from albert_tf.text.tokenizer import Tokenizer

_NOTHING = Candidate("", 0.0, 0.0, 0.0, 0, 0)


class QuestionAnswerer(predictor.Predictor):
    """Answers questions with a part of a text, or says that the text has no answer.

    A text that is too long for a row is read in overlapping windows.

    Args:
        model: `AlbertQuestionAnswering` or `AlbertBeamQuestionAnswering`.
        tokenizer: `Tokenizer`.
        unanswerable: bool or None. Whether a text may have no answer. Default: whether
            the model was fine-tuned on such questions (SQuAD 2.0), or a
            `null_threshold` is given.
        null_threshold: float or None. A question is answered if its null score does
            not exceed this: a larger number gives more answers. The null score is
            the logit of "there is no answer" of the beam head, and otherwise the
            logits of `[CLS]` minus the logits of the best answer. Default: the
            value chosen in fine-tuning, or 0.
        **kwargs: `max_seq_length`, `doc_stride`, `max_query_length`, `n_best_size` and
            `max_answer_length` (see `tasks.task.Options`; default: as in
            fine-tuning), and `batch_size`.

    Example:
        >>> import albert_tf
        >>> answer = albert_tf.QuestionAnswerer.from_pretrained("my_squad_model")
        >>> answer("Which river?", "The Main runs through Frankfurt.")
        {'answer': 'The Main', 'score': 0.71, 'start': 0, 'end': 8}
    """

    heads = answering(SPANS)

    def __init__(
        self,
        model: keras.Model,
        tokenizer: Tokenizer,
        *,
        unanswerable: bool | None = None,
        null_threshold: float | None = None,
        **kwargs,
    ):
        super().__init__(model, tokenizer, null_threshold=null_threshold, **kwargs)
        if unanswerable is None:
            recorded = saved.may_lack_answers(self.task)
            unanswerable = recorded or null_threshold is not None
        self.unanswerable = bool(unanswerable)

    def __call__(
        self,
        question: str | Sequence[str],
        context: str | Sequence[str],
        top_k: int = 1,
    ) -> Any:
        """Returns the best answers, equal to the answers of `evaluate` and `predict`.

        Args:
            question: str or sequence of str. UTF-8 bytes are accepted, too.
            context: str or sequence of str. The text of each question. One text may go
                with several questions, and one question with several texts.
            top_k: int. Number of answers, at most `n_best_size`.

        Returns:
            A dict for a question with its text, otherwise a list of dicts: `answer`,
            `score` (its probability), `start` and `end`: `context[start:end]` is the
            answer, counted in characters. "There is no answer" is `""` from 0 to 0.
            Unless `top_k` is 1, each dict is a list of at most `top_k` dicts; the first
            is the answer, the others follow by score.

        Raises:
            UsageError: If an argument is not a string or a list of strings, or the
                numbers of questions and texts differ.
        """
        most = self.options.n_best_size
        predictor.check_count("top_k", top_k)
        require(top_k <= most, f"top_k must be at most n_best_size={most}", top_k)
        single = isinstance(question, str | bytes) and isinstance(context, str | bytes)
        questions = predictor.as_unicode("question", question)
        contexts = predictor.as_unicode("context", context)
        if isinstance(context, str | bytes):
            contexts *= len(questions)
        elif isinstance(question, str | bytes):
            questions *= len(contexts)
        count = len(questions)
        expected = f"context: expected one text, or one for each of {count} questions"
        require(len(contexts) == count, expected, len(contexts))
        if not questions:
            return []
        answers = self.answers(ask(questions, contexts, self.unanswerable))
        ranked = [_ranked(answers, i)[:top_k] for i in range(count)]
        results = ranked if top_k > 1 else [row[0] for row in ranked]
        return results[0] if single else results


def _ranked(answers: Answers, i: int) -> list[dict[str, Any]]:
    """Returns the answers to a question, starting with the one that is given."""
    # Made-up answers have no position in the text.
    candidates = [c for c in answers.nbest[i] if c.start >= 0]
    if answers.null_scores is None:
        return [_row(c, c.probability) for c in candidates] or [_row(_NOTHING, 0.0)]
    null = answers.null_scores[i]
    if answers.is_beam:
        # The list holds the probabilities among answers.
        none = 1 / (1 + math.exp(-max(-700.0, null)))
        rows = [_row(c, (1 - none) * c.probability) for c in candidates]
    else:
        # A cut n-best list may lack "no answer".
        listed = [c.probability for c in answers.nbest[i] if c.start < 0]
        first = answers.nbest[i][0].probability
        none = listed[0] if listed else first * math.exp(min(null, 0.0))
        rows = [_row(c, c.probability) for c in candidates]
        if not candidates and answers.best[i].start >= 0:
            # A list of one entry, which is "no answer".
            rows = [_row(answers.best[i], none * math.exp(min(-null, 0.0)))]
    nothing = _row(_NOTHING, none if rows else 1.0)
    if not answers.texts[i]:
        return [nothing, *rows]
    rest = sorted([*rows[1:], nothing], key=lambda row: -row["score"])
    return [rows[0], *rest]


def _row(candidate: Candidate, score: float) -> dict[str, Any]:
    places = {"start": candidate.start, "end": candidate.end}
    return {"answer": candidate.text, "score": score, **places}
