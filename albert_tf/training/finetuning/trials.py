"""Several runs of one fine-tuning command: seeds, a search, restarts.

Every run has a folder of its own below `trials/` and is resumable by itself, so the
whole command is. The folder of the best run becomes that of the command.
"""

import dataclasses
import itertools
import math
import os
import statistics
from typing import Any

from absl import logging

from albert_tf.errors import UsageError
from albert_tf.reports.optional import drawn_if_possible
from albert_tf.reports.run_files import read_run
from albert_tf.reports.run_page import render_run
from albert_tf.storage import digests, files, folders
from albert_tf.training.finetuning import folder
from albert_tf.training.finetuning.evaluation import CollapsedError
from albert_tf.training.finetuning.finetune import (
    content_of,
    finetune_once,
    open_inputs,
)
from albert_tf.training.finetuning.settings import FinetuneSettings
from albert_tf.training.finetuning.step_settings import TrainingSettings
from albert_tf.training.run_folder import RUN_FILE, RunFolder
from albert_tf.training.selection import lower_is_better

# After so many collapses in a row, another seed is no cure.
MAX_COLLAPSES = 5
# Settings of a search that are not single values.
_NOT_SEARCHED = ("class_weights", "distribution", "tpu_name", "num_devices", "seed")


def finetune(settings: FinetuneSettings, read: tuple | None = None) -> dict[str, Any]:
    """Fine-tunes as the settings say: once, or with several seeds or values.

    Args:
        settings: `FinetuneSettings`.
        read: tuple or None. Result of `examples.read_task`, if it has been called.

    Returns:
        The content of `metrics.json`; of several runs, that of the best one, with
        `trials`: the median of the metric, its spread, and every run.

    Raises:
        UsageError: If a setting is invalid, or the folder cannot be used.
        DataError: If the data is invalid, or training diverges or collapses.
    """
    several = settings.num_seeds > 1 or settings.search
    if not several and settings.on_collapse != "restart":
        return finetune_once(settings, read)
    if settings.distribution == "multi_worker":
        raise UsageError(
            "num_seeds, search, on_collapse=restart: not with "
            "distribution=multi_worker, whose workers would have to agree on them"
        )
    combinations = read_search(settings.search)
    for values in combinations:
        dataclasses.replace(settings, **values).check_values()
    settings = folder.prepared(settings)
    with open_inputs(settings, read) as (resolved, start, data):
        content = content_of(start, data)
        for values in combinations:
            # What a recipe or the data decide does not hide a value that is searched.
            dataclasses.replace(resolved, **values).check_values()
        # A branch on a hub may move before the last trial begins.
        start_from = start.origin or settings.init_checkpoint
    run = folder.open_run(settings, content)
    if run is not None and run.is_finished:
        folder.tidy(settings.output_dir)
        return files.read_json(run.join(folder.METRICS))
    with folder.taken(settings, content, run, start.origin) as run:
        trials = []
        for values in combinations:
            pinned = dataclasses.replace(settings, init_checkpoint=start_from)
            trials += _run_seeds(pinned, values)
        return _finish(settings, run, trials)


def read_search(search: tuple[str, ...]) -> list[dict[str, Any]]:
    """Returns all combinations of the values of a search.

    Args:
        search: tuple of str. `setting:value,value,...`.

    Returns:
        list of dict. One empty dict if there is nothing to search.

    Raises:
        UsageError: If a setting is unknown or a value has the wrong type.
    """
    types = {
        field.name: field.type
        for field in dataclasses.fields(TrainingSettings)
        if field.name not in _NOT_SEARCHED
    }
    axes = []
    for item in search:
        name, _, text = item.partition(":")
        if name not in types or not text:
            raise UsageError(
                "search: expected setting:value,value with a setting among "
                f"{', '.join(types)}, received {item!r}"
            )
        axes.append([(name, _parse(item, types[name], v)) for v in text.split(",")])
    names = [axis[0][0] for axis in axes]
    if len(set(names)) < len(names):
        raise UsageError(f"search: every setting once, received {', '.join(names)}")
    return [dict(values) for values in itertools.product(*axes)]


