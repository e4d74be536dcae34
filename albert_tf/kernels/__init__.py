"""Calls kernels of the backends for which Keras has no operation."""

from typing import Any


def assert_below(dataset: Any, name: str, most: int, rule: str) -> Any:
    """Returns a dataset that fails at a batch with inputs not below a number.

    Its elements are inputs, or tuples that start with them. `name` is their key in a
    dict; other datasets are returned unchanged.
    """
    import tensorflow as tf

    def check(*parts):
        # Cast, because a byte may not hold the number, and booleans have no order.
        ids = tf.cast(parts[0][name], tf.int64)
        tf.debugging.assert_less(ids, tf.cast(most, tf.int64), rule)
        return parts if is_tuple else parts[0]

    spec = dataset.element_spec
    is_tuple = isinstance(spec, tuple)
    first = spec[0] if is_tuple else spec
    is_there = isinstance(first, dict) and isinstance(first.get(name), tf.TensorSpec)
    # The distributed dataset of a strategy cannot be mapped any more.
    return dataset.map(check) if is_there and hasattr(dataset, "map") else dataset
