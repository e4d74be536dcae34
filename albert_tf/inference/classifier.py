"""Classifies texts with a trained `AlbertTextClassifier`.

Legend: `N` texts, `C` labels.
"""

from collections.abc import Sequence

import keras
import numpy as np

from albert_tf.errors import UsageError, require
from albert_tf.heads import LABELS, answering, problem_type_of
from albert_tf.inference import predictor
from albert_tf.models.classifiers import label_names
from albert_tf.tasks.task import REGRESSION
from albert_tf.tasks.text_classification import Answers
from albert_tf.tasks.text_tables import TextTable
from albert_tf.text.tokenizer import Tokenizer


class Classifier(predictor.Predictor):
    """Classifies texts or pairs of texts in memory.

    The model's `problem_type` determines the scores: probabilities that sum to 1 for a
    single-label classifier, an independent probability per label for a multi-label
    classifier, and the predicted value itself for a regression model (any model with
    one label and no `problem_type`).

    Args:
        model: `AlbertTextClassifier`.
        tokenizer: `Tokenizer`.
        labels: Sequence of str. Names of the `C` labels. Default: the names the model
            was saved with, or `"LABEL_0"`, `"LABEL_1"`...
        **kwargs: `max_seq_length` (longer texts are cut), `batch_size` and `exit`;
            `num_layers` returns the layers after which a model stopped.

    Example:
        >>> import albert_tf
        >>> classify = albert_tf.Classifier.from_pretrained("demo_output/classifier")
        >>> classify(["Returns the sum of an array.", "Draws a line in an Axes."])
        [{'label': 'numpy', 'score': 0.99}, {'label': 'matplotlib', 'score': 0.97}]
        >>> topics = albert_tf.Classifier.from_pretrained("my_multi_label_model")
        >>> topics("Rain stops the final.", threshold=0.5)
        [[{'label': 'weather', 'score': 0.9}, {'label': 'sport', 'score': 0.8}]]
    """

    heads = answering(LABELS)

    def __init__(
        self,
        model: keras.Model,
        tokenizer: Tokenizer,
        labels: Sequence[str] | None = None,
        **kwargs,
    ):
        super().__init__(model, tokenizer, **kwargs)
        self.labels = label_names(model, labels)
        self.problem_type = problem_type_of(model)
        self.max_seq_length = self.options.max_seq_length

    def __call__(
        self,
        texts: str | Sequence[str],
        text_pairs: str | Sequence[str] | None = None,
        top_k: int | str | None = "auto",
        threshold: float | None = None,
    ) -> list:
        """Returns the labels with the highest scores for every text.

        Args:
            texts: str or sequence of str.
            text_pairs: str, sequence of str, or None. The second texts.
            top_k: int, None or `"auto"`. Number of labels per text; None for all.
                `"auto"` is 1, or None if there is a `threshold`.
            threshold: float or None. Lowest probability of a label to be returned. For
                a multi-label model, 0.5 gives the labels that `predict` gives: none,
                one or several.

        Returns:
            A list with a dict (`label`, `score`) per text. With a `threshold`, or
            unless `top_k` is 1, a list of such lists, best label first.

        Raises:
            UsageError: If an argument is invalid, or a threshold is given for a
                regression model, whose scores are not probabilities.
        """
        if threshold is not None:
            need = "threshold: expected a classification model, received a regression "
            require(self.problem_type != REGRESSION, f"{need}model")
            number = isinstance(threshold, int | float) and type(threshold) is not bool
            need = f"threshold must be from 0 to 1, received {threshold!r:.80}"
            require(number and 0 <= threshold <= 1, need)
        if top_k == "auto":
            top_k = 1 if threshold is None else None
        if top_k is not None:
            predictor.check_count("top_k", top_k)
        results = []
        for scores in self.scores(texts, text_pairs):
            order = np.argsort(-scores, kind="stable")[:top_k]
            ranked = [
                {"label": self.labels[i], "score": float(scores[i])}
                for i in order
                if threshold is None or scores[i] >= threshold
            ]
            one = top_k == 1 and threshold is None
            results.append(ranked[0] if one else ranked)
        return results

    def scores(
        self, texts: str | Sequence[str], text_pairs: str | Sequence[str] | None = None
    ) -> np.ndarray:
        """Returns the score of every label, float32 `[N, C]`; see the class."""
        answers = self._answers(texts, text_pairs)
        return answers.logits if self.problem_type == REGRESSION else answers.scores

    def probabilities(
        self, texts: str | Sequence[str], text_pairs: str | Sequence[str] | None = None
    ) -> np.ndarray:
        """Returns the probability of every label, float32 `[N, C]`.

        Raises:
            UsageError: If the model is a regression model.
        """
        if self.problem_type == REGRESSION:
            raise UsageError(
                "probabilities: expected a classification model, received a regression "
                "model; use scores"
            )
        return self.scores(texts, text_pairs)

    def logits(
        self, texts: str | Sequence[str], text_pairs: str | Sequence[str] | None = None
    ) -> np.ndarray:
        """Returns the model's logits, float32 `[N, C]`."""
        return self._answers(texts, text_pairs).logits

    def num_layers(
        self, texts: str | Sequence[str], text_pairs: str | Sequence[str] | None = None
    ) -> np.ndarray:
        """Returns the number of layers that each text passes, int32 `[N]`."""
        answers = self._answers(texts, text_pairs)
        depth = self.model.config.num_hidden_layers
        everywhere = np.full(len(answers), depth, np.int32)
        return everywhere if self.used_layers is None else self.used_layers

    def _answers(self, texts, text_pairs) -> Answers:
        if text_pairs is not None:
            text_pairs = predictor.as_texts("text_pairs", text_pairs)
        texts = predictor.as_texts("texts", texts)
        lines = list(range(len(texts)))
        return self.answers(TextTable("texts", texts, text_pairs, None, lines))
