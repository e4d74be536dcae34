"""Configures the choice of masked tokens and their replacements."""

import dataclasses
from typing import Self

import numpy as np

from albert_tf.errors import require

_CHOICES = {
    "unit": ("whole_word", "piece"),
    "ngram_distribution": ("inverse", "reversed", "uniform", "geometric"),
    "replace_per": ("token", "span"),
    "rules": ("albert_tf", "original", "roberta"),
}

# The masking of the published models, as changes to ALBERT's defaults.
_PRESETS = {
    "albert": {},
    "bert": {"unit": "piece", "max_ngram": 1},
    "bert_wwm": {"max_ngram": 1},
    # fairseq's masked_lm chooses among all positions, <s> and </s> included.
    "roberta": {"unit": "piece", "max_ngram": 1, "rules": "roberta"},
    # SpanBERT, section 3.1: lengths from Geo(0.2) cut at 10, one action per span.
    "spanbert": {
        "max_ngram": 10,
        "ngram_distribution": "geometric",
        "replace_per": "span",
    },
    # The released ELECTRA code leaves 15% of the chosen tokens unchanged and never
    # uses random ones: the generator's samples take their place.
    "electra": {
        "unit": "piece",
        "max_ngram": 1,
        "mask_fraction": 0.85,
        "random_fraction": 0.0,
    },
}
# No published model masks more than 10 words together.
_MAX_NGRAM = 512


def most_predictions(length: int, masked_lm_prob: float) -> int:
    """Returns the number of masked tokens of `length` if there is no maximum."""
    return max(1, round(length * masked_lm_prob))


@dataclasses.dataclass(frozen=True)
class MaskingConfig:
    """The choice of masked tokens and their replacement; the defaults are ALBERT's.

    Attributes:
        unit: str. "whole_word" masks all tokens of a word or none, "piece" each alone.
        max_ngram: int. Maximum number of units masked together.
        ngram_distribution: str. Distribution of the length n of an n-gram: "inverse"
            (p proportional to 1/n; ALBERT, section 4.1), "reversed" (the same
            probabilities from the longest n-gram down), "uniform", or "geometric"
            (p = 0.2; SpanBERT).
        masked_lm_prob: float. Fraction of all tokens of an example, [CLS] and [SEP]
            included.
        max_predictions_per_seq: int. Maximum number of masked tokens per example.
        mask_fraction: float. Fraction of the chosen tokens replaced by [MASK].
        random_fraction: float. Fraction replaced by a random token; the others stay.
        replace_per: str. "token" draws the replacement for each token, "span" once for
            each run of neighbouring chosen tokens.
        rules: str. "albert_tf" never lets a run cross a special token and never uses a
            special token as replacement; "original" does both, as the original code,
            and masks unknown tokens; "roberta" is "albert_tf", except that every token
            may be chosen, including [CLS], [SEP] and unknown ones.
    """

    unit: str = "whole_word"
    max_ngram: int = 3
    ngram_distribution: str = "inverse"
    masked_lm_prob: float = 0.15
    max_predictions_per_seq: int = 20
    mask_fraction: float = 0.8
    random_fraction: float = 0.1
    replace_per: str = "token"
    rules: str = "albert_tf"

    def __post_init__(self):
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            require(
                value in choices, f"{name} must be one of {', '.join(choices)}", value
            )
        for name in ("max_ngram", "max_predictions_per_seq"):
            value = getattr(self, name)
            is_positive = isinstance(value, int) and value >= 1
            require(is_positive, f"{name} must be a positive integer", value)
        expected = f"max_ngram must be at most {_MAX_NGRAM}"
        require(self.max_ngram <= _MAX_NGRAM, expected, self.max_ngram)
        fits = 0 < self.masked_lm_prob < 1
        require(fits, "masked_lm_prob must be in (0, 1)", self.masked_lm_prob)
        rest = 1 - self.mask_fraction - self.random_fraction
        require(
            min(self.mask_fraction, self.random_fraction, rest + 1e-9) >= 0,
            "mask_fraction and random_fraction must not be negative and add up to at "
            "most 1",
            self.mask_fraction,
            self.random_fraction,
        )

    @classmethod
    def from_preset(cls, name: str, **changes) -> Self:
        """Returns the masking of a published model, a key of `_PRESETS`."""
        require(name in _PRESETS, f"masking must be one of {', '.join(_PRESETS)}", name)
        return cls(**(_PRESETS[name] | changes))

    def ngram_probabilities(self) -> np.ndarray:
        """Returns float64 `[max_ngram]`, the probability of n = 1, 2, ..."""
        n = np.arange(1, self.max_ngram + 1, dtype=np.float64)
        weights = {
            "inverse": 1 / n,
            "reversed": 1 / n[::-1],
            "uniform": np.ones_like(n),
            "geometric": 0.8 ** (n - 1),
        }[self.ngram_distribution]
        return weights / weights.sum()

    def num_to_predict(self, length: int) -> int:
        """Returns the number of tokens to mask of `length`, which excludes padding."""
        most = most_predictions(length, self.masked_lm_prob)
        return min(self.max_predictions_per_seq, most)

    def shortfall(self, length: int) -> str:
        """Returns a warning if the maximum limits masking of `length` tokens, or ""."""
        most, wanted = self.num_to_predict(length), self.masked_lm_prob
        if most == most_predictions(length, wanted):
            return ""
        return (
            f"max_predictions_per_seq={most} masks {most / length:.3g} of {length} "
            f"tokens, less than masked_lm_prob={wanted:g}"
        )


@dataclasses.dataclass(frozen=True)
class VocabInfo:
    """The properties of a tokenizer that masking and reading depend on.

    Attributes:
        special_ids: tuple. All ids that are not tokens of text, including those above.
        sha256: str or None. Digest of the tokenizer's file, compared with the one
            recorded for the data set.
    """

    vocab_size: int
    pad_id: int
    cls_id: int
    sep_id: int
    mask_id: int
    special_ids: tuple[int, ...]
    sha256: str | None = None

    def __post_init__(self):
        wrong = [i for i in self.special_ids if not 0 <= i < self.vocab_size]
        expected = f"special ids must be in [0, {self.vocab_size})"
        require(not wrong, expected, *wrong[:1])
        require(
            len(self.text_ids()),
            f"a vocabulary needs tokens of text, received {self.vocab_size} tokens of "
            f"which {len(self.special_ids)} are special",
        )

    @classmethod
    def from_tokenizer(cls, tokenizer) -> Self:
        """Collects the properties of any tokenizer with attributes of these names."""
        names = [field.name for field in dataclasses.fields(cls)]
        values = {name: getattr(tokenizer, name, None) for name in names}
        return cls(**values | {"special_ids": tuple(tokenizer.special_ids)})

    def text_ids(self) -> np.ndarray:
        """Returns the int32 ids of the tokens that are not special, ascending."""
        ids = np.arange(self.vocab_size, dtype=np.int32)
        return np.setdiff1d(ids, np.asarray(self.special_ids, np.int32))
