"""Embeds tokens, positions and segments in E dimensions, which the encoder projects.

Legend: `B` batch, `T` sequence, `V` vocabulary, `P` positions, `S` segments, `E`
embedding.
"""

from collections.abc import Callable

import keras
import numpy as np
from keras import ops

from albert_tf import features
from albert_tf.config import AlbertConfig
from albert_tf.errors import require
from albert_tf.kernels import assert_below
from albert_tf.kernels.device import is_cuda
from albert_tf.layers.configured import ConfiguredLayer


@keras.saving.register_keras_serializable("albert_tf")
class FactorizedEmbedding(ConfiguredLayer):
    """Sums three embeddings in E dimensions, then layer norm and dropout.

    With the projection at the encoder's entry there are `V*E + E*D` parameters instead
    of `V*D` (ALBERT, section 3.1; the original's `embedding_lookup` and
    `embedding_postprocessor`).

    Args:
        config: `AlbertConfig`.
        seed: int or None. Seed of the initial values and of dropout.

    Attributes:
        base: callable or None. Its result for the same arguments, the sum of tables
            that are trained elsewhere, is added to `look_up` before layer norm.

    Call arguments:
        token_ids: int32 `[B, T]`, values in `[0, V)`.
        segment_ids: int32 `[B, T]`, values in `[0, S)`; None is all 0.
        position_ids: int32 `[B, T]`, values in `[0, P)`; None is 0, 1, 2… With
            `position_offset`, padding ids neither have nor count as positions.

    Returns:
        `[B, T, E]` in the compute dtype.

    Raises:
        ValueError: If T is greater than P, or there is no such segment (checked if the
            ids have values, not in a graph).
    """

    def __init__(self, config: AlbertConfig, seed: int | None = None, **kwargs):
        super().__init__(config, seed, **kwargs)
        self.layer_norm = self.add_layer_norm("layer_norm")
        self.dropout = self.add_dropout(config.hidden_dropout_prob)
        # A function, because Keras would treat another layer as a part of this one.
        self.base: Callable | None = None

    def build(self, input_shape=None):
        sizes = {
            "word_embeddings": self.config.vocab_size,
            "position_embeddings": self.config.num_positions,
            "token_type_embeddings": self.config.type_vocab_size,
        }
        for part, (name, size) in enumerate(sizes.items()):
            weight = self.add_weight(
                name=name,
                shape=(size, self.config.embedding_size),
                initializer=self.initial_values(part),
                # Full precision, because the gradient of a frequent token is a sum
                # of thousands of rows.
                autocast=False,
            )
            setattr(self, name, weight)
        self.layer_norm.build((None, None, self.config.embedding_size))

    def call(
        self, token_ids, segment_ids=None, position_ids=None, training=False, seeds=None
    ):
        ids = (token_ids, segment_ids, position_ids)
        x = self.look_up(*ids)
        if self.base is not None:
            x = x + self.base(*ids)
        x = ops.cast(x, self.compute_dtype)
        return self.dropout(self.layer_norm(x), training=training, seeds=seeds)

    def look_up(self, token_ids, segment_ids=None, position_ids=None):
        """Returns the sum of rows of the three tables, `[B, T, E]`."""
        x = _look_up(self.word_embeddings, token_ids)
        positions = self._positions(token_ids, position_ids)
        if segment_ids is None:
            segments = self.token_type_embeddings[0]
        else:
            # A product with one-hot rows, as in the original: no sparse gradient.
            check_segments(segment_ids, self.config.type_vocab_size)
            table = ops.cast(self.token_type_embeddings, x.dtype)
            if table.shape[0] == 2 and is_cuda():
                # On an H100, the product would be a kernel of its own in float32.
                is_first = ops.equal(segment_ids, 0)[..., None]
                return x + positions + ops.where(is_first, table[0], table[1])
            one_hot = ops.one_hot(segment_ids, table.shape[0], dtype=x.dtype)
            segments = ops.matmul(one_hot, table)
        return x + segments + positions

    def _positions(self, token_ids, position_ids):
        length, longest = token_ids.shape[1], self.config.max_position_embeddings
        offset = self.config.position_offset
        if position_ids is None and not isinstance(length, int | None):
            # In JAX, an unknown length can be neither compared nor used as a slice.
            position_ids = None if offset else ops.arange(length)
        elif position_ids is None and length is not None and length > longest:
            raise ValueError(
                f"sequence length must be at most max_position_embeddings={longest}, "
                f"received {length}"
            )
        if offset:
            position_ids = _offset_positions(token_ids, position_ids, offset)
        if position_ids is not None:
            return _look_up(self.position_embeddings, position_ids)
        return self.position_embeddings[: ops.shape(token_ids)[1]]

    @property
    def tables(self) -> tuple:
        """The tables of tokens, positions and segments."""
        return (
            self.word_embeddings,
            self.position_embeddings,
            self.token_type_embeddings,
        )

    def compute_output_shape(self, input_shape):
        return (*input_shape, self.config.embedding_size)


def _offset_positions(token_ids, position_ids, offset: int):
    """Returns int32 `[B, T]` positions like fairseq's `make_positions`."""
    real = ops.cast(ops.not_equal(token_ids, offset - 1), "int32")
    if position_ids is None:
        position_ids = ops.cumsum(real, axis=1) - 1
    return (ops.cast(position_ids, "int32") + 1) * real + (offset - 1)


def with_checked_segments(x, count: int):
    """Returns inputs, or a data set that checks them, after `check_segments`.

    Raises `ValueError` if an array of them is negative: such an id would count from the
    end of its table, and a mask of 0 and -10000 would hide the text.
    """
    given = x if isinstance(x, dict) else {features.TOKEN_IDS: x}
    for name in features.ROWS:
        values = given.get(name)
        if isinstance(values, np.ndarray) and values.dtype.kind in "if":
            least = values.min(initial=0).item()
            require(least >= 0, f"{name} must not be negative", least, error=ValueError)
    if isinstance(x, dict) and features.SEGMENT_IDS in x:
        check_segments(x[features.SEGMENT_IDS], count)
    if hasattr(x, "element_spec"):  # a TensorFlow dataset
        need = f"segment_ids must be below type_vocab_size={count}"
        return assert_below(x, features.SEGMENT_IDS, count, need)
    return x


def check_segments(segment_ids, count: int) -> None:
    """Raises `ValueError` for segments that would silently get no embedding."""
    if not hasattr(segment_ids, "__array_interface__"):  # NumPy's
        # Eager tensors of TensorFlow; reading from a device would wait for it.
        read = getattr(segment_ids, "numpy", None)
        if read is None or "CPU" not in str(getattr(segment_ids, "device", "")):
            return
        segment_ids = read()
    most = int(segment_ids.max(initial=0))
    need = f"segment_ids must be below type_vocab_size={count}"
    require(most < count, need, most, error=ValueError)


def _look_up(table, ids):
    # The reshape makes TensorFlow's gradient dense. With a sparse gradient and
    # repeated ids, Keras's Adam optimizers compute wrong updates.
    return ops.take(ops.reshape(table, table.shape), ids, axis=0)
