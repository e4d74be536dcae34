"""The README of a pretrained model: what it is, how it was made, how good it is."""

from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.config import AlbertConfig
from albert_tf.objectives.objective import Objective
from albert_tf.reports.environment import describe_environment


def describe(
    settings: Any,
    config: AlbertConfig,
    objective: Objective,
    metrics: Sequence[Mapping[str, Any]],
    tokenizer,
    keeps_masks: bool = False,
    skipped: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Returns Markdown text in which every number was measured in the run.

    Args:
        settings: `PretrainSettings`. Settings of the run.
        config: `AlbertConfig`. Config of the model.
        objective: `Objective`. What was learned.
        metrics: Lines of `metrics.jsonl`.
        tokenizer: `Tokenizer`. Its `sha256` is named.
        keeps_masks: bool. Whether the records contain the masks, so that the run's
            masking settings had no effect.
        skipped: Entries of `skipped_batches.json`: batches that were left out.
    """
    sections = (
        _model(config),
        _training(settings, tokenizer, keeps_masks),
        _results(objective, metrics),
        _skipped(skipped),
        _environment(),
    )
    return "\n".join("\n".join(section) for section in sections)


def _model(config: AlbertConfig) -> list[str]:
    return [
        "# Model card",
        "",
        f"ALBERT encoder, {config.num_parameters():,} parameters, sharing "
        f"`{config.sharing}`: {config.num_hidden_layers} layers of "
        f"{config.hidden_size}, embeddings of {config.embedding_size}, vocabulary of "
        f"{config.vocab_size:,}.",
        "",
    ]


def _training(settings: Any, tokenizer, keeps_masks: bool) -> list[str]:
    rows = "packed rows" if settings.packing else "examples"
    masks = f"masking `{settings.masking}`"
    if keeps_masks:
        masks = "the masks stored in the records"
    return [
        "## Training",
        "",
        f"{settings.num_train_steps:,} steps of {settings.train_batch_size:,} {rows} "
        f"of at most {settings.max_seq_length} tokens{_lengths(settings)}; objective "
        f"`{settings.objective}`, optimizer `{settings.optimizer}`, "
        f"{settings.describe_learning_rate()}, schedule "
        f"`{settings.learning_rate_schedule}`; {masks}, seed {settings.seed}, "
        f"precision `{settings.precision}`.",
        "",
        f"Data: `{settings.input_file}`; tokenizer sha256 `{tokenizer.sha256}`.",
        "",
        *_averages(settings),
        "![curves](curves.png)",
        "",
    ]


def _lengths(settings: Any) -> str:
    schedule = settings.sequence_length_schedule
    return f" (length:steps:batch `{schedule}`)" if schedule else ""


def _averages(settings: Any) -> list[str]:
    if not settings.ema_decay:
        return []
    holds = {"last": "the last weights", "average": "the average"}
    return [
        f"An exponential moving average of the weights was kept, decay "
        f"{settings.ema_decay:g}; this model has {holds[settings.export_weights]}.",
        "",
    ]


def results_table(
    objective: Objective, metrics: Sequence[Mapping[str, Any]]
) -> tuple[list[str], list[tuple[str, list[float | None]]]]:
    """Returns the last results on training and on held-out data.

    Args:
        objective: `Objective`. What was learned.
        metrics: Lines of `metrics.jsonl`.

    Returns:
        names: list of str. Names of the columns.
        rows: list of (title, numbers). None where nothing was measured.
    """
    terms = [term.name for term in objective.terms]
    names = ["data", "loss", *(f"{term.title} accuracy" for term in objective.terms)]
    rows: list[tuple[str, list[float | None]]] = []
    for title, split in (
        ("training, up to", "train"),
        ("held out,", "eval"),
    ):
        measured = [line for line in metrics if line["split"] == split]
        if not measured:
            continue
        last = measured[-1]
        numbers = [last["loss"], *(last.get(f"{name}_accuracy") for name in terms)]
        rows.append((f"{title} step {last['step']:,}", numbers))
        if "ema_loss" in last:
            numbers = [last.get(f"ema_{name}_accuracy") for name in terms]
            title = f"{title} averaged weights, step {last['step']:,}"
            rows.append((title, [last["ema_loss"], *numbers]))
        baselines = [last.get(f"{name}_baseline") for name in terms]
        if any(value is not None for value in baselines):
            rows.append(("best constant answer, held out", [None, *baselines]))
    return names, rows


def _results(objective: Objective, metrics: Sequence[Mapping[str, Any]]) -> list[str]:
    names, rows = results_table(objective, metrics)
    lines = ["## Results", "", f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    return [*lines, *(_row(title, numbers) for title, numbers in rows), ""]


def _skipped(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    if not entries:
        return []
    phases = any(entry["phase"] for entry in entries)
    rows = [
        f"| {x['batch']:,} | "
        + (f"{x['phase']:,} | " if phases else "")
        + f"{x['diverged_at']:,} | {x['restored_step']:,} |"
        for x in entries
    ]
    names = "| batch | " + ("of the phase from step | " if phases else "")
    return [
        "## Batches left out",
        "",
        "Training diverged at these batches, went back to a checkpoint and went on "
        "without them. Batches are counted from 0.",
        "",
        f"{names}diverged at step | went back to step |",
        "|---" * (4 if phases else 3) + "|",
        *rows,
        "",
    ]


def _environment() -> list[str]:
    environment = describe_environment()
    versions = ", ".join(f"{k} {v}" for k, v in environment["versions"].items() if v)
    return [f"Made with {versions}; code {environment['git_revision']}.", ""]


def _row(title: str, numbers: Sequence[float | None]) -> str:
    cells = ["" if number is None else f"{number:.4f}" for number in numbers]
    return f"| {' | '.join([title, *cells])} |"
