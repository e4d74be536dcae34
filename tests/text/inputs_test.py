"""Texts as model inputs, in NumPy and in the graph."""

import pickle
import random

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.errors import DataError, UsageError
from albert_tf.text import inputs, inputs_graph


def truncate_one_by_one(a, b, budget):
    """The original's `_truncate_seq_pair`."""
    while a + b > budget:
        if a > b:
            a -= 1
        else:
            b -= 1
    return a, b


def test_kept_lengths_are_the_originals():
    pairs = [(a, b) for a in range(13) for b in range(1, 13)]
    for budget in (2, 3, 8, 9):
        a, b = inputs.kept_lengths(*np.array(pairs).T, budget + 3)
        expected = [truncate_one_by_one(*pair, budget) for pair in pairs]
        assert list(zip(a.tolist(), b.tolist(), strict=True)) == expected


def assert_same(tokenizer, texts, pairs, max_seq_length):
    """Compares the graph with NumPy, whose rows are returned."""
    sizes = {"max_seq_length": max_seq_length}
    encoded = inputs.encode_texts(tokenizer, texts, pairs, **sizes)
    length = inputs.rounded_length(max(encoded.lengths), max_seq_length)
    rows = np.arange(len(encoded))
    expected = inputs.padded_inputs(encoded, rows, length, tokenizer.pad_id)
    second = None if pairs is None else tokenizer(tf.constant(pairs))
    join = tf.function(inputs_graph.join_segments)
    actual = join(tokenizer, tokenizer(tf.constant(texts)), second, max_seq_length)
    np.testing.assert_equal(actual, expected)
    assert {value.dtype for value in actual.values()} == {tf.int32}
    return encoded, expected


def some_texts(count, seed):
    rng = random.Random(seed)
    words = ["Cat", "sat", "", "naïve", "1990,", "(x)", "[SEP]", "mat.", "🙂", "\t"]
    return [" ".join(rng.choices(words, k=rng.randrange(25))) for _ in range(count)]


@pytest.mark.parametrize(
    ("max_seq_length", "with_pairs"), [(5, True), (16, False), (37, True), (200, False)]
)
def test_graph_equals_numpy(tokenizer, max_seq_length, with_pairs):
    pairs = some_texts(40, seed=2) if with_pairs else None
    assert_same(tokenizer, some_texts(40, seed=1), pairs, max_seq_length)


def test_a_second_text_without_tokens_counts_as_none(tokenizer):
    texts, empty = ["a b c d e f g h", "a", ""], " \t"
    single = inputs.encode_texts(tokenizer, texts, max_seq_length=8)
    pairs = inputs.encode_texts(tokenizer, texts, ["", empty, ""], max_seq_length=8)
    assert pairs.ids.tolist() == single.ids.tolist()
    assert pairs.splits.tolist() == single.splits.tolist()
    assert pairs.truncated.tolist() == single.truncated.tolist() == [True, False, False]
    # The length of a row decides, not that of the batch.
    mixed, batch = assert_same(tokenizer, ["a", "", texts[0]], ["b", "b", empty], 8)
    cls, sep = tokenizer.cls_id, tokenizer.sep_id
    a, b, *_ = long = tokenizer.encode(texts[0])[:6]
    both = [cls, a, sep, b, sep]
    assert mixed.ids.tolist() == [*both, cls, sep, b, sep, cls, *long, sep]
    assert batch["segment_ids"].sum(1).tolist() == [2, 2, 0]


@pytest.mark.parametrize("max_seq_length", [6, 37])
def test_two_separators_where_there_are_no_segments(tokenizer, max_seq_length):
    plain, tokenizer = tokenizer, tokenizer.for_segments(1)
    assert (plain.pair_separators, tokenizer.pair_separators) == (1, 2)
    assert tokenizer.for_segments(2).pair_separators == 1
    assert pickle.loads(pickle.dumps(tokenizer)).pair_separators == 2
    texts = [*some_texts(40, seed=1), "a"]
    pairs = [*some_texts(40, seed=2), "b b"]
    encoded, batch = assert_same(tokenizer, texts, pairs, max_seq_length)
    assert not batch["segment_ids"].any()
    cls, sep = tokenizer.cls_id, tokenizer.sep_id
    a, b = tokenizer.encode("a"), tokenizer.encode("b b")[: max_seq_length - 5]
    last = [cls, *a, sep, sep, *b, sep]
    assert encoded.ids[encoded.splits[-2] :].tolist() == last
    assert encoded.first_lengths[-1] == 4
    assert max(encoded.lengths) <= max_seq_length
    # Single texts are as they were.
    alone, other = (
        inputs.encode_texts(t, texts, max_seq_length=max_seq_length)
        for t in (tokenizer, plain)
    )
    np.testing.assert_array_equal(alone.ids, other.ids)


def test_empty_batch(tokenizer):
    nothing = tokenizer(tf.constant([], tf.string))
    made = inputs_graph.join_segments(tokenizer, nothing, None, 64)
    assert made["token_ids"].shape == (0, 16)
    assert len(inputs.encode_texts(tokenizer, [], max_seq_length=64)) == 0


@pytest.mark.parametrize(
    ("length", "pairs", "message"),
    [
        (2, False, "max_seq_length must be at least 3, received 2"),
        (4, True, "max_seq_length must be at least 5, received 4"),
        (5, 2, "max_seq_length must be at least 6, received 5"),
        (513, False, "at most max_position_embeddings=512, received 513"),
    ],
)
def test_bad_max_seq_length(length, pairs, message):
    options = {"pairs": bool(pairs), "separators": int(pairs), "longest": 512}
    with pytest.raises(UsageError, match=message):
        inputs.check_max_seq_length(length, **options)


def test_prompts(tmp_path):
    assert inputs.read_prompts("") == list(inputs.PROMPTS)
    assert all("[MASK]" in prompt for prompt in inputs.PROMPTS)
    file = tmp_path / "prompts.txt"
    file.write_text("a [MASK] .\n\n  [MASK] b\n")
    assert inputs.read_prompts(str(file)) == ["a [MASK] .", "[MASK] b"]
    file.write_bytes("a\x85 [MASK]\u2028 .\r\n\r\nb\r\n".encode())
    with pytest.raises(DataError, match="line 3 must contain .*'b'"):
        inputs.read_prompts(str(file))
    for text, message in (("a\n", "line 1 must contain"), ("\n", "is empty")):
        file.write_text(text)
        with pytest.raises(Exception, match=message):
            inputs.read_prompts(str(file))
