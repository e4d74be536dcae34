"""The cards of models, in Markdown."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.config import FAMILIES, AlbertConfig
from albert_tf.environment import describe_environment
from albert_tf.heads import MODEL, find
from albert_tf.objectives.pretraining import Objective
from albert_tf.storage.templates import templates

# Names of families, as written in their papers.
_TITLES = {name: name.upper() for name in FAMILIES} | {"roberta": "RoBERTa"}


def render(template: str, **values: Any) -> str:
    """Renders a Markdown template of this folder with values."""
    return _environment().get_template(f"{template}.md.j2").render(values)


def model_card(
    settings: Any,
    config: AlbertConfig,
    objective: Objective,
    metrics: Sequence[Mapping[str, Any]],
    tokenizer,
    keeps_masks: bool = False,
    skipped: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Returns the card of a pretrained model, whose numbers were measured in its run.

    Args:
        keeps_masks: bool. Whether the records contain the masks, so that the run's
            masking settings had no effect.
        skipped: Entries of `skipped_batches.json`: batches that were left out.
    """
    made = describe_environment()
    return render(
        "model_card",
        settings=settings,
        config=config,
        kind=_TITLES[config.family],
        nets=[name for name in find(objective.head).nets if name != MODEL],
        own=", ".join(f"`{k}={getattr(settings, k)}`" for k in objective.own_settings),
        names=["data", "loss", *_scores(objective).values()],
        rows=_results(objective, metrics),
        tokenizer=tokenizer,
        keeps_masks=keeps_masks,
        skipped=skipped,
        versions=[f"{k} {v}" for k, v in made["versions"].items() if v],
        git_revision=made["git_revision"],
    )


def _scores(objective: Objective) -> dict[str, str]:
    return {k: title for term in objective.terms for k, title in term.scores.items()}


def _results(
    objective: Objective, metrics: Sequence[Mapping[str, Any]]
) -> list[tuple[str, list[float | None]]]:
    """Returns titles and the last results; None where there is no measurement."""
    names = list(_scores(objective))
    rows: list[tuple[str, list[float | None]]] = []
    for title, split in (("training, up to", "train"), ("held out,", "eval")):
        measured = [line for line in metrics if line["split"] == split]
        if not measured:
            continue
        last = measured[-1]
        numbers = [last["loss"], *map(last.get, names)]
        rows.append((f"{title} step {last['step']:,}", numbers))
        if "ema_loss" in last:
            numbers = [last.get(f"ema_{name}") for name in names]
            title = f"{title} averaged weights, step {last['step']:,}"
            rows.append((title, [last["ema_loss"], *numbers]))
        stems = (n.removesuffix("_accuracy") for n in names)
        baselines = [last.get(f"{stem}_baseline") for stem in stems]
        if split == "eval" and any(value is not None for value in baselines):
            rows.append(("best constant answer, held out", [None, *baselines]))
    return rows


def _sizes(config: AlbertConfig) -> str:
    own = f", depth_rank {config.depth_rank}" if config.depth_rank else ""
    own += ", depth_embedding" if config.depth_embedding else ""
    return (
        f"sharing `{config.sharing}`: {config.num_hidden_layers} layers of "
        f"{config.hidden_size}, embeddings of {config.embedding_size}, vocabulary of "
        f"{config.vocab_size:,}{own}"
    )


@functools.cache
def _environment():
    environment = templates("converters")
    environment.filters["thousands"] = "{:,}".format
    environment.globals["sizes"] = _sizes
    return environment
