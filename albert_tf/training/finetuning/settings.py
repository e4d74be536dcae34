"""Settings of a fine-tuning run, under the original's flag names."""

import dataclasses
import math
from collections.abc import Collection
from typing import Any

from albert_tf.errors import UsageError
from albert_tf.objectives.exit_modes import FROZEN
from albert_tf.text.inputs import check_max_seq_length
from albert_tf.training.finetuning.data_settings import (
    ExampleSettings,
    SourceSettings,
)
from albert_tf.training.finetuning.step_settings import (
    TrainingSettings,
    WatchSettings,
)
from albert_tf.training.intervals import Intervals, usual_log_steps
from albert_tf.training.number_ranges import check_numbers
from albert_tf.training.schedules import check_schedule

# They change how a run is carried out or watched, not what it computes, so a run may be
# resumed with other values.
NOT_IN_IDENTITY = frozenset(
    {
        "output_dir",
        "overwrite",
        "allow_other_versions",
        "log_steps",
        "save_checkpoints_steps",
        "keep_checkpoint_max",
        "distribution",
        "num_devices",
        "tpu_name",
        "worker_timeout",
    }
)
# Settings that name content, and the key under which the content is on record.
CONTENT_OF = {
    "train_file": "data",
    "dev_file": "data",
    "test_file": "data",
    "data_dir": "data",
    "tfds_data_dir": "data",
    "download": "data",
    "init_checkpoint": "init_checkpoint",
    "spm_model_file": "tokenizer",
    "do_lower_case": "tokenizer",
    "keep_accents": "tokenizer",
    "preset": "config",
    "albert_config_file": "config",
}
# Settings that recipe, model, data or other settings decide if they are not given; see
# `RunFolder`.
FOLLOWS = (
    "learning_rate",
    "train_batch_size",
    "dropout",
    "max_seq_length",
    "num_train_steps",
    "num_warmup_steps",
    "eval_steps",
    "fixed_length",
    "doc_stride",
    "keep",
)
# Settings that are gone, and the value with which a run begun by an earlier version is
# this one.
RETIRED = {"search": ()}

# What else of a config a setting replaces that is given beside it: the steps of a
# recipe, and their warm-up, are for all of its examples.
_REPLACES = {
    "num_train_epochs": ("num_train_steps", "num_warmup_steps"),
    "max_train_examples": ("num_train_steps", "num_warmup_steps"),
    "num_train_steps": ("num_train_epochs", "num_warmup_steps"),
    "num_warmup_steps": ("warmup_proportion",),
    "warmup_proportion": ("num_warmup_steps",),
}


