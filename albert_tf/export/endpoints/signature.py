"""What all signatures of exported models are made of.

The names of inputs and outputs are the interface of a served model. All outputs are
dense with the batch first, as the row format of TensorFlow Serving's REST API requires.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

# Inputs of a request by name, from the length of its rows in tokens and their number.
MakeRequest = Callable[[int, int], dict[str, np.ndarray]]


class Signature(NamedTuple):
    """One endpoint.

    Attributes:
        function: callable. From tensors to a dict of tensors.
        inputs: tuple of `tf.TensorSpec`. The tensors; their names are its interface.
        request: callable or None. Makes a warm-up request.
        every_length: bool. Whether the endpoint is warmed up with rows of every length,
            because it runs the model for one of its main answers.
    """

    function: Callable[..., dict[str, tf.Tensor]]
    inputs: tuple[tf.TensorSpec, ...]
    request: MakeRequest | None = None
    every_length: bool = False


def strings(name: str, rank: int = 1) -> tf.TensorSpec:
    """Returns the specification of an input of strings, `[B]` unless said otherwise."""
    return tf.TensorSpec([None] * rank, tf.string, name)


def ints(name: str, rank: int) -> tf.TensorSpec:
    """Returns the specification of an input of int32."""
    return tf.TensorSpec([None] * rank, tf.int32, name)


def token_request(length: int, size: int) -> dict[str, np.ndarray]:
    """Returns a request of `size` rows of `length` tokens."""
    # Every vocabulary has this token.
    ids = np.zeros((size, length), np.int32)
    lengths = np.full(size, length, np.int32)
    return {"token_ids": ids, "lengths": lengths, "segment_ids": ids}


def texts(length: int, size: int) -> np.ndarray:
    """Returns `size` texts that fill a row of `length` tokens, one per word."""
    # Without [CLS] and [SEP].
    return np.array([b"a " * max(length - 2, 1)] * size, object)
