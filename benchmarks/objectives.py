"""Compares pretraining objectives: same text, tokenizer and encoder.

Every model is trained once, and measured at two budgets: after the same number of
tokens, and after the same CPU seconds. The second budget is the time that the cheapest
objective of an encoder needs for all tokens, so that there is a model of that age for
each of the others. CPU seconds of a step are measured in the first quarter of the run,
and include ELECTRA's generator and SpanBERT's second head.

Each model is fine-tuned, and probed by a linear classifier on its frozen states, next
to an untrained encoder and a classifier without an encoder.
"""

import concurrent.futures
import dataclasses
import multiprocessing
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tqdm

from albert_tf.errors import DataError, UsageError, require
from albert_tf.storage import files
from benchmarks import objectives_jobs as jobs
from benchmarks.objectives_jobs import Scale, Study, Training
from benchmarks.objectives_report import BAG_OF_WORDS, RANDOM, Score, make_report
from benchmarks.report import Report

SCALES = {
    "full": Scale(
        max_bytes=20_000_000,
        vocab_size=4000,
        num_tokens=6_000_000,
        sizes={
            "embedding_size": 64,
            "hidden_size": 128,
            "num_hidden_layers": 4,
            "num_attention_heads": 2,
            "intermediate_size": 512,
            "max_position_embeddings": 64,
            "initializer_range": 0.05,
        },
        num_seeds={"all": 3, "none": 1},
        batch_size=32,
        learning_rate=5e-4,
        num_warmup_steps=500,
        finetune_steps=400,
        finetune_rate=3e-4,
        finetune_seeds=3,
        probe_examples=4000,
    ),
    # Two minutes, which show only that everything runs.
    "small": Scale(
        max_bytes=200_000,
        vocab_size=400,
        num_tokens=4096,
        sizes={
            "embedding_size": 8,
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 32,
            "max_position_embeddings": 32,
            "initializer_range": 0.05,
        },
        num_seeds={"all": 1},
        batch_size=8,
        learning_rate=1e-3,
        num_warmup_steps=2,
        finetune_steps=4,
        finetune_rate=1e-3,
        finetune_seeds=1,
        probe_examples=200,
    ),
}
# Share of a run's tokens before its first model is stored and its costs are known.
_FIRST = 0.25
# Processes are replaced after this many calls: TensorFlow leaks memory of every model.
_CALLS_PER_PROCESS = 8


def run(study: Study) -> Report:
    """Computes the missing parts of a study, and reports on all of it.

    Raises:
        UsageError: If the folder holds another study, or there is no such objective.
        DataError: If the text or the data of a task cannot be read.
    """
    check(study)
    each([(jobs.prepare, (study,))], "text and records")
    models = _trained_models(study) + _random_models(study)
    scores = _measure(study, models)
    return make_report(scores, study.objectives, study.scale.num_seeds)


def all_objectives() -> tuple[str, ...]:
    """Returns the objectives that can be trained and compared."""
    from albert_tf.objectives.pretraining import OBJECTIVES

    return tuple(name for name in jobs.PAIR_POLICIES if name in OBJECTIVES)


def check(study: Study) -> None:
    """Validates the study before computing anything, and records its settings.

    Raises:
        UsageError: If the folder holds another study or anything else, or the
            objectives cannot be compared.
        DataError: If the data of a task, or the tokenizer, cannot be read.
    """
    known, names = all_objectives(), study.objectives
    rule = f"--objective must be two or more of {', '.join(known)}, each once"
    fits = 1 < len(names) == len(set(names)) and set(names) <= set(known)
    require(fits, rule, ",".join(names))
    open_study(study)


