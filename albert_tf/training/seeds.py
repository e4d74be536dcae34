"""Several runs of one fine-tuning command: seeds, and restarts after a collapse.

Every run has its own folder below `trials/` and can be resumed, so the whole command
can be, too. The folder of the best run becomes the command's folder.
"""

import os
import statistics
from collections.abc import Callable
from typing import Any

from absl import logging

from albert_tf.errors import require
from albert_tf.storage import files
from albert_tf.training.callbacks import lower_is_better
from albert_tf.training.context import Draw, no_pictures
from albert_tf.training.engine import compilation_cache, takes_several_processes
from albert_tf.training.evaluation import CollapsedError
from albert_tf.training.examples import Read
from albert_tf.training.finetune import finetune_once, read_inputs
from albert_tf.training.finetune_settings import FinetuneSettings
from albert_tf.training.metrics_file import PAGE_FILE
from albert_tf.training.run_folder import (
    COMPILED_FOLDER,
    METRICS,
    RUN_FILE,
    TRIALS_FILE,
    TRIALS_FOLDER,
    RunFolder,
    open_run,
    prepared,
)

# After so many consecutive collapses, another seed does not help.
MAX_COLLAPSES = 5


def finetune(
    settings: FinetuneSettings,
    read: Callable[[], Read] | None = None,
    draw: Draw = no_pictures,
) -> dict[str, Any]:
    """Fine-tunes as the settings say, and returns the content of `metrics.json`.

    With several seeds, the content is the best run's, with `trials`: the median of the
    metric, its spread, and every run. `read` is the result of `examples.read_ahead`,
    for a folder that `run_folder.prepared` has checked; `draw` is
    `reports.run_page.draw_run`.
    """
    if read is None:
        settings = prepared(settings)
    if settings.num_seeds == 1 and settings.on_collapse != "restart":
        return finetune_once(settings, read, draw)
    require(
        not takes_several_processes(settings.distribution),
        "--num_seeds, --on_collapse=restart: not with several processes, which would "
        f"have to agree on them (--distribution={settings.distribution} has one on "
        "each host)",
    )
    with read_inputs(settings, read) as inputs:
        origin = inputs.start.origin
    # The settings as given: each seed resolves them for itself.
    folder = open_run(settings, inputs.content)
    if folder.is_finished:
        folder.tidy()
        return files.read_json(folder.join(METRICS))
    folder.origin = origin
    # Runs in it use the same one.
    programs = compilation_cache(
        settings.compilation_cache, folder.join(COMPILED_FOLDER)
    )
    with folder.taken(), programs:
        # Pin the commit: a branch on a hub may move before the last trial begins.
        start = origin or settings.init_checkpoint
        pinned = settings.having(init_checkpoint=start)
        return _finish(folder, _run_seeds(pinned, draw), draw)


def _run_seeds(settings: FinetuneSettings, draw: Draw) -> list[dict]:
    """Runs the command with every seed; returns name and results of each."""
    wanted, results, collapses = settings.num_seeds, [], 0
    seed = settings.seed
    while len(results) < wanted:
        name = f"seed_{seed}"
        trial = settings.having(
            output_dir=files.join(settings.output_dir, TRIALS_FOLDER, name),
            seed=seed,
            num_seeds=1,
            on_collapse="warn" if settings.on_collapse == "warn" else "stop",
        )
        logging.info("run %s", name)
        try:
            outcome = finetune_once(trial, draw=draw)
        except CollapsedError as e:
            collapses += 1
            if settings.on_collapse != "restart" or collapses >= MAX_COLLAPSES:
                raise
            logging.warning("%s: %s; going on with seed %d", name, e, seed + 1)
        else:
            collapses = 0
            results.append({"name": name, "seed": seed, "results": outcome})
        seed += 1
    return results


def _finish(folder: RunFolder, trials: list[dict], draw: Draw) -> dict[str, Any]:
    """Compares the runs and moves the best folder to the command's place."""
    metric = trials[0]["results"].get("metric")
    for trial in trials:
        trial["value"] = trial["results"][metric] if metric else None
    measured = [trial for trial in trials if trial["value"] is not None]
    values = [trial["value"] for trial in measured]
    choose = min if lower_is_better(metric or "") else max
    best = choose(measured or trials[:1], key=lambda trial: trial["value"])
    summary = {
        "metric": metric,
        "median": statistics.median(values) if values else None,
        "lowest": min(values, default=None),
        "highest": max(values, default=None),
        "best": best["name"],
        "runs": [{k: v for k, v in t.items() if k != "results"} for t in trials],
    }
    results = {**best["results"], "trials": summary}
    source = folder.join(TRIALS_FOLDER, best["name"])
    # Leave out the lock, and the page, which may describe this seed alone.
    left_out = (".lock", RUN_FILE, PAGE_FILE)
    contents = {
        name: files.read_bytes(files.join(source, name))
        for name in files.tree(source)
        if not name.startswith(left_out)
    }
    for name, content in ((METRICS, results), (TRIALS_FILE, trials)):
        contents[name] = (files.to_json(content, indent=2) + "\n").encode()
    seen = {"is_finished": True, "trials": summary}
    contents |= draw(source, os.path.basename(folder.path), folder.record(), **seen)
    folder.complete(contents)
    return results
