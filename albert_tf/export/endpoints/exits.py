"""Defines the signatures of a text classifier that may stop after any layer.

Legend: `B` batch, `L` layers.
"""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from albert_tf.export.endpoints.signature import Signature, ints, strings, texts
from albert_tf.export.endpoints.text_inputs import TextInputs
from albert_tf.models.exits import ElasticClassifier


def logits_of(
    model: keras.Model, elastic: ElasticClassifier | None
) -> Callable[[Any], dict[str, tf.Tensor]]:
    """Returns what computes a classifier's logits: by the rule, if there is one."""
    if elastic is None or elastic.rule is None:
        return lambda inputs: {"logits": model(inputs, training=False)}
    return elastic


def make_elastic_signatures(
    elastic: ElasticClassifier, text_inputs: TextInputs, answer: Callable
) -> dict[str, Signature]:
    """Returns `elastic(text, num_layers)` and `elastic_pair`, for pairs of texts.

    `num_layers` is int32 `[B]`, from 1 to `L`, one for each text, as a server that
    joins requests needs it. When run, they raise an InvalidArgumentError if one is out
    of range, before the model is run.

    Args:
        elastic: `ElasticClassifier`. Its rule is not used.
        text_inputs: `TextInputs`.
        answer: callable. From model inputs and `num_layers` to the answer.
    """
    most = elastic.num_layers

    def checked(num_layers):
        inside = (num_layers >= 1) & (num_layers <= most)
        message = f"num_layers: from 1 to {most}, received"
        check = tf.debugging.Assert(tf.reduce_all(inside), [message, num_layers])
        with tf.control_dependencies([check]):
            return tf.identity(num_layers)

    def by_depth(*texts_and_depth):
        *given, num_layers = texts_and_depth
        depth = checked(num_layers)
        with tf.control_dependencies([depth]):
            inputs = text_inputs(*given)
        return answer(inputs, num_layers=depth)

    text, pair, depth = strings("text"), strings("text_pair"), ints("num_layers", 1)

    def request(length: int, size: int) -> dict[str, np.ndarray]:
        # Every depth, so that no layer is run for the first time by a client.
        layers = np.arange(size, dtype=np.int32) * most // size + 1
        return {"text": texts(length, size), "num_layers": layers}

    return {
        "elastic": Signature(
            lambda text, num_layers: by_depth(text, num_layers), (text, depth), request
        ),
        "elastic_pair": Signature(
            lambda text, text_pair, num_layers: by_depth(text, text_pair, num_layers),
            (text, pair, depth),
            lambda length, size: (
                request(length, size) | {"text_pair": texts(length, size)}
            ),
        ),
    }
