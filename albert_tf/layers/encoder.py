"""Applies a few blocks of transformer weights L times, as a table says.

Legend: `B` batch, `T` sequence, `E` embedding, `D` hidden, `F` feed-forward, `N` heads,
`L` layers, `U` readers.
"""

from typing import Any, NamedTuple

import keras
from keras import ops, tree
from keras.initializers import GlorotUniform

from albert_tf.config import DEPTH_MATRICES, AlbertConfig, LayerWeights
from albert_tf.errors import require
from albert_tf.kernels.device import recomputed
from albert_tf.layers import depth
from albert_tf.layers.attention import (
    MATMUL,
    Fused,
    SelfAttention,
    attention_bias,
    kernel_for,
)
from albert_tf.layers.configured import ConfiguredLayer
from albert_tf.layers.dropout import GivenSeeds
from albert_tf.layers.gathering import gather_places
from albert_tf.layers.gradients import add_deltas, get_activation, linear


@keras.saving.register_keras_serializable("albert_tf")
class FeedForward(ConfiguredLayer):
    """Computes `act(x W1 + b1) W2 + b2`, with weights that can be read in advance.

    Args:
        config: `AlbertConfig`.
        seed: int or None. Seed of the initial values.
    """

    def __init__(self, config: AlbertConfig, seed: int | None = None, **kwargs):
        super().__init__(config, seed, **kwargs)
        self.intermediate = self.add_dense(config.intermediate_size, "intermediate")
        self.output_dense = self.add_dense(config.hidden_size, "output", 1)

    def build(self, input_shape=None):
        self.intermediate.build((None, None, self.config.hidden_size))
        self.output_dense.build((None, None, self.config.intermediate_size))

    def read(self) -> tuple:
        """Returns both kernels, each followed by its bias, in the compute dtype."""
        layers = (self.intermediate, self.output_dense)
        weights = [w for layer in layers for w in (layer.kernel, layer.bias)]
        return tuple(ops.cast(w, self.compute_dtype) for w in weights)

    def call(self, x, weights=None, own=None):
        """Maps `[B, T, D]` to `[B, T, D]`, before dropout and residual."""
        inner_kernel, inner_bias, kernel, bias = weights or self.read()
        inner, own = linear(x, inner_kernel, inner_bias), own or {}
        inner = add_deltas(inner, x, own, "ffn_intermediate")
        inner = get_activation(self.config.hidden_act)(inner)
        return add_deltas(linear(inner, kernel, bias), inner, own, "ffn_output")


@keras.saving.register_keras_serializable("albert_tf")
class DepthWeights(ConfiguredLayer):
    """The weights that a single application of a block has of its own.

    With `config.depth_embedding`, the vector `input_bias`; with `config.depth_rank`,
    for each of its kernels `A`, `B` and `c` of `x W + b + x A B + c`, such as
    `query_a`, `query_b` and `query_bias`. Every layer has separate variables, because
    LAMB's trust ratio is per variable.

    Args:
        config: `AlbertConfig`.
        seed: int or None. Seed of the initial values.
    """

    def build(self, input_shape=None):
        if self.config.depth_embedding:
            self.add_weight((self.config.hidden_size,), "zeros", name="input_bias")
        rank, shapes = self.config.depth_rank, self.config.depth_shapes()
        for part, (name, (inputs, outputs)) in enumerate(shapes.items()):
            drawn = self.initial_values(part)
            self.add_weight((inputs, rank), drawn, name=f"{name}_a")
            self.add_weight((rank, outputs), "zeros", name=f"{name}_b")
            self.add_weight((outputs,), "zeros", name=f"{name}_bias")

    def read(self) -> dict[str, Any]:
        """Returns the vector as `input`, and `(A, B, c)` by the name of the kernel."""
        values = {w.name: ops.cast(w, self.compute_dtype) for w in self.weights}
        own: dict[str, Any] = {
            name: tuple(values[f"{name}_{part}"] for part in ("a", "b", "bias"))
            for name in self.config.depth_shapes()
        }
        if self.config.depth_embedding:
            own["input"] = values["input_bias"]
        return own


class BlockTensors(NamedTuple):
    """The tensors that one row of the table reads: shared ones, and its own."""

    shared: LayerWeights
    own: dict[str, Any]  # from `DepthWeights.read`, or empty


class EncoderOutput(NamedTuple):
    """The outputs of `SharedEncoder`."""

    sequence_output: keras.KerasTensor  # [B, T, D]
    # Both are empty without `every_layer`:
    hidden_states: tuple  # the projected embeddings, then every block's [B, T, D]
    attentions: tuple  # every block's probabilities [B, N, T, T]


