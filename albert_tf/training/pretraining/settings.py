"""The settings of a pretraining run, with the names of the original's flags."""

import dataclasses
from typing import Any

from albert_tf.data.masking.config import most_predictions
from albert_tf.optimizers.arguments import SCHEDULES
from albert_tf.reports.prompts import PROMPTS
from albert_tf.settings import setting
from albert_tf.training.intervals import Intervals, usual_log_steps
from albert_tf.training.pretraining import checks
from albert_tf.training.pretraining.lengths import phases_of
from albert_tf.training.schedules import (
    DECAY_HELP,
    REFERENCE_BATCH_SIZE,
    SCHEDULE_HELP,
    scaled_learning_rate,
)

# They change how a run is carried out or watched, not what it computes, so a run may be
# resumed with other values.
NOT_IN_IDENTITY = frozenset(
    {
        "output_dir",
        "eval_file",
        "eval_batch_size",
        "max_eval_steps",
        "eval_masked_lm_prob",
        "eval_ngram",
        "eval_steps",
        "log_steps",
        "save_checkpoints_steps",
        "keep_checkpoint_max",
        "keep_best",
        "sample_texts",
        "async_checkpoint",
        "iterations_per_loop",
        "distribution",
        "num_devices",
        "tpu_name",
        "worker_timeout",
        "deterministic",
        # The same sums, in another order of operations.
        "fuse_elementwise",
        # The records decide; these only fill in what their card does not say.
        "do_lower_case",
        "keep_accents",
        "change_num_train_steps",
        "allow_other_versions",
        # The same batch, divided otherwise.
        "gradient_accumulation_steps",
        "on_divergence",
        "max_loss_ratio",
        "max_grad_norm_ratio",
    }
)
# Settings that name content, and the key under which `identity.content_of` describes
# that content: a run goes on with the same content in another place.
CONTENT_OF = {
    "input_file": "data",
    "spm_model_file": "tokenizer",
    "preset": "config",
    "albert_config_file": "config",
    "init_checkpoint": "init_checkpoint",
}
# See `RunFolder`.
FOLLOWS = ("max_predictions_per_seq",)


