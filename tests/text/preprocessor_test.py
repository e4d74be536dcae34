"""Texts, pairs and data sets as model inputs."""

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from albert_tf.errors import UsageError
from albert_tf.text.preprocessor import Preprocessor
from albert_tf.text.sentencepiece import AlbertTokenizer
from tests.tiny import SPIECE, make_model

TEXTS = ["The cat sat.", "", "A dog ran away from the cat, again and again!"]
PAIRS = ["On the mat", "It was", "Why?"]


@pytest.fixture
def preprocess(tokenizer):
    return Preprocessor(tokenizer, 12)


def assert_equal(one, other):
    assert set(one) == {"token_ids", "segment_ids", "padding_mask"}
    np.testing.assert_equal({k: np.array(v) for k, v in one.items()}, other)


def test_assets_name_nothing_outside_their_folder(preprocess, tmp_path):
    preprocess.save_assets(tmp_path)
    about = tmp_path / "preprocessor.json"
    about.write_text(about.read_text().replace('"spiece.model"', '"/x/spiece.model"'))
    assert_equal(Preprocessor.load_assets(tmp_path)(TEXTS), preprocess(TEXTS))


def test_rows(preprocess):
    t = preprocess.tokenizer
    a, b = t.encode("The cat"), t.encode("On it")
    ids = [t.cls_id, *a, t.sep_id, *b, t.sep_id]
    segments = [0] * (len(a) + 2) + [1] * (len(b) + 1)
    rows = {"token_ids": ids, "segment_ids": segments, "padding_mask": [1] * len(ids)}
    assert t.pad_id == 0
    expected = {name: row + [0] * (12 - len(ids)) for name, row in rows.items()}
    assert_equal(preprocess(("The cat", "On it")), expected)
    cut = preprocess(TEXTS[2])["token_ids"]
    assert cut.tolist() == [t.cls_id, *t.encode(TEXTS[2])[:10], t.sep_id]


@pytest.mark.parametrize("x", [TEXTS, (TEXTS, PAIRS), (TEXTS,)])
def test_all_forms_are_equal(preprocess, x):
    expected = preprocess(x)
    assert expected["token_ids"].shape == (3, 12)
    as_parts = x if isinstance(x, tuple) else (x,)
    for form in (np.array, tf.constant, lambda texts: np.array(texts, object)):
        assert_equal(preprocess(tuple(form(part) for part in as_parts)), expected)
    for row in range(3):
        one = preprocess(tuple(part[row] for part in as_parts))
        assert_equal(one, {k: v[row] for k, v in expected.items()})


def test_in_a_data_set_before_and_after_batching():
    x = TEXTS, PAIRS
    labels, weights = [1, 0, 1], [0.5, 1.0, 2.0]
    # A tokenizer that is used in a traced function first works outside of it, too.
    preprocess = Preprocessor(AlbertTokenizer(SPIECE), 12)
    data = tf.data.Dataset.from_tensor_slices((x, labels, weights))
    for mapped in (data.map(preprocess).batch(3), data.batch(3).map(preprocess)):
        assert mapped.element_spec[0]["token_ids"].shape[1] == 12
        ((inputs, y, w),) = mapped
        assert_equal(inputs, preprocess(x))
        assert y.numpy().tolist() == labels and w.numpy().tolist() == weights
    assert_equal(preprocess(tf.constant(TEXTS)), preprocess(TEXTS))


def test_a_model_divides_pairs_as_its_family_does(preprocess):
    model = make_model(family="roberta", position_offset=1)
    assert (model.config.type_vocab_size, model.config.num_segments) == (2, 1)
    model.preprocessor = preprocess
    t = model.preprocessor.tokenizer
    assert (t.pair_separators, preprocess.tokenizer.pair_separators) == (2, 1)


def test_labels_pass_through(preprocess):
    assert len(preprocess(TEXTS, [1, 2, 3])) == 2
    inputs, y, weight = preprocess(TEXTS, None, [1, 2, 3])
    assert y is None and weight == [1, 2, 3]
    assert_equal(inputs, preprocess(TEXTS))


def test_ready_inputs_are_left_alone(preprocess):
    ready = preprocess(TEXTS)
    data = tf.data.Dataset.from_tensors((ready, [1, 2, 3]))
    numbers = np.ones((2, 3), "int32")
    for x in (ready, data, numbers, tf.constant(numbers), None, [numbers]):
        assert preprocess.encode_texts(x) is x
    assert_equal(preprocess.encode_texts(TEXTS), ready)
    # One text is a batch of one.
    assert_equal(preprocess.encode_texts("one"), preprocess(["one"]))
    assert_equal(preprocess.encode_texts(("a", "b")), preprocess((["a"], ["b"])))


@pytest.mark.parametrize(
    "x, message",
    [
        (["a", None], r"texts.1. must be a string, received None"),
        ([["a", "b"]], "expected a list of strings, received 2-d"),
        (("a", "b", "c"), "expected one text or two, received 3"),
        ((["a", "b"], ["c"]), "expected as many as texts, 2, received 1"),
    ],
)
def test_what_is_not_text_is_refused(preprocess, x, message):
    with pytest.raises(UsageError, match=message):
        preprocess(x)


def test_no_text_and_a_table_are_refused(preprocess):
    """Keras would say `KeyError` and "Invalid dtype: str"."""
    for x in ([], (), np.array([], object), (["a"], [])):
        with pytest.raises(UsageError, match="at least one text, received none"):
            preprocess.encode_texts(x)
    with pytest.raises(UsageError, match=r"2-d; of a table, give one column"):
        preprocess.encode_texts(pd.DataFrame({"text": ["a", "b"]}))
