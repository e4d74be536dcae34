"""Every layer has dropout masks of its own, and may have weights of its own."""

import keras
import numpy as np
import pytest

from albert_tf.config import DEPTH_MATRICES, SHARING_MODES
from albert_tf.layers.attention import Readers
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


def folded(encoder, sharing):
    """Returns an encoder that shares the mean and has the exact rest as deltas."""
    changes = {"sharing": sharing, "share_layer_norm": False, "depth_rank": 12}
    other = SharedEncoder(encoder.config.replace(**changes), 3)
    other.build()
    theirs = {v.path.partition("/")[2]: v.numpy() for v in encoder.weights}
    ours = {v.path.partition("/")[2]: v for v in other.weights}
    layers = range(encoder.config.num_hidden_layers)
    for name, variable in ours.items():
        if name in theirs:  # projection, layer norms, and the first layer's kernels
            variable.assign(theirs[name])
    for kernel in DEPTH_MATRICES:
        part, _, name = kernel.rpartition("_")
        part = part or "attention"
        own = sharing in ("all", part)
        for end in ("kernel", "bias"):
            of_layers = [theirs[f"{part}_{i}/{name}/{end}"] for i in layers]
            mean = np.mean(of_layers, axis=0)
            for i, value in enumerate(of_layers):
                if not own:
                    ours[f"{part}_{i}/{name}/{end}"].assign(value)
                elif end == "bias":
                    ours[f"depth_{i}/{kernel}_bias"].assign(value - mean)
                else:
                    left, sizes, right = np.linalg.svd(value - mean, False)
                    ours[f"depth_{i}/{kernel}_a"].assign(left * sizes)
                    ours[f"depth_{i}/{kernel}_b"].assign(right)
            if own:
                ours[f"{part}_0/{name}/{end}"].assign(mean)
    return other


@pytest.mark.parametrize("sharing", [mode for mode in SHARING_MODES if mode != "none"])
def test_deltas_of_full_rank_make_up_for_sharing(sharing):
    encoder = SharedEncoder(tiny_config(sharing="none", num_hidden_layers=3), 3)
    encoder.build()
    for i, weight in enumerate(encoder.weights):  # norms and biases, too
        noise = np.random.default_rng(i).normal(0, 0.2, weight.shape)
        weight.assign(weight + noise)
    other = folded(encoder, sharing)
    x = np.random.default_rng(0).normal(size=(2, 7, 6)).astype("float32")
    pack_ids = np.array([[1, 1, 1, 2, 2, 0, 0], [1] * 7], "int32")
    readers = Readers(np.array([0, 3, 7]), np.array([0, 0, 1]))
    for ways in ({}, {"pack_ids": pack_ids, "readers": readers}):
        found, right = (one(x, **ways) for one in (other, encoder))
        for a, b in zip(found.hidden_states, right.hidden_states, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5)
