"""The jobs of the study of the objectives: one job is one call in a process.

Every job writes its result as a file at the end and does nothing if that file exists,
so that a study that was killed can be continued. Legend: `N` texts, `D` hidden.
"""

import contextlib
import dataclasses
import os
import shutil
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from albert_tf.config import AlbertConfig
from albert_tf.errors import DataError
from albert_tf.storage import files
from albert_tf.training.metrics_file import METRICS_FILE, read_metrics

# Objectives, and the division of documents into examples for each, as by its authors:
# a name of `--pair_policy`. Without pairs, ALBERT learns only masked words.
WITHOUT_PAIRS = "none"
PAIR_POLICIES = {
    "albert": "clean",
    "bert": "nsp",
    "roberta": "full_sentences",
    "electra": "segments",
    "spanbert": "doc",
    WITHOUT_PAIRS: "none",
}
TOKENIZER = "spiece.model"
FIRST_SEED = 12345
_EVERY = 0.02  # seconds between two looks at the record of a run


@dataclasses.dataclass(frozen=True)
class Scale:
    """The size of a study.

    Attributes:
        max_bytes: int. Bytes of text.
        vocab_size: int. Tokens of the tokenizer.
        num_tokens: int. Tokens that every model is trained on, without padding.
        sizes: dict. Fields of the encoder's `AlbertConfig`.
        num_seeds: dict. Pretraining seeds by `sharing`.
        batch_size: int. Rows of a pretraining step.
        learning_rate: float. Rate of pretraining; constant after the warm-up.
        num_warmup_steps: int. Warm-up steps of pretraining.
        finetune_steps: int. Steps of a fine-tuning run.
        finetune_rate: float. Peak learning rate of fine-tuning.
        finetune_seeds: int. Fine-tuning runs of a model, whose median counts.
        probe_examples: int. Maximum number of training examples of a probe.
        eval_fraction: float. Share of the documents that no model reads.
        pretraining: dict. Other settings of pretraining by their name.
    """

    max_bytes: int
    vocab_size: int
    num_tokens: int
    sizes: dict[str, Any]
    num_seeds: dict[str, int]
    batch_size: int
    learning_rate: float
    num_warmup_steps: int
    finetune_steps: int
    finetune_rate: float
    finetune_seeds: int
    probe_examples: int
    eval_fraction: float = 0.0
    pretraining: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Study:
    """A study of objectives; the same values make the same study.

    Attributes:
        folder: str. Folder of its text, runs and scores.
        input_file: str. Text, as for `create_pretraining_data`.
        tokenizer: str. SentencePiece model; if empty, one is trained on the text.
        tasks: dict. Folder of the files by name of the task, such as "sst2".
        objectives: tuple of str. Names of `PAIR_POLICIES`.
        scale: `Scale`.
    """

    folder: str
    input_file: str
    tokenizer: str
    tasks: dict[str, str]
    objectives: tuple[str, ...]
    scale: Scale

    def join(self, *names: str) -> str:
        """Returns a path in the study's folder."""
        return files.join(self.folder, *names)

    def config(self, sharing: str) -> str:
        """Returns the path of the encoder's config."""
        return self.join(f"config-{sharing}.json")

    def records(self, objective: str) -> str:
        """Returns the prefix of an objective's records, as `--input_file`."""
        return self.join("data", PAIR_POLICIES[objective], "docs")


@dataclasses.dataclass(frozen=True)
class Training:
    """One pretraining run of a study."""

    sharing: str
    objective: str
    seed: int

    @property
    def kind(self) -> tuple[str, str]:
        """The properties that determine its cost."""
        return self.sharing, self.objective

    def __str__(self) -> str:
        return f"{self.sharing}-{self.objective}-{self.seed}"


def done_once(path: str, result: dict[str, Any]) -> dict[str, Any]:
    """Writes the result of a job and returns it as it will be read."""
    files.make_folder(os.path.dirname(path))
    files.write_text(path, files.to_json(result, indent=1) + "\n", True)
    return files.read_json(path)


def prepare(study: Study) -> None:
    """Prepares text, tokenizer, records and configs."""
    from albert_tf.text.load import load_tokenizer
    from benchmarks.data_speed import train_spm, write_lines

    path, scale = study.join("prepared.json"), study.scale
    if files.exists(path):
        return
    text, model = study.join("text.txt"), study.join(TOKENIZER)
    size = write_lines(study.input_file, text, scale.max_bytes)
    if study.tokenizer:
        files.write_bytes(model, files.read_bytes(study.tokenizer))
    else:
        files.remove(model)  # left by a study that was killed here
        train_spm(text, study.folder, scale.vocab_size)
    vocab_size = load_tokenizer(model).vocab_size
    for sharing in scale.num_seeds:
        config = AlbertConfig(**scale.sizes, vocab_size=vocab_size, sharing=sharing)
        config.to_json(study.config(sharing))
    for objective in study.objectives:
        _make_records(study, objective)
    done_once(path, {"bytes": size, "vocab_size": vocab_size})


