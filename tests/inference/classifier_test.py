"""`Classifier` on small random models."""

import numpy as np
import pandas as pd
import pytest

from albert_tf.converters import load
from albert_tf.errors import UsageError
from albert_tf.inference.classifier import Classifier
from albert_tf.models.classifiers import AlbertTextClassifier, AlbertTokenClassifier
from albert_tf.text.sentencepiece import AlbertTokenizer
from tests.openings import count_openings
from tests.tiny import CONFIG, SPIECE


@pytest.fixture(scope="module")
def classify(tokenizer):
    model = AlbertTextClassifier(CONFIG, num_labels=3, seed=1)
    return Classifier(model, tokenizer, ["no", "maybe", "yes"])


def test_classifier(classify):
    texts = ["a b", "the " * 50, "", "a b"]
    result = classify(texts)
    assert [list(row) for row in result] == [["label", "score"]] * 4
    assert result[0]["score"] == pytest.approx(result[3]["score"])
    ranked = classify(texts, top_k=None)
    assert [row[0] for row in ranked] == result
    assert sorted(row["label"] for row in ranked[0]) == ["maybe", "no", "yes"]
    assert sum(row["score"] for row in ranked[1]) == pytest.approx(1, abs=1e-5)
    assert classify("a b")[0]["score"] == pytest.approx(result[0]["score"], rel=1e-4)
    assert classify([]) == [] and classify.logits([]).shape == (0, 3)


def test_classifier_pairs(classify):
    one = classify.logits(["a b"], ["c d"])
    many = classify.logits(["a b", "x"], ["c d", "the " * 99])
    np.testing.assert_allclose(one[0], many[0], rtol=1e-4, atol=1e-5)
    assert np.abs(one - classify.logits(["a b c d"])).max() > 1e-3
    without = classify.logits(["a b", "x"], ["", "c d"])
    np.testing.assert_allclose(without[0], classify.logits(["a b"])[0], atol=1e-5)


def test_a_model_of_pairs_refuses_single_texts(tokenizer):
    model = AlbertTextClassifier(CONFIG, num_labels=2, seed=1)
    model.labels = ["entailment", "not_entailment"]
    own = {"name": "table", "table": {"text_pair_column": "b"}}
    for model.task in ({"name": "rte"}, own):
        classify = Classifier(model, tokenizer)
        with pytest.raises(UsageError, match="expected pairs of texts, .* give text_p"):
            classify("a b")
    assert len(classify("a b", "c")) == 1


def test_classifier_refuses(classify, tokenizer):
    with pytest.raises(UsageError, match="labels: expected 3 names, .* received 2"):
        Classifier(classify.model, tokenizer, ["a", "b"])
    with pytest.raises(UsageError, match="received AlbertTokenClassifier"):
        Classifier(AlbertTokenClassifier(CONFIG, num_labels=3), tokenizer)
    with pytest.raises(UsageError, match="max_position_embeddings=24, received 25"):
        Classifier(classify.model, tokenizer, max_seq_length=25)
    with pytest.raises(UsageError, match="top_k must be a positive integer, .* 0"):
        classify("a", top_k=0)


def test_only_strings(classify):
    with pytest.raises(UsageError, match=r"texts\[0\] must be a string, received None"):
        classify([None])
    with pytest.raises(UsageError, match=r"text_pairs\[1\] must be .* received nan"):
        classify(["a", "b"], ["c", float("nan")])
    assert classify(b"a b") == classify("a b")
    table = pd.DataFrame({"text": ["a"], "label": ["b"]})
    for given in (None, 3, {"a": "b"}, table):
        with pytest.raises(UsageError, match="texts must be a string or a list of str"):
            classify(given)


def make_classifier(tokenizer, num_labels, problem_type=None):
    model = AlbertTextClassifier(CONFIG, num_labels=num_labels, seed=1)
    model.problem_type = problem_type
    return Classifier(model, tokenizer)


def test_regression_returns_the_value(tokenizer):
    regress, texts = make_classifier(tokenizer, 1), ["a b", "something else"]
    expected = regress.logits(texts)[:, 0].tolist()
    assert len(set(expected)) == 2
    assert [row["score"] for row in regress(texts)] == expected
    for one in (regress, make_classifier(tokenizer, 1, "regression")):
        with pytest.raises(UsageError, match="received a regression model; use scores"):
            one.probabilities(texts)


def test_multi_label_probabilities_and_threshold(tokenizer):
    classify = make_classifier(tokenizer, 3, "multi_label_classification")
    texts = ["a b", "something else"]
    expected = 1 / (1 + np.exp(-classify.logits(texts)))
    np.testing.assert_allclose(classify.probabilities(texts), expected, rtol=1e-5)
    scores = {row["label"]: row["score"] for row in classify(texts, top_k=None)[0]}
    by_label = [scores[f"LABEL_{i}"] for i in range(3)]
    np.testing.assert_allclose(by_label, expected[0], rtol=1e-5)
    # Differs from row to row: all labels of one text and none of another will do.
    for threshold in (0, 0.3, 0.5, 0.7, 1):
        expected = [
            {f"LABEL_{i}" for i in range(3) if row[i] >= threshold}
            for row in classify.scores(texts)
        ]
        found = classify(texts, threshold=threshold)
        assert [{entry["label"] for entry in row} for row in found] == expected
        for row in found:
            assert row == sorted(row, key=lambda entry: -entry["score"])
    assert [len(row) for row in classify(texts, threshold=0)] == [3, 3]
    assert [len(row) for row in classify(texts, top_k=1, threshold=0)] == [1, 1]
    assert classify(texts, threshold=1) == [[], []]
    for bad in (float("nan"), 2, "0.5", True):
        with pytest.raises(UsageError, match="threshold must be from 0 to 1"):
            classify(texts, threshold=bad)
    with pytest.raises(UsageError, match="threshold: .* received a regression model"):
        make_classifier(tokenizer, 1)(texts, threshold=0.5)
    with pytest.raises(UsageError, match="problem_type must be one of .* 'ranking'"):
        make_classifier(tokenizer, 2, "ranking")


def test_from_pretrained_opens_the_files_once(model_folder, monkeypatch):
    path = model_folder("text_classifier", labels=("bad", "good"))
    counts = count_openings(monkeypatch)
    classify = Classifier.from_pretrained(path)
    assert counts == {("open", path): 1, ("verify", path): 1}
    assert classify.labels == ["bad", "good"]


def test_from_pretrained_takes_the_options_of_the_tokenizer(tmp_path):
    model = AlbertTextClassifier(CONFIG, num_labels=2, seed=1)
    # The original's files do not say how text is normalized.
    load.save_pretrained(model, tmp_path / "m", format="tf1")
    options = {"do_lower_case": False, "keep_accents": True}
    classify = Classifier.from_pretrained(tmp_path / "m", SPIECE, **options)
    stated = classify.tokenizer.get_config()
    assert {key: stated[key] for key in options} == options
    expected = AlbertTokenizer(SPIECE, **options).encode("A Café")
    assert classify.tokenizer.encode("A Café") == expected
    lowered = Classifier.from_pretrained(tmp_path / "m", SPIECE)
    assert lowered.tokenizer.encode("A Café") != expected