def open_study(study: Study) -> None:
    """Validates inputs and folders, and records the settings of the study.

    Raises:
        UsageError: If the folder holds another study or anything else.
        DataError: If the data of a task, or the tokenizer, cannot be read.
    """
    from albert_tf.tasks.registry import find_task

    for name, folder in study.tasks.items():
        for split in ("train", "dev"):
            found = find_task(name).splits[split].read(folder)
            rule = f"{folder}: {split} examples of {name} must be there"
            require(len(found) > 0, rule, error=DataError)
    if study.tokenizer:
        files.read_bytes(study.tokenizer)  # fails now, not after minutes
    files.make_folder(study.folder)
    path, own = study.join("study.json"), dataclasses.asdict(study)
    del own["folder"]  # it may be moved
    if files.exists(path):
        before = files.read_json(path)
        changed = [n for n in own if files.to_json(own[n]) != files.to_json(before[n])]
        if changed:
            raise UsageError(
                f"--work_dir={study.folder}: holds a study with other values of "
                f"{', '.join(changed)}; give another folder"
            )
    elif others := files.list_folder(study.folder):
        raise UsageError(
            f"--work_dir={study.folder}: must be empty or hold this study, holds "
            f"{others[0]!r}"
        )
    files.write_text(path, files.to_json(own, indent=1) + "\n", True)


def each(calls: Sequence[tuple[Callable, tuple]], title: str) -> list[Any]:
    """Returns the results of calls, in their order.

    They are made in single-threaded processes, one per core, so that the CPU seconds of
    a process are the cost of its call.
    """
    count = len(os.sched_getaffinity(0))
    context, size = multiprocessing.get_context("spawn"), count * _CALLS_PER_PROCESS
    results = []
    with tqdm.tqdm(total=len(calls), desc=title) as bar:
        for start in range(0, len(calls), size):
            part = calls[start : start + size]
            pool = concurrent.futures.ProcessPoolExecutor(
                min(count, len(part)), mp_context=context, initializer=_use_one_thread
            )
            with pool:
                futures = [pool.submit(call, *given) for call, given in part]
                try:
                    for future in concurrent.futures.as_completed(futures):
                        future.result()
                        bar.update()
                except BaseException:
                    pool.shutdown(cancel_futures=True)  # the first error ends the study
                    raise
            results += [future.result() for future in futures]
    return results


def _use_one_thread() -> None:
    # TensorFlow reads the first two, NumPy and scikit-learn the last.
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
        os.environ[name] = "1"


@dataclasses.dataclass(frozen=True)
class Budget:
    """The cost of an objective on an encoder, and the steps at which it is measured.

    Attributes:
        cpu_seconds_per_step: float.
        tokens_per_step: float. Number without padding.
        steps: dict. Number of updates by the name of the budget: "tokens", "seconds".
    """

    cpu_seconds_per_step: float
    tokens_per_step: float
    steps: Mapping[str, int]


def plan_budgets(
    costs: Mapping[str, Mapping[str, float]], num_tokens: int, first: int
) -> dict[str, Budget]:
    """Returns the budgets of every objective on one encoder.

    Args:
        costs: dict. `cpu_seconds_per_step` and `tokens_per_step` by objective.
        num_tokens: int. Tokens to train on.
        first: int. Step that every run has already reached: no budget is smaller, so
            that an objective of more than four times the cost of the cheapest one is
            measured after more CPU seconds than the others.
    """
    steps = {
        name: max(first, round(num_tokens / cost["tokens_per_step"]))
        for name, cost in costs.items()
    }
    seconds = min(
        steps[name] * cost["cpu_seconds_per_step"] for name, cost in costs.items()
    )
    return {
        name: Budget(
            **cost,
            steps={
                "tokens": steps[name],
                "seconds": min(
                    steps[name],
                    max(first, round(seconds / cost["cpu_seconds_per_step"])),
                ),
            },
        )
        for name, cost in costs.items()
    }


class Model(NamedTuple):
    """A model to be measured.

    Attributes:
        name: str. Its folder among the study's models.
        about: dict. Fields of its `Score`s.
        finetuned: bool. Whether it is also fine-tuned, because it is at a budget.
    """

    name: str
    about: dict[str, Any]
    finetuned: bool = True