def _make_records(study: Study, objective: str) -> None:
    from albert_tf.data.prepare.create import create_from_settings
    from albert_tf.data.prepare.create_settings import CreateSettings

    create_from_settings(
        CreateSettings(
            input_file=study.join("text.txt"),
            output_file=study.records(objective),
            spm_model_file=study.join(TOKENIZER),
            max_seq_length=study.scale.sizes["max_position_embeddings"],
            pair_policy=PAIR_POLICIES[objective],
            random_seed=FIRST_SEED,
            eval_fraction=study.scale.eval_fraction,
            num_processes=1,
            overwrite=True,
        )
    )


def train_until(study: Study, run: Training, step: int) -> dict[str, Any]:
    """Pretrains, and stores the model after a step.

    The rate is constant after the warm-up, so that an intermediate model equals the
    final model of a shorter run.

    Args:
        study: `Study`.
        run: `Training`. Continued, if it was started before.
        step: int. At least the step of an earlier call.

    Returns:
        dict. `cpu_seconds_per_step`, of this process with all its threads: input, model
        and update, but not compilation and outputs (None if no steps were left to
        train); and `tokens_per_step`, without padding.
    """
    path, kept = study.join("cost", f"{run}-{step}.json"), model_of(study, run, step)
    if files.is_folder(kept):
        return files.read_json(path)
    from albert_tf.training.pretrain import pretrain

    settings = _pretraining(study, run, step)
    with _cpu_seconds(settings.output_dir) as times:
        model = pretrain(settings)
    costs, lines = step_costs(times), _training_lines(settings.output_dir)
    result = {
        "cpu_seconds_per_step": statistics.median(costs) if costs else None,
        "tokens_per_step": sum(line["tokens"] for line in lines) / lines[-1]["step"],
    }
    if costs or not files.exists(path):
        done_once(path, result)
    files.make_folder(study.join("models"))
    files.remove_tree(f"{kept}.partial")
    shutil.copytree(model, f"{kept}.partial")
    os.rename(f"{kept}.partial", kept)
    forget_graphs()
    return files.read_json(path)


def model_of(study: Study, run: Training, step: int) -> str:
    """Returns the folder of a run's model after a step."""
    return study.join("models", f"{run}-{step}")


