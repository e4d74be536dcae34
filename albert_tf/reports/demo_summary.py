"""The summary that the demo leaves: results of its steps next to constant answers."""

import json
from collections.abc import Mapping
from typing import Any

from albert_tf.reports.metrics_file import METRICS_FILE, read_metrics
from albert_tf.storage import files


def summarize(output_dir: str, text: str, answer: str) -> str:
    """Returns the summary of a demo as Markdown.

    Args:
        output_dir: str. Folder of the demo; results of its steps are read from there.
        text: str. Text sent to the SavedModel.
        answer: str. Answer of the SavedModel.
    """
    sections = (
        ["# Demo", ""],
        _pretraining(read_metrics(files.join(output_dir, "pretrain", METRICS_FILE))),
        _classification(output_dir),
        _predictions(files.read_text(files.join(output_dir, "fill_mask.jsonl"))),
        [
            f"SavedModel on `{text}`:",
            f"  {answer.strip()}",
            "",
            "See also `report.html`, `data/dataset.md`, `pretrain/README.md`, "
            "`classifier/`, `saved_model/`.",
            "",
        ],
    )
    return "\n".join("\n".join(section) for section in sections)


def _pretraining(metrics: list[dict[str, Any]]) -> list[str]:
    last = [line for line in metrics if line["split"] == "eval"][-1]
    rows = ["| held out | pretrained model | best constant answer |", "|---|---|---|"]
    for name, baseline in last.items():
        if name.endswith("_baseline"):
            name = name.removesuffix("_baseline")
            accuracy = last[f"{name}_accuracy"]
            rows.append(
                f"| {name.upper()} accuracy | {accuracy:.3f} | {baseline:.3f} |"
            )
    return [*rows, ""]


def _classification(output_dir: str) -> list[str]:
    def accuracy(folder: str) -> float:
        path = files.join(output_dir, folder, "metrics.json")
        values: Mapping[str, float] = json.loads(files.read_text(path))
        return values["dev_accuracy"]

    return [
        "| which package is a docstring from? | accuracy |",
        "|---|---|",
        f"| fine-tuned from the pretrained weights | {accuracy('classifier'):.3f} |",
        "| the same steps from random weights | "
        f"{accuracy('classifier_from_scratch'):.3f} |",
        "",
    ]


def _predictions(lines: str) -> list[str]:
    """Returns one item per JSON line printed by `fill_mask`."""
    items = []
    for line in lines.splitlines():
        item = json.loads(line)
        top = [f"{row['token_str']} ({row['score']:.2f})" for row in item["result"]]
        items += [f"* `{item['text']}`", f"  {', '.join(top)}"]
    return [*items, ""]
