"""Classifies texts with a trained `AlbertTextClassifier`.

Legend: `N` texts, `C` labels.
"""

from collections.abc import Sequence

import keras
import numpy as np

from albert_tf.errors import UsageError
from albert_tf.heads import LABELS, answering, problem_type_of
from albert_tf.inference import base
from albert_tf.models.classifiers import label_names
from albert_tf.models.exit_rules import ExitRule
from albert_tf.models.exits import ElasticClassifier
from albert_tf.tasks.batches import BatchShape
from albert_tf.tasks.outputs import as_forward, collect_outputs
from albert_tf.tasks.task import EncodedExamples
from albert_tf.text import inputs
from albert_tf.text.tokenizer import Tokenizer


class Classifier(base.Loadable):
    """Classifies texts or pairs of texts in memory.

    `Predictor` runs the same model on the examples of a task, and compares with labels.

    The model's `problem_type` determines the scores: probabilities that sum to 1 for a
    single-label classifier, an independent probability per label for a multi-label
    classifier, and the predicted value itself for a regression model (any model with
    one label and no `problem_type`).

    Args:
        model: `AlbertTextClassifier`.
        tokenizer: `Tokenizer`.
        labels: Sequence of str. Names of the `C` labels. Default: those the model was
            saved with, or `"LABEL_0"`, `"LABEL_1"`...
        max_seq_length: int. Longer texts are cut. Default: the
            length the model was fine-tuned with, or else the model's maximum.
        batch_size: int. Number of texts per call of the model.
        exit: str, `ExitRule` or None. Rule by which a model with exits stops early,
            such as "entropy:0.3"; `num_layers` says where it does.

    Example:
        >>> classify = Classifier.from_pretrained("my_model")
        >>> classify(["What a film!", "Never again."])
        [{'label': 'positive', 'score': 0.98}, {'label': 'negative', 'score': 0.95}]
        >>> topics = Classifier.from_pretrained("my_multi_label_model")
        >>> topics("Rain stops the final.", threshold=0.5)
        [[{'label': 'weather', 'score': 0.9}, {'label': 'sport', 'score': 0.8}]]
    """

    heads = answering(LABELS)

    def __init__(
        self,
        model: keras.Model,
        tokenizer: Tokenizer,
        labels: Sequence[str] | None = None,
        *,
        max_seq_length: int | None = None,
        batch_size: int = 32,
        exit: ExitRule | str | None = None,
    ):
        base.check_fits(model, tokenizer)
        longest = model.config.max_position_embeddings
        if max_seq_length is None:
            max_seq_length = getattr(model, "max_seq_length", None) or longest
        self.max_seq_length = max_seq_length
        inputs.check_max_seq_length(self.max_seq_length, pairs=False, longest=longest)
        self.model = model
        self.tokenizer = tokenizer
        self.labels = label_names(model, labels)
        self.problem_type = problem_type_of(model)
        self.batch_size = batch_size
        (head,) = self.heads
        self._shape = BatchShape(head, max_seq_length, longest, tokenizer.pad_id)
        runner = model if exit is None else ElasticClassifier(model, exit)
        self._forward = as_forward(runner, head)

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
            UsageError: If an argument is invalid, or a regression model, whose scores
                are no probabilities, is given a threshold.
        """
        _check_threshold(threshold, self.problem_type)
        if top_k == "auto":
            top_k = 1 if threshold is None else None
        if top_k is not None:
            base.check_count("top_k", top_k)
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
        self,
        texts: str | Sequence[str],
        text_pairs: str | Sequence[str] | None = None,
    ) -> np.ndarray:
        """Returns the score of every label, float32 `[N, C]`; see the class."""
        logits = self.logits(texts, text_pairs)
        if self.problem_type == "regression":
            return logits
        multi_label = self.problem_type == "multi_label_classification"
        activation = keras.ops.sigmoid if multi_label else keras.ops.softmax
        return keras.ops.convert_to_numpy(activation(logits))

    def probabilities(
        self,
        texts: str | Sequence[str],
        text_pairs: str | Sequence[str] | None = None,
    ) -> np.ndarray:
        """Returns the probability of every label, float32 `[N, C]`.

        Raises:
            UsageError: If the model is a regression model.
        """
        if self.problem_type == "regression":
            raise UsageError(
                "probabilities: expected a classification model, received a regression "
                "model; use scores"
            )
        return self.scores(texts, text_pairs)

    def logits(
        self,
        texts: str | Sequence[str],
        text_pairs: str | Sequence[str] | None = None,
    ) -> np.ndarray:
        """Returns the model's logits, float32 `[N, C]`."""
        return self._outputs(texts, text_pairs)["logits"]

    def num_layers(
        self,
        texts: str | Sequence[str],
        text_pairs: str | Sequence[str] | None = None,
    ) -> np.ndarray:
        """Returns the number of layers that each text passes, int32 `[N]`."""
        outputs = self._outputs(texts, text_pairs)
        depth = self.model.config.num_hidden_layers
        everywhere = np.full(len(outputs["logits"]), depth, np.int32)
        return outputs.get("num_layers", everywhere)

    def _outputs(self, texts, text_pairs) -> dict[str, np.ndarray]:
        if text_pairs is not None:
            text_pairs = base.as_texts("text_pairs", text_pairs)
        encoded = inputs.encode_texts(
            self.tokenizer,
            base.as_texts("texts", texts),
            text_pairs,
            max_seq_length=self.max_seq_length,
        )
        if not len(encoded):
            return {"logits": np.zeros((0, len(self.labels)), np.float32)}
        splits = np.arange(len(encoded) + 1)
        examples = EncodedExamples(encoded, splits, {}, encoded.truncated)
        return collect_outputs(self._forward, examples, self._shape, self.batch_size)


def _check_threshold(threshold: float | None, problem_type: str) -> None:
    if threshold is None:
        return
    if problem_type == "regression":
        raise UsageError(
            "threshold: expected a classification model, received a regression model"
        )
    number = isinstance(threshold, int | float) and not isinstance(threshold, bool)
    if not number or not 0 <= threshold <= 1:
        raise UsageError(f"threshold must be from 0 to 1, received {threshold!r:.80}")
