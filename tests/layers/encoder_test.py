"""Every layer has dropout masks of its own."""

import keras
import numpy as np

from albert_tf.layers.dropout import StepSeeds
from albert_tf.layers.encoder import SharedEncoder
from tests.tiny import tiny_config


def test_every_layer_has_masks_of_its_own():
    rates = {"hidden_dropout_prob": 0.5, "attention_probs_dropout_prob": 0.5}
    encoder, taken = SharedEncoder(tiny_config(num_hidden_layers=3, **rates), 3), []

    class Recorder(StepSeeds):
        def next(self, ordered=True):
            taken.append(tuple(super().next(ordered).numpy()))
            return keras.ops.convert_to_tensor(taken[-1], "uint32")

    x = np.ones((2, 7, 6), "float32")
    encoder(x, training=True, seeds=Recorder(3, 5))
    # Probabilities, attention output and feed-forward output, three times.
    assert len(taken) == len(set(taken)) == 3 * 3
