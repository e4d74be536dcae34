"""A SavedModel in Python answers as it is asked, to the last digit."""

import json

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.errors import DataError, UsageError
from albert_tf.export.saved_model import export_saved_model
from albert_tf.inference.pipeline import saved_model
from albert_tf.models.classifiers import AlbertMultipleChoice, AlbertTokenClassifier
from tests import exits, tiny

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def choices(tokenizer, tmp_path_factory):
    path = tmp_path_factory.mktemp("choices") / "model"
    model = AlbertMultipleChoice(tiny.CONFIG, seed=5)
    return export_saved_model(model, path, tokenizer=tokenizer, warmup_batch_sizes=())


@pytest.fixture(scope="module")
def tags(tokenizer, tmp_path_factory):
    pytest.importorskip("seqeval")
    path = tmp_path_factory.mktemp("tags") / "model"
    model = AlbertTokenClassifier(tiny.CONFIG, num_labels=3, seed=5)
    labels = ["O", "B-X", "B-Y"]
    return export_saved_model(
        model, path, tokenizer=tokenizer, labels=labels, warmup_batch_sizes=()
    )


def test_rows_have_their_own_number_of_choices(choices):
    ranks, outputs = saved_model.read_signature(choices, "serving_default")
    assert ranks == {"choices": 2, "context": 1, "question": 1}
    assert outputs == ["choice", "index", "logits", "probabilities"]
    model = saved_model.ServedModel(choices, "serving_default")
    inputs = {
        "context": ["a film", "b", "the third one is long"],
        "question": ["good?", "", "why"],
        "choices": [["yes", "no", "maybe"], ["a", "b"], ["p", "q"]],
    }
    answers = model.answer(inputs, 2)
    assert [len(answer["probabilities"]) for answer in answers] == [3, 2, 2]
    for k, answer in enumerate(answers):
        alone = model.answer({name: v[k : k + 1] for name, v in inputs.items()}, 2)
        assert answer["choice"] == alone[0]["choice"] in inputs["choices"][k]
        np.testing.assert_allclose(answer["logits"], alone[0]["logits"], atol=1e-5)
    assert answers == model.answer(inputs, 2)


def test_rows_are_without_what_fills_them_up(tags):
    model = saved_model.ServedModel(tags, "tag")
    texts = ["one two three", "", "one"]
    answers = model.answer({"text": texts}, 8)
    assert [answer["words"] for answer in answers] == [t.split() for t in texts]
    assert all(len(a["tags"]) == len(a["scores"]) == a["num_words"] for a in answers)
    score = answers[0]["scores"][0]
    assert score == float(str(np.float32(score)))  # no digits beyond float32
    json.dumps(answers)


@pytest.mark.broad
def test_a_model_with_an_exit_rule_answers_whole(tokenizer, tmp_path):
    path = export_saved_model(
        exits.make_model(num_labels=6),
        tmp_path / "model",
        tokenizer=tokenizer,
        exit="layers:2",
        warmup_batch_sizes=(),
    )
    model = saved_model.ServedModel(path, "serving_default")
    (answer,) = model.answer({"text": ["one two three"]}, 1)
    assert answer["num_layers"] == 2
    assert len(answer["logits"]) == len(answer["probabilities"]) == 6


def test_only_counts_shorten_a_row():
    found = {"num_layers": np.array([1]), "logits": np.array([[1.5, 2.5]], np.float32)}
    answer = {"num_layers": 1, "logits": [1.5, 2.5]}
    assert saved_model._row(found, 0, ["one"]) == answer
    found = {"num_masks": np.array([1]), "tokens": np.array([[[b"a"], [b""]]], object)}
    answer = {"num_masks": 1, "tokens": [["a"]]}
    assert saved_model._row(found, 0, ["one [MASK]"]) == answer


def test_what_is_no_number_in_json():
    values = np.array([1.5, np.nan, np.inf], np.float32)
    assert saved_model._plain(values) == [1.5, None, None]


def test_signatures_that_cannot_be_asked(tags, tmp_path):
    with pytest.raises(UsageError, match="signature: expected one of .*tag.*'abc'"):
        saved_model.read_signature(tags, "abc")
    with pytest.raises(UsageError, match="tokens takes lengths of type DT_INT32"):
        saved_model.read_signature(tags, "tokens")
    with pytest.raises(DataError, match="saved_model.pb: cannot be read"):
        saved_model.read_signature(tmp_path, "tag")
    (tmp_path / "saved_model.pb").write_bytes(b"no")
    with pytest.raises(DataError, match="saved_model.pb: not a SavedModel"):
        saved_model.read_signature(tmp_path, "tag")


def test_the_digest_sees_the_weights(tags, tmp_path):
    other = tf.io.gfile.join(tmp_path, "m")
    tf.io.gfile.makedirs(f"{other}/variables")
    for name in ("saved_model.pb", "variables/variables.index"):
        tf.io.gfile.copy(f"{tags}/{name}", f"{other}/{name}")
    assert saved_model.digest(other) == saved_model.digest(tags)
    with open(f"{other}/variables/variables.index", "ab") as file:
        file.write(b"x")
    assert saved_model.digest(other) != saved_model.digest(tags)
