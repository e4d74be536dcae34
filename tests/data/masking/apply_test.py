"""Properties, probabilities and equality of masking in NumPy and TensorFlow."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from albert_tf.data.masking import apply as masking
from albert_tf.data.masking import keyed_random
from albert_tf.data.masking.config import MaskingConfig
from albert_tf.data.masking.ops import NUMPY
from albert_tf.data.masking.ops_graph import TENSORFLOW
from albert_tf.errors import UsageError
from tests.data.synthetic_records import VOCAB, make_batch, make_example, mask_example

PRESETS = ("albert", "bert", "bert_wwm", "roberta", "spanbert", "electra")


def keys_of(seed, epoch, examples, xp=NUMPY):
    examples = xp.array(examples, "int64")
    return keyed_random.row_keys(seed, examples * 0 + epoch, examples, xp)


def mask(batch, config):
    keys = keys_of(11, 3, np.arange(len(batch["token_ids"])))
    return masking.mask_batch(batch, keys, config, VOCAB)


def words_of(example, unit="whole_word", rules="albert_tf"):
    """The candidates as the original collects them, one piece after the other."""
    words, after_special = [], True
    specials = (VOCAB.cls_id, VOCAB.sep_id, VOCAB.mask_id, VOCAB.pad_id)
    for i, piece in enumerate(example["input_ids"]):
        if piece in specials:
            after_special = after_special or rules == "albert_tf"
        elif unit == "piece" or after_special or example["token_boundary"][i]:
            words.append([i])
            after_special = False
        else:
            words[-1].append(i)
    return words


examples = st.builds(
    lambda seed, length, starts: make_example(
        np.random.default_rng(seed), length, starts
    ),
    st.integers(0, 2**32),
    st.integers(3, 61),
    st.sampled_from([0.05, 0.4, 0.7, 1.0]),
)
configs = st.builds(
    MaskingConfig,
    unit=st.sampled_from(["whole_word", "piece"]),
    max_ngram=st.integers(1, 11),
    ngram_distribution=st.sampled_from(["inverse", "uniform", "geometric"]),
    masked_lm_prob=st.sampled_from([0.07, 0.15, 0.4, 0.9]),
    max_predictions_per_seq=st.integers(1, 23),
    replace_per=st.sampled_from(["token", "span"]),
    rules=st.sampled_from(["albert_tf", "original"]),
)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(example=examples, config=configs, key=st.tuples(*[st.integers(0, 2**40)] * 3))
def test_choice_is_whole_words_filling_the_budget(example, config, key):
    ids = example["input_ids"]
    masked, positions, labels = mask_example(example, config, key)
    wanted = max(1, round(len(ids) * config.masked_lm_prob))
    budget = min(config.max_predictions_per_seq, wanted)
    assert budget == config.num_to_predict(len(ids))
    words = words_of(example, config.unit, config.rules)
    chosen = set(positions.tolist())
    assert len(chosen) == len(positions) and sorted(chosen) == positions.tolist()
    assert all(chosen.issuperset(word) or chosen.isdisjoint(word) for word in words)
    assert chosen <= set(itertools.chain(*words))
    sums = {0}
    for word in words:
        sums |= {s + len(word) for s in sums if s + len(word) <= budget}
    assert len(chosen) == max(sums)
    np.testing.assert_array_equal(labels, ids[positions])
    changed = np.flatnonzero(masked != ids)
    assert chosen.issuperset(changed.tolist())
    if config.rules == "albert_tf":
        put = set(masked[positions].tolist()) - {VOCAB.mask_id}
        assert put.isdisjoint(VOCAB.special_ids)


@pytest.mark.parametrize("rules", ["albert_tf", "original"])
def test_unknown_pieces_are_no_targets(rules):
    ids = np.array([2, 1, 1, 50, 1, 60, 1, 1, 3])
    example = {"input_ids": ids, "token_boundary": np.ones_like(ids)}
    config, unknown = MaskingConfig(masked_lm_prob=0.2, rules=rules), 0
    for key in range(200):
        _, positions, before = mask_example(example, config, (1, 0, key))
        assert len(positions) == 2
        unknown += int((before == 1).sum())
    assert (unknown > 0) == (rules == "original")


@settings(max_examples=40, deadline=None, derandomize=True)
@given(rows=st.lists(examples, min_size=1, max_size=7), config=configs)
def test_row_depends_on_its_key_alone(rows, config):
    out = mask(make_batch(rows, 67), config)
    names = ("token_ids", "mask_positions", "mask_ids")
    for i, row in enumerate(rows):
        alone = mask_example(row, config, (11, 3, i))
        for name, expected in zip(names, alone, strict=True):
            padded = np.pad(expected, (0, out[name].shape[1] - len(expected)))
            np.testing.assert_array_equal(out[name][i], padded)


@pytest.mark.parametrize(
    ("preset", "rules"),
    [
        ("albert", "albert_tf"),
        ("spanbert", "albert_tf"),
        ("albert", "original"),
        ("electra", "original"),  # pieces
        ("roberta", "roberta"),
    ],
)
def test_numpy_eager_and_tf_data_agree(preset, rules):
    rng = np.random.default_rng(5)
    changes = {"max_predictions_per_seq": 9, "rules": rules}
    config = MaskingConfig.from_preset(preset, **changes)
    # Long words make some rows need the exact filling.
    rows = [make_example(rng, n, w) for n in (3, 5, 17, 43, 61) for w in (0.1, 0.6)]
    batch = make_batch(rows, 61)
    expected = mask(batch, config)

    @tf.autograph.experimental.do_not_convert
    def run(part):
        part = dict(part)
        keys = keys_of(11, 3, part.pop("example"), TENSORFLOW)
        return masking.mask_batch(part, keys, config, VOCAB, TENSORFLOW)

    numbered = batch | {"example": np.arange(len(rows))}
    eager = run({name: tf.constant(value) for name, value in numbered.items()})
    dataset = tf.data.Dataset.from_tensor_slices(numbered)
    parts = list(dataset.batch(3).map(run).as_numpy_iterator())
    for name, value in expected.items():
        np.testing.assert_array_equal(eager[name], value, name)
        joined = np.concatenate([part[name] for part in parts])
        np.testing.assert_array_equal(joined, value, name)
        assert joined.dtype == value.dtype == eager[name].numpy().dtype


def test_draws_are_splitmix64():
    """Against the reference implementation's published numbers for seed 1234567."""
    state = np.array([1234567], np.uint64)
    step = np.array([keyed_random._GOLDEN], np.uint64)
    mix = keyed_random._mix_array
    drawn = [int(mix(state + step * k, NUMPY)[0]) for k in range(1, 4)]
    assert drawn == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def long_batch(rows, length):
    """Rows without padding, of two segments and words of one token, for statistics."""
    rng = np.random.default_rng(3)
    ids = rng.integers(5, VOCAB.vocab_size, (rows, length), dtype=np.int32)
    ids[:, 0] = VOCAB.cls_id
    ids[:, [length // 2, -1]] = VOCAB.sep_id
    ones = np.ones_like(ids)
    return {"token_ids": ids, "token_boundary": ones, "padding_mask": ones}


@pytest.mark.parametrize("rules", ["albert_tf", "original"])
def test_replacement_shares(rules):
    """80/10/10 on 1.2 million pieces, within 4.5 standard deviations."""
    batch = long_batch(2400, 512)
    out = mask(batch, MaskingConfig(max_predictions_per_seq=100, rules=rules))
    valid = out["mask_weights"] > 0
    assert (valid.sum(1) == 77).all()
    new = np.take_along_axis(out["token_ids"], out["mask_positions"], 1)[valid]
    old = out["mask_ids"][valid]
    is_original = rules == "original"
    one = 0.1 / (VOCAB.vocab_size - 5 * (not is_original))
    masks = 0.8 + one * is_original
    for found, share in ((new == VOCAB.mask_id, masks), (new == old, 0.1 + one)):
        allowed = 4.5 * np.sqrt(share * (1 - share) / len(new))
        assert abs(found.mean() - share) < allowed
    random = new[(new != VOCAB.mask_id) & (new != old)]
    counts = np.bincount(random, minlength=VOCAB.vocab_size)
    assert counts[:4].astype(bool).tolist() == [is_original] * 4
    assert stats.chisquare(counts[5:]).pvalue > 1e-4


@pytest.mark.parametrize("preset", ["albert", "spanbert"])
def test_ngram_lengths_follow_their_distribution(preset):
    """1.2 million words: within 4.5 deviations and what one cut n-gram a row does."""
    batch = long_batch(600, 2048)
    sizes = {"max_predictions_per_seq": 400, "masked_lm_prob": 0.15}
    config = MaskingConfig.from_preset(preset, **sizes)
    out = mask(batch, config)
    lengths = []
    for row, valid in zip(out["mask_ngrams"], out["mask_weights"] > 0, strict=True):
        lengths.append(np.unique(row[valid], return_counts=True)[1])
    cut = 1 / np.mean([len(row) for row in lengths])
    lengths = np.concatenate(lengths)
    assert lengths.max() == config.max_ngram
    shares = np.bincount(lengths, minlength=config.max_ngram + 1)[1:] / len(lengths)
    p = config.ngram_probabilities()
    assert (abs(shares - p) < 4.5 * np.sqrt(p * (1 - p) / len(lengths)) + cut).all()
    assert abs(lengths.mean() - p @ np.arange(1, len(p) + 1)) < 0.01 + 4 * cut


@pytest.mark.parametrize(("preset", "edge"), [("bert", 0.0), ("spanbert", 0.08)])
def test_every_position_has_the_same_chance(preset, edge):
    """1.3 million pieces in rows of 64; each position within 4.5 deviations.

    The n-gram that the budget cuts is more often a long one, and those at the end of a
    segment are shorter, so that the edges of such short rows get a little more.
    """
    batch = long_batch(20_000, 64)
    out = mask(batch, MaskingConfig.from_preset(preset, max_predictions_per_seq=20))
    valid = out["mask_weights"] > 0
    assert (valid.sum(1) == round(64 * 0.15)).all()
    counts = np.bincount(out["mask_positions"][valid], minlength=64)
    assert not counts[[0, 32, 63]].any()
    share = np.delete(counts, [0, 32, 63]) / len(valid)
    expected = 10 / 61
    deviation = np.sqrt(expected * (1 - expected) / len(valid))
    assert abs(share - expected).max() < 4.5 * deviation + edge * expected


@pytest.mark.parametrize("rules", ["albert_tf", "original"])
def test_ngrams_cross_the_separator_only_in_the_original_mode(rules):
    out = mask(long_batch(300, 41), MaskingConfig(rules=rules))
    crosses = False
    for grams, positions, weights in zip(
        out["mask_ngrams"], out["mask_positions"], out["mask_weights"], strict=True
    ):
        before, after = (weights > 0) & (positions < 20), positions > 20
        crosses |= bool(np.intersect1d(grams[before], grams[after]).size)
    assert crosses == (rules == "original")


def test_span_replacement_is_one_action_a_run():
    config = MaskingConfig.from_preset("spanbert", max_predictions_per_seq=20)
    out = mask(long_batch(200, 101), config)
    new = np.take_along_axis(out["token_ids"], out["mask_positions"], 1)
    valid = out["mask_weights"] > 0
    joined = valid[:, 1:] & (np.diff(out["mask_positions"], axis=1) == 1)
    is_mask = new == VOCAB.mask_id
    assert joined.any() and is_mask.any() and not is_mask[valid].all()
    assert (is_mask[:, 1:] == is_mask[:, :-1])[joined].all()


@pytest.mark.parametrize("preset", PRESETS)
def test_special_tokens_are_masked_as_in_roberta_only(preset):
    batch = long_batch(600, 41)
    out = mask(batch, MaskingConfig.from_preset(preset))
    chosen = out["mask_ids"][out["mask_weights"] > 0]
    specials = [VOCAB.cls_id, VOCAB.sep_id]
    share = np.isin(chosen, specials).mean()
    if preset != "roberta":
        assert share == 0
        return
    expected = np.isin(batch["token_ids"], specials).mean()
    assert abs(share - expected) < 4 * np.sqrt(expected / len(chosen))
    assert not np.isin(out["mask_ids"], VOCAB.pad_id)[out["mask_weights"] > 0].any()
    # fairseq: 15% of all positions, special ones counted.
    assert (out["mask_weights"].sum(axis=1) == round(0.15 * 41)).all()


def test_electra_never_puts_random_pieces():
    batch = long_batch(200, 101)
    out = mask(batch, MaskingConfig.from_preset("electra"))
    changed = out["token_ids"] != batch["token_ids"]
    assert (out["token_ids"][changed] == VOCAB.mask_id).all()
    share = changed.sum() / out["mask_weights"].sum()
    assert share == pytest.approx(0.85, abs=0.03)


def test_probabilities_are_the_published_ones():
    inverse = MaskingConfig().ngram_probabilities()
    np.testing.assert_allclose(inverse, [6 / 11, 3 / 11, 2 / 11])
    span = MaskingConfig.from_preset("spanbert").ngram_probabilities()
    assert len(span) == 10
    assert span @ np.arange(1, 11) == pytest.approx(3.8, abs=0.01)  # their section 3.1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"unit": "letter"}, "one of whole_word, piece, received 'letter'"),
        ({"max_ngram": 0}, "max_ngram must be a positive integer, received 0"),
        ({"masked_lm_prob": 1.5}, r"masked_lm_prob must be in \(0, 1\), received 1.5"),
        ({"mask_fraction": 0.95}, "add up to at most 1, received 0.95 and 0.1"),
    ],
)
def test_bad_settings(changes, message):
    with pytest.raises(UsageError, match=message):
        MaskingConfig(**changes)
    with pytest.raises(UsageError, match="masking must be one of .* received 'x'"):
        MaskingConfig.from_preset("x")
