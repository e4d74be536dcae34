"""What an evaluation decides, in every worker of a run."""

import json

import pytest

from albert_tf.training import evaluation as watching
from tests.training.finetuning.runs import run


@pytest.mark.slow
def test_the_chief_decides(tables, pretrained, tmp_path, monkeypatch, caplog):
    seen = []

    def share(strategy, mine):
        seen.append(mine)
        if isinstance(mine, dict):
            return [{"loss": 0.5, "accuracy": 0.25}, mine]
        return [("one class", True) if len(seen) == 4 else ("", False), mine]

    monkeypatch.setattr(watching, "share", share)
    run(
        tmp_path / "run",
        **tables,
        init_checkpoint=pretrained,
        num_train_steps=4,
        eval_steps=1,
        early_stopping_patience=1,
    )
    lines = [json.loads(x) for x in (tmp_path / "run/metrics.jsonl").open()]
    assert [
        (line["step"], line["accuracy"], line.get("collapsed"))
        for line in lines
        if line["split"] == "eval"
    ] == [(1, 0.25, None), (2, 0.25, 1.0)]
    assert seen[0]["accuracy"] != 0.25
    assert "training collapsed at step 2: one class" in caplog.text
