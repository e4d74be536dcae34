"""The benchmark of a pretraining step, on a model so small that it says nothing."""

import pytest

from albert_tf.config import AlbertConfig
from benchmarks import step_speed
from benchmarks.cases import EAGER, GRADIENT, OUTPUT, STEP, Case
from benchmarks.rows import random_batch
from tests import tiny


@pytest.mark.broad
@pytest.mark.peers
def test_measures_both(monkeypatch):
    config = tiny.CONFIG.replace(vocab_size=64, num_hidden_layers=1)
    monkeypatch.setattr(AlbertConfig, "from_preset", lambda name: config)
    settings = step_speed.Settings(shapes=((2, 12),), steps=2, precision="float32")
    rows = {row.name: row for row in step_speed.run(settings).rows}
    ours = rows["2 x 12: albert_tf"]
    theirs = rows["2 x 12: transformers, torch.compile"]
    assert len(ours.details["seconds"]) == len(theirs.details["seconds"]) == 2
    speedup = rows["2 x 12: speed-up"]
    assert speedup.value == pytest.approx(theirs.value / ours.value)
    assert speedup.target == "at least 1.2"
    assert any("MatMul" in name for name in rows)


@pytest.mark.peers
def test_transformers_computes_what_a_case_says():
    from benchmarks import engine_transformers

    given = tiny.CONFIG, random_batch(tiny.CONFIG, 2, 12)
    options = {"precision": "float32", "attention": EAGER, "compiled": False}
    works = (STEP, GRADIENT, OUTPUT)
    cases = {work: Case(*given, work, **options) for work in works}
    prepared = engine_transformers.prepare({"bad": Case(tiny.CONFIG, {}), **cases})
    for work in works:
        prepared[work].run(2)
        assert prepared[work].facts["first"] > 0
    assert "KeyError" in prepared["bad"].facts["failed"]
