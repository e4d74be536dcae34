"""A small classifier with exits, and the rules written out for one example."""

import math

import keras
import numpy as np

from albert_tf import features
from albert_tf.models.classifiers import AlbertTextClassifier
from tests import tiny

LAYERS = 4
CONFIG = tiny.CONFIG.replace(num_hidden_layers=LAYERS)


def make_model(num_labels=3, seed=5, config=CONFIG, **kwargs):
    """Returns a classifier with an exit on every layer but the last."""
    exits = config.num_hidden_layers - 1
    model = AlbertTextClassifier(
        config, num_labels=num_labels, num_exits=exits, seed=seed, **kwargs
    )
    # Alike, so that some layers agree; of different sizes, so that they are differently
    # certain.
    first = model.exits[0]
    for number, layer in enumerate(model.exits, start=1):
        layer.pooler.kernel.assign(first.pooler.kernel)
        layer.classifier.kernel.assign(first.classifier.kernel * (1 + 1 / number))
    return model


def make_inputs(rows, seed=0, length=7):
    """Returns inputs with rows of different lengths."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(3, length + 1, rows)
    mask = (np.arange(length) < lengths[:, None]).astype("int32")
    ids = rng.integers(5, 900, (rows, length)).astype("int32")
    return {features.TOKEN_IDS: ids * mask, features.PADDING_MASK: mask}


def every_logit(model, inputs):
    """Returns the logits of all layers, `[B, L, C]`."""
    outputs = model.every_exit(inputs)
    layers = [*outputs["exit_logits"], outputs["logits"]]
    return np.stack([keras.ops.convert_to_numpy(layer) for layer in layers], 1)


def stops_after(kind, value, logits, multi_label=False):
    """Returns the layer after which one example stops; `logits` `[L, C]`."""
    last, agreed = None, 0
    for layer, row in enumerate(logits.astype(float), start=1):
        if layer == len(logits) or (kind == "layers" and layer == value):
            return layer
        p = np.exp(row - row.max())
        p /= p.sum()
        if kind == "entropy" and -sum(x * math.log(x) for x in p if x) < value:
            return layer
        answer = tuple(row > 0) if multi_label else int(np.argmax(row))
        agreed = agreed + 1 if answer == last else 0
        last = answer
        if kind == "patience" and agreed == value:
            return layer
    raise AssertionError("unreachable")