@keras.saving.register_keras_serializable("albert_tf")
class SharedEncoder(ConfiguredLayer):
    """Post-layer-norm transformer blocks that share weights (ALBERT, section 3.1).

    `config.layer_table()` lists the attention, feed-forward and layer norms that each
    application reads, so one mechanism covers every sharing mode, groups, inner groups
    and BERT. Once per forward pass, not once per layer, the weights are cast and query,
    key and value are joined. In addition, each application may have `DepthWeights`.

    Args:
        config: `AlbertConfig`.
        seed: int or None. Seed of the initial values and of dropout.

    Call arguments:
        x: `[B, T, E]`.
        padding_mask, pack_ids: See `attention.attention_bias`.
        training: bool.
        seeds: `ops.StepSeeds` or None.
        readers: `attention.Readers` or None. The only tokens whose sequence output is
            computed, `[U, 1, D]`: the last block then costs a fraction, since the other
            tokens are only read there.
        num_blocks: int or None. Number of rows of the table to apply; None for all.
        every_layer: bool. Whether to return states and probabilities of every block,
            which a loop does not keep (`depth.depth_form`).

    Returns:
        `EncoderOutput`.
    """

    def __init__(self, config: AlbertConfig, seed: int | None = None, **kwargs):
        super().__init__(config, seed, **kwargs)
        self.table = config.layer_table()
        # Far from the seeds of other layers; each layer has one part per kernel.
        part = 1000
        self.embedding_projection = None
        if config.has_embedding_projection:
            own = {}
            if config.family == "electra":  # Keras's default, as in the original
                own["kernel_initializer"] = GlorotUniform(self.seed_of(part))
            self.embedding_projection = self.add_dense(
                config.hidden_size, "embedding_projection", part, **own
            )
            part += 1
        count = [max(column) + 1 for column in zip(*self.table, strict=True)]
        # The order of these lines is the order of the weights in files.
        self.attentions = self._several(SelfAttention, "attention", count[0], part, 4)
        self.attention_layer_norms = self._layer_norms("attention", count[1])
        part += 4 * count[0]
        self.ffns = self._several(FeedForward, "ffn", count[2], part, 2)
        self.ffn_layer_norms = self._layer_norms("ffn", count[3])
        part += 2 * count[2]
        self.hidden_dropout = self.add_dropout(config.hidden_dropout_prob, part)
        self.attention_dropout = self.add_dropout(
            config.attention_probs_dropout_prob, part + 1
        )
        count, parts = len(self.table) * config.has_depth_weights, len(DEPTH_MATRICES)
        self.depth_weights = self._several(
            DepthWeights, "depth", count, part + 2, parts
        )

    def _several(self, kind, name, count, part, parts):
        """Returns layers of a kind, each with this number of parts."""
        return [
            kind(
                self.config,
                self.seed_of(part + parts * i),
                dtype=self.dtype_policy,
                name=f"{name}_{i}",
            )
            for i in range(count)
        ]

    def _layer_norms(self, part, count):
        return [self.add_layer_norm(f"{part}_layer_norm_{i}") for i in range(count)]

    def build(self, input_shape=None):
        if self.embedding_projection is not None:
            self.embedding_projection.build((None, None, self.config.embedding_size))
        norms = self.attention_layer_norms + self.ffn_layer_norms
        for layer in self.attentions + self.ffns + norms + self.depth_weights:
            layer.build((None, None, self.config.hidden_size))

    def call(
        self,
        x,
        padding_mask=None,
        pack_ids=None,
        training=False,
        seeds=None,
        readers=None,
        num_blocks=None,
        every_layer=True,
    ):
        x = self.project(x)
        run = {"training": training, "seeds": seeds}
        hidden_states, attentions = [x], []
        num_blocks = num_blocks or len(self.table)
        # With readers, only they pass the last block, by another computation.
        first, last = 0, num_blocks - (readers is not None)
        fused = self._fused(x, padding_mask, pack_ids, training, every_layer)
        if fused is None:
            bias = attention_bias(padding_mask, pack_ids)
        else:
            bias, x = fused, fused.arrange(x)
        tensors = self.read(joined=fused is None or fused.reads_joined)
        if depth.current_form() != depth.UNROLLED:
            require(not every_layer, "depth_form: loops keep no layer but the last")
            x, first = self._apply_in_loops(last, x, tensors, bias, **run), last
        for number in range(first, last):
            x, probs = self.apply_block(number, x, tensors, bias, **run)
            hidden_states.append(x)
            attentions.append(probs)
        x = x if fused is None else fused.restore(x)
        if readers is not None:
            bias = attention_bias(padding_mask, pack_ids, readers)
            x, probs = self.apply_block(last, x, tensors, bias, readers, **run)
            hidden_states.append(x)
            attentions.append(probs)
        if not every_layer:
            hidden_states, attentions = [], []
        return EncoderOutput(x, tuple(hidden_states), tuple(attentions))

    def _fused(self, x, padding_mask, pack_ids, training, every_layer):
        """Returns a kernel for the attention, or None if it must be two products."""
        if every_layer or (training and self.attention_dropout.rate):
            return None
        kernel = kernel_for(
            self.compute_dtype, self.config.head_size, x.shape[1], pack_ids is not None
        )
        if kernel == MATMUL:
            return None
        return Fused(kernel, padding_mask, pack_ids, self.compute_dtype)

    def _apply_in_loops(self, num_blocks, x, tensors, bias, training, seeds):
        """Applies the first rows of the table; rows that repeat run in loops."""
        recompute = depth.current_form() == depth.LOOP_REMAT
        per_block = 0
        if training:
            rates = self.attention_dropout.rate, *2 * [self.hidden_dropout.rate]
            per_block = sum(rate > 0 for rate in rates)
        # Keras's own generator has a state, which a loop cannot change.
        fits = not per_block or seeds is not None
        require(fits, "depth_form: dropout in a loop needs StepSeeds")
        bias = self._bias_for_loops(bias)
        for first, period, count in depth.stretches(self.table[:num_blocks]):
            rows = range(first, first + period)
            if count == 1:
                x, _ = self.apply_block(first, x, tensors, bias, None, training, seeds)
                continue
            masks, taken = period * per_block, None
            if masks:  # the seeds that unrolled rows would get
                taken = ops.reshape(seeds.take(count * masks), (count, masks, 2))
            # Later rows read the same shared tensors; their own ones are stacked.
            of_rows = [
                BlockTensors(tensors[row].shared, _stack(tensors[row::period][:count]))
                for row in rows
            ]

            def body(number, x, weights, rows=rows, taken=taken, like=of_rows):
                take = lambda values: ops.take(values, number, axis=0)  # noqa: E731
                read = tree.pack_sequence_as(like, list(weights))
                read = [
                    one._replace(own=tree.map_structure(take, one.own)) for one in read
                ]
                read = dict(zip(rows, read, strict=True))
                drawn = None if taken is None else GivenSeeds(take(taken))
                for row in rows:
                    x, _ = self.apply_block(row, x, read, bias, None, training, drawn)
                return x

            weights = tree.flatten(of_rows)
            x = depth.repeat(body, x, count, weights, recompute)
        return x

    def _bias_for_loops(self, bias):
        if bias is None or isinstance(bias, Fused):
            return bias
        # With oneDNN, TensorFlow's optimizer fuses the product of scaled queries with
        # an addition. In a loop the fused operation never runs, and the function
        # returns empty tensors without an error. A subtraction is not fused.
        negated = -ops.cast(bias, self.compute_dtype)
        return lambda scores: scores - ops.cast(negated, scores.dtype)

    def project(self, x):
        """Returns the embeddings `[B, T, E]` as the first block reads them."""
        return x if self.embedding_projection is None else self.embedding_projection(x)

    def read(self, joined: bool = True) -> list[BlockTensors]:
        """Returns the tensors that each row of the table reads, for one forward.

        `joined` is as for `SelfAttention.read`.
        """
        columns = (self.attention_layer_norms, self.ffns, self.ffn_layer_norms)
        read = [[layer.read() for layer in column] for column in columns]
        read.insert(0, [layer.read(joined) for layer in self.attentions])
        rows = [
            LayerWeights(*(column[i] for column, i in zip(read, row, strict=True)))
            for row in self.table
        ]
        own = [layer.read() for layer in self.depth_weights] or [{}] * len(rows)
        return [BlockTensors(*pair) for pair in zip(rows, own, strict=True)]

    def apply_block(
        self, number, x, tensors, bias, readers=None, training=False, seeds=None
    ):
        """Applies one row of the table.

        Args:
            number: int. Index of the row.
            x: `[B, T, D]`.
            tensors: list or dict. From `read`, by the indices of the rows.
            bias: `attention.Fused` or from `attention_bias`, for readers if any.
            readers: `attention.Readers` or None. The only tokens to be computed.

        Returns:
            The states `[B, T, D]`, or `[U, 1, D]` of the readers; and the
            probabilities, or None if attention is fused.
        """
        row, (weights, own) = self.table[number], tensors[number]
        x = x + own["input"] if "input" in own else x

        def drop_probs(probs):
            return self.attention_dropout(probs, training=training, seeds=seeds)

        def add_and_norm(norm, x, update, weights):
            # On an H100, XLA would otherwise copy x for the product to add to.
            update = recomputed(update)
            update = self.hidden_dropout(update, training=training, seeds=seeds)
            return norm.normalize(x + update, *weights)

        update, probs = self.attentions[row.attention](
            x,
            bias=bias,
            weights=weights.attention,
            probs_dropout=drop_probs,
            readers=readers,
            own=own,
        )
        if readers is not None:
            x = gather_places(x, readers.places[:, None])
        norm = self.attention_layer_norms[row.attention_layer_norm]
        x = add_and_norm(norm, x, update, weights.attention_layer_norm)
        update = self.ffns[row.ffn](x, weights=weights.ffn, own=own)
        norm = self.ffn_layer_norms[row.ffn_layer_norm]
        return add_and_norm(norm, x, update, weights.ffn_layer_norm), probs

    def compute_output_shape(self, input_shape):
        """Returns the shape of the sequence output, for `summary()`."""
        return (*input_shape[:2], self.config.hidden_size)


def _stack(rows: list[BlockTensors]) -> dict[str, Any]:
    """Returns the own tensors of several rows, stacked along a new first axis."""
    own = [row.own for row in rows]
    return tree.map_structure(lambda *one: ops.stack(one), *own)
