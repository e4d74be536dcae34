"""Writes folders as runs leave them, without training."""

import json
import math
import pathlib
from typing import Any

SETTINGS = {
    "input_file": "data/docs",
    "output_dir": "runs/a",
    "num_train_steps": 40,
    "learning_rate": 0.001,
    "optimizer": "lamb",
    "eval_file": "",
}
CONFIG = {"hidden_size": 12, "num_hidden_layers": 2}


def lines(steps: int = 20, every: int = 2, **changes: Any) -> list[dict[str, Any]]:
    """Returns lines of training, and evaluations at each fifth of them."""
    found: list[dict[str, Any]] = []
    for number, step in enumerate(range(every, steps + 1, every), 1):
        found.append(
            {
                "split": "train",
                "step": step,
                "loss": 8.0 / number,
                "mlm_loss": 7.0 / number,
                "mlm_accuracy": 0.01 * number,
                "grad_norm": 1.0,
                "tokens_per_second": 500.0,
                "tokens": 1000.0,
                "useful_token_rate": 0.75,
                "trust_ratios": {"a/kernel": 0.5 * number, "b/kernel": 2.0},
                "learning_rate": 0.001,
                **changes,
            }
        )
        if number % 5 == 0:
            values = {"loss": 8.5 / number, "mlm_accuracy": 0.02, "mlm_baseline": 0.01}
            found.append({"split": "eval", "step": step, **values})
    return found


def rollback(at: int, back: int, batch: int, **changes: Any) -> dict[str, Any]:
    """Returns the line of a log about a batch that was left out."""
    entry = {"batch": batch, "phase": 0, "diverged_at": at, "restored_step": back}
    values = {"loss": 57.25, "grad_norm": None}
    return {"split": "skipped", "step": back, **entry, **values, **changes}


def write_run(
    folder: pathlib.Path,
    found: list[Any] | None = None,
    kind: str = "",
    finished: bool = False,
    **settings: Any,
) -> str:
    """Writes a run and returns its folder.

    Args:
        folder: pathlib.Path. Made if it does not exist.
        found: list. Lines of the log; default: `lines()`.
        kind: str. Kind on record; empty for pretraining.
        finished: bool. Whether the folder of a fine-tuning run is finished.
        **settings: Settings that differ from `SETTINGS`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    record = {
        **({"kind": kind} if kind else {}),
        "settings": SETTINGS | settings,
        "content": {"config": CONFIG},
        "versions": {"python": "3.11"},
        **({"finished": True} if finished else {}),
    }
    (folder / "run.json").write_text(json.dumps(record))
    text = "".join(json.dumps(line) + "\n" for line in (found or lines()))
    (folder / "metrics.jsonl").write_text(text)
    return str(folder)


def hostile_run(folder: pathlib.Path, text: str) -> str:
    """Writes a run with the text wherever a run may hold one; returns its folder."""
    found = lines(4)
    found[0] |= {text: 1.0, "trust_ratios": {text: 2.0}, "loss": math.nan}
    found[1] |= {"split": text}
    name = text.replace("/", "∕")[:60]
    path = write_run(folder / name, found, "finetune", True, **{text: text})
    runs = [{"name": text, "seed": 1, "value": text}]
    trials = {"metric": text, "best": text, "runs": runs}
    (folder / name / "metrics.json").write_text(json.dumps({"trials": trials}))
    answers = {"labels": [text, "b"], "confusion": [[1, 2], [0, 1]]}
    answers |= {"per_class": [{text: text, "n": 1}], "groups": [{text: 1}]}
    answers["errors"] = [{"index": text, "text": text * 50, "label": text}]
    lengths = {"values": [1], "max_seq_length": 2, "examples": 1, "truncated": 0}
    report = {"metric": text, "best_step": 1, "warnings": [text]}
    report |= {"results": {text: {text: 1}, "b": text}, "splits": {text: answers}}
    report["lengths"] = {text: lengths}
    (folder / name / "report.json").write_text(json.dumps(report))
    return path
