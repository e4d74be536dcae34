"""The benchmark of serving, on a model so small that it says nothing."""

import pytest

from albert_tf.config import AlbertConfig
from benchmarks import serving_speed
from tests import tiny


@pytest.mark.broad
@pytest.mark.peers
def test_measures_all_with_the_same_answers(monkeypatch):
    config = tiny.CONFIG.replace(num_hidden_layers=1)
    monkeypatch.setattr(AlbertConfig, "from_preset", lambda name: config)
    settings = serving_speed.Settings(
        input_file=str(tiny.TEXT),
        spm_model_file=str(tiny.SPIECE),
        batch_sizes=(2,),
        num_tokens=12,
        max_seq_length=24,
        num_texts=3,
        steps=2,
        imitate=True,
    )
    report = serving_speed.run(settings)
    rows = {row.name: row for row in report.rows}
    title = "12 tokens, batch 2"
    for precision, aim, near in (("float32", 1.1, 1e-4), ("bfloat16", 1.3, 0.5)):
        ours = rows[f"{title}: albert_tf, {precision}"]
        theirs = rows[f"{title}: transformers, {precision}"]
        speedup = rows[f"{title}: speed-up, {precision}"]
        assert speedup.value == pytest.approx(theirs.value / ours.value)
        assert speedup.target == f"at least {aim}"
        for row in (ours, theirs):
            assert row.value <= 1.01 * row.details["p99"]
            assert row.details["largest difference of a logit"] < near
        assert len(report.series[f"{ours.name}: seconds"]) == 2
    title = "texts of mixed lengths, batch 2"
    ours = rows[f"{title}: albert_tf, float32"]
    theirs = rows[f"{title}: transformers, float32"]
    ratio = rows[f"{title}: speed-up, float32"].value
    assert ratio == pytest.approx(ours.value / theirs.value)
    for name in ("onnxruntime", "openvino"):
        measured = any(name in row for row in rows)
        assert measured != any(note.startswith(name) for note in report.notes)
