"""The README of a trained model: what it is, from what, how good."""

from collections.abc import Sequence
from typing import Any

from albert_tf.config import AlbertConfig
from albert_tf.reports.environment import describe_environment


def describe(
    settings: Any,
    config: AlbertConfig,
    metrics: Sequence[dict[str, Any]],
    tokenizer,
) -> str:
    """Markdown text; every number in it was measured in the run.

    Args:
        settings: Of the run.
        config: Of the model.
        metrics: Lines of `metrics.jsonl`.
        tokenizer: With `sha256`.
    """
    train = [m for m in metrics if m["split"] == "train"]
    held_out = [m for m in metrics if m["split"] == "eval"]
    rows = "packed rows" if settings.packing else "examples"
    lines = [
        "# Model card",
        "",
        f"ALBERT encoder, {config.num_parameters():,} parameters, sharing "
        f"`{config.sharing}`: {config.num_hidden_layers} layers of "
        f"{config.hidden_size}, embeddings of {config.embedding_size}, vocabulary of "
        f"{config.vocab_size:,}.",
        "",
        "## Training",
        "",
        f"{settings.num_train_steps:,} steps of {settings.train_batch_size:,} {rows} "
        f"of at most {settings.max_seq_length} tokens; optimizer "
        f"`{settings.optimizer}`, learning rate {settings.learning_rate:g}; masking "
        f"`{settings.masking}`, seed {settings.seed}, precision "
        f"`{settings.precision}`.",
        "",
        f"Data: `{settings.input_file}`; tokenizer sha256 `{tokenizer.sha256}`.",
        "",
        "![curves](curves.png)",
        "",
        "## Results",
        "",
        "| data | loss | MLM accuracy | SOP accuracy |",
        "|---|---|---|---|",
    ]
    for name, rows in (("training, last steps", train), ("held out", held_out)):
        if rows:
            row = rows[-1]
            lines.append(
                f"| {name} | {row['loss']:.4f} | {row['mlm_accuracy']:.4f} | "
                f"{_number(row.get('sop_accuracy'))} |"
            )
    if held_out and "mlm_baseline" in held_out[-1]:
        row = held_out[-1]
        lines.append(
            f"| best constant answer, held out | | {row['mlm_baseline']:.4f} | "
            f"{_number(row.get('sop_baseline'))} |"
        )
    environment = describe_environment()
    versions = ", ".join(f"{k} {v}" for k, v in environment["versions"].items() if v)
    lines += ["", f"Made with {versions}; code {environment['git_revision']}.", ""]
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
