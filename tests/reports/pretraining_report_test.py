"""The page of a pretraining run shows the numbers of its card and of its data."""

import dataclasses

import pytest

from albert_tf.config import AlbertConfig
from albert_tf.objectives.albert import ALBERT
from albert_tf.reports.pretraining_curves import draw_pretraining_curves
from albert_tf.reports.pretraining_report import PretrainingReport, make_report
from tests.reports.parsed_page import ParsedPage

METRICS = [
    {"split": "train", "step": 1000, "loss": 3.0, "mlm_loss": 2.5, "mlm_accuracy": 0.5},
    {"split": "eval", "step": 750, "loss": 4.0, "mlm_loss": 3.5, "mlm_accuracy": 0.125}
    | {"mlm_baseline": 0.0625},
]
CARD = {
    "format": 1,
    "form": "static",
    "max_seq_length": 8,
    "splits": {
        "train": {"examples": 1234, "documents": 9, "tokens": 99, "shards": [{}, {}]}
    },
    "corpus": {"documents": 17, "longest_document": {"source": "<script>.txt"}},
    "examples": {"count": 3, "length_histogram": [0, 0, 0, 1, 0, 2, 0, 0, 0]},
    "masks": {"from": "a sample", "ngrams_by_words": {"1": 5}},
    "tokenizer": {"sha256": "123abc"},
    "inputs": [{"name": "a.txt"}],
}
RUN = PretrainingReport(
    objective=ALBERT,
    title="Pretraining on <i>",
    created="today",
    config=AlbertConfig(),
    metrics=METRICS,
    warnings=["few steps"],
    data_card=CARD,
    settings={"learning_rate": 0.00176, "num_train_steps": 125000},
    environment={"versions": {"keras": "3.15"}},
)
SECTIONS = {
    "warnings": ["Warnings"],
    "metrics": ["Results", "Curves"],
    "config": ["Model"],
    "data_card": ["Data"],
    "settings": ["Settings"],
    "environment": ["Environment"],
}


def test_terms_that_some_evaluations_lack():
    """Held-out data may be replaced by other data, with pairs or without."""
    pairs = {"sop_loss": 0.5, "sop_accuracy": 0.75}
    lines = [METRICS[1] | {"step": i} | (pairs if i % 2 else {}) for i in range(4)]
    assert draw_pretraining_curves(lines, ALBERT.terms)
    assert b"eval SOP 0.5" in make_report(dataclasses.replace(RUN, metrics=lines))


def test_everything():
    page = make_report(RUN)
    assert page == make_report(RUN)
    parsed = ParsedPage(page)
    assert parsed.titles == sum(SECTIONS.values(), [])
    assert len(parsed.images) == 3
    assert not parsed.all("script") and not parsed.all("i")
    for text in (
        *("Pretraining on <i>", "objective albert", "today", "few steps"),
        *("training, up to step 1,000", "held out, step 750", "0.1250", "0.0625"),
        *("11,683,584", "1,234", "17", "<script>.txt", "a sample", "123abc"),
        *("0.00176", "125000", "versions keras"),
    ):
        assert text in parsed.text, text
    assert "of 3 examples" in parsed.all("img")[2]["alt"]
    assert "train MLM 2.5, eval MLM 3.5" in parsed.all("img")[0]["alt"]


def test_nothing():
    assert ParsedPage(make_report(PretrainingReport(objective=ALBERT))).titles == []


@pytest.mark.parametrize("name", SECTIONS)
def test_each_part_left_out(name):
    empty = getattr(PretrainingReport(objective=ALBERT), name)
    parsed = ParsedPage(make_report(dataclasses.replace(RUN, **{name: empty})))
    left = [titles for part, titles in SECTIONS.items() if part != name]
    assert parsed.titles == sum(left, [])


def test_data_card_of_few_words():
    card = {"form": "static", "examples": {"length_histogram": [0, 0]}}
    parsed = ParsedPage(
        make_report(PretrainingReport(objective=ALBERT, data_card=card))
    )
    assert parsed.titles == ["Data"] and not parsed.images
