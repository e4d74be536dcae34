"""Blocks of documents to serialized records, as the settings say."""

import hashlib

import numpy as np
import pytest

from albert_tf.data.corpus.corpus import Corpus
from albert_tf.data.corpus.documents import RawDocument
from albert_tf.data.masking.config import MaskingConfig
from albert_tf.data.prepare import blocks
from albert_tf.data.prepare.blocks import RecordConfig
from albert_tf.data.prepare.create_settings import CreateSettings
from albert_tf.data.prepare.pairs import PairConfig
from albert_tf.errors import UsageError
from tests.data.synthetic_records import parse
from tests.tiny import TEXT

INPUT = str(TEXT)
S, P = 96, 15


def _config(policy="clean", **settings):
    return RecordConfig(
        pairs=PairConfig(policy, S, 0.1, 5),
        mask=MaskingConfig(max_predictions_per_seq=P),
        **settings,
    )


def _records(config, tokenizer):
    made = blocks.process_block(list(Corpus(INPUT).documents()), config, tokenizer)
    return {split: [parse(p) for p in r.payloads] for split, r in made.items()}


def _flat_text(tokenizer):
    text = [tokenizer.encode(s) for d in Corpus(INPUT).documents() for s in d.texts]
    return np.concatenate(text)


def test_dynamic_records_hold_pairs_of_the_text(tokenizer):
    flat = _flat_text(tokenizer).astype(np.int64).tobytes()
    table = tokenizer.word_start_table()
    found = _records(_config(), tokenizer)["train"]
    assert len(found) > 60
    names = {"input_ids", "segment_ids", "token_boundary", "next_sentence_labels"}
    labels = []
    for record in found:
        ids, segments = record["input_ids"], record["segment_ids"]
        assert set(record) == names
        assert ids[0] == tokenizer.cls_id and len(ids) <= S
        ends = np.flatnonzero(ids == tokenizer.sep_id)
        assert len(ends) == 2 and ends[1] == len(ids) - 1
        np.testing.assert_array_equal(segments, np.arange(len(ids)) > ends[0])
        np.testing.assert_array_equal(record["token_boundary"], table[ids])
        parts = [ids[1 : ends[0]].tobytes(), ids[ends[0] + 1 : -1].tobytes()]
        assert all(part and part in flat for part in parts)
        labels += record["next_sentence_labels"].tolist()
        # The label tells the order.
        assert (flat.index(parts[1]) < flat.index(parts[0])) == labels[-1]
    assert abs(2 * sum(labels) - len(labels)) <= 1


def test_roberta_has_a_separator_after_each_sentence(tokenizer):
    documents = [RawDocument(0, k, ["One two.", "Three."], True) for k in range(2)]
    made = blocks.process_block(documents, _config("full_sentences"), tokenizer)
    (record,) = (parse(payload) for payload in made["train"].payloads)
    assert "next_sentence_labels" not in record
    sep = tokenizer.sep_id
    one, two = (tokenizer.encode(text) for text in documents[0].texts)
    document = [*one, sep, *two, sep, sep]
    expected = [tokenizer.cls_id, *document, *document]
    np.testing.assert_array_equal(record["input_ids"], expected)


# The first digits of the sha256 of the records of each policy of earlier versions.
_EARLIER = {
    "clean": ("0f85fe5e8aaca205", "6ec5d23e7f110e4b"),
    "original": ("93c728feb7716176", "7f36b3878c6a8128"),
    "nsp": ("009f375d9ebebd90", "c091b010783fb611"),
    "none": ("2682a302390c1a16", "2fafd6b118b864e0"),
}


@pytest.mark.parametrize("policy", _EARLIER)
def test_records_are_the_bytes_of_earlier_versions(tokenizer, policy):
    for masking, expected in zip(("dynamic", "static"), _EARLIER[policy], strict=True):
        config = _config(policy, masking=masking, dupe_factor=2, eval_fraction=0.2)
        documents = list(Corpus(INPUT).documents())
        made = blocks.process_block(documents, config, tokenizer)["train"]
        assert hashlib.sha256(b"".join(made.payloads)).hexdigest().startswith(expected)