@dataclasses.dataclass(frozen=True)
class PretrainSettings:
    """A pretraining run. Names and defaults are those of `run_pretraining.py`.

    The `metadata["help"]` of each field describes it and is also the help of the flag
    of that name. Steps are updates of the weights.
    """

    input_file: str = setting(
        "TFRecords: the prefix given to create_pretraining_data, or paths separated "
        "by commas."
    )
    output_dir: str = setting(
        "Folder of the run: new, empty, or holding this same run, which is resumed."
    )
    spm_model_file: str = setting(
        "Tokenizer that the records were made with: a SentencePiece model, the "
        "tokenizer.json of a byte-level BPE, or a folder with either."
    )
    do_lower_case: bool | None = setting(
        "Whether the records were lower-cased. Needed only for records without a data "
        "card; default: true.",
        None,
    )
    keep_accents: bool | None = setting(
        "Whether the records keep accents. Needed only for records without a data "
        "card; default: false.",
        None,
    )
    eval_file: str = setting(
        "Held-out TFRecords; without them there is no evaluation.", ""
    )
    objective: str = setting(
        "What to learn: albert, or bert for records of --pair_policy=nsp.", "albert"
    )
    pair_loss_weight: float = setting(
        "Factor of the loss about a pair of segments (SOP, or NSP) beside that of the "
        "masked tokens.",
        1.0,
    )
    preset: str = setting(
        "Size of the model, such as albert_base_v2. Exclusive with "
        "--albert_config_file. Without either: that of --init_checkpoint.",
        "",
    )
    albert_config_file: str = setting("JSON file with the sizes of the model.", "")
    init_checkpoint: str = setting(
        "Checkpoint with the initial weights, in any format of from_pretrained.", ""
    )
    grow: bool = setting(
        "Accept an --init_checkpoint with fewer layers or groups than the config: "
        "layer i begins with the weights of its layer i modulo their number.",
        False,
    )
    max_seq_length: int = setting(
        "Tokens per example; shorter examples are padded.", 512
    )
    sequence_length_schedule: str = setting(
        "Steps by length, such as 128:9000,512:1000, or with batch sizes, "
        "128:9000:4096,512:1000:1024. --input_file then contains {length}, for the "
        "records of each; --max_predictions_per_seq is that of the longest.",
        "",
    )
    max_predictions_per_seq: int | None = setting(
        "Maximum number of masked tokens per example. Default: that of the records, if "
        "they hold masks, or masked_lm_prob of max_seq_length, 77 of 512.",
        None,
    )
    masking: str = setting(
        "albert, bert, bert_wwm, roberta, spanbert or electra.", "albert"
    )
    masked_lm_prob: float = setting("Fraction of the tokens to mask.", 0.15)
    ngram: int = setting(
        "With --masking=albert: maximum number of words masked together.", 3
    )
    packing: bool = setting(
        "Put several short examples into one row; batch sizes then count rows.", False
    )
    train_batch_size: int = setting("Examples per step, over all devices.", 4096)
    eval_batch_size: int = setting(
        "Examples per evaluation step, over all devices.", 64
    )
    optimizer: str = setting("lamb or adamw.", "lamb")
    learning_rate: float = setting("Peak learning rate of the schedule.", 0.00176)
    scale_learning_rate: bool = setting(
        "Take --learning_rate as that of a batch of 4096, to which published rates "
        "belong, and multiply it by sqrt(train_batch_size / 4096). "
        "--num_warmup_steps stays, as in the LAMB paper.",
        False,
    )
    learning_rate_schedule: str = setting(SCHEDULE_HELP, "original", choices=SCHEDULES)
    num_decay_steps: int | None = setting(DECAY_HELP, None)
    poly_power: float = setting(
        "With --learning_rate_schedule=original: power of the decay.", 1.0
    )
    weight_decay_rate: float = setting("Decoupled weight decay.", 0.01)
    clip_norm: float = setting(
        "Global norm to which gradients are clipped; 0: no clipping.", 1.0
    )
    ema_decay: float = setting(
        "Decay of an exponential moving average of the weights, such as 0.999, which "
        "is saved and evaluated (ema_loss, …) beside them; 0: none.",
        0.0,
    )
    export_weights: str = setting(
        "Weights of model/: the last ones, or with --ema_decay their average.",
        "last",
        choices=("last", "average"),
    )
    num_train_steps: int = setting("Updates of the weights.", 125000)
    change_num_train_steps: bool = setting(
        "Continue a run made with another --num_train_steps: end it early, or go on. "
        "The learning rate follows the schedule of the new number.",
        False,
    )
    allow_other_versions: bool = setting(
        "Continue a run that other versions of albert_tf, TensorFlow or Keras began.",
        False,
    )
    num_warmup_steps: int = setting("Steps of linear warm-up.", 3125)
    start_warmup_step: int = setting(
        "With --learning_rate_schedule=original: step at which the warm-up begins.", 0
    )
    gradient_accumulation_steps: int = setting(
        "Micro-batches that each device's share of a step is cut into.", 1
    )
    save_checkpoints_steps: int = setting("Steps between checkpoints.", 5000)
    keep_checkpoint_max: int = setting("Number of checkpoints to keep.", 5)
    keep_best: str = setting(
        "Metric of the evaluations, such as loss, mlm_accuracy or ema_loss: the model "
        "with the best value is kept in best/, beside the checkpoints.",
        "",
    )
    sample_texts: tuple[str, ...] = setting(
        "Sentence with [MASK] that the model fills in at each evaluation, for "
        "samples.jsonl; may be repeated. Empty: none. Not on a TPU.",
        PROMPTS,
        repeated=True,
    )
    async_checkpoint: bool | None = setting(
        "Continue training while a checkpoint is written. Default: on one machine.",
        None,
    )
    iterations_per_loop: int = setting("Steps per call of the compiled graph.", 100)
    log_steps: int | None = setting(
        "Steps between lines of metrics. Default: 100, or less in short runs.", None
    )
    eval_steps: int = setting("Steps between evaluations; 0: only at the end.", 5000)
    max_eval_steps: int = setting(
        "Maximum number of batches per evaluation; 0: all.", 100
    )
    eval_masked_lm_prob: float | None = setting(
        "Fraction of the tokens to mask in evaluations. Default: --masked_lm_prob.",
        None,
    )
    eval_ngram: int | None = setting(
        "With --masking=albert: maximum number of words masked together in "
        "evaluations. Default: --ngram.",
        None,
    )
    on_divergence: str = setting(
        "When a loss or gradient is not finite, or far above the usual: stop, or "
        "rollback to the last checkpoint and leave that batch out.",
        "stop",
    )
    max_loss_ratio: float = setting(
        "A loss above this multiple of its running median is a divergence; 0: off.",
        3.0,
    )
    max_grad_norm_ratio: float = setting(
        "A gradient norm above this multiple of its running median is a divergence; 0: "
        "off.",
        100.0,
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
    precision: str = setting("float32 or bfloat16 (weights stay float32).", "float32")
    jit_compile: bool = setting(
        "Compile the whole step with XLA (a TPU always does). On a CPU this is faster "
        "for tiny models only: for albert_base 1.4 times slower in float32, and about "
        "2.5 times in bfloat16 on CPUs with AMX.",
        False,
    )
    fuse_elementwise: bool = setting(
        "On CPUs, compile the activation gelu_new and its gradient with XLA, one loop "
        "each.",
        True,
    )
    deterministic: bool = setting(
        "The same command gives the same bits; slower on a GPU.", True
    )
    seed: int = setting("Seed of weights, order, masks and dropout.", 12345)

    def __post_init__(self):
        checks.check_settings(self)

    def input_files(self) -> list[str]:
        """Returns `input_file` of each phase, from the shortest sequences on."""
        return [phase.settings.input_file for phase in phases_of(self)]

    @property
    def peak_learning_rate(self) -> float:
        """The peak of the schedule: `learning_rate`, scaled if that was asked for."""
        if not self.scale_learning_rate:
            return self.learning_rate
        return scaled_learning_rate(self.learning_rate, self.train_batch_size)

    def describe_learning_rate(self) -> str:
        """Returns the peak of the schedule for people, and where it comes from."""
        if not self.scale_learning_rate:
            return f"learning rate {self.learning_rate:g}"
        return (
            f"learning rate {self.peak_learning_rate:.4g} ({self.learning_rate:g} x "
            f"sqrt({self.train_batch_size} / {REFERENCE_BATCH_SIZE}))"
        )

    @property
    def num_predictions(self) -> int:
        """Masked tokens that a row of `max_seq_length` has room for."""
        if self.max_predictions_per_seq is not None:
            return self.max_predictions_per_seq
        return most_predictions(self.max_seq_length, self.masked_lm_prob)

    def identity(self) -> dict[str, Any]:
        """Returns the settings that decide the trained weights."""
        values = dataclasses.asdict(self)
        # Earlier versions recorded their default of 77.
        values["max_predictions_per_seq"] = self.num_predictions
        return {k: v for k, v in values.items() if k not in NOT_IN_IDENTITY}

    def intervals(self) -> Intervals:
        """Returns when the training loop logs, saves and evaluates."""
        names = [field.name for field in dataclasses.fields(Intervals)]
        values = {name: getattr(self, name) for name in names}
        values["log_steps"] = self.log_steps or usual_log_steps(self.num_train_steps)
        return Intervals(**values)

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Returns the default values of the optional settings."""
        return {
            field.name: field.default
            for field in dataclasses.fields(cls)
            if field.default is not dataclasses.MISSING
        }
