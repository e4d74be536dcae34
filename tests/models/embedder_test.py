"""`AlbertTextEmbedder`: vectors of rows, of examples, and of packed rows."""

import keras
import numpy as np
import pytest

import albert_tf
from albert_tf.errors import UsageError
from albert_tf.models.embedder import AlbertTextEmbedder
from tests.tiny import CONFIG

to_numpy = keras.ops.convert_to_numpy
LENGTHS, T = (3, 7, 5, 9, 2, 6), 9


@pytest.fixture(scope="module")
def rows():
    ids = np.random.default_rng(0).integers(5, 50, (6, T)).astype("int32")
    mask = (np.arange(T) < np.array(LENGTHS)[:, None]).astype("int32")
    return {"token_ids": ids * mask, "padding_mask": mask}


def packed(rows):
    """Returns the six texts in two rows, as three examples of two texts."""
    made = {
        name: np.zeros((2, 20), "int32")
        for name in ("token_ids", "padding_mask", "pack_ids", "position_ids")
    }
    places = []
    for i, length in enumerate(LENGTHS):
        row, slot = divmod(i, 3)
        start = sum(LENGTHS[3 * row : i])
        place = slice(start, start + length)
        made["token_ids"][row, place] = rows["token_ids"][i, :length]
        made["pack_ids"][row, place] = slot + 1
        made["position_ids"][row, place] = np.arange(length)
        places.append(20 * row + start)
    made["padding_mask"][:] = made["pack_ids"] > 0
    return {**made, "places": np.array(places, "int32").reshape(3, 2)}


@pytest.mark.parametrize(
    ("pooling", "options"),
    [
        ("mean", {"projection_size": 5, "projection_act": "tanh", "dimension": 4}),
        ("max", {"normalize": False}),
        ("cls", {}),
        ("pooled", {}),
    ],
)
def test_vectors_do_not_depend_on_the_layout(rows, pooling, options):
    model = AlbertTextEmbedder(CONFIG, seed=1, pooling=pooling, **options)
    expected = to_numpy(model(rows))
    assert expected.shape == (6, model.vector_size)
    if model.normalize:
        np.testing.assert_allclose(np.linalg.norm(expected, axis=-1), 1, atol=1e-6)
    last, places = CONFIG.num_hidden_layers, np.arange(6, dtype="int32") * T
    for found in (
        model({**rows, "places": places.reshape(3, 2)}),
        model({name: x.reshape(3, 2, T) for name, x in rows.items()}),
        model(packed(rows)),
        model.every_layer(packed(rows), [1, last])[-1],
        model.every_layer({n: x[:, None] for n, x in rows.items()}, [last])[0],
    ):
        np.testing.assert_allclose(
            to_numpy(found).reshape(expected.shape), expected, atol=1e-6
        )


def test_the_mean_and_the_maximum_leave_out_padding(rows):
    for pooling, over in (("mean", np.mean), ("max", np.max)):
        model = AlbertTextEmbedder(CONFIG, seed=1, pooling=pooling, normalize=False)
        states = to_numpy(model.backbone(rows)["sequence_output"])
        expected = [over(x[:n], 0) for x, n in zip(states, LENGTHS, strict=True)]
        np.testing.assert_allclose(to_numpy(model(rows)), expected, atol=1e-6)


def test_files_keep_what_makes_the_vectors(rows, tmp_path):
    options = dict(
        pooling="max",
        projection_size=8,
        projection_act="tanh",
        normalize=False,
        dimension=6,
        prompts={"query": "query: "},
    )
    model = AlbertTextEmbedder(CONFIG, seed=1, **options)
    model.mark_untrained(())
    model.save_pretrained(tmp_path / "model")
    model.save(tmp_path / "model.keras")
    loaded = albert_tf.from_pretrained(tmp_path / "model")
    for other in (loaded, keras.saving.load_model(tmp_path / "model.keras")):
        assert {name: getattr(other, name) for name in options} == options
        np.testing.assert_array_equal(to_numpy(other(rows)), to_numpy(model(rows)))


def test_fit_compares_the_texts_of_an_example(tokenizer):
    model = AlbertTextEmbedder(CONFIG, seed=1, prompts={"query": "the "})
    model.preprocessor = albert_tf.Preprocessor(tokenizer, 12)
    pairs = (["cat", "dog"], ["sat", "the mat"])
    model.compile("sgd", albert_tf.ContrastiveLoss(), run_eagerly=True)
    first = model.predict(["the cat", "the dog"], verbose=0)
    second = model.predict(pairs[1], verbose=0)
    cosines = 20 * first @ second.T
    expected = np.log(np.exp(cosines).sum(1)) - np.diag(cosines)
    before = model.get_weights()
    history = model.fit(pairs, shuffle=False, verbose=0).history
    assert history["loss"] == [pytest.approx(expected.mean(), rel=1e-4)]
    assert any((a != b).any() for a, b in zip(before, model.get_weights(), strict=True))
    with pytest.raises(UsageError, match="of the same number .* \\[2, 1\\]"):
        model.fit((pairs[0], ["sat"]))
    for wrong in ([*map(list, pairs)], (pairs[0], [1, 2])):
        with pytest.raises(UsageError, match="give pairs as a tuple of lists"):
            model.fit(wrong)
    # Each text of a string is the string, not its characters.
    encoded = model._encoded(("cat", b"sat"))["token_ids"]
    assert encoded.tolist() == model._encoded((["cat"], ["sat"]))["token_ids"].tolist()
    model.compile("sgd", albert_tf.CoSentLoss(), run_eagerly=True)
    with pytest.raises(UsageError, match="y: expected a score for each"):
        model.fit(pairs, verbose=0)


def test_examples_of_another_number_of_texts_follow(tokenizer):
    model = AlbertTextEmbedder(CONFIG.replace(num_hidden_layers=1), seed=1)
    model.preprocessor = albert_tf.Preprocessor(tokenizer, 12)
    texts = ["cat", "the dog"]
    expected = model.predict(texts, verbose=0)
    for count in (2, 3):
        found = model.predict((texts,) * count, verbose=0)
        assert found.shape == (2, count, CONFIG.hidden_size)
        np.testing.assert_allclose(found[:, -1], expected, atol=1e-6)
    np.testing.assert_allclose(model.predict(texts, verbose=0), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pooling": "sum"}, "pooling must be one of mean, cls, pooled, max"),
        ({"dimension": 13}, "dimension must be from 1 to 12"),
        ({"dimension": 2.5}, "dimension must be from 1 to 12, .* 2.5"),
        ({"prompts": ["query"]}, "prompts must be texts by their roles"),
        (
            {"projection_size": 3, "projection_act": "gelu"},
            "projection_act must be linear or tanh, received 'gelu'",
        ),
    ],
)
def test_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        AlbertTextEmbedder(CONFIG, **options)
