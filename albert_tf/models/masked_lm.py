"""Models with a masked LM head, alone or with another pretraining head.

Legend: `B` batch, `T` sequence, `P` predictions, `V` vocabulary, `D` hidden, `K`
examples in a row.
"""

import keras

from albert_tf import features
from albert_tf.config import AlbertConfig
from albert_tf.errors import require
from albert_tf.layers.gathering import gather_positions
from albert_tf.layers.heads import MaskedLMHead, SpanBoundaryHead
from albert_tf.models.backbone import HeadModel
from albert_tf.models.base import as_inputs


class _WithMaskedLM(HeadModel):
    def add_layers(self):
        self.mlm_head = MaskedLMHead(
            self.config, self.seed_of(4), dtype=self.dtype_policy, name="mlm_head"
        )

    def build_layers(self):
        self.mlm_head.build((None, None, self.config.hidden_size))

    def encode(self, inputs, training, seeds, output_hidden_states) -> dict:
        """Returns the outputs of the backbone."""
        return self.backbone(
            inputs,
            training=training,
            seeds=seeds,
            output_hidden_states=output_hidden_states,
        )


@keras.saving.register_keras_serializable("albert_tf")
class AlbertMaskedLM(_WithMaskedLM):
    """Predicts tokens.

    Args:
        config: `AlbertConfig`.
        add_pooler: bool. Whether the backbone keeps a pooler, which is not used here.
        seed: int or None. Seed of the initial values.

    Call arguments:
        inputs: dict as for `AlbertBackbone`; `mask_positions` int32 `[B, P]` is
            optional.
        training, seeds, output_hidden_states: As for `AlbertBackbone`.

    Returns:
        float32 logits, `[B, P, V]` at `mask_positions` or else `[B, T, V]`. With
        hidden states, a dict with `mlm_logits` and the backbone's outputs.

    Example:
        >>> import albert_tf, numpy as np
        >>> model = albert_tf.AlbertMaskedLM(albert_tf.AlbertConfig())
        >>> token_ids = np.array([[2, 13, 4, 3]])
        >>> model({"token_ids": token_ids}).shape
        TensorShape([1, 4, 30000])
        >>> model({"token_ids": token_ids, "mask_positions": np.array([[2]])}).shape
        TensorShape([1, 1, 30000])
    """

    def call(self, inputs, training=False, seeds=None, output_hidden_states=False):
        inputs = as_inputs(inputs)
        outputs = self.encode(inputs, training, seeds, output_hidden_states)
        x = outputs["sequence_output"]
        if features.MASK_POSITIONS in inputs:
            x = gather_positions(x, inputs[features.MASK_POSITIONS])
        logits = self.mlm_head(x, self.backbone.word_embeddings)
        return {"mlm_logits": logits, **outputs} if output_hidden_states else logits


@keras.saving.register_keras_serializable("albert_tf")
class AlbertPretrainer(_WithMaskedLM):
    """Masked language model and sentence order prediction (ALBERT, section 3.1).

    The objective decides the meaning of the two classes of a pair of segments: with
    BERT's, `sop_logits` predict the next sentence.

    Args:
        config: `AlbertConfig`. Sizes of the model.
        seed: int or None. Seed of the initial values.

    Call arguments:
        inputs: dict as for `AlbertBackbone`, and `mask_positions` int32 `[B, P]`.
            Other keys of a pretraining batch are ignored.
        training, seeds, output_hidden_states: As for `AlbertBackbone`.

    Returns:
        dict with `mlm_logits` float32 `[B, P, V]`, `sop_logits` float32 `[B, 2]`
        (`[B, K, 2]` for packed rows; class 0 in order, 1 swapped; with BERT's
        objective, 0 next sentence, 1 random), `sequence_output` and `pooled_output`.

    Example:
        >>> import albert_tf, numpy as np
        >>> model = albert_tf.AlbertPretrainer(albert_tf.AlbertConfig())
        >>> token_ids, masks = np.array([[2, 13, 4, 4, 3]]), np.array([[2, 3]])
        >>> outputs = model({"token_ids": token_ids, "mask_positions": masks})
        >>> outputs["mlm_logits"].shape, outputs["sop_logits"].shape
        (TensorShape([1, 2, 30000]), TensorShape([1, 2]))
    """

    needed_inputs = (features.MASK_POSITIONS,)

    reads_pooler = True

    def add_layers(self):
        super().add_layers()
        # No dropout, as in the original; Hugging Face's model has 0.1 here.
        self.sop_head = self.add_dense(2, "sop_head", 5)

    def build_layers(self):
        self.sop_head.build((None, self.config.hidden_size))
        super().build_layers()

    def call(self, inputs, training=False, seeds=None, output_hidden_states=False):
        inputs = as_inputs(inputs, *self.needed_inputs)
        outputs = self.encode(inputs, training, seeds, output_hidden_states)
        masked = gather_positions(
            outputs["sequence_output"], inputs[features.MASK_POSITIONS]
        )
        sop_logits = self.sop_head(outputs["pooled_output"])
        return {
            "mlm_logits": self.mlm_head(masked, self.backbone.word_embeddings),
            "sop_logits": keras.ops.cast(sop_logits, "float32"),
            **outputs,
        }


