"""Applies a few blocks of transformer weights L times, as a table says.

Legend: `B` batch, `T` sequence, `E` embedding, `D` hidden, `N` heads, `L` layers, `U`
readers.
"""

from typing import NamedTuple

import keras

from albert_tf.config import AlbertConfig
from albert_tf.layers.attention import SelfAttention, attention_bias
from albert_tf.layers.dropout import Dropout
from albert_tf.layers.feed_forward import FeedForward
from albert_tf.layers.layer_norm import LayerNorm
from albert_tf.layers.ops import ConfiguredLayer, gather_places, plus


class EncoderTensors(NamedTuple):
    """Weights of the blocks in the compute dtype, by their numbers in the table."""

    attentions: list
    ffns: list


class EncoderOutput(NamedTuple):
    """The outputs of `SharedEncoder`."""

    sequence_output: keras.KerasTensor  # [B, T, D]
    hidden_states: tuple  # the projected embeddings, then every block's [B, T, D]
    attentions: tuple  # every block's probabilities [B, N, T, T]


@keras.saving.register_keras_serializable("albert_tf")
class SharedEncoder(ConfiguredLayer):
    """Post-layer-norm transformer blocks that share weights (ALBERT, section 3.1).

    `config.layer_table()` lists the attention, feed-forward and layer norms that each
    application reads, so one mechanism covers every sharing mode, groups, inner groups
    and BERT. Once per forward pass, not once per layer, the weights are cast and query,
    key and value are joined.

    Args:
        config: `AlbertConfig`.
        seed: int or None. Seed of the initial values and of dropout.

    Call arguments:
        x: `[B, T, E]`.
        padding_mask, pack_ids: See `attention.attention_bias`.
        training: bool.
        seeds: `dropout.StepSeeds` or None.
        readers: `attention.Readers` or None. The only tokens whose sequence output is
            computed, `[U, 1, D]`: the last block then costs a fraction, since the
            others are read there but neither read nor are transformed.

    Returns:
        `EncoderOutput`.
    """

    def __init__(self, config: AlbertConfig, seed: int | None = None, **kwargs):
        super().__init__(config, seed, **kwargs)
        self.table = config.layer_table()
        policy = self.dtype_policy
        self.embedding_projection = None
        if config.has_embedding_projection:
            self.embedding_projection = self.add_dense(
                config.hidden_size, "embedding_projection", 1000
            )
        count = [max(column) + 1 for column in zip(*self.table, strict=True)]
        # Far from the seeds of other layers, and each with a number of its own.
        first = 1000 + config.has_embedding_projection
        self.attentions = [
            SelfAttention(
                config.hidden_size,
                config.num_attention_heads,
                config.initializer_range,
                seed=plus(seed, first + 4 * i),
                dtype=policy,
                name=f"attention_{i}",
            )
            for i in range(count[0])
        ]
        self.attention_layer_norms = _layer_norms("attention", count[1], config, policy)
        first += 4 * count[0]
        self.ffns = [
            FeedForward(
                config.hidden_size,
                config.intermediate_size,
                config.hidden_act,
                config.initializer_range,
                seed=plus(seed, first + 2 * i),
                dtype=policy,
                name=f"ffn_{i}",
            )
            for i in range(count[2])
        ]
        self.ffn_layer_norms = _layer_norms("ffn", count[3], config, policy)
        first += 2 * count[2]
        self.hidden_dropout = Dropout(
            config.hidden_dropout_prob, plus(seed, first), dtype=policy
        )
        self.attention_dropout = Dropout(
            config.attention_probs_dropout_prob, plus(seed, first + 1), dtype=policy
        )

    def build(self, input_shape=None):
        if self.embedding_projection is not None:
            self.embedding_projection.build((None, None, self.config.embedding_size))
        norms = self.attention_layer_norms + self.ffn_layer_norms
        for layer in self.attentions + self.ffns + norms:
            layer.build((None, None, self.config.hidden_size))
        self.built = True

    def call(
        self,
        x,
        padding_mask=None,
        pack_ids=None,
        training=False,
        seeds=None,
        readers=None,
    ):
        x = self.project(x)
        bias = attention_bias(padding_mask, pack_ids)
        tensors = self.read()
        run = {"training": training, "seeds": seeds}
        hidden_states, attentions = [x], []
        for number in range(len(self.table)):
            reading = readers if number == len(self.table) - 1 else None
            if reading is not None:
                bias = attention_bias(padding_mask, pack_ids, reading)
            x, probs = self.apply_block(number, x, tensors, bias, reading, **run)
            hidden_states.append(x)
            attentions.append(probs)
        return EncoderOutput(x, tuple(hidden_states), tuple(attentions))

    def project(self, x):
        """Returns the embeddings `[B, T, E]` as the first block reads them."""
        return x if self.embedding_projection is None else self.embedding_projection(x)

    def read(self) -> EncoderTensors:
        """Returns the weights as the blocks of one forward pass share them."""
        return EncoderTensors(
            [layer.read() for layer in self.attentions],
            [layer.read() for layer in self.ffns],
        )

    def apply_block(
        self, number, x, tensors, bias, readers=None, training=False, seeds=None
    ):
        """Applies one row of the table.

        Args:
            number: int. Index of the row.
            x: `[B, T, D]`.
            tensors: `EncoderTensors`. From `read`.
            bias: From `attention_bias`, for the readers if there are any.
            readers: `attention.Readers` or None. The only tokens to be computed.
            training, seeds: As for `call`.

        Returns:
            The states `[B, T, D]`, or `[U, 1, D]` of the readers; the probabilities.
        """
        row = self.table[number]

        def drop_probs(probs):
            return self.attention_dropout(probs, training=training, seeds=seeds)

        def add_and_norm(norm, x, update):
            update = self.hidden_dropout(update, training=training, seeds=seeds)
            return norm(x + update)

        update, probs = self.attentions[row.attention](
            x,
            bias=bias,
            weights=tensors.attentions[row.attention],
            probs_dropout=drop_probs,
            readers=readers,
        )
        if readers is not None:
            x = gather_places(x, readers.places[:, None])
        norm = self.attention_layer_norms[row.attention_layer_norm]
        x = add_and_norm(norm, x, update)
        update = self.ffns[row.ffn](x, weights=tensors.ffns[row.ffn])
        return add_and_norm(self.ffn_layer_norms[row.ffn_layer_norm], x, update), probs

    def compute_output_shape(self, input_shape):
        """Returns the shape of the sequence output, for `summary()`."""
        return (*input_shape[:2], self.config.hidden_size)

    def compute_output_spec(self, x, *args, **kwargs):
        shape = (*x.shape[:2], self.config.hidden_size)
        hidden = keras.KerasTensor(shape, self.compute_dtype)
        length = x.shape[1]
        probs = keras.KerasTensor(
            (x.shape[0], self.config.num_attention_heads, length, length),
            self.compute_dtype,
        )
        n = len(self.table)
        return EncoderOutput(hidden, (hidden,) * (n + 1), (probs,) * n)


def _layer_norms(part, count, config, policy):
    return [
        LayerNorm(
            epsilon=config.layer_norm_eps, dtype=policy, name=f"{part}_layer_norm_{i}"
        )
        for i in range(count)
    ]
