"""The summary that the demo leaves: what was learned, compared with trivial answers."""

import json
from collections.abc import Mapping

from albert_tf.storage import files


def summarize(
    output_dir: str,
    predictions: str,
    accuracies: Mapping[str, float],
    text: str,
    answer: str,
) -> str:
    """Returns the summary of a demo as Markdown.

    Args:
        output_dir: str. Folder of the demo; its `pretrain/metrics.jsonl` is read.
        predictions: str. JSON lines printed by `fill_mask`.
        accuracies: dict. Accuracy of `"classifier"` and `"classifier_from_scratch"`.
        text: str. Text sent to the SavedModel.
        answer: str. What the SavedModel answered.
    """
    metrics = files.read_text(files.join(output_dir, "pretrain/metrics.jsonl"))
    lines = map(json.loads, metrics.splitlines())
    last = [line for line in lines if line["split"] == "eval"][-1]
    page = [
        "# Demo",
        "",
        "| held out | pretrained model | best constant answer |",
        "|---|---|---|",
        f"| MLM accuracy | {last['mlm_accuracy']:.3f} | {last['mlm_baseline']:.3f} |",
        f"| SOP accuracy | {last['sop_accuracy']:.3f} | {last['sop_baseline']:.3f} |",
        "",
        "| which package is a docstring from? | accuracy |",
        "|---|---|",
        f"| fine-tuned from the pretrained weights | {accuracies['classifier']:.3f} |",
        "| the same steps from random weights | "
        f"{accuracies['classifier_from_scratch']:.3f} |",
        "",
    ]
    for line in predictions.splitlines():
        item = json.loads(line)
        top = [f"{row['token_str']} ({row['score']:.2f})" for row in item["result"]]
        page += [f"* `{item['text']}`", f"  {', '.join(top)}"]
    page += [
        "",
        f"SavedModel on `{text}`:",
        f"  {answer.strip()}",
        "",
        "Look at `pretrain/curves.png`, `data/dataset.md`, `pretrain/README.md`, "
        "`classifier/`, `saved_model/`.",
        "",
    ]
    return "\n".join(page)
