"""The model that a run starts from."""

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

import keras
from absl import logging

from albert_tf.config import AlbertConfig
from albert_tf.converters import load, nets
from albert_tf.converters.checkpoint import Checkpoint
from albert_tf.converters.equivalents import differences, is_new
from albert_tf.converters.growing import GROWABLE, grow
from albert_tf.converters.keras_model import build_model
from albert_tf.converters.table import OWN
from albert_tf.converters.tokenizers import choose_tokenizer
from albert_tf.errors import MissingFileError, UsageError, require
from albert_tf.heads import FROZEN, NONE
from albert_tf.heads import find as find_head
from albert_tf.inference.files import model_digest
from albert_tf.layers.depth import check_depth
from albert_tf.models.base import weight_names
from albert_tf.tasks import labels
from albert_tf.tasks.task import Task
from albert_tf.text.load import load_tokenizer, warn_if_small
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.training.finetune_settings import ALL, DEPTH, FinetuneSettings
from albert_tf.training.pretrain_settings import PretrainSettings

# Fields of a config that are not properties of the weights.
_FOR_TRAINING = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "classifier_dropout_prob",
    "initializer_range",
)
# Fields that config files of the original lack; the checkpoint determines them.
_NOT_IN_FILES = (
    "embedding_projection",
    "family",
    "group_rule",
    "mlm_layer_norm_eps",
    "share_layer_norm",
)


def content_of(
    data: Mapping[str, str],
    tokenizer: Tokenizer,
    config: AlbertConfig,
    checkpoint: Checkpoint | None,
    teacher: str = "",
) -> dict[str, Any]:
    """Returns the content that determines, with the settings, the result of a run.

    It is ready for JSON, by the names that settings have as their "identity". `data`
    are digests of the examples, and the checkpoint is open.
    """
    return {
        "data": data,
        "tokenizer": {"sha256": tokenizer.sha256, **tokenizer.get_config()},
        "config": config.to_dict(),
        "init_checkpoint": "" if checkpoint is None else nets.digest(checkpoint),
        "teacher": model_digest(teacher) if teacher else "",
    }


class Start:
    """Config, with the run's dropout, tokenizer and weights that a run starts from."""

    def __init__(self, settings: FinetuneSettings, checkpoint: Checkpoint | None):
        self.settings = settings
        self.checkpoint = checkpoint
        normalization = (settings.do_lower_case, settings.keep_accents)
        if checkpoint is None:
            tokenizer = load_tokenizer(settings.spm_model_file, *normalization)
            config = settings.own_config(tokenizer.pad_id)
            warn_if_small(tokenizer, config.vocab_size)
            config.check_pad_id(tokenizer.pad_id, settings.spm_model_file, UsageError)
            self.tokenizer = tokenizer.for_segments(config.num_segments)
        else:
            config = _with_given(checkpoint, settings)
            self.tokenizer = choose_tokenizer(
                checkpoint, settings.spm_model_file or None, *normalization
            )
        self.config = settings.with_depth_weights(config)
        need = "--train=depth: no layer has weights of its own; add --depth_rank"
        require(settings.train == ALL or self.config.has_depth_weights, need)
        self._keeps_head = False
        settings.check_vocabulary(config, self.tokenizer.vocab_size)

    def use_dropout(self, rate: float | None) -> None:
        """Sets the dropout of the encoder; None keeps the checkpoint's."""
        if rate is not None:
            self.config = self.config.replace(
                hidden_dropout_prob=rate, attention_probs_dropout_prob=rate
            )

    def choose_head(self, task: Task) -> Task:
        """Decides whether the checkpoint's head is kept, and warns users if needed.

        Returns the task with labels in the order of the model: if a checkpoint's
        classifier has the same names, their order is kept.
        """
        checkpoint = self.checkpoint
        if checkpoint is None:
            return task
        row = find_head(task.head)
        names, note = labels.choose_head(task, checkpoint)
        self._keeps_head = checkpoint.head == task.head and (
            names is not None or row.fixed_labels is not None or not row.has_classifier
        )
        if note and self._keeps_head == (names is not None):
            logging.warning("%s", note)
        if not self._keeps_head or not names:
            return task
        return dataclasses.replace(task, labels=names)

    def make_model(self, task: Task, dtype: str, **options: Any) -> keras.Model:
        """Builds the model with its initial weights, for labels in the model's order.

        `options` are arguments of the model's class. Raises `UsageError` if it cannot
        have the exits that the settings ask for.
        """
        row = find_head(task.head)
        has_count = row.has_classifier and not row.fixed_labels
        count = len(task.labels) or 1 if has_count else None  # 1 for a score
        kwargs: dict[str, Any] = {"dtype": dtype, **self._exits(task), **options}
        if self.checkpoint is None:
            kwargs |= {} if count is None else {"num_labels": count}
            model = row.load_class()(self.config, seed=self.settings.seed, **kwargs)
            model.mark_untrained()
        else:
            self.checkpoint.config = self.config
            model = build_model(
                self.checkpoint,
                task.head,
                count,
                self.settings.seed,
                report=logging.info,
                keep_head=self._keeps_head,
                **kwargs,
            )
        model.labels = task.labels or None
        model.problem_type = task.problem_type
        if self.settings.exits != NONE:
            logging.info(
                "%d exits add %d parameters to %d",
                len(model.exits),
                (more := sum(layer.count_params() for layer in model.exits)),
                model.count_params() - more,
            )
        if self.settings.exits == FROZEN:
            model.backbone.trainable = model.classifier.trainable = False
        if self.settings.train == DEPTH:
            for name, variable in weight_names(model).items():
                shared = name.startswith("backbone/") and not name.startswith(OWN)
                new = name in model.untrained_weights and "/pooler/" in name
                variable.trainable = new or not shared
            count = sum(math.prod(w.shape) for w in model.trainable_weights)
            text = "trains %d of %d parameters"
            logging.info(text, count, model.count_params())
        return model

    def _exits(self, task: Task) -> dict[str, int]:
        """Returns the model's argument for the number of exits, if it has one."""
        mode, layers = self.settings.exits, self.config.num_hidden_layers
        if task.head != "text_classifier":
            need = f"the task {task.name} needs a {task.head}"
            require(mode == NONE, f"exits: only text classifiers, {need}", mode)
            return {}
        if mode == NONE:
            if self.checkpoint and self.checkpoint.head_options.get("num_exits"):
                logging.warning(
                    "the exits of %s are not kept, as they would no longer fit; "
                    "--exits=joint trains them, too",
                    self.checkpoint.path,
                )
            return {"num_exits": 0}
        require(layers > 1, "exits: needs at least 2 layers", layers)
        require(
            mode != FROZEN or self._keeps_head,
            "exits: frozen needs an init_checkpoint that was fine-tuned on a task with "
            "the same labels; joint trains the whole model",
        )
        return {"num_exits": layers - 1}

    @property
    def origin(self) -> str | None:
        """The checkpoint's name on a hub, with the commit; None for local files."""
        return None if self.checkpoint is None else self.checkpoint.origin


