"""Fills in masked words."""

import os
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np

from albert_tf import features
from albert_tf.converters import load
from albert_tf.errors import UsageError
from albert_tf.inference.base import check_fits, check_trained
from albert_tf.tasks.metrics import softmax
from albert_tf.text import inputs as packing
from albert_tf.text.tokenizer import Tokenizer

MASK = "[MASK]"


class FillMask:
    """Predicts what stands at `[MASK]`.

    `[MASK]` in a text is the special token here, in any number of places, whatever the
    vocabulary calls it (RoBERTa's `<mask>` may be written as well). Long texts are
    refused, not cut: the cut could take the mask or what decides it.

    Args:
        model: `AlbertMaskedLM` or `AlbertPretrainer`.
        tokenizer: `Tokenizer`.
        batch_size: int. Texts a call of the model takes at most.

    Example:
        >>> fill_mask = FillMask.from_pretrained("my_model")
        >>> pandas.DataFrame(fill_mask("The cat is so [MASK] ."))
    """

    def __init__(self, model: keras.Model, tokenizer: Tokenizer, batch_size: int = 8):
        check_fits(model, tokenizer)
        if getattr(model, "mlm_head", None) is None:
            raise UsageError(
                "model must have a masked LM head (AlbertMaskedLM, AlbertPretrainer), "
                f"received {type(model).__name__}"
            )
        self.model = model
        self.tokenizer = tokenizer
        self.batch_size = batch_size

    @classmethod
    def from_pretrained(
        cls,
        path: str | os.PathLike,
        tokenizer: Tokenizer | None = None,
        **kwargs,
    ) -> "FillMask":
        """Loads model and tokenizer.

        Args:
            path: As for `albert_tf.from_pretrained`.
            tokenizer: Where `path` holds none.
            **kwargs: Of this class.

        Raises:
            UsageError: If the files hold no masked LM head.
        """
        model = load.from_pretrained(path, head="masked_lm")
        check_trained(model, path, "mlm_head")
        return cls(model, tokenizer or load.load_tokenizer(path), **kwargs)

    def __call__(self, texts: str | Sequence[str], top_k: int = 5) -> list:
        """The `top_k` most probable tokens of every mask.

        Args:
            texts: One text or several.
            top_k: int. At most the size of the vocabulary.

        Returns:
            For a text, a list of dicts, best first: `score` (probability), `token`
            (id), `token_str` (without the mark of a word's start) and `sequence` (the
            text with the token in its place). A list of such lists for a text with
            several masks (the others stay `[MASK]` in `sequence`), and a list of
            results for several texts. As Hugging Face's fill-mask pipeline.

        Raises:
            UsageError: If a text has no mask or is longer than the position table.
        """
        if isinstance(texts, str):
            return self([texts], top_k)[0]
        size = self.tokenizer.vocab_size
        if not 1 <= top_k <= size:
            raise UsageError(f"top_k must be from 1 to {size}, received {top_k}")
        rows = [self._encode(text) for text in texts]
        results = []
        for start in range(0, len(rows), self.batch_size):
            batch = rows[start : start + self.batch_size]
            for row, scores in zip(batch, self._scores(batch), strict=True):
                per_mask = [
                    self._candidates(row, position, values, top_k)
                    for position, values in zip(_masks(self, row), scores, strict=True)
                ]
                results.append(per_mask[0] if len(per_mask) == 1 else per_mask)
        return results

    def _encode(self, text: str) -> list[int]:
        tokenizer = self.tokenizer
        mask = tokenizer.id_to_token(tokenizer.mask_id)
        ids = tokenizer.encode(text.replace(MASK, mask), allow_special=(mask,))
        ids = [tokenizer.cls_id, *ids, tokenizer.sep_id]
        if tokenizer.mask_id not in ids:
            raise UsageError(f"text: expected {mask} in it, received {_short(text)}")
        longest = self.model.config.max_position_embeddings
        if len(ids) > longest:
            raise UsageError(
                f"text: expected at most {longest} tokens (max_position_embeddings), "
                f"received {len(ids)}: {_short(text)}"
            )
        return ids

    def _scores(self, rows: list[list[int]]) -> Iterator[np.ndarray]:
        """Yields each row's probabilities at its masks, `[P, V]`."""
        masks = [_masks(self, row) for row in rows]
        longest = self.model.config.max_position_embeddings
        length = packing.bucket_length(max(map(len, rows)), longest)
        token_ids = np.full((len(rows), length), self.tokenizer.pad_id, np.int32)
        positions = np.zeros((len(rows), max(map(len, masks))), np.int32)
        for i, (row, columns) in enumerate(zip(rows, masks, strict=True)):
            token_ids[i, : len(row)] = row
            positions[i, : len(columns)] = columns
        lengths = np.array([len(row) for row in rows])[:, None]
        outputs = self.model(
            {
                features.TOKEN_IDS: token_ids,
                features.SEGMENT_IDS: np.zeros_like(token_ids),
                features.PADDING_MASK: (np.arange(length) < lengths).astype(np.int32),
                features.MASK_POSITIONS: positions,
            },
            training=False,
        )
        logits = outputs["mlm_logits"] if isinstance(outputs, dict) else outputs
        # A model's table may be larger than the vocabulary (padded for the hardware).
        logits = keras.ops.convert_to_numpy(logits)[..., : self.tokenizer.vocab_size]
        for values, columns in zip(softmax(logits), masks, strict=True):
            yield values[: len(columns)]

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


def _masks(fill_mask: FillMask, row: list[int]) -> list[int]:
    mask_id = fill_mask.tokenizer.mask_id
    return [i for i, token in enumerate(row) if token == mask_id]


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
