"""Classifies texts."""

import os
from collections.abc import Sequence

import keras
import numpy as np

from albert_tf.converters import load
from albert_tf.errors import UsageError
from albert_tf.inference.base import check_fits, check_trained
from albert_tf.models.classifiers import label_names
from albert_tf.tasks.metrics import softmax
from albert_tf.text import inputs as packing
from albert_tf.text.tokenizer import Tokenizer


class Classifier:
    """Classifies texts or pairs of texts.

    Args:
        model: `AlbertTextClassifier`.
        tokenizer: `Tokenizer`.
        labels: Names of the `C` classes; default: those the model was saved with, or
            `"LABEL_0"`, `"LABEL_1"`...
        max_seq_length: int. Longer texts are cut. Default: the length the model was
            fine-tuned with, or else the model's maximum.
        batch_size: int.

    Example:
        >>> classify = Classifier.from_pretrained("my_model")
        >>> classify(["What a film!", "Never again."])
        [{'label': 'positive', 'score': 0.98}, {'label': 'negative', 'score': 0.95}]
    """

    def __init__(
        self,
        model: keras.Model,
        tokenizer: Tokenizer,
        labels: Sequence[str] | None = None,
        *,
        max_seq_length: int | None = None,
        batch_size: int = 32,
    ):
        check_fits(model, tokenizer)
        longest = model.config.max_position_embeddings
        if max_seq_length is None:
            max_seq_length = getattr(model, "max_seq_length", None) or longest
        self.max_seq_length = max_seq_length
        packing.check_max_seq_length(self.max_seq_length, pairs=False, longest=longest)
        self.model = model
        self.tokenizer = tokenizer
        self.labels = label_names(model, labels)
        self.batch_size = batch_size

    @classmethod
    def from_pretrained(
        cls,
        path: str | os.PathLike,
        tokenizer: Tokenizer | None = None,
        **kwargs,
    ) -> "Classifier":
        """Loads model, labels and tokenizer.

        Args:
            path: As for `albert_tf.from_pretrained`.
            tokenizer: Where `path` holds none.
            **kwargs: Of this class.

        Raises:
            UsageError: If the files hold no text classifier.
        """
        model = load.from_pretrained(path, head="text_classifier")
        check_trained(model, path, "classifier")
        return cls(model, tokenizer or load.load_tokenizer(path), **kwargs)

    def __call__(
        self,
        texts: str | Sequence[str],
        text_pairs: str | Sequence[str] | None = None,
        top_k: int | None = 1,
    ) -> list:
        """The most probable label of every text.

        Args:
            texts: One text or several.
            text_pairs: The second texts, or None.
            top_k: int or None for all labels.

        Returns:
            List of dicts `label`, `score` (probability), one for each text; with
            another `top_k` than 1, a list of lists, best first.
        """
        texts = [texts] if isinstance(texts, str) else list(texts)
        text_pairs = [text_pairs] if isinstance(text_pairs, str) else text_pairs
        if top_k is not None and top_k < 1:
            raise UsageError(f"top_k must be positive, received {top_k}")
        results = []
        for scores in self.probabilities(texts, text_pairs):
            order = np.argsort(-scores, kind="stable")[:top_k]
            ranked = [
                {"label": self.labels[i], "score": float(scores[i])} for i in order
            ]
            results.append(ranked[0] if top_k == 1 else ranked)
        return results

    def probabilities(
        self, texts: Sequence[str], text_pairs: Sequence[str] | None = None
    ) -> np.ndarray:
        """float32 `[number of texts, C]`."""
        return softmax(self.logits(texts, text_pairs))

    def logits(
        self, texts: Sequence[str], text_pairs: Sequence[str] | None = None
    ) -> np.ndarray:
        """float32 `[number of texts, C]`."""
        packed = packing.pack_texts(
            self.tokenizer,
            texts,
            None if text_pairs is None else list(text_pairs),
            max_seq_length=self.max_seq_length,
        )
        return self.packed_logits(packed)

    def packed_logits(self, packed: packing.PackedTexts) -> np.ndarray:
        """float32 `[number of rows, C]`, of texts that are tokens already."""
        result = np.zeros((len(packed), len(self.labels)), np.float32)
        # Rows of like length together: less padding.
        order = np.argsort(packed.lengths, kind="stable")
        for start in range(0, len(order), self.batch_size):
            rows = order[start : start + self.batch_size]
            length = packing.bucket_length(
                packed.lengths[rows].max(), self.max_seq_length
            )
            inputs = packing.padded_inputs(packed, rows, length, self.tokenizer.pad_id)
            logits = self.model(inputs, training=False)
            result[rows] = keras.ops.convert_to_numpy(logits)
        return result
