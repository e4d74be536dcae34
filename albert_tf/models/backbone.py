"""Builds the encoder with its embeddings and pooler.

Legend: `B` batch, `T` sequence, `E` embedding, `D` hidden, `K` examples in a row,
`U` examples.
"""

from collections.abc import Mapping
from types import MappingProxyType

import keras
from keras import ops

from albert_tf import features
from albert_tf.config import AlbertConfig
from albert_tf.errors import UsageError
from albert_tf.layers import depth
from albert_tf.layers.attention import Readers
from albert_tf.layers.embedding import FactorizedEmbedding
from albert_tf.layers.encoder import SharedEncoder
from albert_tf.layers.gathering import gather_positions
from albert_tf.models.base import ConfiguredModel, as_inputs, without_padding


@keras.saving.register_keras_serializable("albert_tf")
class AlbertBackbone(ConfiguredModel):
    """ALBERT or a relative without a head: embeddings, encoder and pooler.

    Args:
        config: `AlbertConfig`.
        add_pooler: bool or None. Whether to add the pooler, a dense layer on `[CLS]`;
            None: if the family has one (ELECTRA does not).
        seed: int or None. Seed of the initial values.
        shared: dict. Layers of another backbone to use instead of new ones:
            `embeddings`, `encoder` or both. The first blocks of a shared encoder are
            applied, as many as `config` has.

    Call arguments:
        inputs: dict, or `token_ids` alone.

            - `token_ids`: int32 `[B, T]`.
            - `segment_ids`: int32 `[B, T]`; default all 0.
            - `padding_mask`: int `[B, T]`, 1 = real. Without it, the ids that equal
              `model.pad_id` at the end of a row are padding (a text ends with
              `[SEP]`); if `pad_id` is None, as in a model that was not loaded with a
              tokenizer, every token is real, as in the original. A row without real
              tokens attends as if unmasked, as in the original.
            - `pack_ids`, `position_ids`: int32 `[B, T]`, and `cls_positions`: int32
              `[B, K]`, for packed rows.
            - `places`: int32 `[U]` or `[U, K]`, only used with `pooled_only`, instead
              of `cls_positions`: where each example starts, as a number of the
              flattened rows.
        training: bool. Whether dropout is on.
        seeds: `layers.dropout.StepSeeds` or None.
        output_hidden_states: bool. Adds `embedding_output` `[B, T, E]` and
            `hidden_states`, the projected embeddings and every block's output, each
            `[B, T, D]`.
        output_attentions: bool. Adds `attentions`, every block's `[B, N, T, T]`.
        before_pooler: function or None, only used with `pooled_only`. Applied to the
            pooler's input, such as a dropout.
        pooled_only: bool. Returns `pooled_output` alone, `[*places.shape, D]`. The
            values are the same, but the last block is computed for `[CLS]` only.

    Returns:
        dict with `sequence_output` `[B, T, D]` and, with a pooler, `pooled_output`
        `[B, D]` (`[B, K, D]` if `cls_positions` is given).

    Raises:
        UsageError: If `pooled_only` is set for a model without a pooler, or together
            with hidden states or attentions.

    Example:
        >>> import albert_tf, numpy as np
        >>> model = albert_tf.AlbertBackbone(albert_tf.AlbertConfig())
        >>> outputs = model({"token_ids": np.array([[2, 13, 1, 3]])})
        >>> outputs["sequence_output"].shape, outputs["pooled_output"].shape
        (TensorShape([1, 4, 768]), TensorShape([1, 768]))
    """

    def __init__(
        self,
        config: AlbertConfig,
        *,
        add_pooler: bool | None = None,
        seed: int | None = None,
        shared: Mapping[str, keras.layers.Layer] = MappingProxyType({}),
        **kwargs,
    ):
        super().__init__(config, seed=seed, **kwargs)
        policy = self.dtype_policy
        self.embeddings = shared.get("embeddings") or FactorizedEmbedding(
            config, self.seed_of(1), dtype=policy, name="embeddings"
        )
        self.encoder = shared.get("encoder") or SharedEncoder(
            config, self.seed_of(2), dtype=policy, name="encoder"
        )
        self.pooler = None
        if config.has_pooler if add_pooler is None else add_pooler:
            self.pooler = self.add_dense(
                config.hidden_size, "pooler", 3, activation=config.pooler_act
            )
        self.build((None, None))

    def build(self, input_shape=None):
        if self.built:
            return
        if not self.embeddings.built:
            self.embeddings.build((None, None))
        if not self.encoder.built:
            self.encoder.build((None, None, self.config.embedding_size))
        if self.pooler is not None:
            self.pooler.build((None, self.config.hidden_size))

    def call(
        self,
        inputs,
        training=False,
        seeds=None,
        output_hidden_states=False,
        output_attentions=False,
        pooled_only=False,
        before_pooler=None,
    ):
        if pooled_only and (output_hidden_states or output_attentions):
            raise UsageError(
                "pooled_only: cannot be combined with output_hidden_states or "
                "output_attentions, because the last block is not computed whole"
            )
        if pooled_only and self.pooler is None:
            raise UsageError("pooled_only: needs a model with add_pooler=True")
        inputs = as_inputs(inputs)
        mask = self.mask_of(inputs)
        embedded = self.embed(inputs, training=training, seeds=seeds)
        readers, shape = self._readers(inputs) if pooled_only else (None, None)
        encoded = self.encoder(
            embedded,
            padding_mask=mask,
            pack_ids=inputs.get(features.PACK_IDS),
            training=training,
            seeds=seeds,
            readers=readers,
            num_blocks=depth.num_blocks(self.config),
            every_layer=output_hidden_states or output_attentions,
        )
        x = encoded.sequence_output
        depth.note_states(x)
        if pooled_only:
            x = ops.reshape(x, (*shape, self.config.hidden_size))
            x = x if before_pooler is None else before_pooler(x)
            return {"pooled_output": self.pooler(x)}
        outputs = {"sequence_output": x}
        if self.pooler is not None:
            positions = inputs.get(features.CLS_POSITIONS)
            first = x[:, 0] if positions is None else gather_positions(x, positions)
            outputs["pooled_output"] = self.pooler(first)
        if output_hidden_states:
            outputs["embedding_output"] = embedded
            outputs["hidden_states"] = encoded.hidden_states
        if output_attentions:
            outputs["attentions"] = encoded.attentions
        return outputs

    def mask_of(self, inputs):
        """Returns the padding mask of inputs, or None if every token is real."""
        mask = inputs.get(features.PADDING_MASK)
        infer = self.pad_id is not None and features.PACK_IDS not in inputs
        if mask is None and infer:
            mask = without_padding(inputs[features.TOKEN_IDS], self.pad_id)
        return mask

    def embed(self, inputs, training=False, seeds=None):
        """Returns the embeddings of inputs, `[B, T, E]`."""
        return self.embeddings(
            inputs[features.TOKEN_IDS],
            segment_ids=inputs.get(features.SEGMENT_IDS),
            position_ids=inputs.get(features.POSITION_IDS),
            training=training,
            seeds=seeds,
        )

    @staticmethod
    def _readers(inputs):
        """Returns the tokens that start examples, and the shape of their outputs."""
        B, T = ops.shape(inputs[features.TOKEN_IDS])[:2]
        first = ops.arange(B, dtype="int32") * T
        places = inputs.get(features.PLACES)
        if places is None and features.CLS_POSITIONS in inputs:
            positions = ops.cast(inputs[features.CLS_POSITIONS], "int32")
            places = positions + first[:, None]
        if places is None:
            return Readers(first), (B,)
        flat = ops.reshape(places, (-1,))
        return Readers(flat, flat // T), ops.shape(places)

    def compute_output_shape(self, input_shape):
        """Returns the shapes of the unconditional outputs, for `summary()`."""
        shapes = {"sequence_output": (*input_shape, self.config.hidden_size)}
        if self.pooler is not None:
            shapes["pooled_output"] = (input_shape[0], self.config.hidden_size)
        return shapes

    @property
    def word_embeddings(self):
        """The token table `[V, E]`, tied to the masked LM's output."""
        return self.embeddings.word_embeddings

    def get_config(self):
        return {**super().get_config(), "add_pooler": self.pooler is not None}


class HeadModel(ConfiguredModel):
    """A backbone with layers on top of it, which a subclass adds.

    Args:
        add_pooler: bool. Whether the backbone has a pooler. Models whose head does not
            read it may have one nevertheless, which checkpoints then keep.
    """

    reads_pooler = False

    def __init__(
        self,
        config: AlbertConfig,
        *,
        add_pooler: bool = False,
        seed: int | None = None,
        shared: Mapping[str, keras.layers.Layer] = MappingProxyType({}),
        **kwargs,
    ):
        super().__init__(config, seed=seed, **kwargs)
        self.backbone = AlbertBackbone(
            config,
            add_pooler=self.reads_pooler or add_pooler,
            seed=seed,
            shared=shared,
            dtype=self.dtype_policy,
            name="backbone",
        )
        self.add_layers()
        self.build()

    def build(self, input_shape=None):
        if not self.built:
            self.build_layers()

    def add_layers(self) -> None:
        """Adds the layers of the head."""
        raise NotImplementedError

    def build_layers(self) -> None:
        """Creates the weights of the layers of the head."""
        raise NotImplementedError

    def get_config(self):
        config = super().get_config()
        if not self.reads_pooler:
            config["add_pooler"] = self.backbone.pooler is not None
        return config | {name: getattr(self, name) for name in self.arguments}
