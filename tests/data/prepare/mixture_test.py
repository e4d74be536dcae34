"""Shares of sources: reached, the same everywhere, and on the card."""

import json
import re
from collections import Counter

import hypothesis
import pytest
from hypothesis import strategies as st

from albert_tf.data.corpus.corpus import Corpus
from albert_tf.data.prepare import blocks, create, mixture
from albert_tf.data.prepare.blocks import RecordConfig
from albert_tf.data.prepare.mixture import Group, Piece
from albert_tf.data.prepare.pairs import PairConfig
from albert_tf.data.records import card as cards
from albert_tf.data.records import tfrecord
from albert_tf.errors import DataError
from tests.data.synthetic_records import parse
from tests.tiny import TEXT

PROSE = TEXT.read_text()
# Of sources: parts, with the lengths of their records.
PART = st.lists(st.integers(3, 64), max_size=30)
PARTS = st.lists(
    st.lists(PART, min_size=1, max_size=6).filter(any), min_size=1, max_size=4
)


@hypothesis.given(PARTS, st.lists(st.integers(1, 9), min_size=4, max_size=4))
def test_shares_are_reached_within_an_example_and_everywhere_within_a_block(
    parts, weights
):
    lengths, groups = {}, {}
    for name, source in zip("abcd", parts, strict=False):
        groups[name] = Group(name)
        for k, part in enumerate(source):
            lengths[f"{name}{k}"] = part
            groups[name].pieces.append(Piece(f"{name}{k}", len(part), sum(part)))
    total = sum(map(sum, lengths.values()))
    shares = dict(zip(groups, weights, strict=False))
    shares = {name: w / sum(shares.values()) for name, w in shares.items()}
    quotas = {name: share * total for name, share in shares.items()}
    mixed, used = mixture._mix(groups, quotas, lengths.get, 5)
    again, _ = mixture._mix(groups, quotas, lengths.get, 5)
    assert mixed.pieces == again.pieces
    so_far, most = Counter(), max(map(sum, lengths.values()))
    for path, records, tokens in mixed.pieces:
        assert 0 < records <= len(lengths[path])
        assert tokens == sum(lengths[path][:records])
        so_far[path[0]] += tokens
        ahead = so_far[path[0]] - shares[path[0]] * so_far.total()
        assert ahead <= most + 64 * len(groups)
    for name, quota in quotas.items():
        assert used[name].tokens == so_far[name]
        assert abs(so_far[name] - quota) <= 32
        # Every record as often as the others, but for one pass.
        times = Counter()
        for path, records, _ in used[name].pieces:
            times.update((path, k) for k in range(records))
        pieces = groups[name].pieces
        counts = [times[path, k] for path, number, _ in pieces for k in range(number)]
        assert max(counts) - min(counts) <= 1


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """A source of two and one of four times the prose, in blocks of 15 kB."""
    monkeypatch.setattr(blocks, "BLOCK_CHARS", 15_000)
    for name, times in (("news", 2), ("web", 4)):
        text = PROSE.replace("the", f"the {name}") + "\n"
        (tmp_path / f"{name}.txt").write_text(text * times)
    return tmp_path


def _make(tokenizer, folder, inputs, **options):
    config = RecordConfig(PairConfig("clean", 64), eval_fraction=0.1)
    given = {"num_shards": 2, "num_processes": 1, "progress": False}
    corpus = Corpus(inputs, "lines", **options)
    return create.create_pretraining_data(
        corpus, str(folder / "o/t"), tokenizer, config, **given
    )


def _payloads(path):
    records = tfrecord.RecordSet(str(path))
    return records.read(range(len(records)))


def test_the_card_tells_the_sources_apart(tokenizer, sources):
    inputs = f"news={sources}/news.txt:0.6,web={sources}/web.txt:0.4"
    card = _make(tokenizer, sources, inputs)
    news, web = (card["sources"][name] for name in ("news", "web"))
    assert news["share_wanted"] == 0.6 and abs(news["share_reached"] - 0.6) < 1e-3
    assert web["documents"] == 2 * news["documents"]
    assert abs(web["tokens"] / news["tokens"] - 2) < 0.1
    # As many tokens as the text gives: 0.6 of 3 thirds are 1.8 of one.
    assert abs(news["passes"] - 1.8) < 0.1 and abs(web["passes"] - 0.6) < 0.05
    train = _payloads(sources / "o/t")
    examples = news["examples"] + web["examples"]
    assert len(train) == card["splits"]["train"]["examples"] == examples
    tokens = sum(len(parse(payload)["input_ids"]) for payload in train)
    assert tokens == card["splits"]["train"]["tokens"]
    assert tokens == news["example_tokens"] + web["example_tokens"]
    # Held out: each document once, and each file of one source.
    shards = cards.shards_of_sources(card)
    assert {*shards} == {"news", "web"}
    held_out = {}
    for name, paths in shards.items():
        (path,) = paths
        held_out[name] = set(_payloads(sources / "o" / path))
        assert card["sources"][name]["held_out_examples"] >= len(held_out[name]) > 0
    assert not held_out["news"] & held_out["web"]
    assert json.loads((sources / "o/dataset.json").read_text()) == card
    markdown = (sources / "o/dataset.md").read_text()
    assert "| 60.00% | 1." in markdown and "| wanted | passes |" in markdown
    summary = "\n".join(cards.summary_lines(card))
    line = (
        r"source news: (59\.9|60\.[01])% of the training tokens \(wanted 60\.0%\), 1\."
    )
    assert re.search(line, summary), summary


def test_a_temperature_evens_sizes(tokenizer, sources):
    inputs = f"news={sources}/news.txt,web={sources}/web.txt"
    card = _make(tokenizer, sources, inputs, source_temperature=2.0)
    news = card["sources"]["news"]
    assert abs(news["share_wanted"] - 1 / (1 + 2**0.5)) < 0.02
    assert abs(news["share_reached"] - news["share_wanted"]) < 1e-3
    assert card["settings"]["source_temperature"] == 2.0


def test_a_source_without_documents_is_named(tokenizer, sources):
    (sources / "none.txt").write_text("\n\n")
    for name in ("news", "web"):
        (sources / f"{name}.txt").write_text(PROSE[:9000])
    inputs = f"news={sources}/news.txt:0.6,web={sources}/none.txt:0.4"
    with pytest.raises(DataError, match="source 'web' gives no training example"):
        _make(tokenizer, sources, inputs)
    assert not list((sources / "o").iterdir())
    inputs = f"news={sources}/news.txt:0.9999999,web={sources}/web.txt:0.0000001"
    with pytest.raises(DataError, match="'web' is too small a share, 1e-07, to get"):
        _make(tokenizer, sources, inputs)