def beside(config: dict[str, Any], given: Collection[str]) -> dict[str, Any]:
    """Returns the settings of a config that those given beside it leave in force.

    Args:
        config: dict. Values by name.
        given: collection of str. Names of the settings that take precedence.
    """
    replaced = {name for setting in given for name in _REPLACES.get(setting, ())}
    return {name: value for name, value in config.items() if name not in replaced}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuneSettings(
    ExampleSettings,
    WatchSettings,
    TrainingSettings,
    SourceSettings,
):
    """A fine-tuning run.

    Each field is described by its `metadata["help"]`, which is also the help of the
    flag of that name. An empty string means "not given". Fields that are None take the
    value of the recipe, or else a default that `resolved` computes.
    """

    def resolved(
        self, num_examples: int, recipe: dict[str, Any] | None = None
    ) -> "FinetuneSettings":
        """Returns a copy with the values of the recipe and the lengths of the run.

        Args:
            num_examples: int. Number of units of the training examples.
            recipe: dict. Values of `task.Recipe`, or None.

        Raises:
            UsageError: If a value is invalid.
        """
        self.check_given()
        values = dict(recipe or {})
        epochs = self.num_train_epochs
        own_length = epochs is not None or self.num_train_steps is not None
        if own_length or self.max_train_examples:
            # The steps of a recipe, and their warm-up, are for all of its examples.
            for name in ("num_train_steps", "num_warmup_steps"):
                values.pop(name, None)
        share = self.warmup_proportion
        if share is not None:
            values.pop("num_warmup_steps", None)
        given = {name: getattr(self, name) for name in _RECIPE_FIELDS}
        values |= {name: v for name, v in given.items() if v is not None}
        values.setdefault("learning_rate", 2e-5)
        batch = values.setdefault("train_batch_size", 32)
        epochs = 3.0 if epochs is None else epochs
        steps = values.setdefault(
            "num_train_steps", math.ceil(num_examples * epochs / batch)
        )
        if self.exits == FROZEN:
            # No metric of the last layer changes, so none can be the best.
            values["keep"] = "last"
        warmup = steps // 10 if share is None else int(steps * share)
        values.setdefault("num_warmup_steps", warmup)
        values["eval_steps"] = self.eval_steps
        if self.eval_steps is None:
            values["eval_steps"] = min(math.ceil(num_examples / batch), steps)
        values["log_steps"] = self.log_steps or usual_log_steps(steps)
        # XLA, which a TPU always uses, compiles one shape.
        compiled = self.jit_compile or self.distribution == "tpu"
        values["fixed_length"] = self.fixed_length or compiled
        settings = dataclasses.replace(self, **values)
        settings.check_values()
        return settings

    def check_given(self) -> None:
        """Raises a UsageError if settings that were given cannot be used together."""
        for one, other in (
            ("num_train_epochs", "num_train_steps"),
            ("warmup_proportion", "num_warmup_steps"),
        ):
            values = getattr(self, one), getattr(self, other)
            if None not in values:
                raise UsageError(
                    f"{one}: cannot be combined with {other}, received {values[0]} and "
                    f"{values[1]}"
                )
        self.check_values()

    def check_values(self) -> None:
        """Raises a UsageError if a value is out of its range."""
        check_numbers(self, _MAY_BE_ZERO, flags="")
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            choices = field.metadata.get("choices")
            if choices and value not in choices:
                known = ", ".join(choice for choice in choices if choice)
                raise UsageError(
                    f"{field.name} must be one of {known}, received {value!r}"
                )
        share, decay = self.warmup_proportion, self.layerwise_decay
        if share is not None and not 0 <= share <= 1:
            raise UsageError(f"warmup_proportion must be in [0, 1], received {share}")
        if decay is not None and not 0 < decay <= 1:
            raise UsageError(f"layerwise_decay must be in (0, 1], received {decay}")
        if self.max_seq_length is not None:
            check_max_seq_length(self.max_seq_length, pairs=False)
        check_schedule(self, flags="")
        if not 0 <= self.seed < 2**31:
            raise UsageError(f"seed must be from 0 to 2**31 - 1, received {self.seed}")
        if self.exits == FROZEN and (
            self.early_stopping_patience or self.num_seeds > 1
        ):
            raise UsageError(
                "exits: frozen leaves every metric as it is, so that "
                "early_stopping_patience and num_seeds have nothing to compare"
            )
        batch = self.train_batch_size
        if batch is not None and batch % self.gradient_accumulation_steps:
            raise UsageError(
                "train_batch_size must be a multiple of gradient_accumulation_steps, "
                f"received {batch} and {self.gradient_accumulation_steps}"
            )

    def needs_dev(self) -> list[str]:
        """Returns the given settings that mean nothing without dev examples."""
        asked = {
            "early_stopping_patience": self.early_stopping_patience > 0,
            "on_collapse": self.on_collapse != "warn",
            "metric": bool(self.metric),
            "num_seeds": self.num_seeds > 1,
        }
        return [name for name, is_given in asked.items() if is_given]

    def identity(self) -> dict[str, Any]:
        """Returns the settings that decide the trained weights."""
        values = dataclasses.asdict(self)
        return {k: v for k, v in values.items() if k not in NOT_IN_IDENTITY}

    def intervals(self) -> Intervals:
        """Returns when the training loop logs, saves and evaluates."""
        return Intervals(
            self.num_train_steps,
            log_steps=self.log_steps,
            save_checkpoints_steps=self.save_checkpoints_steps,
            eval_steps=self.eval_steps,
            iterations_per_loop=20,
        )

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Returns the default values of the optional settings."""
        return {
            field.name: field.default
            for field in dataclasses.fields(cls)
            if field.default is not dataclasses.MISSING
        }


_RECIPE_FIELDS = (
    "learning_rate",
    "train_batch_size",
    "dropout",
    "num_train_steps",
    "num_warmup_steps",
    "max_seq_length",
)
_MAY_BE_ZERO = (
    "num_warmup_steps",
    "eval_steps",
    "max_train_examples",
    "early_stopping_patience",
    "worker_timeout",
)
