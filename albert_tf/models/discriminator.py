"""Tells which tokens of a text were replaced, as ELECTRA's discriminator does.

Legend: `B` batch, `T` sequence.
"""

import keras

from albert_tf.layers.heads import DiscriminatorHead
from albert_tf.models.backbone import HeadModel
from albert_tf.models.base import as_inputs


class WithDiscriminator(HeadModel):
    """A model whose backbone, or one of its two, is a discriminator."""

    def add_layers(self):
        self.discriminator = DiscriminatorHead(
            self.config, self.seed_of(4), dtype=self.dtype_policy, name="discriminator"
        )

    def build_layers(self):
        self.discriminator.build((None, None, self.config.hidden_size))


@keras.saving.register_keras_serializable("albert_tf")
class AlbertDiscriminator(WithDiscriminator):
    """Scores every token as replaced (ELECTRA, section 2).

    Args:
        config: `AlbertConfig`.
        add_pooler: bool. Whether the backbone keeps a pooler, which is not used here.
        seed: int or None. Seed of the initial values.

    Call arguments:
        inputs: dict as for `AlbertBackbone`.
        training, seeds: As for `AlbertBackbone`.

    Returns:
        float32 logits `[B, T]`, above 0 where a token was probably replaced.

    Example:
        >>> import albert_tf, numpy as np
        >>> config = albert_tf.AlbertConfig.from_preset("electra_small")
        >>> model = albert_tf.AlbertDiscriminator(config)
        >>> model({"token_ids": np.array([[2, 13, 1, 3]])}).shape
        TensorShape([1, 4])
    """

    def call(self, inputs, training=False, seeds=None):
        outputs = self.backbone(as_inputs(inputs), training=training, seeds=seeds)
        return self.discriminator(outputs["sequence_output"])
