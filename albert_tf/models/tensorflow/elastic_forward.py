"""Lets a classifier that stops early compute with the forward made for serving.

Legend: `b` rows that go on, `T` sequence, `M` all their tokens, `D` hidden.
"""

import keras
import tensorflow as tf

from albert_tf.models.classifiers import AlbertTextClassifier
from albert_tf.models.exits import ElasticClassifier, Start
from albert_tf.models.tensorflow.fast_forward import FastForward


def choose(
    model: keras.Model, forward: FastForward | None, exit: str | None
) -> ElasticClassifier | None:
    """Returns what answers with fewer layers, or None if the model has no exits.

    Args:
        model: keras.Model.
        forward: `FastForward` or None. What computes the model's encoder; None for
            Keras's layers.
        exit: str or None. The rule, see `ExitRule`.

    Raises:
        UsageError: If there is a rule that the model cannot follow.
    """
    has_exits = isinstance(model, AlbertTextClassifier) and model.num_exits
    if not has_exits and not exit:
        return None
    start = None
    if has_exits and forward is not None:
        start = _start_of(forward, model.config)
    return ElasticClassifier(model, exit or None, start)


def _start_of(forward: FastForward, config) -> Start:
    table, D = config.layer_table(), config.hidden_size

    def start(inputs):
        embedded, x, bias = forward.start(inputs)
        x = tf.reshape(x, [*tf.unstack(tf.shape(embedded)[:2]), D])

        def apply(number, x, bias, first_only):
            shape = tf.unstack(tf.shape(x)[:2])
            flat = tf.reshape(x, [-1, D])
            flat = forward.block(flat, table[number], bias, shape, first_only)
            return flat if first_only else tf.reshape(flat, [*shape, D])

        return x, bias, apply

    return start
