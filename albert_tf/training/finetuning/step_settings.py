"""Settings of a fine-tuning run about its training and its evaluations."""

import dataclasses

from albert_tf.objectives.exit_modes import MODES
from albert_tf.optimizers.arguments import SCHEDULES
from albert_tf.settings import setting
from albert_tf.training.schedules import DECAY_HELP, SCHEDULE_HELP

ON_COLLAPSE = ("warn", "stop", "restart")


@dataclasses.dataclass(frozen=True)
class TrainingSettings:
    """How a run trains. Fields that are None take the recipe's value or a default."""

    recipe: str = setting(
        "Take the next six settings from this row of the paper's Table 14, for example "
        "cola. Default: the task's own row. Flags given explicitly take precedence.",
        "",
    )
    learning_rate: float | None = setting("Peak learning rate. Default: 2e-5.", None)
    train_batch_size: int | None = setting(
        "Examples per step, over all devices. Default: 32.", None
    )
    dropout: float | None = setting(
        "Dropout of the encoder. Default: the checkpoint's.", None
    )
    num_train_steps: int | None = setting(
        "Number of updates. Default: those of num_train_epochs.", None
    )
    num_warmup_steps: int | None = setting(
        "Updates during which the learning rate rises. Default: 10% of all.", None
    )
    warmup_proportion: float | None = setting(
        "Share of the updates during which the learning rate rises, instead of "
        "num_warmup_steps.",
        None,
    )
    max_seq_length: int | None = setting(
        "Tokens per row. Default: the model's maximum, at most 512.", None
    )
    num_train_epochs: float | None = setting(
        "Passes over the training examples, instead of num_train_steps. Default: 3.",
        None,
    )
    max_train_examples: int = setting(
        "Train on this many examples, drawn with the seed; 0: on all.", 0
    )
    learning_rate_schedule: str = setting(SCHEDULE_HELP, "original", choices=SCHEDULES)
    num_decay_steps: int | None = setting(DECAY_HELP, None)
    optimizer: str = setting("adamw or lamb.", "adamw", choices=("adamw", "lamb"))
    weight_decay_rate: float = setting(
        "Decoupled weight decay; not applied to biases and layer norms.", 0.01
    )
    layerwise_decay: float | None = setting(
        "Factor of the learning rate from each layer to the one below it, such as 0.9, "
        "for models without shared layers (BERT). Refused for others, ALBERT included, "
        "whose layers have one rate.",
        None,
    )
    clip_norm: float = setting("Maximum of the global gradient norm.", 1.0)
    ema_decay: float = setting(
        "Decay of an exponential moving average of the weights, such as 0.999, which "
        "is then what is evaluated, kept and saved; 0: none.",
        0.0,
    )
    class_weights: tuple[str, ...] = setting(
        "Weights of the classes in the loss, such as spam=5,ham=1; or balanced.", ()
    )
    label_smoothing: float = setting(
        "Share of the label that is spread over all classes.", 0.0
    )
    exits: str = setting(
        "Text classifiers: also train classifiers on every layer, with which the model "
        "can stop early: joint (with the model) or frozen (on a fine-tuned model, "
        "which stays as it is).",
        "none",
        choices=MODES,
    )
    gradient_accumulation_steps: int = setting(
        "Micro-batches that each device's share of a step is cut into.", 1
    )
    eval_batch_size: int = setting("Rows per batch in evaluation.", 32)
    packing: bool = setting(
        "Put several short examples of a batch into one row. Changes no result, but "
        "which values the encoder's dropout drops, where it has any.",
        True,
    )
    fixed_length: bool = setting(
        "Pad every batch to max_seq_length; implied by --distribution=tpu.", False
    )
    jit_compile: bool = setting(
        "Compile the step with XLA; implies fixed_length.", False
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
    )
    num_devices: int | None = setting(
        "With --distribution=mirrored: number of GPUs, or of logical CPU devices.",
        None,
    )
    tpu_name: str = setting(
        "With --distribution=tpu: name or address of the TPU; local on a TPU VM.",
        "local",
    )
    worker_timeout: int = setting(
        "With --distribution=multi_worker: seconds to wait for the other workers at "
        "the start; 0: without end.",
        600,
    )
    seed: int = setting(
        "Seed of the order of examples, the new classifier and dropout.", 12345
    )


@dataclasses.dataclass(frozen=True)
class WatchSettings:
    """How a run is watched, and which of its weights are kept."""

    eval_steps: int | None = setting(
        "Steps between evaluations; 0: only at the end. Default: an epoch.", None
    )
    log_steps: int | None = setting(
        "Steps between lines of metrics. Default: 100, or less in short runs.", None
    )
    save_checkpoints_steps: int = setting(
        "Steps between checkpoints to resume from; eval_steps decides what is "
        "evaluated.",
        500,
    )
    keep_checkpoint_max: int = setting("Number of checkpoints to keep.", 2)
    metric: str = setting(
        "Metric on the dev examples that selects the weights to keep; any name but one "
        "of the task's is refused with the list. Default: the task's.",
        "",
    )
    keep: str = setting(
        "Weights of the model: those with the best metric, or the last ones.",
        "best",
        choices=("best", "last"),
    )
    early_stopping_patience: int = setting(
        "Stop after this many evaluations without a better metric; 0: never.", 0
    )
    on_collapse: str = setting(
        "What to do if training collapses (one class, only empty answers, a loss at "
        "chance): warn, stop, or restart with the next seed.",
        "warn",
        choices=ON_COLLAPSE,
    )
    num_seeds: int = setting(
        "Number of runs with consecutive seeds; the best one is kept.", 1
    )
