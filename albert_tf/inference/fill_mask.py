"""Fills in masked words with a trained masked LM.

Legend: `P` masks in a text, `V` vocabulary.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from albert_tf import features
from albert_tf.errors import UsageError
from albert_tf.inference import predictor
from albert_tf.inference.forward import ROWS, compile_encoder
from albert_tf.text import inputs
from albert_tf.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    import keras


class FillMask(predictor.Loadable):
    """Predicts the tokens at `[MASK]`.

    A text may contain `[MASK]` any number of times. It stands for the tokenizer's mask
    token in any vocabulary (RoBERTa's `<mask>` is accepted, too). Texts that are too
    long are rejected instead of cut: a cut could remove a mask or the context that
    determines its token.

    Args:
        model: `AlbertMaskedLM` or `AlbertPretrainer`.
        tokenizer: `Tokenizer`.
        batch_size: int. Maximum number of texts per call of the model.

    Example:
        >>> fill_mask = FillMask.from_pretrained("my_model")
        >>> pandas.DataFrame(fill_mask("The cat is so [MASK] ."))
    """

    heads = ("masked_lm",)

    def __init__(
        self, model: "keras.Model", tokenizer: Tokenizer, batch_size: int = 32
    ):
        predictor.check_fits(model, tokenizer)
        if getattr(model, "mlm_head", None) is None:
            raise UsageError(
                "model must have a masked LM head (AlbertMaskedLM, AlbertPretrainer), "
                f"received {type(model).__name__}"
            )
        self.model = model
        self.tokenizer = tokenizer
        self.batch_size = batch_size
        self._forward = compile_encoder(
            model, self._probabilities, (*ROWS, features.MASK_POSITIONS)
        )

    def __call__(self, texts: str | Sequence[str], top_k: int = 5) -> list:
        """Returns the `top_k` most probable tokens for every mask.

        Args:
            texts: str or sequence of str.
            top_k: int. Number of tokens, at most the size of the vocabulary.

        Returns:
            For a text, a list of dicts, best first: `score` (probability), `token`
            (id), `token_str` (without the mark of a word's start) and `sequence` (the
            text with the token in its place). For a text with several masks, a list of
            such lists; the other masks stay `[MASK]` in `sequence`. For several texts,
            a list of results. This is the form of Hugging Face's fill-mask pipeline.

        Raises:
            UsageError: If a text contains no mask or is longer than the model allows.
        """
        if isinstance(texts, str | bytes):
            return self([texts], top_k)[0]
        size = self.tokenizer.vocab_size
        if not 1 <= top_k <= size:
            raise UsageError(f"top_k must be from 1 to {size}, received {top_k}")
        rows = [self.encode(text) for text in predictor.as_texts("texts", texts)]
        results = [[]] * len(rows)
        # Rows of similar length together: less padding.
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        for start in range(0, len(rows), self.batch_size):
            numbers = order[start : start + self.batch_size]
            batch = [rows[i] for i in numbers]
            for i, (masks, scores) in zip(numbers, self._scores(batch), strict=True):
                per_mask = [
                    self._candidates(rows[i], position, values, top_k)
                    for position, values in zip(masks, scores, strict=True)
                ]
                results[i] = per_mask[0] if len(per_mask) == 1 else per_mask
        return results

    def encode(self, text: str | bytes) -> list[int]:
        """Returns the token ids of a text, special tokens included.

        Raises:
            UsageError: If the text contains no mask or is longer than the model allows.
        """
        longest = self.model.config.max_position_embeddings
        return inputs.encode_masked(
            self.tokenizer, text, longest, "max_position_embeddings"
        )

    def _scores(self, rows: list[list[int]]) -> Iterator[tuple[list[int], np.ndarray]]:
        """Yields the positions of each row's masks, and its scores there, `[P, V]`."""
        longest = self.model.config.max_position_embeddings
        batch, masks = inputs.masked_inputs(self.tokenizer, rows, longest)
        for values, columns in zip(self._forward(batch), masks, strict=True):
            yield columns, values[: len(columns)]

    def _probabilities(self, batch):
        import keras

        outputs = self.model(batch, training=False)
        logits = outputs["mlm_logits"] if isinstance(outputs, dict) else outputs
        # A model's table may be larger than the vocabulary (padded for the hardware).
        return keras.ops.softmax(logits[..., : self.tokenizer.vocab_size])

    def _candidates(self, row, position, scores, top_k) -> list[dict[str, Any]]:
        best = np.argsort(-scores, kind="stable")[:top_k]
        candidates = []
        for token in best.tolist():
            filled = [*row[1:position], token, *row[position + 1 : -1]]
            candidates.append(
                {
                    "score": float(scores[token]),
                    "token": token,
                    "token_str": self.tokenizer.id_to_text(token),
                    "sequence": self.tokenizer.decode(filled, skip_special=False),
                }
            )
        return candidates
