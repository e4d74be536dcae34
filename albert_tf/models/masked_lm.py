"""Builds ALBERT with the masked LM head alone.

Legend: `B` batch, `T` sequence, `P` predictions, `V` vocabulary.
"""

import keras

from albert_tf import features
from albert_tf.layers.heads import MaskedLMHead
from albert_tf.layers.ops import gather_positions
from albert_tf.models.backbone import HeadModel
from albert_tf.models.base import as_inputs


@keras.saving.register_keras_serializable("albert_tf")
class AlbertMaskedLM(HeadModel):
    """Predicts tokens.

    Args:
        config: `AlbertConfig`.
        add_pooler: bool. Whether the backbone keeps a pooler, which is not used here.
        seed: int or None. Seed of the initial values.

    Call arguments:
        inputs: dict as for `AlbertBackbone`; `mask_positions` int32 `[B, P]` is
            optional.
        training, seeds: As for `AlbertBackbone`.

    Returns:
        float32 logits, `[B, P, V]` at `mask_positions` or else `[B, T, V]`.
    """

    def add_layers(self):
        self.mlm_head = MaskedLMHead(
            self.config, self.seed_of(4), dtype=self.dtype_policy, name="mlm_head"
        )

    def build(self, input_shape=None):
        if self.built:
            return
        self.mlm_head.build((None, None, self.config.hidden_size))
        self.built = True

    def call(self, inputs, training=False, seeds=None):
        inputs = as_inputs(inputs)
        x = self.backbone(inputs, training=training, seeds=seeds)["sequence_output"]
        if features.MASK_POSITIONS in inputs:
            x = gather_positions(x, inputs[features.MASK_POSITIONS])
        return self.mlm_head(x, self.backbone.word_embeddings)
