"""Models small enough for every test, and what tests ask of one.

`tests/conftest.py` makes folders, records and buckets of them.
"""

import dataclasses
import functools
import pathlib
import random
from collections.abc import Iterator

import keras
import numpy as np

from albert_tf import heads
from albert_tf.config import AlbertConfig
from albert_tf.models.backbone import AlbertBackbone
from albert_tf.models.base import weight_names

GOLDEN = pathlib.Path(__file__).parent / "golden"
SPIECE = GOLDEN / "tokenization/spiece.model"
# Documents, one sentence a line.
TEXT = GOLDEN / "tf1_data/input.txt"
# Its initial weights are large, so that different inputs give different answers.
CONFIG = AlbertConfig(
    embedding_size=6,
    hidden_size=12,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=24,
    initializer_range=0.5,
)


def tiny_config(**changes) -> AlbertConfig:
    """Returns `CONFIG` with some fields set differently."""
    return CONFIG.replace(**changes)


def make_model(head: str | None = None, *, seed: int = 5, **changes) -> keras.Model:
    """Returns a new model of a head; None is the encoder alone.

    Args:
        head: str or None. A name in `heads.HEADS`.
        seed: int. Seed of the weights.
        **changes: Fields of the config that differ from `CONFIG`, and arguments of the
            model's class. A classifier has three labels unless `num_labels` says so.
    """
    row = heads.find(head)
    fields = {field.name for field in dataclasses.fields(AlbertConfig)} & set(changes)
    config = CONFIG.replace(**{name: changes.pop(name) for name in fields})
    if row.has_labels:
        changes.setdefault("num_labels", 3)
    return row.load_class()(config, seed=seed, **changes)


@functools.cache
def shared_model(head: str | None = None, **changes) -> keras.Model:
    """Returns a model as `make_model` does, made once: only for tests that read it."""
    return make_model(head, **changes)


def damaged(content: bytes, count: int = 50, seed: int = 0) -> Iterator[bytes]:
    """Yields what may have become of a file: cut, bits flipped, bytes inserted."""
    yield b""
    rng = random.Random(seed)
    for number in range(count):
        place = rng.randrange(len(content))
        if number % 3 == 0:
            yield content[:place]
        elif number % 3 == 1:
            flipped = content[place] ^ 1 << rng.randrange(8)
            yield content[:place] + bytes([flipped]) + content[place + 1 :]
        else:
            yield content[:place] + rng.randbytes(9) + content[place:]


def record_calls(monkeypatch) -> list[bool]:
    """Returns a list that grows with every call of a backbone: whether it is eager."""
    import tensorflow as tf

    eager = []
    call = AlbertBackbone.call

    def recorded(self, *args, **kwargs):
        eager.append(tf.executing_eagerly())
        return call(self, *args, **kwargs)

    monkeypatch.setattr(AlbertBackbone, "call", recorded)
    return eager


def randomize(model, seed=0):
    """Returns the model with random weights, in biases and layer norms, too."""
    rng = np.random.default_rng(seed)
    for variable in weight_names(model).values():
        variable.assign(rng.normal(0, 0.2, variable.shape))
    return model


def load_golden(folder: pathlib.Path) -> tuple[dict, dict[str, np.ndarray]]:
    """Returns all that transformers computed with a model, and our inputs for it."""
    stored = dict(np.load(folder / "io.npz"))
    batch = {
        "token_ids": stored["in/input_ids"],
        "segment_ids": stored["in/token_type_ids"],
        "padding_mask": stored["in/attention_mask"],
    }
    return stored, {k: v.astype(np.int32) for k, v in batch.items()}


def assert_same_weights(first, second):
    """Compares two models bit for bit, name by name."""
    first, second = weight_names(first), weight_names(second)
    assert list(first) == list(second)
    for name, variable in first.items():
        value = second[name].numpy()
        np.testing.assert_array_equal(variable.numpy(), value, err_msg=name)
