"""The settings that pretraining and fine-tuning share, checked without TensorFlow."""

import copy
import dataclasses
from typing import Any, ClassVar, Self

from albert_tf.config import DEPTH_FIELDS, AlbertConfig
from albert_tf.converters.equivalents import is_new
from albert_tf.errors import UsageError, require
from albert_tf.optimizers.arguments import (
    ONLY_ORIGINAL,
    SCHEDULES,
    check_schedule_arguments,
)
from albert_tf.settings import check_fields, describe, setting
from albert_tf.training.random_depth import RandomDepth

_OF_TEACHERS = ("teacher_weight", "teacher_temperature", "cache_teacher")
_OF_TEACHERS += ("teacher_layers",)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Settings of every training, under the original's flag names.

    Steps are updates of the weights. Fields that are None take a value that the derived
    class computes.

    Attributes:
        output_dir: Folder of the run: new, empty, or holding this same run, which is
            resumed. At the end it can be loaded like any model.
        allow_other_versions: Continue a run that other versions of albert_tf,
            TensorFlow or Keras began.
        do_lower_case: Lower-case text, if neither the model nor the records say.
            Default: true.
        keep_accents: Keep accents, if neither the model nor the records say. Default:
            false.
        train_batch_size: Examples per step, over all devices.
        eval_batch_size: Examples per step of an evaluation, over all devices.
        max_seq_length: Tokens per row.
        optimizer: adamw or lamb.
        learning_rate: Peak learning rate.
        learning_rate_schedule: original (linear warm-up, then polynomial decay counted
            from step 0), linear or cosine (from the peak at the end of the warm-up to 0
            at the last step), or trapezoid (the peak until the last num_decay_steps,
            then 1 - sqrt).
        num_decay_steps: With --learning_rate_schedule=trapezoid: the last steps, in
            which the learning rate falls. Default: 20% of all.
        num_train_steps: Number of updates.
        num_warmup_steps: Updates during which the learning rate rises.
        weight_decay_rate: Decoupled weight decay; see --exclude_from_weight_decay.
        clip_norm: Global norm to which gradients are clipped; 0: no clipping.
        beta_2: Decay of the average of the squared gradients.
        epsilon: Term added to the root of that average.
        bias_correction: Correct the averages for their start at zero, as fairseq's Adam
            does.
        exclude_from_weight_decay: Parts of the names of variables without weight decay,
            separated by commas; empty: all decay. With --optimizer=lamb, these have no
            trust ratio either, nor have biases, which start as 0.
        ema_decay: Decay of an exponential moving average of the weights, such as 0.999;
            0: no average.
        gradient_accumulation_steps: Micro-batches that each device's share of a step is
            cut into.
        eval_steps: Steps between evaluations; 0: only at the end.
        log_steps: Steps between lines of metrics. Default: 100, or less in short runs.
        save_checkpoints_steps: Steps between checkpoints to resume from.
        keep_checkpoint_max: Number of checkpoints to keep.
        precision: float32, bfloat16, or float16 with a loss scale that adapts itself,
            for GPUs without bfloat16, such as T4, V100 and RTX 20. Weights stay
            float32.
        backend: Library that trains: tensorflow, or jax, which the extra of that name
            installs. The numbers are the same except for rounding, new weights and the
            masks of dropout.
        distribution: one_device, mirrored, multi_worker (TF_CONFIG), or tpu (use
            --backend=jax; docs/tpu.md).
        num_devices: With --distribution=mirrored: number of GPUs, or of logical CPU
            devices.
        tpu_name: With --distribution=tpu: name or address of the TPU; local on a TPU
            VM.
        allow_tpu_pod: With --distribution=tpu on --backend=tensorflow: try a TPU of
            several hosts, on which TensorFlow is known to hang.
        worker_timeout: With several processes: seconds to wait for the other workers at
            the start; 0: no limit.
        depth: How the step applies layers that share their weights. unrolled: one after
            another. loop: in a loop, which is compiled once whatever their number.
            loop_remat: also compute them again in the backward pass, which keeps only
            their inputs, for a third more operations; known as gradient checkpointing
            or rematerialization. The numbers are the same.
        depth_rank: Rank of the matrices of its own that each layer gets, next to its
            kernels; 0: none. They begin by changing nothing.
        depth_matrices: With --depth_rank, the kernels that get them: some of query,
            key, value, attention_output, ffn_intermediate and ffn_output. Default: all.
        depth_embedding: Give each layer a vector of its own, added to its input, which
            begins as 0.
        depth_range: Two numbers of layers, such as 3,12: each step computes the first
            layers alone, a number of them drawn between these, so that the model
            answers with any (--layers of other commands). Default: always all layers.
        shard_optimizer: With --backend=jax: divide the optimizer's slots among the
            devices (ZeRO).
        compilation_cache: With --backend=jax: local folder of compiled programs, which
            a restart reads; or none. Default: compilation_cache in --output_dir until
            the run is finished, or none if that is in a bucket.
        profile_steps: First and last step to profile, such as 100,110; the trace, for
            TensorBoard and XProf, is written to tensorboard/ in --output_dir.
        jit_compile: Compile the whole step with XLA (a TPU always does, and
            --backend=jax).
        seed: Seed of new weights, the order of examples, masks and dropout.
        teacher: Trained model whose outputs are learned. In finetune a fine-tuned one:
            its logits for train_file, or with --table_kind=vectors the vectors of texts
            alone; its labels must have the same names, and except for questions its
            tokenizer may be another one. In pretrain a masked LM of the same
            vocabulary: its logits for masked tokens.
        teacher_weight: Share of the teacher in the loss; in pretrain, of masked tokens
            alone. At 1, a table needs no labels, and a column of texts' labels is not
            read.
        teacher_temperature: Divisor of the logits of teacher and student; their
            divergence is multiplied by its square.
    """

    group = "training"

    output_dir: str = setting(group="outputs", common=True, identity=False)
    allow_other_versions: bool = setting(False, identity=False)
    do_lower_case: bool | None = setting(None, group="model", identity=False)
    keep_accents: bool | None = setting(None, group="model", identity=False)
    train_batch_size: int | None = setting(None, common=True, minimum=1)
    eval_batch_size: int = setting(32, group="evaluation", minimum=1)
    max_seq_length: int | None = setting(None, group="model", common=True, minimum=1)
    optimizer: str = setting("adamw", choices=("adamw", "lamb"))
    learning_rate: float | None = setting(None, common=True, above=0)
    learning_rate_schedule: str = setting("original", choices=SCHEDULES)
    num_decay_steps: int | None = setting(None, minimum=1)
    num_train_steps: int | None = setting(None, common=True, minimum=1)
    num_warmup_steps: int | None = setting(None, minimum=0)
    weight_decay_rate: float = setting(0.01, minimum=0)
    clip_norm: float = setting(1.0, minimum=0)
    beta_2: float = setting(0.999, minimum=0, below=1)
    epsilon: float = setting(1e-6, above=0)
    bias_correction: bool = False
    exclude_from_weight_decay: str = "LayerNorm,layer_norm,bias"
    ema_decay: float = setting(0.0, minimum=0, below=1)
    gradient_accumulation_steps: int = setting(1, minimum=1)
    eval_steps: int | None = setting(None, group="evaluation", minimum=0)
    log_steps: int | None = setting(None, group="evaluation", minimum=1, identity=False)
    save_checkpoints_steps: int = setting(
        500, group="evaluation", minimum=1, identity=False
    )
    keep_checkpoint_max: int = setting(2, group="evaluation", minimum=1, identity=False)
    precision: str = setting(
        "float32", common=True, choices=("float32", "bfloat16", "float16")
    )
    backend: str = setting(
        "tensorflow",
        group="devices",
        common=True,
        choices=("tensorflow", "jax"),
        identity="recorded",
    )
    distribution: str = setting(
        "one_device",
        group="devices",
        common=True,
        choices=("one_device", "mirrored", "multi_worker", "tpu"),
        identity=False,
    )
    num_devices: int | None = setting(None, group="devices", minimum=1, identity=False)
    tpu_name: str = setting("local", group="devices", identity=False)
    allow_tpu_pod: bool = setting(False, group="devices", identity=False)
    worker_timeout: int = setting(600, group="devices", minimum=0, identity=False)
    depth: str = setting(
        "unrolled",
        group="devices",
        choices=("unrolled", "loop", "loop_remat"),
        identity="recorded",
    )
    depth_rank: int = setting(0, group="model", minimum=0, identity="config")
    depth_matrices: tuple[str, ...] = setting((), group="model", identity="config")
    depth_embedding: bool = setting(False, group="model", identity="config")
    depth_range: tuple[str, ...] = ()
    shard_optimizer: bool = setting(False, group="devices", identity=False)
    compilation_cache: str = setting("", group="devices", identity=False)
    profile_steps: tuple[str, ...] = setting((), group="devices", identity=False)
    jit_compile: bool = setting(False, group="devices")
    seed: int = setting(12345, common=True, minimum=0, maximum=2**31 - 1)
    teacher: str = setting("", group="inputs", identity="teacher")
    teacher_weight: float = setting(1.0, group="training", above=0, maximum=1)
    teacher_temperature: float = setting(2.0, group="training", above=0)

    # Maximum number of steps per call of the graph.
    iterations_per_loop: ClassVar[int] = 20
    # Whether training continues while a checkpoint is written.
    async_checkpoint: ClassVar[bool] = False
    # Whether the activation is compiled (`TrainStep`).
    fuse_elementwise: ClassVar[bool] = False
    # Limits of `callbacks.DivergenceGuard`.
    max_loss_ratio: ClassVar[float] = 0.0
    max_grad_norm_ratio: ClassVar[float] = 0.0
    # The kind of run that `run.json` records; a pretraining run records none.
    kind: ClassVar[str] = ""

    def check_training(self) -> None:
        """Raises `UsageError` if known values are out of range, or do not fit."""
        check_fields(self)
        own = {k: getattr(self, k) for k in ONLY_ORIGINAL if hasattr(self, k)}
        schedule, steps = self.learning_rate_schedule, self.num_decay_steps
        check_schedule_arguments(schedule, own, steps, "--")
        require(
            self.num_devices is None or self.distribution == "mirrored",
            "--num_devices requires --distribution=mirrored",
            self.distribution,
        )
        message = "--shard_optimizer requires --backend=jax"
        require(
            self.backend == "jax" or not self.shard_optimizer, message, self.backend
        )
        cache = self.compilation_cache
        need = "--compilation_cache requires --backend=jax"
        require(self.backend == "jax" or not cache, need, self.backend)
        need = "--compilation_cache must be a folder on this machine"
        require("://" not in cache, need, cache)
        pod = (self.distribution, self.backend) == ("tpu", "tensorflow")
        need = "--allow_tpu_pod requires --distribution=tpu and --backend=tensorflow"
        require(pod or not self.allow_tpu_pod, need, self.distribution, self.backend)
        require(
            (self.precision, self.distribution) != ("float16", "tpu"),
            "--precision=float16 is for GPUs; --distribution=tpu computes in float32 "
            "or bfloat16",
        )
        _ = self.random_depth  # checks the range
        for name in _OF_TEACHERS if not self.teacher else ():
            value, usual = getattr(self, name, None), self.defaults().get(name)
            require(value == usual, f"--{name}: requires --teacher", value)
        self.check_lengths()

    def check_lengths(self) -> None:
        """Raises `UsageError` if steps or batches do not fit each other."""
        batch, parts = self.train_batch_size, self.gradient_accumulation_steps
        message = (
            "--train_batch_size must be a multiple of --gradient_accumulation_steps"
        )
        require(batch is None or batch % parts == 0, message, batch, parts)
        steps, warmup = self.num_train_steps, self.num_warmup_steps
        if given := self.profile_steps:
            need = "--profile_steps must be a first and a last step, such as 100,110"
            is_range = len(given) == 2 and all(one.strip().isdecimal() for one in given)
            require(is_range, need, ",".join(given))
            first, last = self.profiled
            need = f"{need}, from 1 to --num_train_steps={steps}"
            fits = 1 <= first <= last and (steps is None or last <= steps)
            require(fits, need, f"{first},{last}")
        decay = self.num_decay_steps
        if None in (steps, warmup):
            return  # Checked again once the numbers of steps are known.
        need = f"--num_warmup_steps must be at most --num_train_steps={steps}"
        require(warmup <= steps, need, warmup)
        most = steps - warmup
        need = f"must be from 1 to {most}, the steps after the warm-up"
        require((decay or 0) <= most, f"--num_decay_steps {need}", decay)

    def having(self, **values: Any) -> Self:
        """Returns a copy with other values, which are not checked."""
        settings = copy.copy(self)
        vars(settings).update(values)
        return settings

    @property
    def optimizer_arguments(self) -> dict[str, Any]:
        """Arguments of `create_optimizer`."""
        names = "learning_rate num_train_steps num_warmup_steps weight_decay_rate "
        names += "clip_norm learning_rate_schedule num_decay_steps ema_decay "
        names += "beta_2 epsilon bias_correction"
        parts = self.exclude_from_weight_decay.split(",")
        return {
            **{name: getattr(self, name) for name in names.split()},
            "exclude_from_weight_decay": tuple(filter(None, map(str.strip, parts))),
        }

    @property
    def random_depth(self) -> RandomDepth | None:
        """Draws the number of layers of each step; None for all layers."""
        if not self.depth_range:
            return None
        ends = [int(end) for end in self.depth_range if end.isdecimal()]
        fits = len(ends) == len(self.depth_range) == 2 and 1 <= ends[0] <= ends[1]
        need = "--depth_range must be two rising numbers of layers, such as 3,12"
        require(fits, need, ",".join(self.depth_range))
        return RandomDepth(self.seed, *ends)

    @property
    def profiled(self) -> tuple[int, ...]:
        """The first and the last step to profile; empty for none."""
        return tuple(map(int, self.profile_steps))

    @property
    def phases(self) -> "list[Phase]":
        """The parts of the run, each with its own batches."""
        return [Phase(0, self.num_train_steps, self)]

    @property
    def dtype(self) -> str:
        """The Keras dtype policy of `precision`."""
        return {"float32": "float32"}.get(self.precision, f"mixed_{self.precision}")

    @property
    def bytes_per_value(self) -> int:
        """Size of a number of `precision`, in bytes."""
        return 4 if self.precision == "float32" else 2

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
        """Returns how each setting is compared when a run is resumed, by name."""
        identities = {name: about.identity for name, about in describe(cls).items()}
        return {name: how for name, how in identities.items() if how}

    def own_config(self, pad_id: int | None = None) -> AlbertConfig:
        """Returns the config that `preset` or `albert_config_file` names.

        If a preset counts positions from its own padding id, as RoBERTa's does, they
        are counted from the tokenizer's `pad_id`. Raises `UsageError` if there is no
        such preset, and `DataError` if the file is not a config.
        """
        if not self.preset:
            return AlbertConfig.from_json(self.albert_config_file)
        try:
            config = AlbertConfig.from_preset(self.preset)
        except ValueError as e:
            raise UsageError(f"--preset={self.preset}: {e}") from None
        if pad_id is None or not config.position_offset:
            return config
        return config.replace(position_offset=pad_id + 1)

    def with_depth_weights(self, config: AlbertConfig) -> AlbertConfig:
        """Returns the config with the weights of single layers that settings add.

        Raises `UsageError` if the model has others, or cannot have these.
        """
        asked = {n: getattr(self, n) for n in DEPTH_FIELDS if getattr(self, n)}
        try:
            changed = config.replace(**asked)
        except ValueError as e:
            raise UsageError(f"--{e}") from None
        for name, value in asked.items():
            has = getattr(config, name)
            need = f"--{name}: the model has {has!r} already; leave the flag out"
            fits = is_new(name, config) or getattr(changed, name) == has
            require(fits, need, value)
        return changed

    def check_vocabulary(self, config: AlbertConfig, vocab_size: int) -> None:
        """Raises `UsageError` if a tokenizer has more tokens than a model."""
        require(
            vocab_size <= config.vocab_size,
            f"--spm_model_file={self.spm_model_file}: must have at most as many "
            f"pieces as the config's vocab_size={config.vocab_size}, has {vocab_size}",
        )

    def identity(self) -> dict[str, Any]:
        """Returns the settings that decide the trained weights."""
        return {name: getattr(self, name) for name in self.in_identity()}


@dataclasses.dataclass(frozen=True)
class Phase:
    """Consecutive steps with rows of one length, and the events due after each.

    At the end of a phase everything is due, as at the end of a run. `first_step`
    updates were made before it, `last_step` when it ends. Its settings are meant for a
    run of this length alone.
    """

    first_step: int
    last_step: int
    settings: Any

    @property
    def log_steps(self) -> int:
        """Steps between log lines; by default, short runs get a curve, too."""
        usual = max(1, min(100, self.settings.num_train_steps // 20))
        return self.settings.log_steps or usual

    def next_count(self, done: int) -> int:
        """Returns the number of steps to train before something is due."""
        settings = self.settings
        regular = self.log_steps, settings.save_checkpoints_steps, settings.eval_steps
        counts = [every - done % every for every in regular if every]
        if settings.profile_steps:
            first, last = settings.profiled
            counts += [edge - done for edge in (first - 1, last) if edge > done]
        return min(*counts, self.last_step - done, settings.iterations_per_loop)

    def log_is_due(self, done: int) -> bool:
        """Returns whether a log line is due after `done` steps."""
        return self._is_due(done, self.log_steps)

    def save_is_due(self, done: int) -> bool:
        """Returns whether a checkpoint is due after `done` steps."""
        return self._is_due(done, self.settings.save_checkpoints_steps)

    def evaluation_is_due(self, done: int) -> bool:
        """Returns whether an evaluation is due; if `eval_steps` is 0, at the end."""
        return self._is_due(done, self.settings.eval_steps)

    def _is_due(self, done: int, every: int) -> bool:
        at_end = done == self.last_step
        return done > 0 and (at_end or bool(every) and done % every == 0)