def _pretraining(study: Study, run: Training, step: int):
    """Returns the settings of a run that ends at a step."""
    from albert_tf.objectives.recipes import find_recipe
    from albert_tf.training.pretrain_settings import PretrainSettings

    scale, objective = study.scale, run.objective
    values = find_recipe("albert") | dict(  # one optimizer for all
        input_file=study.records(run.objective),
        spm_model_file=study.join(TOKENIZER),
        output_dir=study.join("runs", str(run)),
        objective="albert" if objective == WITHOUT_PAIRS else objective,
        albert_config_file=study.config(run.sharing),
        max_seq_length=scale.sizes["max_position_embeddings"],
        packing=True,
        train_batch_size=scale.batch_size,
        optimizer="adamw",
        learning_rate=scale.learning_rate,
        learning_rate_schedule="trapezoid",
        num_decay_steps=1,  # the last step also has the full rate
        num_warmup_steps=scale.num_warmup_steps,
        num_train_steps=step,
        change_num_train_steps=True,
        save_checkpoints_steps=200,
        keep_checkpoint_max=1,
        log_steps=max(1, min(20, step // 4)),
        eval_steps=0,
        sample_texts=(),
        # One exploding batch must not waste hours of the other runs.
        on_divergence="rollback",
        seed=run.seed,
    )
    return PretrainSettings(**values | scale.pretraining)


@contextlib.contextmanager
def _cpu_seconds(folder: str) -> Iterator[list[tuple[float, int]]]:
    """Records this process's CPU seconds at each training line of a run.

    Yields:
        list of (CPU seconds, step), filled while the run trains.
    """
    path, found, over = files.join(folder, METRICS_FILE), [], threading.Event()

    def watch() -> None:
        size = _size(path)
        while not over.wait(_EVERY):
            before, size = size, _size(path)
            if size != before:
                used, lines = time.process_time(), _training_lines(folder)
                if lines and (not found or lines[-1]["step"] > found[-1][1]):
                    found.append((used, lines[-1]["step"]))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


def _training_lines(folder: str) -> list[dict[str, Any]]:
    lines = read_metrics(files.join(folder, METRICS_FILE))
    return [line for line in lines if line["split"] == "train"]


def _size(path: str) -> int:
    status = files.status(path)
    return status.size if status else 0


def step_costs(times: Sequence[tuple[float, int]]) -> list[float]:
    """Returns the CPU seconds of a step between neighbouring lines.

    Args:
        times: sequence of (CPU seconds of the process, step). The first one is left
            out: a resumed run rewrites its lines, and compiles after that.
    """
    pairs = zip(times[1:], times[2:], strict=False)
    return [(end[0] - begin[0]) / (end[1] - begin[1]) for begin, end in pairs]


def forget_graphs() -> None:
    """Frees the graphs of models that are no longer used."""
    import keras

    keras.backend.clear_session()


def make_random(study: Study, name: str, sharing: str, seed: int) -> None:
    """Writes an untrained encoder under a name among the study's models."""
    from albert_tf.converters.load import save_pretrained
    from albert_tf.models.masked_lm import AlbertPretrainer
    from albert_tf.text.load import load_tokenizer

    config = AlbertConfig.from_json(study.config(sharing))
    tokenizer = load_tokenizer(study.join(TOKENIZER))
    model = AlbertPretrainer(config, seed=seed)
    path = study.join("models", name)
    save_pretrained(model, path, tokenizer=tokenizer, overwrite=True)
    forget_graphs()


def finetune_score(study: Study, model: str, task: str) -> dict[str, Any]:
    """Fine-tunes a model with several seeds.

    Args:
        study: `Study`.
        model: str. Its name in the study's folder of models.
        task: str. Name of the task.

    Returns:
        dict. `value`, the median of the task's metric on the dev examples after the
        last step, and `trials`, the metric of every seed.
    """
    path = study.join("scores", f"{model}-{task}-finetuned.json")
    if files.exists(path):
        return files.read_json(path)
    from albert_tf.training.finetune_settings import FinetuneSettings
    from albert_tf.training.seeds import finetune

    scale, folder = study.scale, study.join("finetuned", f"{model}-{task}")
    metrics = []
    for number in range(scale.finetune_seeds):
        found = finetune(
            FinetuneSettings(
                task=task,
                data_dir=study.tasks[task],
                init_checkpoint=study.join("models", model),
                output_dir=f"{folder}-{number}",
                max_seq_length=scale.sizes["max_position_embeddings"],
                train_batch_size=32,
                learning_rate=scale.finetune_rate,
                num_train_steps=scale.finetune_steps,
                dropout=0.1,
                eval_steps=0,
                keep="last",
                seed=FIRST_SEED + number,
            )
        )
        metrics.append(found[found["metric"]])
        forget_graphs()
    value = statistics.median(metrics)
    result = done_once(path, {"value": value, "trials": metrics})
    for number in range(scale.finetune_seeds):
        files.remove_tree(f"{folder}-{number}")
    return result


def probe_score(study: Study, model: str, task: str) -> dict[str, Any]:
    """Trains a linear classifier on the frozen encoder's vectors.

    The vector of a text is the mean of the last layer's states over its tokens, each of
    its numbers scaled to mean 0 and variance 1; the classifier is logistic regression
    with an L2 penalty of weight 1.

    Returns:
        dict. `value`, the task's metric on the dev examples.
    """
    path = study.join("scores", f"{model}-{task}-probe.json")
    if files.exists(path):
        return files.read_json(path)
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from albert_tf.inference.embedder import Embedder

    embed = Embedder.from_pretrained(study.join("models", model))
    classifier = make_pipeline(StandardScaler(), regression())
    value = _classify(study, task, classifier, embed)
    forget_graphs()
    return done_once(path, {"value": value})


def bag_of_words_score(study: Study, task: str) -> dict[str, Any]:
    """Trains a linear classifier on the sets of tokens in texts, without an encoder."""
    path = study.join("scores", f"bag-of-words-{task}.json")
    if files.exists(path):
        return files.read_json(path)
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.pipeline import make_pipeline

    from albert_tf.text.load import load_tokenizer

    tokenizer = load_tokenizer(study.join(TOKENIZER))
    count = CountVectorizer(analyzer=tokenizer.encode, binary=True)
    value = _classify(study, task, make_pipeline(count, regression()), list)
    return done_once(path, {"value": value})


def regression(**options):
    """Returns logistic regression with an L2 penalty of weight 1.

    Args:
        **options: Other arguments of scikit-learn's class.
    """
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=1.0, max_iter=1000, **options)


def _classify(study: Study, task_name: str, classifier, represent) -> float:
    """Trains a classifier on a task; returns its metric on the dev examples.

    Args:
        study: `Study`.
        task_name: str. Name of the task.
        classifier: A classifier of scikit-learn.
        represent: callable. Takes a list of `N` texts; its result is classified.
    """
    from albert_tf.tasks.labels import make_targets
    from albert_tf.tasks.registry import find_task

    task, folder = find_task(task_name), study.tasks[task_name]
    train, dev = (task.splits[name].read(folder) for name in ("train", "dev"))
    most = study.scale.probe_examples
    if len(train) > most:
        drawn = np.random.default_rng(FIRST_SEED).permutation(len(train))[:most]
        train = train.select(np.sort(drawn).tolist())
    targets = make_targets(task, train)
    if len(set(targets.tolist())) < 2:
        raise DataError(f"{train.path}: expected examples of two labels at least")
    classifier.fit(represent(train.texts), targets)
    answers = classifier.predict(represent(dev.texts))
    return float(task.metrics(make_targets(task, dev), answers)[task.selecting_metric])