@keras.saving.register_keras_serializable("albert_tf")
class SpanBertPretrainer(_WithMaskedLM):
    """Masked language model and span boundary objective (SpanBERT, arXiv:1907.10529).

    A span is a run of neighbouring masked positions; its tokens are also predicted from
    the encoder's outputs before and after it.

    Args:
        config: `AlbertConfig`. Sizes of the model.
        max_span: int. Number of places in a span that have an embedding.
        position_size: int. Size of these embeddings.
        add_pooler: bool. Whether the backbone keeps a pooler, which is not used here.
        seed: int or None. Seed of the initial values.

    Call arguments:
        inputs: dict as for `AlbertBackbone`, and `mask_positions` int32 `[B, P]`,
            ascending within each row; `mask_weights` `[B, P]` is optional. Other keys
            of a pretraining batch are ignored.
        training, seeds, output_hidden_states: As for `AlbertBackbone`.

    Returns:
        dict with `mlm_logits` float32 `[B, P, V]` and `sequence_output`, and with
        `sbo_logits` float32 `[B, P, V]` if the inputs have `mask_weights`, as
        pretraining batches do; at inference only the masked LM is needed.

    Raises:
        ValueError: If a size is not positive.

    Example:
        >>> import albert_tf, numpy as np
        >>> model = albert_tf.SpanBertPretrainer(albert_tf.AlbertConfig())
        >>> inputs = {"token_ids": np.array([[2, 13, 4, 4, 8, 3]])}
        >>> inputs["mask_positions"] = np.array([[2, 3]])
        >>> inputs["mask_weights"] = np.ones((1, 2))
        >>> model(inputs)["sbo_logits"].shape
        TensorShape([1, 2, 30000])
    """

    needed_inputs = (features.MASK_POSITIONS,)
    arguments = ("max_span", "position_size")

    def __init__(
        self,
        config: AlbertConfig,
        *,
        max_span: int = 15,
        position_size: int = 200,
        **kwargs,
    ):
        self.max_span = max_span
        self.position_size = position_size
        for name in self.arguments:
            size, need = getattr(self, name), f"{name} must be a positive integer"
            require(type(size) is int and size > 0, need, size, error=ValueError)
        super().__init__(config, **kwargs)

    def add_layers(self):
        super().add_layers()
        self.sbo_head = SpanBoundaryHead(
            self.config,
            self.max_span,
            self.position_size,
            self.seed_of(6),
            dtype=self.dtype_policy,
            name="sbo_head",
        )

    def build_layers(self):
        self.sbo_head.build((None, None, self.config.hidden_size), (None, None))
        super().build_layers()

    def call(self, inputs, training=False, seeds=None, output_hidden_states=False):
        inputs = as_inputs(inputs, *self.needed_inputs)
        outputs = self.encode(inputs, training, seeds, output_hidden_states)
        x, positions = outputs["sequence_output"], inputs[features.MASK_POSITIONS]
        table = self.backbone.word_embeddings
        outputs["mlm_logits"] = self.mlm_head(gather_positions(x, positions), table)
        if features.MASK_WEIGHTS in inputs:
            weights = inputs[features.MASK_WEIGHTS]
            outputs["sbo_logits"] = self.sbo_head(x, positions, weights, table)
        return outputs
