"""Calls kernels of the backends that Keras has no operation for."""

from typing import Any


def assert_below(dataset: Any, name: str, most: int, rule: str) -> Any:
    """Returns a data set that fails at a batch whose inputs are not below a number.

    Args:
        dataset: `tf.data.Dataset`. Of inputs, or tuples that start with them.
        name: str. The key of the inputs in a dict; a set of anything else is returned.
        most: int. The number.
        rule: str. What the error says.
    """
    import tensorflow as tf

    def check(*parts):
        # Of any type: one of a byte may not hold the number, one of a bit has no order.
        ids = tf.cast(parts[0][name], tf.int64)
        tf.debugging.assert_less(ids, tf.cast(most, tf.int64), rule)
        return parts if is_tuple else parts[0]

    spec = dataset.element_spec
    is_tuple = isinstance(spec, tuple)
    first = spec[0] if is_tuple else spec
    is_there = isinstance(first, dict) and isinstance(first.get(name), tf.TensorSpec)
    # One of a strategy cannot be mapped any more.
    return dataset.map(check) if is_there and hasattr(dataset, "map") else dataset
