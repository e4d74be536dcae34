"""Task heads: shapes, dropout, and plain `compile` and `fit`."""

import keras
import numpy as np
import pytest

from albert_tf.layers.dropout import StepSeeds
from albert_tf.models.classifiers import (
    AlbertMultipleChoice,
    AlbertQuestionAnswering,
    AlbertTextClassifier,
    AlbertTokenClassifier,
)
from tests.tiny import tiny_config

B, T, C, K = 6, 7, 3, 4
CONFIG = tiny_config(vocab_size=53, initializer_range=0.2, classifier_dropout_prob=0.5)
to_numpy = keras.ops.convert_to_numpy
from_logits = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@pytest.fixture
def tokens():
    return np.random.default_rng(0).integers(5, 53, (B, T)).astype("int32")


def test_multiple_choice_scores_each_choice_by_itself(tokens):
    model = AlbertMultipleChoice(CONFIG, seed=3)
    choices = np.random.default_rng(1).integers(5, 53, (B, K, T)).astype("int32")
    mask = np.ones((B, K, T), "int32")
    mask[:, 1, 4:] = 0
    both = {"token_ids": choices, "padding_mask": mask}
    scores = to_numpy(model(both))
    assert scores.shape == (B, K)
    labels = {"labels": np.zeros(B, "int32"), "choice_mask": np.ones((B, K), "int32")}
    np.testing.assert_array_equal(to_numpy(model({**both, **labels})), scores)
    for k in range(K):
        one = {"token_ids": choices[:, k : k + 1], "padding_mask": mask[:, k : k + 1]}
        np.testing.assert_allclose(to_numpy(model(one))[:, 0], scores[:, k], atol=1e-5)


@pytest.mark.parametrize("family", ["albert", "roberta", "electra"])
def test_dropout_before_the_pooler_of_a_text_classifier(tokens, family):
    changes = {"position_offset": 1, "type_vocab_size": 1, "family": "roberta"}
    changes = changes if family == "roberta" else {"family": family}
    exits = CONFIG.num_hidden_layers - 1
    model = AlbertTextClassifier(CONFIG.replace(**changes), num_exits=exits, seed=1)
    seen = []
    model.backbone.pooler.call = lambda x, **_: seen.append(to_numpy(x)) or x
    inputs = {"token_ids": tokens}
    once = to_numpy(model(inputs))
    np.testing.assert_array_equal(once, to_numpy(model(inputs)))
    model(inputs, training=True)
    expected = seen[0]
    np.testing.assert_array_equal(seen[1], expected)
    dropped = seen[2] == 0
    if family == "albert":
        np.testing.assert_array_equal(seen[2], expected)
    else:
        assert 0.2 < dropped.mean() < 0.8  # half of them, and the others doubled
        np.testing.assert_allclose(seen[2][~dropped], 2 * expected[~dropped], rtol=1e-6)
    model.every_exit(inputs, training=True)  # the model trained with its exits
    assert (seen[-1] == 0).any() == (family != "albert")


def test_dropout_before_the_classifier(tokens):
    for model_class in (AlbertTextClassifier, AlbertTokenClassifier):
        model = model_class(CONFIG, num_labels=C, seed=3)
        runs = [
            to_numpy(model(tokens, training=True, seeds=StepSeeds(1, step)))
            for step in (1, 1, 2)
        ]
        np.testing.assert_array_equal(runs[0], runs[1])
        assert np.abs(runs[0] - runs[2]).max() > 1e-3
    # The original's span head has none.
    model = AlbertQuestionAnswering(CONFIG, seed=3)
    ends = [model(tokens, training=way)["end_logits"] for way in (True, False)]
    np.testing.assert_array_equal(*map(to_numpy, ends))


@pytest.mark.parametrize(
    "model_class, kwargs, message",
    [
        (AlbertTextClassifier, {"num_labels": 0}, "must be positive, received 0"),
        (AlbertQuestionAnswering, {"num_labels": 3}, "must be 2, received 3"),
        (AlbertMultipleChoice, {"num_labels": 4}, "must be 1, received 4"),
    ],
)
def test_impossible_numbers_of_labels(model_class, kwargs, message):
    with pytest.raises(ValueError, match=f"num_labels {message}"):
        model_class(CONFIG, **kwargs)


def test_fit_learns_which_token_comes_first():
    keras.utils.set_random_seed(1)  # the order of the examples
    rng = np.random.default_rng(0)
    x = rng.integers(5, 53, (96, T)).astype("int32")
    y = rng.integers(0, 2, 96)
    x[:, 1] = 3 + y
    rates = {"hidden_dropout_prob": 0.1, "classifier_dropout_prob": 0.1}
    model = AlbertTextClassifier(CONFIG.replace(num_hidden_layers=1, **rates), seed=3)
    compiled = keras.backend.backend() == "jax"  # where single operations take long
    model.compile("adam", from_logits, metrics=["accuracy"], jit_compile=compiled)
    model.optimizer.learning_rate = 5e-3
    inputs = {"token_ids": x, "padding_mask": np.ones_like(x)}
    history = model.fit(inputs, y, batch_size=16, epochs=6, verbose=0).history
    assert history["loss"][-1] < 0.5 * history["loss"][0]
    assert history["accuracy"][-1] > 0.9
