"""Writes models of every head with one backend, and reads them with another.

python tests/backends/exchange.py write|read FOLDER
"""

import pathlib
import sys

import keras
import numpy as np

import albert_tf
from albert_tf.heads import all_rows
from tests.models.base_test import assert_equal_outputs, flat, make_inputs, make_model
from tests.tiny import SPIECE

TEXTS = ["The cat sat.", "A dog ran away from the cat!", "", "One more"]
LABELS = ["no", "yes"]


def inputs_of(head: str | None) -> dict[str, np.ndarray]:
    """Returns what a head reads, with rows whose attention has less to see."""
    inputs = make_inputs(head)
    if head == "beam_question_answering":  # the same spans, whatever the last digits
        inputs["start_positions"] = np.array([1, 3], "int32")
    return inputs


def make_classifier() -> keras.Model:
    """Returns a model that knows how to encode texts."""
    changes = {"vocab_size": 30_000, "max_position_embeddings": 24, "num_labels": 2}
    model = make_model("text_classifier", initializer_range=0.2, **changes)
    tokenizer = albert_tf.AlbertTokenizer(SPIECE)
    model.preprocessor = albert_tf.Preprocessor(tokenizer, 24)
    return model


def write(folder: pathlib.Path) -> None:
    """Writes models in every format, and what they compute."""
    for row in all_rows():
        model = make_model(row.name)
        model.save(folder / f"{row.name}.keras")
        np.savez(folder / f"{row.name}.npz", **flat(model(inputs_of(row.name))))
    model = make_classifier()
    optimizer = albert_tf.create_optimizer(
        "adamw", learning_rate=1e-2, num_train_steps=20
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss)
    model.fit(TEXTS, np.array([0, 1, 0, 1]), batch_size=2, verbose=0)
    model.save(folder / "texts.keras")
    for format in ("albert_tf", "huggingface"):
        model.save_pretrained(folder / format, format, labels=LABELS)
    np.savez(folder / "texts.npz", model.predict(TEXTS, verbose=0), answers(folder))


def answers(folder: pathlib.Path) -> list[float]:
    """Returns what the Python class for single texts finds."""
    classify = albert_tf.Classifier.from_pretrained(folder / "albert_tf")
    return [answer["score"] for answer in classify(TEXTS)]


def read(folder: pathlib.Path) -> None:
    """Asserts that the models compute the same here."""
    for row in all_rows():
        model = keras.models.load_model(folder / f"{row.name}.keras")
        with np.load(folder / f"{row.name}.npz") as expected:
            found = model(inputs_of(row.name))
            assert_equal_outputs(found, dict(expected), atol=1e-5)
    expected, scores = np.load(folder / "texts.npz").values()
    np.testing.assert_allclose(answers(folder), scores, atol=1e-5)
    for name in ("albert_tf", "huggingface", "texts.keras"):
        model = albert_tf.from_pretrained(folder / name)
        found = model.predict(TEXTS, verbose=0)
        np.testing.assert_allclose(found, expected, atol=1e-5, err_msg=name)
    # Goes on with the moments of the optimizer.
    model = keras.saving.load_model(folder / "texts.keras")
    assert model.optimizer.iterations == 2
    assert model.jit_compile == (keras.backend.backend() == "jax")
    model.fit(TEXTS, np.array([0, 1, 0, 1]), batch_size=2, verbose=0)
    assert model.optimizer.iterations == 4


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](pathlib.Path(sys.argv[2]))
