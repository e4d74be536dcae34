"""Keras' `fit`, `evaluate` and `predict` of every model on two devices and on one."""

import json

import pytest

from albert_tf import heads

# A process of its own, because devices can only be split before TensorFlow starts.
PROGRAM = r"""
import json
import sys
import keras
import numpy as np
import tensorflow as tf
from albert_tf import AlbertConfig, create_optimizer, heads
from albert_tf.training.tensorflow.strategy import create_strategy

strategies = [create_strategy("mirrored"), tf.distribute.get_strategy()]
assert strategies[0].num_replicas_in_sync == 2
config = AlbertConfig(
    vocab_size=53, embedding_size=6, hidden_size=12, num_hidden_layers=1,
    num_attention_heads=2, intermediate_size=20, max_position_embeddings=16,
    classifier_dropout_prob=0.0,  # Keras draws other masks for every batch size
)
rng = np.random.default_rng(0)
ids = rng.integers(1, 53, (8, 7)).astype("int32")
segments = np.repeat([[0] * 3 + [1] * 4], 8, 0).astype("int32")
rows = {"token_ids": ids, "segment_ids": segments, "padding_mask": np.ones_like(ids)}
places, two = {"mask_positions": segments[:, 2:4] + 2}, np.arange(8) % 2
choices = {
    key: np.stack([np.roll(value, i, 0) for i in (0, 1, 2)], 1)
    for key, value in rows.items()
}
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
binary = keras.losses.BinaryCrossentropy(from_logits=True)
spans = {"start_logits": two + 3, "end_logits": two + 4}
words = {"mlm_logits": ids[:, :2], "sop_logits": two}
boundaries = {"mlm_logits": ids[:, :2], "sbo_logits": ids[:, 2:4]}
CASES = {
    None: (rows, {"pooled_output": rng.normal(size=(8, 12))}),
    "pretraining": (rows | places, words),
    "span_boundary": (rows | places | {"mask_weights": np.ones((8, 2))}, boundaries),
    "discriminator": (rows, segments),
    "masked_lm": (rows, ids),
    "text_classifier": (rows, two),
    "token_classifier": (rows, segments),
    "question_answering": (rows, spans),
    "beam_question_answering": (rows | {"start_positions": two + 3}, spans),
    "multiple_choice": (choices, two),
}

def train(strategy, row):
    x, y = CASES[row.name]
    losses = {None: "mse", "discriminator": binary}.get(row.name, loss)
    losses = {key: losses for key in y} if isinstance(y, dict) else losses
    with strategy.scope():
        options = {"num_labels": 2} if row.name == "token_classifier" else {}
        model = row.load_class()(config, seed=3, **options)
        # Lamb for the encoder alone; a norm at which every step clips.
        optimizer = create_optimizer(
            "adamw" if row.name else "lamb", learning_rate=0.01, num_train_steps=9,
            clip_norm=0.05,
        )
        # Compiling takes most of the time, so one model shows Keras's default.
        eager = strategy is strategies[1]
        jit = False if eager or row.name else "auto"
        model.compile(optimizer, losses, run_eagerly=eager, jit_compile=jit)
    before = model.get_weights()
    model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
    after = model.get_weights()
    assert max(np.abs(a - b).max() for a, b in zip(before, after)) > 0.01
    found = [after, model.evaluate(x, y, batch_size=4, verbose=0)]
    return tf.nest.flatten([found, model.predict(x, batch_size=4, verbose=0)])

for row in map(heads.find, json.loads(sys.argv[1])):
    for one, other in zip(*(train(strategy, row) for strategy in strategies)):
        np.testing.assert_allclose(one, other, atol=1e-4, err_msg=str(row.name))
    print(row.name)
"""


# Several outputs, and one of rows of rows.
FEW = [None, "multiple_choice"]
OTHERS = [row.name for row in heads.all_rows() if row.name not in FEW]


@pytest.mark.slow
@pytest.mark.parametrize(
    "names", [FEW, pytest.param(OTHERS, marks=pytest.mark.broad)], ids=["few", "others"]
)
def test_two_replicas_equal_one_device(run_forked, names):
    done = run_forked("-c", PROGRAM, json.dumps(names))
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == list(map(str, names))
