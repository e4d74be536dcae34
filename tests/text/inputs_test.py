"""Texts as model inputs, in NumPy and in the graph."""

import random

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.errors import UsageError
from albert_tf.text import inputs, inputs_graph


def truncate_one_by_one(a, b, budget):
    """The original's `_truncate_seq_pair`."""
    while a + b > budget:
        if a > b:
            a -= 1
        else:
            b -= 1
    return a, b


@pytest.mark.parametrize("budget", [2, 3, 8, 9])
def test_truncated_lengths_are_the_originals(budget):
    pairs = [(a, b) for a in range(13) for b in range(13)]
    a, b = inputs.truncated_lengths(*np.array(pairs).T, budget)
    expected = [truncate_one_by_one(*pair, budget) for pair in pairs]
    assert list(zip(a.tolist(), b.tolist(), strict=True)) == expected


def test_on_a_tie_b_loses_first(tokenizer):
    texts, pairs = ["the cat sat"], ["the dog ran"]
    encoded = inputs.encode_texts(tokenizer, texts, pairs, max_seq_length=8)
    a, b = tokenizer.encode("the cat sat"), tokenizer.encode("the dog")
    sep = [tokenizer.sep_id]
    assert encoded.ids.tolist() == [tokenizer.cls_id, *a, *sep, *b, *sep]
    assert encoded.num_truncated == 1
    both = inputs.encode_texts(
        tokenizer, ["a", *texts], ["b", *pairs], max_seq_length=8
    )
    assert both.truncated.tolist() == [False, True]


def some_texts(count, seed):
    rng = random.Random(seed)
    words = ["Cat", "sat", "", "naïve", "1990,", "(x)", "[SEP]", "mat.", "🙂", "\t"]
    return [" ".join(rng.choices(words, k=rng.randrange(25))) for _ in range(count)]


@pytest.mark.parametrize("with_pairs", [False, True])
@pytest.mark.parametrize("max_seq_length", [5, 16, 37, 200])
def test_graph_equals_numpy(tokenizer, max_seq_length, with_pairs):
    texts = some_texts(40, seed=1)
    pairs = some_texts(40, seed=2) if with_pairs else None
    encoded = inputs.encode_texts(
        tokenizer, texts, pairs, max_seq_length=max_seq_length
    )
    length = inputs.bucket_length(encoded.lengths.max(), max_seq_length)
    expected = inputs.padded_inputs(encoded, np.arange(40), length, tokenizer.pad_id)
    encode = tf.function(
        inputs_graph.make_text_encoder(
            tokenizer,
            cls_id=tokenizer.cls_id,
            sep_id=tokenizer.sep_id,
            pad_id=tokenizer.pad_id,
            max_seq_length=max_seq_length,
        )
    )
    actual = encode(tf.constant(texts), None if pairs is None else tf.constant(pairs))
    assert actual.keys() == expected.keys()
    for name in expected:
        np.testing.assert_array_equal(actual[name], expected[name], err_msg=name)
        assert actual[name].dtype == tf.int32


def test_padding_and_segments(tokenizer):
    encoded = inputs.encode_texts(
        tokenizer, ["a", "a b"], ["c", "d"], max_seq_length=16
    )
    batch = inputs.padded_inputs(encoded, np.array([1, 0]), 8, tokenizer.pad_id)
    assert batch["padding_mask"].sum(1).tolist() == encoded.lengths[[1, 0]].tolist()
    assert batch["segment_ids"].tolist()[0][:6] == [0, 0, 0, 0, 1, 1]
    assert not batch["token_ids"][batch["padding_mask"] == 0].any()


@pytest.mark.parametrize("empty", ["", " \t"])
def test_a_second_text_without_tokens_counts_as_none(tokenizer, empty):
    texts = ["a b c d e f g h", "a", ""]
    single = inputs.encode_texts(tokenizer, texts, max_seq_length=8)
    pairs = inputs.encode_texts(tokenizer, texts, [empty] * 3, max_seq_length=8)
    assert pairs.ids.tolist() == single.ids.tolist()
    assert pairs.splits.tolist() == single.splits.tolist()
    assert pairs.truncated.tolist() == single.truncated.tolist() == [True, False, False]
    a, b = tokenizer.encode("a"), tokenizer.encode("b")
    cls, sep = [tokenizer.cls_id], [tokenizer.sep_id]
    # The length of a row decides, not that of the batch; the graph agrees.
    texts, second = ["a", "", texts[0]], ["b", "b", empty]
    mixed = inputs.encode_texts(tokenizer, texts, second, max_seq_length=8)
    both = [*cls, *a, *sep, *b, *sep]
    assert mixed.ids.tolist() == [
        *both,
        *[*cls, *sep, *b, *sep],
        *[*cls, *tokenizer.encode("a b c d e f g h")[:6], *sep],
    ]
    encode = inputs_graph.make_text_encoder(
        tokenizer,
        cls_id=tokenizer.cls_id,
        sep_id=tokenizer.sep_id,
        pad_id=tokenizer.pad_id,
        max_seq_length=8,
    )
    actual = encode(tf.constant(texts), tf.constant(second))
    expected = inputs.padded_inputs(mixed, np.arange(3), 8, tokenizer.pad_id)
    for name in expected:
        np.testing.assert_array_equal(actual[name], expected[name], err_msg=name)
    assert expected["segment_ids"].sum(1).tolist() == [len(b) + 1, len(b) + 1, 0]


def test_empty_batch(tokenizer):
    encode = inputs_graph.make_text_encoder(
        tokenizer, cls_id=2, sep_id=3, pad_id=0, max_seq_length=64
    )
    assert encode(tf.constant([], tf.string))["token_ids"].shape == (0, 16)
    assert len(inputs.encode_texts(tokenizer, [], max_seq_length=64)) == 0


@pytest.mark.parametrize(
    ("length", "pairs", "message"),
    [
        (2, False, "max_seq_length must be at least 3, received 2"),
        (4, True, "max_seq_length must be at least 5, received 4"),
        (513, False, "at most max_position_embeddings=512, received 513"),
    ],
)
def test_bad_max_seq_length(length, pairs, message):
    with pytest.raises(UsageError, match=message):
        inputs.check_max_seq_length(length, pairs=pairs, longest=512)


def test_lists_of_different_length(tokenizer):
    with pytest.raises(UsageError, match="expected as many as texts, 1, received 2"):
        inputs.encode_texts(tokenizer, ["a"], ["b", "c"], max_seq_length=9)
