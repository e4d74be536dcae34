"""The keyed generator is even, and the same everywhere."""

import numpy as np

from albert_tf.data.masking.keyed_random import KeyedRandom


def test_numbers_never_change():
    rng = KeyedRandom(12345, 1, 2)
    assert [rng.integer(0, 999) for _ in range(4)] == [946, 463, 321, 958]


def test_draws_are_even_over_keys():
    coins = [KeyedRandom(1, k).bits() & 1 for k in range(4000)]
    assert abs(np.mean(coins) - 0.5) < 0.03
    values = [KeyedRandom(k, 3).integer(2, 5) for k in range(4000)]
    np.testing.assert_allclose(np.bincount(values)[2:] / 4000, 0.25, atol=0.03)
    assert abs(np.mean([KeyedRandom(k).random() for k in range(4000)]) - 0.5) < 0.02


def test_heads_are_binomial():
    heads = np.array([KeyedRandom(k).heads(100) for k in range(2000)])
    assert abs(heads.mean() - 50) < 0.5
    assert abs(heads.var() - 25) < 3
    assert KeyedRandom(1).heads(0) == 0
