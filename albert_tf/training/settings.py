"""The settings that pretraining and fine-tuning share, checked without TensorFlow."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from albert_tf.config import AlbertConfig
from albert_tf.errors import UsageError, require
from albert_tf.optimizers.arguments import (
    ONLY_ORIGINAL,
    SCHEDULES,
    check_schedule_arguments,
)
from albert_tf.settings import check_fields, setting


def usual_log_steps(num_train_steps: int) -> int:
    """Returns a number of steps between log lines that gives a short run a curve."""
    return max(1, min(100, num_train_steps // 20))


@dataclasses.dataclass(frozen=True)
class Intervals:
    """How long a run is, and after how many steps something is due.

    Args:
        num_train_steps: int. Number of updates of the whole run.
        log_steps: int. Steps between log lines.
        save_checkpoints_steps: int. Steps between checkpoints.
        eval_steps: int. Steps between evaluations; 0: only at the end.
        iterations_per_loop: int. Maximum number of steps per call of the graph.
    """

    num_train_steps: int
    log_steps: int = 100
    save_checkpoints_steps: int = 5000
    eval_steps: int = 0
    iterations_per_loop: int = 100

    def next_count(self, done: int) -> int:
        """Returns how many steps to train before something is due."""
        boundaries = [self.log_steps, self.save_checkpoints_steps]
        boundaries += [self.eval_steps] if self.eval_steps else []
        counts = [every - done % every for every in boundaries]
        return min(*counts, self.num_train_steps - done, self.iterations_per_loop)

    def log_is_due(self, done: int) -> bool:
        """Returns whether a log line is due after `done` steps."""
        return self._is_due(done, self.log_steps)

    def save_is_due(self, done: int) -> bool:
        """Returns whether a checkpoint is due after `done` steps."""
        return self._is_due(done, self.save_checkpoints_steps)

    def evaluation_is_due(self, done: int) -> bool:
        """Returns whether an evaluation is due after `done` steps."""
        return self._is_due(done, self.eval_steps)

    def _is_due(self, done: int, every: int) -> bool:
        at_end = done == self.num_train_steps
        return done > 0 and (at_end or bool(every) and done % every == 0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """What every training is given, under the original's flag names.

    Each field is described by its `metadata["help"]`, which is also the help of the
    flag of that name. Steps are updates of the weights. Fields that are None take a
    value that the derived class computes.
    """

    output_dir: str = setting(
        "Folder of the run: new, empty, or holding this same run, which is resumed. At "
        "the end it can be loaded like any model.",
        identity=False,
    )
    allow_other_versions: bool = setting(
        "Continue a run that other versions of albert_tf, TensorFlow or Keras began.",
        False,
        identity=False,
    )
    do_lower_case: bool | None = setting(
        "Lower-case text, if neither the model nor the records say. Default: true.",
        None,
        identity=False,
    )
    keep_accents: bool | None = setting(
        "Keep accents, if neither the model nor the records say. Default: false.",
        None,
        identity=False,
    )
    train_batch_size: int | None = setting(
        "Examples per step, over all devices.", None, minimum=1
    )
    eval_batch_size: int = setting(
        "Examples per step of an evaluation, over all devices.", 32, minimum=1
    )
    max_seq_length: int | None = setting("Tokens per row.", None, minimum=1)
    optimizer: str = setting("adamw or lamb.", "adamw", choices=("adamw", "lamb"))
    learning_rate: float | None = setting("Peak learning rate.", None, above=0)
    learning_rate_schedule: str = setting(
        "original (linear warm-up, then polynomial decay counted from step 0), linear "
        "or cosine (from the peak at the end of the warm-up to 0 at the last step), or "
        "trapezoid (the peak until the last num_decay_steps, then 1 - sqrt).",
        "original",
        choices=SCHEDULES,
    )
    num_decay_steps: int | None = setting(
        "With --learning_rate_schedule=trapezoid: the last steps, in which the "
        "learning rate falls. Default: 20% of all.",
        None,
    )
    num_train_steps: int | None = setting("Number of updates.", None, minimum=1)
    num_warmup_steps: int | None = setting(
        "Updates during which the learning rate rises.", None, minimum=0
    )
    weight_decay_rate: float = setting(
        "Decoupled weight decay; not applied to biases and layer norms.",
        0.01,
        minimum=0,
    )
    clip_norm: float = setting(
        "Global norm to which gradients are clipped; 0: no clipping.", 1.0, minimum=0
    )
    ema_decay: float = setting(
        "Decay of an exponential moving average of the weights, such as 0.999; 0: no "
        "average.",
        0.0,
        minimum=0,
        below=1,
    )
    gradient_accumulation_steps: int = setting(
        "Micro-batches that each device's share of a step is cut into.", 1, minimum=1
    )
    eval_steps: int | None = setting(
        "Steps between evaluations; 0: only at the end.", None, minimum=0
    )
    log_steps: int | None = setting(
        "Steps between lines of metrics. Default: 100, or less in short runs.",
        None,
        minimum=1,
        identity=False,
    )
    save_checkpoints_steps: int = setting(
        "Steps between checkpoints to resume from.", 500, minimum=1, identity=False
    )
    keep_checkpoint_max: int = setting(
        "Number of checkpoints to keep.", 2, minimum=1, identity=False
    )
    precision: str = setting(
        "float32, or bfloat16 (weights stay float32).",
        "float32",
        choices=("float32", "bfloat16"),
    )
    distribution: str = setting(
        "one_device, mirrored, multi_worker (TF_CONFIG), or tpu with the packages of "
        "requirements-tpu.txt.",
        "one_device",
        choices=("one_device", "mirrored", "multi_worker", "tpu"),
        identity=False,
    )
    num_devices: int | None = setting(
        "With --distribution=mirrored: number of GPUs, or of logical CPU devices.",
        None,
        minimum=1,
        identity=False,
    )
    tpu_name: str = setting(
        "With --distribution=tpu: name or address of the TPU; local on a TPU VM.",
        "local",
        identity=False,
    )
    worker_timeout: int = setting(
        "With --distribution=multi_worker: seconds to wait for the other workers at "
        "the start; 0: without end.",
        600,
        minimum=0,
        identity=False,
    )
    jit_compile: bool = setting(
        "Compile the whole step with XLA (a TPU always does).", False
    )
    seed: int = setting(
        "Seed of new weights, the order of examples, masks and dropout.",
        12345,
        minimum=0,
        maximum=2**31 - 1,
    )

    # What `run.json` says the run does; of a run of pretraining it says nothing.
    kind: ClassVar[str] = ""
    # Settings of earlier versions, with the value of a run that is one of today.
    retired: ClassVar[Mapping[str, Any]] = {}

    def check_training(self) -> None:
        """Raises a UsageError if a value is out of its range, or does not fit others.

        What is not known yet is not checked.
        """
        check_fields(self)
        self._check_schedule()
        require(
            self.num_devices is None or self.distribution == "mirrored",
            "--num_devices requires --distribution=mirrored",
            self.distribution,
        )
        batch, parts = self.train_batch_size, self.gradient_accumulation_steps
        require(
            batch is None or batch % parts == 0,
            "--train_batch_size must be a multiple of --gradient_accumulation_steps",
            *(batch, parts),
        )

    def _check_schedule(self) -> None:
        own = {k: getattr(self, k) for k in ONLY_ORIGINAL if hasattr(self, k)}
        steps = self.num_decay_steps
        check_schedule_arguments(self.learning_rate_schedule, own, steps, "--")
        if steps is None:
            return
        if None in (self.num_train_steps, self.num_warmup_steps):
            require(steps > 0, "--num_decay_steps must be positive", steps)
            return  # Checked again once they are known.
        most = self.num_train_steps - self.num_warmup_steps
        rule = f"must be from 1 to {most}, the steps after the warm-up"
        require(0 < steps <= most, f"--num_decay_steps {rule}", steps)

    def intervals(self, iterations_per_loop: int = 20) -> Intervals:
        """Returns when the training loop logs, saves and evaluates."""
        return Intervals(
            self.num_train_steps,
            log_steps=self.log_steps or usual_log_steps(self.num_train_steps),
            save_checkpoints_steps=self.save_checkpoints_steps,
            eval_steps=self.eval_steps,
            iterations_per_loop=iterations_per_loop,
        )

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Returns the default values of the optional settings."""
        return {
            field.name: field.default
            for field in dataclasses.fields(cls)
            if field.default is not dataclasses.MISSING
        }

    @classmethod
    def in_identity(cls) -> dict[str, bool | str]:
        """Returns how settings are compared when a run is resumed, by their names."""
        found = {f.name: f.metadata["identity"] for f in dataclasses.fields(cls)}
        return {name: how for name, how in found.items() if how}

    def own_config(self) -> AlbertConfig:
        """Returns the config that `preset` or `albert_config_file` names.

        Raises:
            UsageError: If there is no such preset.
            DataError: If the file is not a config.
        """
        if not self.preset:
            return AlbertConfig.from_json(self.albert_config_file)
        try:
            return AlbertConfig.from_preset(self.preset)
        except ValueError as e:
            raise UsageError(f"--preset={self.preset}: {e}") from None

    def check_vocabulary(self, config: AlbertConfig, vocab_size: int) -> None:
        """Raises a UsageError if a tokenizer has more tokens than a model."""
        require(
            vocab_size <= config.vocab_size,
            f"--spm_model_file={self.spm_model_file}: must have at most as many "
            f"pieces as the config's vocab_size={config.vocab_size}, has {vocab_size}",
        )

    def identity(self) -> dict[str, Any]:
        """Returns the settings that decide the trained weights."""
        return {name: getattr(self, name) for name in self.in_identity()}

    def changeable(self) -> dict[str, bool]:
        """Returns settings with which a run may go on although they differ.

        The value is whether the user said so, with `--change_` before the name.
        """
        return {}


@dataclasses.dataclass(frozen=True)
class Phase:
    """Consecutive steps with rows of one length.

    Attributes:
        first_step: int. Updates made before it.
        last_step: int. Updates made when it ends.
        settings: `TrainingSettings`. As of a run of this length alone.
    """

    first_step: int
    last_step: int
    settings: Any

    def intervals(self) -> Intervals:
        """Returns when something is due; the end of the phase is the end of a run."""
        intervals = self.settings.intervals()
        return dataclasses.replace(intervals, num_train_steps=self.last_step)
