"""Properties of the sentence pairs, and the statistics of the original's file."""

import itertools
import json
from collections import Counter

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from albert_tf.data.corpus import corpus
from albert_tf.data.masking import keyed_random
from albert_tf.data.prepare import blocks, pairs
from albert_tf.data.prepare.pairs import PairConfig
from tests.tiny import GOLDEN, TEXT

DOCUMENTS = st.lists(st.lists(st.integers(0, 70), max_size=12), min_size=1, max_size=8)


def _documents(lengths, policy="clean"):
    """Documents of given sentence lengths, and a word start at every third token."""
    flat = [n for document in lengths for n in document]
    splits = np.concatenate([[0], np.cumsum(flat)]).astype(np.int64)
    counts = np.concatenate([[0], np.cumsum([len(d) for d in lengths])])
    keys = [(0, k) for k in range(len(lengths))]
    documents = pairs.make_documents(keys, splits, counts.astype(np.int64))
    ids = np.arange(int(splits[-1]))
    ids, documents = pairs.separate(ids, documents, pairs.POLICIES[policy], -1)
    return documents, ids, (np.arange(len(ids)) % 3 == 0)


@hypothesis.given(DOCUMENTS, st.integers(0, 5), st.sampled_from([8, 24, 61]))
def test_clean_loses_only_what_it_counts(lengths, seed, size):
    documents, ids, starts = _documents(lengths)
    config = PairConfig("clean", size, 0.3, seed)
    plan, counts = pairs.plan_examples(documents, config, starts)
    used = Counter()
    for a_start, a_end, b_start, b_end, label in plan:
        assert a_end > a_start and b_end > b_start
        assert a_end - a_start + b_end - b_start <= config.max_tokens
        assert (b_start < a_start) == (label == 1)
        used.update(range(a_start, a_end))
        used.update(range(b_start, b_end))
    assert max(used.values(), default=1) == 1
    lost = counts["tokens_truncated"] + counts["tokens_skipped"]
    assert len(used) + lost == len(ids)
    labels = [example.label for example in plan]
    assert abs(2 * sum(labels) - len(labels)) <= 1


@pytest.mark.parametrize("policy", ["clean", "original"])
def test_documents_of_equal_lengths_are_divided_in_ways_of_their_own(policy):
    documents, _, starts = _documents([[9] * 99] * 2)
    plan, _ = pairs.plan_examples(documents, PairConfig(policy, 61, 0.9), starts)
    sizes = [{e.a_end - e.a_start, e.b_end - e.b_start} for e in plan]
    second = [e.a_start >= documents[1].borders[0] for e in plan].index(True)
    assert sizes[:second] != sizes[second:]


@hypothesis.given(
    DOCUMENTS, st.sampled_from(["original", "nsp"]), st.sampled_from([8, 24, 61])
)
def test_pairs_of_the_other_policies_fit(lengths, policy, size):
    documents, _, starts = _documents(lengths)
    config = PairConfig(policy, size, 0.3, 1)
    plan, _ = pairs.plan_examples(documents, config, starts)
    for a_start, a_end, b_start, b_end, _ in plan:
        assert a_end > a_start and b_end > b_start
        assert a_end - a_start + b_end - b_start <= config.max_tokens


@hypothesis.given(
    DOCUMENTS,
    st.sampled_from(["none", "full_sentences", "doc_sentences", "doc"]),
    st.sampled_from([8, 24, 61]),
)
def test_one_segment_loses_nothing_but_separators(lengths, policy, size):
    documents, ids, starts = _documents(lengths, policy)
    config = PairConfig(policy, size, 0.3, 1)
    plan, counts = pairs.plan_examples(documents, config, starts)
    found = []
    for a_start, a_end, b_start, b_end, label in plan:
        assert label == 0 and b_start == b_end
        assert 0 < a_end - a_start <= config.max_tokens
        text = ids[a_start:a_end].tolist()
        if policy == "none":
            assert text[0] != -1 and text[-1] != -1
        if not config.rules.crosses:
            assert any(
                d.borders[0] <= a_start and a_end <= d.borders[-1] for d in documents
            )
        found += text
    assert [i for i in found if i != -1] == [i for i in ids.tolist() if i != -1]
    assert not counts["tokens_truncated"]


