"""Writes with one backend what another must compute and read.

python tests/backends/exchange.py write|read FOLDER
"""

import contextlib
import pathlib
import sys

import keras
import numpy as np

import albert_tf
from albert_tf.heads import all_rows
from tests.models.base_test import assert_equal_outputs, flat, make_inputs, make_model
from tests.tiny import SPIECE

BACKEND = keras.backend.backend()
TEXTS = ["The cat sat.", "A dog ran away from the cat!", "", "One more"]
LABELS = ["no", "yes"]
# Two examples and padding in a row.
PACKED = {
    "token_ids": [[2, 9, 30, 2, 8, 17, 0]],
    "pack_ids": [[1, 1, 1, 2, 2, 2, 0]],
    "position_ids": [[0, 1, 2, 0, 1, 2, 0]],
    "cls_positions": [[0, 3]],
}


def inputs_of(head: str | None) -> dict[str, np.ndarray]:
    """Returns what a head reads, with rows whose attention has less to see."""
    inputs = make_inputs(head)
    if head == "beam_question_answering":  # the same spans, whatever the last digits
        inputs["start_positions"] = np.array([1, 3], "int32")
    return inputs


def outputs_of(head: str | None, model: keras.Model) -> dict[str, np.ndarray]:
    """Returns what a model computes; the encoder alone for packed rows, too."""
    found = flat(model(inputs_of(head)))
    if head is None:
        packed = {name: np.array(value, "int32") for name, value in PACKED.items()}
        found |= {f"packed_{k}": v for k, v in flat(model(packed)).items()}
    return found


def make_classifier() -> keras.Model:
    """Returns a model that knows how to encode texts."""
    changes = {"vocab_size": 30_000, "max_position_embeddings": 24, "num_labels": 2}
    model = make_model("text_classifier", initializer_range=0.2, **changes)
    tokenizer = albert_tf.AlbertTokenizer(SPIECE)
    model.preprocessor = albert_tf.Preprocessor(tokenizer, 24)
    return model


def updates(name: str, scaled: bool) -> list[np.ndarray]:
    """Returns weights, and what is kept with them, after updates by an optimizer.

    Args:
        name: str. Its name.
        scaled: bool. Whether losses are scaled and weights averaged, instead of
            gradients clipped. One of the gradients is infinite then.
    """
    rng = np.random.default_rng(4)
    values = [rng.normal(size=(5, 3)).astype("float32"), np.ones(3, "float32")]
    variables = [
        keras.Variable(value, name=own)
        for value, own in zip(values, ("kernel", "bias"), strict=True)
    ]
    steps = {"learning_rate": 0.1, "num_train_steps": 7, "num_warmup_steps": 2}
    ways = {"ema_decay": 0.9 * scaled, "clip_norm": 1.0 - scaled}
    optimizer = albert_tf.create_optimizer(name, **steps, **ways)
    if scaled:
        optimizer.scale_losses()
    optimizer.build(variables)
    for step in range(3):
        grads = [rng.normal(size=v.shape).astype("float32") for v in values]
        if scaled and step == 1:
            grads[0][0, 0] = np.inf
        grads = [optimizer.scale_loss(keras.ops.convert_to_tensor(g)) for g in grads]
        with _no_gradients():
            _apply(optimizer, grads, variables)
    if scaled:
        variables += [optimizer.slot(v, "average") for v in variables]
        counts = [*optimizer.loss_scale.describe().values(), optimizer.iterations]
        assert [int(x) for x in counts] == [2**14, 1, 3]
    return [keras.ops.convert_to_numpy(v) for v in variables]


def _no_gradients() -> contextlib.AbstractContextManager:
    if BACKEND != "torch":
        return contextlib.nullcontext()
    import torch

    return torch.no_grad()


def _apply(optimizer, grads, variables):
    if BACKEND != "jax" or not optimizer.loss_scale:
        return optimizer.apply(grads, variables)
    import jax

    # As a compiled step does.
    state = [[v.value for v in x] for x in (optimizer.variables, variables)]
    found = jax.jit(optimizer.stateless_apply)(state[0], grads, state[1])
    for variable, value in zip(
        [*variables, *optimizer.variables], sum(found, []), strict=True
    ):
        variable.assign(value)


def all_updates() -> dict[str, np.ndarray]:
    """Returns the results of both optimizers, in both ways."""
    return {
        f"{name} {scaled} {number}": value
        for name in ("lamb", "adamw")
        for scaled in (False, True)
        for number, value in enumerate(updates(name, scaled))
    }


def write_values(folder: pathlib.Path) -> None:
    """Writes a model of every head, what it computes, and updates of optimizers."""
    for row in all_rows():
        model = make_model(row.name)
        model.save(folder / f"{row.name}.keras")
        np.savez(folder / f"{row.name}.npz", **outputs_of(row.name, model))
    np.savez(folder / "updates.npz", **all_updates())


def read_values(folder: pathlib.Path) -> None:
    """Asserts that the models and optimizers compute the same here."""
    for row in all_rows():
        model = keras.models.load_model(folder / f"{row.name}.keras")
        with np.load(folder / f"{row.name}.npz") as expected:
            found = outputs_of(row.name, model)
            assert_equal_outputs(found, dict(expected), atol=1e-5)
    with np.load(folder / "updates.npz") as expected:
        assert_equal_outputs(all_updates(), dict(expected), atol=1e-6)


def write_texts(folder: pathlib.Path) -> None:
    """Writes a model that reads texts in every format, and what it answers."""
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


def read_texts(folder: pathlib.Path) -> None:
    """Asserts that the model for texts answers the same here, and learns."""
    expected, scores = np.load(folder / "texts.npz").values()
    np.testing.assert_allclose(answers(folder), scores, atol=1e-5)
    for name in ("albert_tf", "huggingface", "texts.keras"):
        model = albert_tf.from_pretrained(folder / name)
        found = model.predict(TEXTS, verbose=0)
        np.testing.assert_allclose(found, expected, atol=1e-5, err_msg=name)
    # Goes on with the moments of the optimizer.
    model = keras.saving.load_model(folder / "texts.keras")
    assert model.optimizer.iterations == 2
    assert model.jit_compile == (BACKEND == "jax")
    model.fit(TEXTS, np.array([0, 1, 0, 1]), batch_size=2, verbose=0)
    assert model.optimizer.iterations == 4


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[2])
    if sys.argv[1] == "write":
        write_values(folder)
        write_texts(folder)
    else:
        read_texts(folder)