@pytest.mark.parametrize(
    ("policy", "pieces", "others", "eval_fraction"),
    [
        ("nsp", 4, 2, 0),  # a block of one book
        ("nsp", 1, 2, 0),
        ("original", 4, 2, 0),
        ("nsp", 8, 2, 0.3),  # of which pieces are held out
        ("nsp", 4, 0, 0),  # and nothing else
        ("original", 4, 0, 0),
    ],
)
def test_the_other_document_is_never_the_same(
    tokenizer, tmp_path, policy, pieces, others, eval_fraction
):
    words = ["software", "license", "network"]
    for word in words[: others + 1]:
        line = " ".join([word] * (100 if policy == "original" else 20)) + ".\n"
        (tmp_path / f"{words.index(word)}.txt").write_text(line * 200)
    corpus = Corpus(f"{tmp_path}/*.txt", "lines")
    (book,) = corpus.documents([0])
    block = [book._replace(number=k, piece=k) for k in range(pieces)]
    config = _config(policy, eval_fraction=eval_fraction)
    made = blocks.process_block(block, config, tokenizer, corpus)
    assert len(made) == 1 + bool(eval_fraction)
    for records in made.values():
        labels = []
        for record in map(parse, records.payloads):
            ids, segments = record["input_ids"], record["segment_ids"]
            texts = [tokenizer.decode(ids[segments == k].tolist()) for k in range(2)]
            names = [{word for word in words if word in text} for text in texts]
            labels += record["next_sentence_labels"].tolist()
            assert (names[0] != names[1]) == labels[-1] and len(names[1]) == 1
        without = records.counts["pairs_without_another_document"]
        assert bool(without) == (others == 0) == (not any(labels))
        assert others or records.counts["tokens"] > 1000


def test_static_records_are_the_originals(tokenizer):
    sizes = dict.fromkeys(("input_ids", "input_mask", "segment_ids"), S)
    sizes |= {"token_boundary": S, "next_sentence_labels": 1}
    sizes |= {f"masked_lm_{name}": P for name in ("positions", "ids", "weights")}
    static = _records(_config(masking="static", dupe_factor=2), tokenizer)["train"]
    unmasked = set()
    for record in static:
        assert {name: len(values) for name, values in record.items()} == sizes
        used = record["masked_lm_weights"] > 0
        ids = record["input_ids"].copy()
        ids[record["masked_lm_positions"][used]] = record["masked_lm_ids"][used]
        length = record["input_mask"].sum()
        assert not record["input_mask"][length:].any() and not ids[length:].any()
        assert used.sum() == min(P, max(1, round(length * 0.15)))
        unmasked.add(tuple(ids[:length]))
    dynamic = _records(_config(dupe_factor=2), tokenizer)["train"]
    assert unmasked == {tuple(record["input_ids"]) for record in dynamic}


def test_the_split_is_by_document(tokenizer):
    found = _records(_config(eval_fraction=0.3), tokenizer)
    train, evaluation = (
        {tuple(r["input_ids"][1:12]) for r in found[split]}
        for split in ("train", "eval")
    )
    assert 10 < len(evaluation) < len(train)
    assert not train & evaluation
    config = _config(eval_fraction=0.01)
    documents = (RawDocument(0, k, [], True) for k in range(20_000))
    share = np.mean([config.split(d) == "eval" for d in documents])
    assert abs(share - 0.01) < 0.003


def test_empty_documents_are_counted(tokenizer):
    documents = [RawDocument(0, 0, [" \t"], False), RawDocument(0, 1, ["\u0301"], True)]
    made = blocks.process_block(documents, _config(), tokenizer)["train"]
    assert not made.payloads
    assert made.counts["documents_without_tokens"] == 2


def test_blocks_hold_whole_documents(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_CHARS", 3000)
    documents = list(Corpus(INPUT).documents())
    made = list(blocks.make_blocks(documents))
    assert len(made) > 8
    assert [d for block in made for d in block] == documents


def probabilities(**changes):
    settings = CreateSettings("in.txt", "out", "spiece.model", **changes)
    return settings.record_config().mask.ngram_probabilities()


def test_lengths_of_ngrams_are_those_of_the_original():
    np.testing.assert_allclose(probabilities() * 11, [6, 3, 2])
    for policy in ("original", "clean"):
        reversed_ = probabilities(favor_shorter_ngram=False, pair_policy=policy)
        np.testing.assert_allclose(reversed_ * 11, [2, 3, 6])
    named = probabilities(ngram_distribution="uniform")
    np.testing.assert_allclose(named * 3, [1, 1, 1])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"favor_shorter_ngram": False, "ngram_distribution": "uniform"},
            "is the same as --ngram_distribution=rev",
        ),
        ({"max_seq_length": 5}, "max_seq_length: must be from 8 to 65536"),
        ({"pair_policy": "sop"}, "--pair_policy must be one of clean, original"),
        ({"eval_fraction": 1}, r"--eval_fraction must be in \[0, 1\), received 1"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        probabilities(**settings)
