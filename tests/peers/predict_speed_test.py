"""The benchmark of predict and embed, on a model so small that it says nothing."""

import pytest

from albert_tf.config import AlbertConfig
from benchmarks import predict_speed
from tests import tiny


@pytest.mark.peers
def test_measures_both_with_the_same_answers(monkeypatch):
    monkeypatch.setattr(AlbertConfig, "from_preset", lambda name: tiny.CONFIG)
    settings = predict_speed.Settings(
        input_file=str(tiny.TEXT),
        spm_model_file=str(tiny.SPIECE),
        max_seq_length=24,
        num_texts=3,
        rounds=2,
    )
    report = predict_speed.run(settings)
    rows = {row.name: row for row in report.rows}
    for title in ("predict", "embed"):
        ours = rows[f"{title}: albert_tf"]
        theirs = rows[f"{title}: transformers, batches of 32"]
        speedup = rows[f"{title}: speed-up"]
        assert speedup.value == pytest.approx(ours.value / theirs.value)
        assert ours.details["largest difference"] < 1e-4
        assert len(report.series[f"{ours.name}: seconds"]) == 2
