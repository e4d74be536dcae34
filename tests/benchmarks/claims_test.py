"""The studies of the paper's claims: what they compute, and small ones to their end."""

import re

import numpy as np
import pytest

from albert_tf.errors import UsageError
from albert_tf.storage import files
from benchmarks import claims, held_out, objectives, pairs, sharing, topics
from benchmarks.objectives_jobs import Training
from tests.benchmarks.objectives_test import in_process, write_tables
from tests.tiny import SPIECE, TEXT


def test_amounts_are_means_and_scores_have_intervals():
    assert claims.cell("tokens", [1000.0, 3000.0]) == "2,000"
    assert claims.cell("CPU seconds", [None, 12.0]) == "12"
    assert claims.cell("CPU seconds", [None]) == "-"
    assert str(claims.cell("MLM", [0.6, 0.7, 0.8])) == "0.700 ± 0.248"


def test_gaps_are_training_less_dev():
    curves = [
        {"sharing": "all", "labels": 40, "dev": 0.6, "train": 1.0},
        {"sharing": "none", "labels": 40, "dev": 0.5, "train": 1.0},
    ]
    assert sharing._values(curves, "all", 40, "gap") == [pytest.approx(0.4)]
    assert sharing._values(curves, "none", 40, "dev") == [0.5]


@pytest.mark.parametrize("topic", ["pairs", "sharing"])
def test_a_study_needs_a_folder(topic):
    with pytest.raises(UsageError, match=f"--work_dir: required for benchmark {topic}"):
        topics.measure(topic, {"work_dir": ""})


@pytest.mark.broad
def test_a_small_study_of_pairs(tmp_path, monkeypatch):
    in_process(monkeypatch, objectives, pairs)
    study = pairs.make_study(str(tmp_path), str(TEXT), str(SPIECE), "small")
    report = pairs.run(study)
    assert report.picture[:8] == b"\x89PNG\r\n\x1a\n"
    for name in pairs.LEARNED.values():
        assert len(re.findall(rf"^\| {name} \|", report.text, re.M)) == 1
    scores = report.series["scores"]
    assert [one["learned"] for one in scores] == list(pairs.LEARNED.values())
    none = scores[-1]
    assert none["tokens"] > 0 and 0 <= none["MLM"] <= 1
    # A head that was not trained is asked, too, and what a fit finds is another.
    assert all(0 <= none[f"{kind} records, own head"] <= 1 for kind in ("NSP", "SOP"))
    # What is there is not computed again, as after a kill.
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "scores").iterdir()}
    assert pairs.run(study).series == report.series
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_one_answer_to_all_scores_a_half(tmp_path, monkeypatch):
    labels = np.array([1, 1, 1, 0])
    outputs = {
        **{"hits": 3.0, "masked": 4.0, "labels": labels},
        **{"logits": np.tile([0.0, 1.0], (4, 1)), "vectors": np.eye(4)},
    }
    monkeypatch.setattr(held_out, "_outputs", lambda *unused: outputs)
    monkeypatch.setattr("albert_tf.converters.load.from_pretrained", lambda *a, **k: a)
    study = pairs.make_study(str(tmp_path), "", "", "small")
    found = held_out.held_out_score(study, "a", "bert", fitted=False)
    assert found == {"mlm": 0.75, "pairs": 0.5}


@pytest.mark.broad
def test_a_small_study_of_sharing(tmp_path):
    write_tables(tmp_path)
    folder = tmp_path / "study"
    study = sharing.make_study(
        str(folder), str(TEXT), str(SPIECE), "small", {"sst2": str(tmp_path)}
    )
    report = sharing.run(study, "small")
    assert report.picture[:8] == b"\x89PNG\r\n\x1a\n"
    found = [(one["sharing"], one["labels"]) for one in report.series["curves"]]
    assert found == [
        ("all", 16),
        ("none", 16),
        *((name, 40) for name in sharing.SHARINGS),
    ]
    assert all(0 <= one["train"] <= 1 for one in report.series["curves"])
    assert [one["sharing"] for one in report.series["quality"]] == [*sharing.SHARINGS]
    assert not list((folder / "labels").iterdir())
    score, *_ = (folder / "scores").glob("*-sst2-40.json")
    assert set(files.read_json(str(score))) == {"dev", "train"}


def test_runs_without_pairs_learn_masked_words_alone(tmp_path):
    from benchmarks.objectives_jobs import _pretraining

    study = pairs.make_study(str(tmp_path), "", "", "full")
    alone = _pretraining(study, Training("all", "none", 1), 2000)
    order = _pretraining(study, Training("all", "albert", 1), 2000)
    assert alone.objective == order.objective == "albert"
    assert "/none/" in alone.input_file and "/clean/" in order.input_file
    assert alone.masked_lm_prob == 0.3
