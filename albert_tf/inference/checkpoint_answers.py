"""What the kept checkpoints and models of a pretraining run answer."""

import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

from absl import logging

from albert_tf.errors import DataError, UsageError
from albert_tf.inference.fill_mask import FillMask
from albert_tf.storage import files, folders

_CHECKPOINT = re.compile(r"step-(\d+)\.index")


def answer_all(
    run: str, prompts: Sequence[str], top_k: int = 5
) -> Iterator[dict[str, Any]]:
    """Answers the same texts with every kept checkpoint, the best model and the last.

    A checkpoint that a run in progress removes meanwhile is left out, with a warning.

    Args:
        run: str. Folder of the run.
        prompts: Sequence of str. Texts with at least one `[MASK]` each.
        top_k: int. Number of tokens per mask.

    Yields:
        dict: `name` ("step 600", "best, step 400" or "model", with the kind of weights
        if the run has averages) and `answers`. The latter has for each text a list of
        masks, each with a list of (token, probability).

    Raises:
        UsageError: If a text cannot be answered, for example because it is too long.
    """
    fill_mask = None
    for name, path in _sources(run):
        try:
            loaded = FillMask.from_pretrained(path)
        except (DataError, UsageError) as e:
            logging.warning("%s: left out: %s", path, e)
            continue
        if fill_mask is None:
            fill_mask = loaded
        else:
            # The graph is compiled once: the checkpoints of a run have one config.
            fill_mask.model.set_weights(loaded.model.get_weights())
        answers = []
        for result in fill_mask(list(prompts), top_k):
            masks = [result] if isinstance(result[0], dict) else result
            answers.append(
                [[(one["token_str"], one["score"]) for one in mask] for mask in masks]
            )
        yield {"name": name, "answers": answers}


def _sources(run: str) -> list[tuple[str, str]]:
    """Returns names and paths of what can answer: checkpoints by age, best, model.

    The names of a run with averages say which weights its files give.
    """
    folder = files.join(run, "checkpoints")
    names = files.list_folder(folder) if files.is_folder(folder) else []
    steps = sorted(
        int(match[1]) for match in map(_CHECKPOINT.fullmatch, names) if match
    )
    where = files.join(run, "run.json")
    settings = files.read_json(where).get("settings") if files.exists(where) else {}
    has_averages = bool(settings.get("ema_decay"))

    def name(of: str, averaged: bool) -> str:
        kind = "averaged" if averaged else "last"
        return f"{of}, {kind} weights" if has_averages else of

    averaged = settings.get("export_weights") == "average"
    # Before the first update there is no average.
    found = [
        (name(f"step {step:,}", averaged and step > 0), f"{folder}/step-{step}")
        for step in steps
    ]
    best = files.join(run, "best")
    if folders.is_complete(os.fspath(best)):
        record = files.read_json(files.join(best, "best.json"))
        of_average = str(record.get("metric")).startswith("ema_")
        found.append((name(f"best, step {record.get('step')}", of_average), best))
    model = files.join(run, "model")
    if folders.is_complete(os.fspath(model)):
        found.append((name("model", averaged), model))
    return found