def _trained_models(study: Study) -> list[Model]:
    """Trains all models."""
    scale = study.scale
    positions = scale.batch_size * scale.sizes["max_position_embeddings"]
    first = max(1, round(_FIRST * scale.num_tokens / positions))
    runs = [
        Training(sharing, objective, jobs.FIRST_SEED + number)
        for number in range(max(scale.num_seeds.values()))
        for sharing, seeds in scale.num_seeds.items()
        if number < seeds
        for objective in study.objectives
    ]
    calls = [(jobs.train_until, (study, run, first)) for run in runs]
    costs = each(calls, "pretraining, first quarter")
    budgets = _all_budgets(study, dict(zip(runs, costs, strict=True)), first)
    # The earlier model first: a run cannot go back.
    for name, title in (("seconds", "equal CPU seconds"), ("tokens", "equal tokens")):
        calls = [
            (jobs.train_until, (study, run, budgets[run.kind].steps[name]))
            for run in runs
        ]
        each(calls, f"pretraining, {title}")
    models = []
    for run in runs:
        budget = budgets[run.kind]
        for step in sorted({first, *budget.steps.values()}):
            names = tuple(name for name, end in budget.steps.items() if end == step)
            about = {
                "sharing": run.sharing,
                "objective": run.objective,
                "seed": run.seed,
                "budgets": names,
                "tokens": step * budget.tokens_per_step,
                "cpu_seconds": step * budget.cpu_seconds_per_step,
            }
            model = os.path.basename(jobs.model_of(study, run, step))
            models.append(Model(model, about, bool(names)))
    return models


def _all_budgets(study, found, first) -> dict[tuple[str, str], Budget]:
    """Returns the budgets by sharing and objective; costs are medians over seeds."""
    budgets = {}
    for sharing in study.scale.num_seeds:
        costs: dict[str, dict[str, float]] = {}
        for objective in study.objectives:
            mine = [
                cost for run, cost in found.items() if run.kind == (sharing, objective)
            ]
            costs[objective] = {
                name: _median(name, [cost[name] for cost in mine], study)
                for name in ("cpu_seconds_per_step", "tokens_per_step")
            }
        planned = plan_budgets(costs, study.scale.num_tokens, first)
        budgets |= {(sharing, name): one for name, one in planned.items()}
    return budgets


def _median(name: str, values: list[float | None], study: Study) -> float:
    known = [value for value in values if value is not None]
    if not known:
        raise DataError(
            f"{study.join('cost')}: no {name}, because every run was killed at the "
            "end of its first quarter; another --work_dir begins anew"
        )
    return statistics.median(known)


def _random_models(study: Study) -> list[Model]:
    """Builds the untrained baseline encoders."""
    models = []
    for sharing, seeds in study.scale.num_seeds.items():
        for seed in range(jobs.FIRST_SEED, jobs.FIRST_SEED + seeds):
            about = {"sharing": sharing, "objective": RANDOM, "seed": seed}
            models.append(Model(f"{sharing}-random-{seed}", about))
    calls = [
        (
            jobs.make_random,
            (study, one.name, one.about["sharing"], one.about["seed"]),
        )
        for one in models
    ]
    each(calls, "random encoders")
    return models


def _measure(study: Study, models: Sequence[Model]) -> list[Score]:
    """Probes all models, fine-tunes models at a budget, and adds the bags of words."""
    given, calls = [], []
    for model in models:
        methods = {"probe": jobs.probe_score}
        if model.finetuned:
            methods["fine-tuned"] = jobs.finetune_score
        for task in study.tasks:
            for method, compute in methods.items():
                given.append({**model.about, "task": task, "method": method})
                calls.append((compute, (study, model.name, task)))
    for task in study.tasks:
        about = {"sharing": "", "objective": BAG_OF_WORDS, "seed": 0}
        given.append({**about, "task": task, "method": "probe"})
        calls.append((jobs.bag_of_words_score, (study, task)))
    found = each(calls, "probes and fine-tuning")
    return [Score(**one, **values) for one, values in zip(given, found, strict=True)]
