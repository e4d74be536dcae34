"""Question answering on SQuAD 1.1 and 2.0: tasks, recipes, and how they work.

Official files: `train-v1.1.json`, `dev-v1.1.json`, `train-v2.0.json`, `dev-v2.0.json`.

Not copied from the original (`run_squad_v2.py`): it searches the best threshold on the
dev set, rewrites the predictions with it, then empties every answer whose null score is
above 1, and picks checkpoints by the result. Here `f1` of SQuAD 2.0 scores the answers
as they are written, with a threshold chosen on held-back training articles; `best_f1`
uses the best threshold of the evaluated questions, for comparison.
"""

import dataclasses
import math

from absl import logging

from albert_tf.tasks import squad_metrics
from albert_tf.tasks.squad_answers import Answers, make_answers
from albert_tf.tasks.squad_features import encode_questions
from albert_tf.tasks.squad_files import Questions, SquadSource, held_back_articles
from albert_tf.tasks.task import (
    LONGEST_TEXT,
    MOST_ERRORS,
    EncodedExamples,
    Options,
    Recipe,
    Task,
)

# Share of the training questions on which the threshold of SQuAD 2.0 is chosen.
HELD_BACK = 0.05


class SquadTask(Task):
    """The family of question answering tasks; see `task.Task`.

    The examples know whether a question may have no answer (`unanswerable`), and the
    names of the outputs show which head the model has.
    """

    def to_evaluate(self, examples) -> Questions:
        """Returns the questions to score.

        A question whose answer fits no window can be scored, but not trained on.
        """
        return dataclasses.replace(examples, training=False)

    def encode(self, examples, tokenizer) -> EncodedExamples:
        """Returns the windows of questions; see `squad_features.encode_questions`."""
        return encode_questions(examples, tokenizer, self.options)

    def answers(self, examples, encoded, outputs) -> Answers:
        """Returns the answers; see `squad_answers.make_answers`."""
        return make_answers(examples, encoded, outputs, self.options)

    def compare(self, examples, answers) -> dict[str, float]:
        """Returns the official scores of the answers as they are written.

        For SQuAD 2.0 also `null_threshold`, the best thresholds for these very
        questions, and `majority_f1`: the score of leaving all of them unanswered.
        """
        gold = _gold(examples)
        written = dict(zip(answers.ids, answers.texts, strict=True))
        if not examples.unanswerable:
            return squad_metrics.evaluate_v1(gold, written)
        scores = squad_metrics.evaluate_v2(gold, written)
        searched = squad_metrics.evaluate_v2(gold, *_best(answers))
        scores |= {k: v for k, v in searched.items() if k.startswith("best_")}
        nothing = squad_metrics.evaluate_v2(gold, dict.fromkeys(gold, ""))
        scores["null_threshold"] = answers.threshold
        scores["majority_f1"] = nothing["f1"]
        return scores

    def metric_names(self, examples) -> list[str]:
        """Returns the names of the scores that can select a model."""
        if not examples.unanswerable:
            return ["exact_match", "f1"]
        has_answers = {bool(answers) for answers in examples.labels or []}
        groups = [
            n for has, n in ((True, "HasAns_"), (False, "NoAns_")) if has in has_answers
        ]
        prefixes = ["", *groups, "best_"]
        return [f"{prefix}{name}" for prefix in prefixes for name in ("exact", "f1")]

    def strata(self, examples) -> list[tuple[str, bool]]:
        """Returns the article of each question, and whether it has an answer."""
        return [(item.article, bool(item.answers)) for item in examples.items]

    def hold_back(self, examples, seed) -> tuple[Questions, Questions | None]:
        """Holds back some articles of SQuAD 2.0, to choose the threshold on them."""
        if not examples.unanswerable:
            return examples, None
        if len({item.article for item in examples.items}) < 2:
            logging.warning(
                "%s: all questions are about one article, so none is held back to "
                "choose the threshold, which stays as it is",
                examples.path,
            )
            return examples, None
        return held_back_articles(examples, HELD_BACK, seed)

    def calibrate(self, examples, encoded, outputs) -> Task:
        """Returns the task with the threshold that is best on these examples."""
        answers = make_answers(examples, encoded, outputs, self.options)
        if answers.null_scores is None:
            return self
        gold = _gold(examples)
        threshold = squad_metrics.calibrate_threshold(gold, *_best(answers))
        return self.with_options(null_threshold=threshold)

    def collapse(self, examples, answers) -> str:
        """Returns a message describing signs of collapse, or an empty string."""
        texts = answers.texts
        if len(texts) < 2 or examples.labels is None:
            return ""
        if not any(texts):
            wanted = sum(map(bool, examples.labels))
            reason = f"none of {len(texts)} questions is answered"
            return f"{reason}, {wanted} have an answer" if wanted else ""
        differ = len({tuple(texts) for texts in examples.labels}) > 1
        if differ and len(set(texts)) == 1:
            return f"the answer to all {len(texts)} questions is {texts[0][:60]!r}"
        return ""

    def rows(self, examples, answers) -> list[dict]:
        """Returns the answer, the null score if there is one, and the n-best list."""
        kind = "log_prob" if answers.is_beam else "logit"
        rows = []
        for i, text in enumerate(answers.texts):
            row = {"id": answers.ids[i], "prediction": text}
            if answers.null_scores is not None:
                row["null_odds"] = answers.null_scores[i]
            row["nbest"] = [
                {
                    "text": candidate.text,
                    "probability": candidate.probability,
                    f"start_{kind}": candidate.start_score,
                    f"end_{kind}": candidate.end_score,
                }
                for candidate in answers.nbest[i]
            ]
            rows.append(row)
        return rows

    def report(self, examples, answers, encoded) -> dict:
        """Returns groups, calibration and worst errors.

        `groups` compares questions with and without an answer. Errors are ranked by the
        F1 of the answer; on a tie, the more confident error comes first.
        """
        if examples.labels is None:
            return {}
        written = dict(zip(answers.ids, answers.texts, strict=True))
        unanswerable = examples.unanswerable
        exact, f1 = squad_metrics.raw_scores(
            _gold(examples), written, unanswerable=unanswerable
        )
        sure = [_confidence(answers, i, text) for i, text in enumerate(answers.texts)]
        wrong = [i for i, name in enumerate(answers.ids) if not exact[name]]
        wrong.sort(key=lambda i: (f1[answers.ids[i]], -sure[i]))
        groups = []
        for name, wanted in (("answerable", True), ("unanswerable", False)):
            ids = [x.id for x in examples.items if bool(x.answers) == wanted]
            if ids and unanswerable:
                a, b = (100.0 * sum(x[i] for i in ids) / len(ids) for x in (exact, f1))
                groups.append({"name": name, "exact": a, "f1": b})
        return {
            "groups": groups,
            "calibration": [
                [p, int(exact[n])] for p, n in zip(sure, answers.ids, strict=True)
            ],
            "errors": [
                {
                    "index": i,
                    "text": _excerpt(examples, answers, i),
                    "label": _shown(" | ".join(dict.fromkeys(examples.labels[i]))),
                    "prediction": _shown(written[answers.ids[i]]),
                    "score": float(f1[answers.ids[i]]),
                    "truncated": bool(encoded.truncated[i]),
                }
                for i in wrong[:MOST_ERRORS]
            ],
        }


