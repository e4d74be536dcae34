"""Embeds tokens, positions and segments in E dimensions, which the encoder projects.

Legend: `B` batch, `T` sequence, `V` vocabulary, `P` positions, `S` segments, `E`
embedding.
"""

import keras
from keras import ops

from albert_tf.layers.dropout import Dropout
from albert_tf.layers.layer_norm import LayerNorm
from albert_tf.layers.ops import TruncatedNormal, plus


@keras.saving.register_keras_serializable("albert_tf")
class FactorizedEmbedding(keras.layers.Layer):
    """Sums three embeddings in E dimensions, then layer norm and dropout.

    With the projection at the encoder's entry these are `V*E + E*D` parameters instead
    of `V*D` (ALBERT, section 3.1; the original's `embedding_lookup` and
    `embedding_postprocessor`).

    Args:
        vocab_size: int. `V`.
        embedding_size: int. `E`.
        max_position_embeddings: int. `P`.
        type_vocab_size: int. `S`.
        initializer_range: float. Standard deviation of the initial values.
        layer_norm_eps: float. Epsilon of the layer norm.
        dropout: float. Dropout rate.
        seed: int or None. Seed of the initial values and of dropout.

    Call arguments:
        token_ids: int32 `[B, T]`, values in `[0, V)`.
        segment_ids: int32 `[B, T]`, values in `[0, S)`; None is all 0.
        position_ids: int32 `[B, T]`, values in `[0, P)`; None is 0, 1, 2…

    Returns:
        `[B, T, E]` in the compute dtype.

    Raises:
        ValueError: If T is greater than P.
    """

    def __init__(
        self,
        vocab_size: int,
        embedding_size: int,
        max_position_embeddings: int,
        type_vocab_size: int = 2,
        initializer_range: float = 0.02,
        layer_norm_eps: float = 1e-12,
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.sizes = {
            "word_embeddings": vocab_size,
            "position_embeddings": max_position_embeddings,
            "token_type_embeddings": type_vocab_size,
        }
        self.embedding_size = embedding_size
        self.initializer_range = initializer_range
        self.seed = seed
        self.layer_norm = LayerNorm(
            epsilon=layer_norm_eps, dtype=self.dtype_policy, name="layer_norm"
        )
        self.dropout = Dropout(dropout, seed, dtype=self.dtype_policy)

    def build(self, input_shape=None):
        for number, (name, size) in enumerate(self.sizes.items()):
            seed = plus(self.seed, number)
            weight = self.add_weight(
                name=name,
                shape=(size, self.embedding_size),
                initializer=TruncatedNormal(stddev=self.initializer_range, seed=seed),
                # In full precision, because the gradient of a frequent token is a
                # sum of thousands of rows.
                autocast=False,
            )
            setattr(self, name, weight)
        self.layer_norm.build((None, None, self.embedding_size))
        self.built = True

    def call(
        self,
        token_ids,
        segment_ids=None,
        position_ids=None,
        training=False,
        seeds=None,
    ):
        x = _look_up(self.word_embeddings, token_ids)
        if segment_ids is None:
            segments = self.token_type_embeddings[0]
        else:
            # A product with one-hot rows, as the original: no sparse gradient.
            table = ops.cast(self.token_type_embeddings, x.dtype)
            one_hot = ops.one_hot(segment_ids, table.shape[0], dtype=x.dtype)
            segments = ops.matmul(one_hot, table)
        x = x + segments + self._positions(token_ids, position_ids)
        x = ops.cast(x, self.compute_dtype)
        return self.dropout(self.layer_norm(x), training=training, seeds=seeds)

    def _positions(self, token_ids, position_ids):
        if position_ids is not None:
            return _look_up(self.position_embeddings, position_ids)
        length, longest = token_ids.shape[1], self.sizes["position_embeddings"]
        if length is not None and length > longest:
            raise ValueError(
                f"sequence length must be at most max_position_embeddings={longest}, "
                f"received {length}"
            )
        return self.position_embeddings[: ops.shape(token_ids)[1]]

    def compute_output_shape(self, input_shape):
        return (*input_shape, self.embedding_size)


def _look_up(table, ids):
    # The reshape makes TensorFlow's gradient dense. With a sparse gradient and
    # repeated ids, Keras's Adam optimizers compute wrong updates.
    return ops.take(ops.reshape(table, table.shape), ids, axis=0)
