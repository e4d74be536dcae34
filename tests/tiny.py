"""A model small enough for every test, and what tests ask of one."""

import pathlib

import numpy as np
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.models.backbone import AlbertBackbone
from albert_tf.models.base import weight_names

SPIECE = pathlib.Path(__file__).parent / "golden/tokenization/spiece.model"
# Its initial weights are large, so that different inputs give different answers.
CONFIG = AlbertConfig(
    embedding_size=6,
    hidden_size=12,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=24,
    initializer_range=0.5,
)


def record_calls(monkeypatch) -> list[bool]:
    """Returns a list that grows with every call of a backbone: whether it is eager."""
    eager = []
    call = AlbertBackbone.call

    def recorded(self, *args, **kwargs):
        eager.append(tf.executing_eagerly())
        return call(self, *args, **kwargs)

    monkeypatch.setattr(AlbertBackbone, "call", recorded)
    return eager


def randomize(model, seed=0):
    """Returns the model with random weights, in biases and layer norms, too."""
    rng = np.random.default_rng(seed)
    for variable in weight_names(model).values():
        variable.assign(rng.normal(0, 0.2, variable.shape))
    return model


def assert_same_weights(first, second):
    """Compares two models bit for bit, name by name."""
    first, second = weight_names(first), weight_names(second)
    assert list(first) == list(second)
    for name, variable in first.items():
        value = second[name].numpy()
        np.testing.assert_array_equal(variable.numpy(), value, err_msg=name)