def _gold(examples: Questions) -> dict[str, list[str]]:
    return dict(zip(examples.ids, examples.labels or [], strict=True))


def _best(answers: Answers) -> tuple[dict[str, str], dict[str, float]]:
    """Returns, by id, the best texts regardless of null scores, and these scores."""
    best = (candidate.text for candidate in answers.best)
    columns = (best, answers.null_scores)
    return tuple(dict(zip(answers.ids, column, strict=True)) for column in columns)


def _confidence(answers: Answers, i: int, text: str) -> float:
    """Returns the probability of the answer that was written."""
    # The beam head has a separate probability of no answer; the list of the 2-logit
    # head includes "no answer".
    among = sum(c.probability for c in answers.nbest[i] if c.text == text)
    if answers.null_scores is None or not answers.is_beam:
        return among
    none = 1 / (1 + math.exp(-max(-700.0, answers.null_scores[i])))
    return (1 - none) * among if text else none


def _excerpt(examples: Questions, answers: Answers, i: int) -> str:
    """Returns the question with the part of its text around the answer."""
    item = examples.items[i]
    text = examples.contexts[item.context]
    middle = item.answers[0][1] if item.answers else max(answers.best[i].start, 0)
    room = max(0, LONGEST_TEXT - len(item.text) - 10)
    start = max(0, min(middle - room // 2, len(text) - room))
    part = text[start : start + room]
    before = "…" if start else ""
    after = "…" if start + room < len(text) else ""
    return _shown(f"{item.text}\n\n{before}{part}{after}")


def _shown(text: str) -> str:
    """Returns a text that any page can hold: not too long, no lone surrogates."""
    return text[:LONGEST_TEXT].encode("utf-8", "replace").decode("utf-8")


def _task(name: str, version: str, head: str, recipe: Recipe) -> Task:
    unanswerable = version == "v2.0"
    evaluate = squad_metrics.evaluate_v2 if unanswerable else squad_metrics.evaluate_v1

    def source(split):
        return SquadSource(
            names=(f"{split}-{version}.json",),
            unanswerable=unanswerable,
            training=split == "train",
        )

    return SquadTask(
        name=name,
        head=head,
        metrics=evaluate,
        selecting_metric="f1",
        splits={split: source(split) for split in ("train", "dev")},
        recipe=recipe,
        options=Options(max_seq_length=recipe.max_seq_length),
    )


# The rows of Table 14. Its steps count questions, not windows (2 and 3 epochs).
TASKS = (
    _task(
        "squad1", "v1.1", "question_answering", Recipe(5e-5, 48, 0.0, 3649, 365, 384)
    ),
    _task(
        "squad2", "v2.0", "beam_question_answering", Recipe(3e-5, 48, 0.0, 8144, 814)
    ),
)
