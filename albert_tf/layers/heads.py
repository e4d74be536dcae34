"""Builds what stands on top of the encoder: the masked LM and dense classifiers.

Legend: `B` batch, `T` sequence, `P` predictions, `V` vocabulary, `E` embedding, `D`
hidden.
"""

import keras
from keras import ops

from albert_tf.config import AlbertConfig
from albert_tf.layers.activations import get_activation
from albert_tf.layers.initializers import TruncatedNormal


def truncated_normal_dense(
    units: int, config: AlbertConfig, seed: int | None, **kwargs
) -> keras.layers.Dense:
    """Returns a dense layer with the original's initial values."""
    initializer = TruncatedNormal(stddev=config.initializer_range, seed=seed)
    return keras.layers.Dense(units, kernel_initializer=initializer, **kwargs)


def gather_positions(x, positions):
    """Returns the rows of `x` `[B, T, D]` at `positions` int `[B, P]`: `[B, P, D]`."""
    # Gathers whole rows of a matrix: `take_along_axis` gathers every number by itself.
    B, T, D = ops.shape(x)
    first = ops.expand_dims(ops.arange(B, dtype="int32") * T, 1)
    rows = ops.cast(positions, "int32") + first
    return ops.take(ops.reshape(x, (-1, D)), rows, axis=0)


def gather_places(x, places):
    """Returns the rows of `x` `[B, T, D]` at `places`: `[*places.shape, D]`.

    Args:
        x: `[B, T, D]`.
        places: int of any shape. Numbers of the rows of `[B * T, D]`.
    """
    return ops.take(ops.reshape(x, (-1, x.shape[-1])), places, axis=0)


@keras.saving.register_keras_serializable("albert_tf")
class MaskedLMHead(keras.layers.Layer):
    """Scores the vocabulary, with the token table as output weights.

    A dense layer to E dimensions, activation, layer norm, then the tied table and a
    bias (the original's `get_masked_lm_output`). The layer norm's epsilon is
    `mlm_layer_norm_eps`, or else `layer_norm_eps`.

    Args:
        config: `AlbertConfig`.
        seed: int or None. Seed of the initial values.

    Call arguments:
        x: `[B, P, D]`.
        word_embeddings: The tied table, `[V, E]`.

    Returns:
        float32 logits `[B, P, V]`.
    """

    def __init__(self, config: AlbertConfig, seed: int | None = None, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        self.seed = seed
        self.dense = truncated_normal_dense(
            config.embedding_size, config, seed, dtype=self.dtype_policy, name="dense"
        )
        self.layer_norm = keras.layers.LayerNormalization(
            epsilon=config.mlm_layer_norm_eps or config.layer_norm_eps,
            dtype=self.dtype_policy,
            name="layer_norm",
        )

    def build(self, input_shape=None):
        self.dense.build((None, None, self.config.hidden_size))
        self.layer_norm.build((None, None, self.config.embedding_size))
        self.output_bias = self.add_weight(
            name="output_bias",
            shape=(self.config.vocab_size,),
            initializer="zeros",
            autocast=False,  # added in float32
        )
        self.built = True

    def call(self, x, word_embeddings):
        x = get_activation(self.config.hidden_act)(self.dense(x))
        x = self.layer_norm(x)
        table = ops.cast(word_embeddings, x.dtype)
        logits = ops.matmul(x, ops.transpose(table))
        return ops.cast(logits, "float32") + ops.cast(self.output_bias, "float32")

    def compute_output_shape(self, input_shape):
        """Returns the shape of the logits, for `summary()`."""
        return (*input_shape[:2], self.config.vocab_size)

    def compute_output_spec(self, x, word_embeddings):
        shape = (*x.shape[:2], self.config.vocab_size)
        return keras.KerasTensor(shape, "float32")

    def get_config(self):
        config = self.config.to_dict()
        return {**super().get_config(), "config": config, "seed": self.seed}

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "config": AlbertConfig.from_dict(config["config"])})
