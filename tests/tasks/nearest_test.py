"""Exact search equals a full sort, in blocks and with equal products."""

import numpy as np
import pytest

from albert_tf.tasks import nearest


@pytest.mark.parametrize("most_scores", [1 << 24, 40])
def test_equals_a_full_sort(monkeypatch, most_scores):
    monkeypatch.setattr(nearest, "_MOST_SCORES", most_scores)
    monkeypatch.setattr(nearest, "_QUERIES", 4)
    rng = np.random.default_rng(0)
    # Whole numbers, so that many products are equal.
    queries, vectors = (rng.integers(-2, 3, (n, 3)).astype("f4") for n in (9, 47))
    scores, indices = nearest.nearest(queries, vectors, 5)
    products = queries @ vectors.T
    expected = np.argsort(-products, axis=1, kind="stable")[:, :5]
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_array_equal(scores, np.take_along_axis(products, expected, 1))
    assert nearest.nearest(queries, vectors[:2], 5)[1].shape == (9, 2)
