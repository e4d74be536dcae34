"""Chooses the right continuation or answer among several."""

from collections.abc import Sequence

from albert_tf.errors import require
from albert_tf.heads import CHOICES, answering
from albert_tf.inference import predictor
from albert_tf.tasks.choice_files import ChoiceExamples


class MultipleChoice(predictor.Predictor):
    """Scores the choices of a question about a text.

    Args:
        model: `AlbertMultipleChoice`.
        tokenizer: `Tokenizer`.
        fills_blanks: bool or None. Whether a choice replaces each `_` of its question,
            instead of following it. Default: whether the model was fine-tuned on RACE.
        **kwargs: `max_seq_length` and `max_qa_length` (see `tasks.task.Options`;
            default: as in fine-tuning), and `batch_size`.

    Example:
        >>> import albert_tf
        >>> choose = albert_tf.MultipleChoice.from_pretrained("my_race_model")
        >>> choose("Anna has a dog.", ["a cat", "a dog"], question="Anna has _ .")
        [{'choice': 'a dog', 'index': 1, 'score': 0.9},
         {'choice': 'a cat', 'index': 0, 'score': 0.1}]
    """

    heads = answering(CHOICES)

    def __init__(self, model, tokenizer, *, fills_blanks: bool | None = None, **kwargs):
        super().__init__(model, tokenizer, **kwargs)
        if fills_blanks is None:
            fills_blanks = self.task.name == "race"
        self.fills_blanks = bool(fills_blanks)

    def __call__(
        self,
        context: str | Sequence[str],
        choices: Sequence[str] | Sequence[Sequence[str]],
        question: str | Sequence[str] = "",
    ) -> list:
        """Returns the choices with their probabilities, best first.

        Args:
            context: str or sequence of `N` str. UTF-8 bytes are accepted, too.
            choices: sequence of str; for several contexts, `N` such sequences, which
                may differ in length.
            question: str or sequence of `N` str. Read before each choice.

        Returns:
            A list of dicts: `choice`, `index` (from 0) and `score`. For a sequence of
            contexts, a list of such lists.

        Raises:
            UsageError: If an argument is not of these types, or there are no choices.
        """
        single = isinstance(context, str | bytes)
        contexts = predictor.as_unicode("context", context)
        questions = predictor.as_unicode("question", question)
        if isinstance(question, str | bytes):
            questions *= len(contexts)
        predictor.check_list("choices", choices)
        rows = [choices] if single else list(choices)
        count = len(contexts)
        for name, values in (("question", questions), ("choices", rows)):
            expected = f"{name}: expected as many as contexts, {count}, received "
            require(len(values) == count, f"{expected}{len(values)}")
        for i, row in enumerate(rows):
            name = "choices" if single else f"choices[{i}]"
            predictor.check_list(name, row)
            rows[i] = predictor.as_unicode(name, row)
            require(rows[i], f"{name}: expected at least one choice, received none")
        if not rows:
            return []
        answers = self.answers(
            ChoiceExamples(
                path="choices",
                ids=list(map(str, range(count))),
                contexts=contexts,
                questions=questions,
                choices=rows,
                labels=None,
                where=[f"choices[{i}]" for i in range(count)],
                groups=[""] * count,
                fills_blanks=self.fills_blanks,
            )
        )
        results = []
        for row, best, scores in zip(
            rows, answers.predictions.tolist(), answers.probabilities, strict=True
        ):
            scores = [float(score) for score in scores]
            # The choice of `predict` comes first even where rounding makes a tie.
            order = sorted(range(len(row)), key=lambda j: (-scores[j], j != best))
            results.append(
                [{"choice": row[j], "index": j, "score": scores[j]} for j in order]
            )
        return results[0] if single else results
