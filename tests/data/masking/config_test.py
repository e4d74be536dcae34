"""The published masking configs, and values that are refused."""

import numpy as np
import pytest

from albert_tf.data.masking.config import MaskingConfig
from albert_tf.errors import UsageError


def test_probabilities_are_the_published_ones():
    inverse = MaskingConfig().ngram_probabilities()
    np.testing.assert_allclose(inverse, [6 / 11, 3 / 11, 2 / 11])
    span = MaskingConfig.from_preset("spanbert").ngram_probabilities()
    assert len(span) == 10
    assert span @ np.arange(1, 11) == pytest.approx(3.8, abs=0.01)  # their section 3.1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"unit": "letter"},
            "one of whole_word, piece, received 'letter'",
        ),
        ({"max_ngram": 0}, "max_ngram must be a positive integer, received 0"),
        ({"masked_lm_prob": 1.5}, r"masked_lm_prob must be in \(0, 1\), received 1.5"),
        ({"mask_fraction": 0.95}, "add up to at most 1, received 0.95 and 0.1"),
    ],
)
def test_bad_settings(changes, message):
    with pytest.raises(UsageError, match=message):
        MaskingConfig(**changes)


def test_unknown_preset():
    with pytest.raises(UsageError, match="masking must be one of .* received 'x'"):
        MaskingConfig.from_preset("x")
