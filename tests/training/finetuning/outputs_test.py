"""What a finished run leaves, for tasks whose examples are several rows."""

import json

from tests.reports.parsed_page import ParsedPage
from tests.training.finetuning.runs import run

CHOICES = ["a good day", "a bad day", "a long day"]


def test_the_share_of_cut_examples_is_that_of_examples(pretrained, tmp_path):
    rows = [
        {"context": "the film was long " * (9 if i % 2 else 1), "choices": CHOICES}
        for i in range(12)
    ]
    lines = [json.dumps({**row, "label": i % 3}) for i, row in enumerate(rows)]
    (tmp_path / "train.jsonl").write_text("\n".join(lines) + "\n")
    results = run(
        tmp_path / "out",
        train_file=str(tmp_path / "train.jsonl"),
        init_checkpoint=pretrained,
        max_seq_length=16,
        train_batch_size=4,
        num_train_steps=1,
    )
    assert (results["train_examples"], results["train_truncated"]) == (12, 6)
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    lengths = report["lengths"]["train"]
    assert (lengths["examples"], lengths["truncated"]) == (12, 6)
    assert len(lengths["values"]) == 36 and max(lengths["values"]) == 16
    page = ParsedPage((tmp_path / "out" / "report.html").read_bytes())
    assert "longest row" in page.text
    assert "50.00%" in page.text and "16.67%" not in page.text
