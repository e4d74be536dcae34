"""Writes curves, page, model card and models of a pretraining run."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from absl import logging

from albert_tf.config import FAMILIES, AlbertConfig
from albert_tf.converters import nets
from albert_tf.converters.cards import render
from albert_tf.converters.keras_model import from_model
from albert_tf.converters.load import write_files
from albert_tf.environment import describe_environment
from albert_tf.errors import DataError, require
from albert_tf.figure import drawn_if_possible
from albert_tf.heads import MODEL, find
from albert_tf.objectives.pretraining import Objective
from albert_tf.storage import files, folders
from albert_tf.training.checkpoints import latest_step
from albert_tf.training.context import RunContext
from albert_tf.training.metrics_file import METRICS_FILE, PAGE_FILE, read_metrics
from albert_tf.training.run_folder import BEST_FOLDER, CHECKPOINT_FOLDER, RunFolder
from albert_tf.training.weights import mark_trained

# Names of families, as written in their papers.
_TITLES = {name: name.upper() for name in FAMILIES} | {"roberta": "RoBERTa"}


def _models(folder: RunFolder, head: str) -> list[str]:
    """Returns the folders of all nets; the net to fine-tune comes last."""
    return [folder.join(name) for name in find(head).nets or [MODEL]]


def is_finished(folder: RunFolder, head: str) -> bool:
    """Returns whether a run's model is intact; raises if it cannot be made again."""
    models = _models(folder, head)
    if folder.model_is_outdated or not all(map(folders.is_complete, models)):
        return False
    try:
        for model in models:
            folders.verify(model)
    except folders.DamagedError as e:
        require(
            latest_step(folder.join(CHECKPOINT_FOLDER)) is not None,
            f"{e}; no checkpoint is left to make the model from; another --output_dir "
            "begins anew",
            error=DataError,
        )
        logging.warning("%s; the model is made again from the last checkpoint", e)
        folder.model_is_outdated = True
        return False
    return True


def finish(run: RunContext, skipped: Sequence[Mapping[str, Any]]) -> None:
    """Writes curves, page, card and models of a run that has ended."""
    folder, step = run.folder, run.step
    _draw(run, curves={}, is_finished=True)
    card = model_card(
        run.settings,
        step.model.config,
        step.objective,
        read_metrics(folder.join(METRICS_FILE)),
        run.tokenizer,
        run.data.keeps_masks,
        skipped,
    )
    files.write_text(folder.join("README.md"), card)
    mark_trained(step.model, step.optimizer)
    parts = nets.split(from_model(step.model, run.tokenizer))
    models = _models(folder, step.objective.head)
    # A run without `model` is not finished, so `model` comes last. Nets of different
    # steps must not lie next to each other; checkpoints hold all weights.
    for path in models[1:]:
        files.remove_tree(path)
    for path, net in zip(models, parts.values(), strict=True):
        # A folder in the way was restored, and does not belong to this run.
        with folders.writing(path, overwrite=True) as out:
            write_files(net, out)
    folders.restore(folder.join(BEST_FOLDER))  # its upload may have failed
    folder.finish()


@contextlib.contextmanager
def page_of_a_stopped_run(run: RunContext) -> Iterator[None]:
    """Writes the page if training ends before its last step, for whatever reason."""
    try:
        yield
    except BaseException:
        with drawn_if_possible(PAGE_FILE):
            _draw(run)
        raise


def _draw(run: RunContext, **about: Any) -> None:
    for name, data in run.draw(run.folder.path, **about).items():
        files.write_bytes(run.folder.join(name), data)


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

    With `keeps_masks`, the records contain the masks, so that the run's masking
    settings had no effect. `skipped` lists entries of `skipped_batches.json`.
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
