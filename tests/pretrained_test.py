"""Classes that load themselves from folders; models that take texts."""

import functools

import keras
import numpy as np
import pandas
import pytest
import tensorflow as tf

import albert_tf
from albert_tf.errors import DataError, UsageError
from tests.tiny import SPIECE, tiny_config

CONFIG = tiny_config(num_hidden_layers=1, initializer_range=0.02)
TEXTS = ["The cat sat.", "A dog ran away from the cat!", "", "One more"]
PAIRS = ["On the mat.", "", "So it was.", "Two"]
LABELS = np.array([0, 1, 0, 1])


@pytest.fixture(scope="module")
def tokenizer():
    return albert_tf.AlbertTokenizer(SPIECE, keep_accents=True)


@pytest.fixture(scope="module")
def folder(tokenizer, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "m"
    model = albert_tf.AlbertTextClassifier(CONFIG, num_labels=2, seed=1)
    model.save_pretrained(path, tokenizer=tokenizer, labels=["no", "yes"])
    return path


def compiled(model, **how):
    """Compiles a model, eager unless told otherwise: tracing a step takes seconds."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = albert_tf.create_optimizer(
        "adamw", learning_rate=1e-2, num_train_steps=20
    )
    how = {"run_eagerly": True, **how}
    model.compile(optimizer, loss, metrics=["accuracy"], **how)
    return model


def test_classes_load_themselves(folder, tokenizer):
    assert albert_tf.AlbertConfig.from_pretrained(folder) == CONFIG
    loaded = albert_tf.AlbertTokenizer.from_pretrained(folder)
    assert loaded.get_config() == tokenizer.get_config()
    assert loaded.sha256 == tokenizer.sha256
    model = albert_tf.AlbertTextClassifier.from_pretrained(folder)
    assert model.labels == ("no", "yes")
    backbone = albert_tf.AlbertBackbone.from_pretrained(folder)
    assert type(backbone) is albert_tf.AlbertBackbone
    assert backbone.preprocessor.max_seq_length == 24
    with pytest.raises(ValueError, match="expected a tokenizer of the class ByteBPE"):
        albert_tf.ByteBPETokenizer.from_pretrained(folder)


def test_a_loaded_model_knows_its_pad_id_and_keeps_its_tokenizer(folder, tmp_path):
    model = albert_tf.from_pretrained(folder)
    assert model.pad_id == model.preprocessor.tokenizer.pad_id == 0
    ready = model.preprocessor(TEXTS)
    fewer = {"token_ids": ready["token_ids"]}
    np.testing.assert_array_equal(
        model.predict_on_batch(fewer), model.predict_on_batch(ready)
    )
    model.save_pretrained(tmp_path / "m")
    again = albert_tf.from_pretrained(tmp_path / "m")
    assert again.preprocessor.tokenizer.sha256 == model.preprocessor.tokenizer.sha256
    assert albert_tf.from_pretrained(folder, preprocessor=None).preprocessor is None


def test_predict_and_evaluate_take_texts(folder):
    model = compiled(albert_tf.from_pretrained(folder))
    ready = model.preprocessor((TEXTS, PAIRS))
    expected = model.predict(ready, verbose=0)
    pairs = tf.data.Dataset.from_tensor_slices(((TEXTS, PAIRS), LABELS))
    for x in ((TEXTS, PAIRS), (np.array(TEXTS), np.array(PAIRS)), pairs.batch(3)):
        np.testing.assert_allclose(model.predict(x, verbose=0), expected, atol=1e-6)
    scores = model.evaluate(ready, LABELS, verbose=0)
    assert model.evaluate((TEXTS, PAIRS), LABELS, verbose=0) == pytest.approx(scores)
    assert model.evaluate(pairs.batch(2), verbose=0) == pytest.approx(scores)


def test_fit_takes_texts(folder):
    weights = []
    for kind in ("ready", "texts", "dataset"):
        model = compiled(albert_tf.from_pretrained(folder, seed=1))  # of dropout
        x, y, held_out = TEXTS, LABELS, (TEXTS, LABELS)
        if kind == "ready":
            x = model.preprocessor(TEXTS)
            held_out = (x, LABELS)
        if kind == "dataset":
            x = held_out = tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)).batch(2)
            y = None
        history = model.fit(
            x, y, validation_data=held_out, batch_size=2, shuffle=False, verbose=0
        )
        assert np.isfinite(history.history["val_loss"]).all()
        weights.append(model.classifier.kernel.numpy())
    np.testing.assert_allclose(weights[1], weights[0], atol=1e-6)
    np.testing.assert_allclose(weights[2], weights[0], atol=1e-6)


def test_a_keras_file_and_a_folder_keep_the_preprocessor(folder, tmp_path):
    model = compiled(albert_tf.from_pretrained(folder))
    model.task = {"name": "table", "options": {"doc_stride": 9}}
    model.preprocessor.max_seq_length = 16
    expected = model.predict(TEXTS, verbose=0)
    model.save(tmp_path / "m.keras")
    model.save_pretrained(tmp_path / "m")
    for again in (
        keras.saving.load_model(tmp_path / "m.keras"),
        albert_tf.from_pretrained(tmp_path / "m.keras"),
        albert_tf.from_pretrained(tmp_path / "m"),
    ):
        assert again.preprocessor.max_seq_length == 16
        tokenizer = again.preprocessor.tokenizer
        assert tokenizer.get_config() == model.preprocessor.tokenizer.get_config()
        assert (again.labels, again.task) == (("no", "yes"), model.task)
        np.testing.assert_allclose(again.predict(TEXTS, verbose=0), expected, atol=1e-6)


def test_only_keras_files_of_this_package_are_read(tmp_path):
    other = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    other.save(tmp_path / "m.keras")
    with pytest.raises(DataError, match="may contain code; only .* Sequential"):
        albert_tf.from_pretrained(tmp_path / "m.keras")
    (tmp_path / "m.keras").write_bytes(b"PK")
    with pytest.raises(DataError, match="may contain code; .* received a damaged or"):
        albert_tf.from_pretrained(tmp_path / "m.keras")


def test_labels_as_people_give_them(folder):
    names, numbers = ["no", "yes", "no", "yes"], LABELS.tolist()
    weights = []
    objects = functools.partial(pandas.Series, dtype=object)
    for kind, labels in ((list, names), (objects, numbers)):
        model = compiled(albert_tf.from_pretrained(folder, seed=1))
        held_out = (kind(TEXTS), kind(labels))
        model.fit(*held_out, validation_data=held_out, shuffle=False, verbose=0)
        weights.append(model.classifier.kernel.numpy())
    np.testing.assert_array_equal(*weights)
    expected = model.evaluate(TEXTS, names, verbose=0)
    for kind in (list, np.array, pandas.Series, objects):
        for labels in (names, numbers):
            found = model.evaluate(kind(TEXTS), kind(labels), verbose=0)
            assert found == expected
    with pytest.raises(UsageError, match="from 0 to 1, .* num_labels=2, received 3"):
        model.fit(TEXTS, [0, 3, 1, 1], verbose=0)
    with pytest.raises(UsageError, match="labels no, yes or a number, received 'may'"):
        model.evaluate(TEXTS, ["no", "may", "no", "yes"], verbose=0)
    loss = keras.losses.CategoricalCrossentropy(from_logits=True)
    model = albert_tf.from_pretrained(folder)
    model.compile(loss=loss, run_eagerly=True)
    one_hot = np.eye(2)[LABELS]
    expected = model.evaluate(TEXTS, one_hot, verbose=0)
    assert model.evaluate(TEXTS, one_hot.tolist(), verbose=0) == expected


_CONTINUE = """
import keras, albert_tf, sys
import numpy as np
model = keras.models.load_model(sys.argv[1])
assert type(model).__name__ == "AlbertTextClassifier"
assert int(model.optimizer.iterations) == 2
x = {"token_ids": np.array([[2, 7, 9, 3]] * 4, "int32")}
model.fit(x, np.array([0, 1, 0, 1]), batch_size=2, verbose=0)
assert int(model.optimizer.iterations) == 4
"""


@pytest.mark.slow
def test_model_checkpoint_continues_in_a_new_process(folder, tmp_path, run_forked):
    model = compiled(albert_tf.from_pretrained(folder))
    path = str(tmp_path / "at-{epoch}.keras")
    keep = keras.callbacks.ModelCheckpoint(path)
    model.fit(TEXTS, LABELS, batch_size=2, callbacks=[keep], verbose=0)
    result = run_forked("-c", _CONTINUE, tmp_path / "at-1.keras")
    assert result.returncode == 0, result.stderr


@pytest.mark.slow
@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow",
    reason="Keras gives every input a length of its own",
)
@pytest.mark.parametrize(
    "name", ["AlbertTextClassifier", "AlbertPretrainer", "AlbertMultipleChoice"]
)
def test_export_by_keras(name, tmp_path):
    model = getattr(albert_tf, name)(CONFIG, seed=1)
    rng = np.random.default_rng(0)
    shape = (3, 4, 7) if name == "AlbertMultipleChoice" else (3, 7)
    x = {
        "token_ids": rng.integers(0, 99, shape).astype("int32"),
        "segment_ids": rng.integers(0, 2, shape).astype("int32"),
        "padding_mask": np.ones(shape, "int32"),
    }
    if name == "AlbertPretrainer":
        x["mask_positions"] = np.array([[1, 2]] * 3, "int32")
    elif name == "AlbertTextClassifier":  # after fit, as in the documentation
        graph = {"run_eagerly": False, "jit_compile": False}
        compiled(model, **graph).fit(x, np.array([0, 1, 0]), verbose=0)
    model.export(tmp_path / "e", verbose=False)
    loaded = tf.saved_model.load(tmp_path / "e")
    served = loaded.serve(x)
    expected = model(x)
    if isinstance(expected, dict):
        served, expected = served["mlm_logits"], expected["mlm_logits"]
    np.testing.assert_allclose(served, expected, atol=1e-5)