def make_pretrainer(
    settings: PretrainSettings,
    start: Checkpoint | None,
    config: AlbertConfig,
    head: str,
    dtype: str,
) -> keras.Model:
    """Builds the model of a pretraining run with its initial weights.

    The weights may be grown. The head is a name in `heads.HEADS` or `heads.PAIRS`.
    Raises `UsageError` if the weights belong to another config.
    """
    row = find_head(head)
    options = {n: getattr(settings, n) for n in row.options if hasattr(settings, n)}
    if start is None:
        model = row.load_class()(config, seed=settings.seed, dtype=dtype, **options)
        model.mark_untrained()
        return model
    if (own := settings.with_depth_weights(start.config)) != start.config:
        start = grow(start, own)
    if settings.grow:
        start = grow(start, config)
    changes = differences(start.config, config)
    hint = "; --grow allows it" if set(changes) <= set(GROWABLE) else ""
    require(
        not changes,
        f"--init_checkpoint={settings.init_checkpoint}: its config differs from "
        f"--preset or --albert_config_file, has {'; '.join(changes.values())}{hint}",
    )
    if row.nets:
        start = nets.join(start, head, options)
    return build_model(start, head, seed=settings.seed, dtype=dtype, **options)


@contextlib.contextmanager
def open_start(settings: FinetuneSettings) -> Iterator[Start]:
    """Opens the initial weights inside a `with` statement.

    The config of the settings is used if the weights have none. Raises `UsageError` if
    the tokenizer does not belong to the weights, or is too large, or the config
    describes another model, and `DataError` if the files are damaged.
    """
    if settings.from_scratch:
        yield Start(settings, None)
        return
    path = settings.init_checkpoint
    try:
        opened = load.open_checkpoint(path)
    except MissingFileError:
        if not settings.albert_config_file:
            raise
        opened = load.open_checkpoint(path, config=settings.own_config())
    with opened as checkpoint:
        nets.refuse_generator(checkpoint)
        checkpoint.check_unknown(with_heads=False)
        yield Start(settings, checkpoint)


def _with_given(checkpoint: Checkpoint, settings: FinetuneSettings) -> AlbertConfig:
    """Returns a checkpoint's config with the training values of a given file."""
    config, path = checkpoint.config, settings.albert_config_file
    if not path:
        return config
    other = settings.own_config()
    names = [field.name for field in dataclasses.fields(config)]
    taken = [n for n in names if n in _FOR_TRAINING or is_new(n, config)]
    for name in names:
        require(
            name in (*taken, *_NOT_IN_FILES)
            or getattr(config, name) == getattr(other, name),
            f"albert_config_file: {path}: {name} must be {getattr(config, name)!r} as "
            f"in {checkpoint.path}; leave the flag out to use the checkpoint's config",
            getattr(other, name),
        )
    return config.replace(**{name: getattr(other, name) for name in taken})


def check_layers(settings: Any, config: AlbertConfig) -> None:
    """Raises `UsageError` if a model does not have the layers that settings ask for."""
    check_depth(settings.depth, config)
    drawn, most = settings.random_depth, config.num_hidden_layers
    need = f"--depth_range must be within 1,{most}, the layers of the model"
    ends = ",".join(settings.depth_range)
    require(drawn is None or drawn.high <= most, need, ends)