def _fairseq_blocks(documents, size, crosses):
    """`TokenBlockDataset` of fairseq: break mode `complete`, or `complete_doc`.

    A document is a list of sentences, each with its </s> (-1), and a line that is only
    </s> ends it. Rows are `<s>` and a block of at most size - 1 tokens.
    """
    lines = [line for document in documents for line in (*document, [-1])]
    found, block = [], []
    for line in lines:
        is_end = not crosses and line == [-1]
        if block and (is_end or len(block) + len(line) > size - 1):
            found.append(block)
            block = []
        if not is_end:
            block = block + line
    # What is only </s> teaches nothing.
    return [block for block in [*found, block] if set(block) - {-1}]


@hypothesis.given(
    st.lists(
        st.lists(st.integers(1, 22), min_size=1, max_size=12), min_size=1, max_size=8
    ),
    st.sampled_from(["full_sentences", "doc_sentences"]),
    st.sampled_from([24, 61]),
)
def test_rows_are_those_of_roberta(lengths, policy, size):
    documents, ids, starts = _documents(lengths, policy)
    plan, _ = pairs.plan_examples(documents, PairConfig(policy, size), starts)
    found = [[*ids[e.a_start : e.a_end].tolist(), -1] for e in plan]
    numbers = iter(range(10_000))
    texts = [
        [[*itertools.islice(numbers, n), -1] for n in document] for document in lengths
    ]
    assert found == _fairseq_blocks(texts, size, policy == "full_sentences")


def _electra_segments(sentences, size, short, rng):
    """`ExampleBuilder` of google-research/electra on one document.

    But B is everything after its first sentence; there, a later sentence that is short
    enough goes to A.
    """
    current, examples = [], []

    def draw_target():
        return rng.integer(5, size) if rng.random() < short else size

    target = draw_target()
    for number, sentence in enumerate(sentences, 1):
        current.append(sentence)
        if sum(map(len, current)) < target and number < len(sentences):
            continue
        first_target = 100_000 if rng.random() < 0.1 else (target - 3) // 2
        first, second = [], []
        for part in current:
            if not first or (
                not second
                and (
                    len(first) + len(part) < first_target
                    or (len(first) < first_target and rng.random() < 0.5)
                )
            ):
                first = first + part
            else:
                second = second + part
        first = first[: size - 2]
        second = second[: max(0, size - len(first) - 3)]
        examples.append((first, second))
        current = []
        if number < len(sentences):
            target = draw_target()
    return examples


@hypothesis.given(DOCUMENTS, st.integers(0, 5), st.sampled_from([73, 90]))
def test_segments_are_those_of_electra(lengths, seed, size):
    documents, ids, starts = _documents(lengths)
    config = PairConfig("segments", size, 0.3, seed)
    plan, counts = pairs.plan_examples(documents, config, starts)
    found, used = [], 0
    for a_start, a_end, b_start, b_end, label in plan:
        assert label == 0
        found.append((ids[a_start:a_end].tolist(), ids[b_start:b_end].tolist()))
        used += a_end - a_start + b_end - b_start
    expected = []
    for key, borders, _ in documents:
        rng = pairs.KeyedRandom(seed, keyed_random.DOCUMENT, 0, *key)
        text = [list(range(*ends)) for ends in itertools.pairwise(borders)]
        expected += _electra_segments(text, size, 0.3, rng)
    assert found == expected
    assert used + counts["tokens_truncated"] == len(ids)