def _parse(item: str, kind: Any, text: str) -> Any:
    text = text.strip()
    if kind in (bool, bool | None) and text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        if kind in (int, int | None):
            return int(text)
        if kind in (float, float | None):
            return float(text)
    except ValueError:
        pass
    if kind is str and text:
        return text
    raise UsageError(f"search={item}: {text!r} is not a value of that setting")


def _run_seeds(settings: FinetuneSettings, values: dict[str, Any]) -> list[dict]:
    """Runs one combination of values with every seed; returns what came out."""
    wanted, results, collapses = settings.num_seeds, [], 0
    seed = settings.seed
    while len(results) < wanted:
        name = "-".join([*(f"{k}_{v}" for k, v in values.items()), f"seed_{seed}"])
        name = name.replace("/", "_")
        on_collapse = "stop" if settings.on_collapse == "restart" else "warn"
        if settings.on_collapse == "stop":
            on_collapse = "stop"
        trial = dataclasses.replace(
            settings,
            **values,
            output_dir=files.join(settings.output_dir, folder.TRIALS_FOLDER, name),
            seed=seed,
            num_seeds=1,
            search=(),
            on_collapse=on_collapse,
            overwrite=False,
        )
        logging.info("run %s", name)
        try:
            found = finetune_once(trial)
        except CollapsedError as e:
            collapses += 1
            if settings.on_collapse != "restart" or collapses >= MAX_COLLAPSES:
                raise
            logging.warning("%s: %s; going on with seed %d", name, e, seed + 1)
        else:
            collapses = 0
            results.append({"name": name, **values, "seed": seed, "results": found})
        seed += 1
    return results


def _finish(
    settings: FinetuneSettings, run: RunFolder, trials: list[dict]
) -> dict[str, Any]:
    """Compares the runs and puts the best one's folder in the command's place."""
    metric = trials[0]["results"].get("metric")
    groups: dict[str, list[dict]] = {}
    for trial in trials:
        trial["value"] = trial["results"][metric] if metric else None
        key = trial["name"].rpartition("seed_")[0]
        groups.setdefault(key, []).append(trial)
    sign = -1 if lower_is_better(metric or "") else 1

    def quality(value: float | None) -> float:
        return -math.inf if value is None else sign * value

    def known(group: list[dict]) -> list[float]:
        found = (trial["value"] for trial in group)
        return [value for value in found if value is not None]

    def median(group: list[dict]) -> float | None:
        return statistics.median(known(group)) if known(group) else None

    best_group = max(groups.values(), key=lambda group: quality(median(group)))
    best = max(best_group, key=lambda trial: quality(trial["value"]))
    values = known(best_group)
    summary = {
        "metric": metric,
        "median": median(best_group),
        "lowest": min(values, default=None),
        "highest": max(values, default=None),
        "best": best["name"],
        "runs": [{k: v for k, v in t.items() if k != "results"} for t in trials],
    }
    results = {**best["results"], "trials": summary}
    source = files.join(settings.output_dir, folder.TRIALS_FOLDER, best["name"])
    contents = {name: data for name, data in _read_tree(source) if name != RUN_FILE}
    contents[folder.METRICS] = _json(results)
    contents[folder.TRIALS_FILE] = _json(trials)
    contents.pop(folder.REPORT, None)
    with drawn_if_possible(folder.REPORT):
        name = os.path.basename(settings.output_dir)
        contents[folder.REPORT] = render_run(
            read_run(source, name, run.record()),
            is_finished=True,
            trials=trials,
            best_trial=best["name"],
        )
    folder.write_contents(settings, run, contents)
    return results


def _json(content: Any) -> bytes:
    return (files.to_json(content, indent=2) + "\n").encode()


def _read_tree(path: str):
    """Yields the files of a folder with their content; the lock is left out."""
    if files.is_remote(path):
        names = sorted(folders.remote_tree(path))
    else:
        names = sorted(digests.tree(path))
    for name in names:
        if not name.startswith(".lock"):
            yield name, files.read_bytes(files.join(path, name))
