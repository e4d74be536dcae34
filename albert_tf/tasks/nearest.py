"""Finds the vectors with the largest products, exactly.

Legend: `Q` queries, `N` vectors, `E` their numbers.
"""

import numpy as np

from albert_tf.errors import DataError, require

# Products, and vectors, that are in memory at the same time.
_MOST_SCORES, _MOST_VECTORS = 1 << 24, 1 << 16
_QUERIES = 1024


def nearest(
    queries: np.ndarray, vectors: np.ndarray, k: int, cosine: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the `k` largest products of each query, `[Q, k]`, and their indices.

    The queries are float32 `[Q, E]`, the vectors `[N, E]`, which may be mapped from a
    file: they are read in blocks. With `cosine`, all are divided by their lengths
    before. Of equal products, the one with the lower index comes first. Raises
    `DataError` if a vector is not finite.
    """
    queries = of_length_1(queries) if cosine else queries
    k = min(k, len(vectors))
    scores = np.full((len(queries), k), -np.inf, np.float32)
    indices = np.full((len(queries), k), len(vectors), np.int64)
    fitting = _MOST_SCORES // min(_QUERIES, max(1, len(queries)))
    size = max(k, min(_MOST_VECTORS, fitting))
    for start in range(0, len(vectors), size):
        block = np.asarray(vectors[start : start + size], np.float32)
        is_finite = np.isfinite(block).all(1)
        bad = start + int(np.argmin(is_finite))
        require(is_finite.all(), f"row {bad} is not finite", error=DataError)
        block = of_length_1(block) if cosine else block
        numbers = np.arange(start, start + len(block))
        for first in range(0, len(queries), _QUERIES):
            rows = slice(first, first + _QUERIES)
            products = queries[rows] @ block.T
            if len(block) > k:
                # Of equal products at the end of the list, the lower indices stay.
                least = -np.partition(-products, k - 1)[:, k - 1 : k]
                chosen = _first(products > least, products == least, k)
                products = np.take_along_axis(products, chosen, 1)
            else:
                chosen = np.broadcast_to(np.arange(len(block)), products.shape)
            found = np.concatenate([scores[rows], products], 1)
            places = np.concatenate([indices[rows], numbers[chosen]], 1)
            order = np.lexsort((places, -found))[:, :k]
            scores[rows] = np.take_along_axis(found, order, 1)
            indices[rows] = np.take_along_axis(places, order, 1)
    return scores, indices


def of_length_1(vectors: np.ndarray) -> np.ndarray:
    """Returns vectors `[..., E]` divided by their lengths."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.maximum(norms, 1e-12)


def _first(above: np.ndarray, equal: np.ndarray, k: int) -> np.ndarray:
    """Returns `k` columns of each row: all above, and then the first equal ones."""
    room = k - above.sum(1, keepdims=True)
    chosen = above | (equal & (np.cumsum(equal, 1) <= room))
    return np.nonzero(chosen)[1].reshape(len(above), k)