def test_lengths_are_shortened_as_often_as_in_the_original():
    shares = {name: PairConfig(name).short_seq_prob for name in pairs.POLICIES}
    zero = dict.fromkeys(("full_sentences", "doc_sentences", "doc"), 0)
    tenth = dict.fromkeys(("clean", "original", "nsp", "none"), 0.1)
    assert shares == {**tenth, **zero, "segments": 0.05}
    documents, _, starts = _documents([[7] * 9000])
    plan, _ = pairs.plan_examples(documents, PairConfig("segments", 128), starts)
    single = np.mean([e.b_end == e.b_start for e in plan])
    # A tenth, and the shortest of the 5% short ones, which hold one sentence.
    assert abs(single - 0.1) < 3 * np.sqrt(0.09 / len(plan))


def test_documents_do_not_depend_on_their_neighbours():
    lengths = [[11, 12, 9, 30, 4, 22], [8, 8, 30, 21], [33, 5, 12, 17, 9]]
    config = PairConfig("clean", 40, 0.5, 7)
    documents, _, starts = _documents(lengths)
    together, _ = pairs.plan_examples(documents, config, starts)
    alone, _ = pairs.plan_examples(documents[:2], config, starts)
    borders = [sorted(example[:4]) for example in together]
    assert borders[: len(alone)] == [sorted(example[:4]) for example in alone]


def test_short_sequences_are_a_tenth():
    documents, _, starts = _documents([[5] * 60_000])
    config = PairConfig("clean", 128, 0.1, 3)
    plan, _ = pairs.plan_examples(documents, config, starts)
    sizes = np.array([e.a_end - e.a_start + e.b_end - e.b_start for e in plan])
    # A short target still reaches the full length by its last sentence 4 in 123 times.
    short = np.mean(sizes < config.max_tokens)
    assert abs(short - 0.1 * (1 - 5 / 124)) < 3 * np.sqrt(0.09 / len(sizes))


def test_truncation_takes_from_the_longer_side_and_from_both_ends():
    counts = Counter()
    config = PairConfig("clean", 13)
    fronts = []
    for seed in range(400):
        rng = pairs.KeyedRandom(seed)
        cut = pairs._truncate(0, 15, 20, 26, 0, config, rng, counts)
        assert (cut.a_end - cut.a_start, cut.b_end - cut.b_start) == (5, 5)
        fronts.append(cut.a_start)
    # 10 tokens leave A; from the front Binomial(10, 1/2).
    assert abs(np.mean(fronts) - 5) < 4 * np.sqrt(2.5 / 400)
    assert abs(np.var(fronts) - 2.5) < 0.8
    assert counts["tokens_truncated"] == 400 * 11


def test_original_has_the_statistics_of_the_originals_file(tokenizer):
    stats = json.loads((GOLDEN / "tf1_data/seq128_pred20.stats.json").read_text())
    documents = list(corpus.Corpus(str(TEXT)).documents())
    rows = []
    for seed in range(25):
        made = blocks.process_block(
            documents,
            blocks.RecordConfig(
                pairs=PairConfig("original", 128, 0.1, seed),
                dupe_factor=2,
                sample_masks=False,
            ),
            tokenizer,
        )["train"]
        number, sizes, counts = made.lengths.sum(), np.arange(129), made.counts
        mean = made.lengths @ sizes / number
        deviation = np.sqrt(made.lengths @ sizes**2 / number - mean**2)
        names = ("labels_1", "random_documents", "examples_truncated")
        shares = [made.lengths[128], *(counts[name] for name in names)]
        rows.append([number, mean, deviation, *(np.array(shares) / number)])
    rows = np.array(rows)
    expected = [
        stats["num_instances"],
        stats["mean_length"],
        stats["std_length"],
        stats["fraction_full_length"],
        stats["sop_label_1_fraction"],
        stats["fraction_single_segment_chunks_forced_random_next"],
        stats["fraction_truncated"],
    ]
    # The file is one draw; 25 seeds show how far such a draw lies from the mean.
    distance = (expected - rows.mean(axis=0)) / rows.std(axis=0)
    assert np.abs(distance).max() < 2.5, distance
    assert rows[:, 4].mean() > 0.54  # the contamination
