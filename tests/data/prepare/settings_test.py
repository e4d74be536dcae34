"""From the flags of create_pretraining_data to what records are made."""

import numpy as np
import pytest

from albert_tf.data.prepare.settings import CreateSettings
from albert_tf.errors import UsageError


def probabilities(**changes):
    settings = CreateSettings("in.txt", "out", "spiece.model", **changes)
    return settings.record_config().mask.ngram_probabilities()


def test_lengths_of_ngrams_are_those_of_the_original():
    np.testing.assert_allclose(probabilities() * 11, [6, 3, 2])
    for policy in ("original", "clean"):
        reversed_ = probabilities(favor_shorter_ngram=False, pair_policy=policy)
        np.testing.assert_allclose(reversed_ * 11, [2, 3, 6])
    named = probabilities(ngram_distribution="uniform")
    np.testing.assert_allclose(named * 3, [1, 1, 1])


def test_two_flags_that_disagree_about_ngrams():
    with pytest.raises(UsageError, match="is the same as --ngram_distribution=rev"):
        probabilities(favor_shorter_ngram=False, ngram_distribution="uniform")
