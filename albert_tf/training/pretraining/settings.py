"""Everything that a pretraining run is determined by, under the original's names."""

import dataclasses
from typing import Any

from albert_tf.errors import UsageError
from albert_tf.settings import setting

# They change how a run is carried out or watched, not what it computes: a run may be
# resumed with other values.
FREE_FIELDS = frozenset(
    {
        "output_dir",
        "eval_file",
        "eval_batch_size",
        "max_eval_steps",
        "eval_steps",
        "log_steps",
        "save_checkpoints_steps",
        "keep_checkpoint_max",
        "async_checkpoint",
        "iterations_per_loop",
        "distribution",
        "num_devices",
        "tpu_name",
        "deterministic",
    }
)


@dataclasses.dataclass(frozen=True)
class PretrainSettings:
    """A pretraining run. Names and defaults are those of `run_pretraining.py`.

    Each field is described by its `metadata["help"]`, which is also the help of the
    flag of that name. Steps are updates of the weights.
    """

    input_file: str = setting(
        "TFRecords: prefix of create_pretraining_data, or paths, by commas."
    )
    output_dir: str = setting(
        "Folder of the run: new, empty, or holding this same run."
    )
    spm_model_file: str = setting(
        "Tokenizer the records were made with: SentencePiece model, byte-level BPE's "
        "tokenizer.json, or a folder with one."
    )
    eval_file: str = setting("Held-out TFRecords; none, no evaluation.", "")
    preset: str = setting(
        "Size of the model, such as albert_base_v2; or --albert_config_file.", ""
    )
    albert_config_file: str = setting("JSON of the sizes of the model.", "")
    init_checkpoint: str = setting(
        "Start from these weights (any format of from_pretrained).", ""
    )
    max_seq_length: int = setting("Tokens per example; shorter ones are padded.", 512)
    max_predictions_per_seq: int = setting(
        "Masked tokens per example, at most; 77 is 15% of 512.", 77
    )
    masking: str = setting(
        "albert, bert, bert_wwm, roberta, spanbert or electra.", "albert"
    )
    masked_lm_prob: float = setting("Share of the tokens to mask.", 0.15)
    ngram: int = setting(
        "With --masking=albert: longest n-gram of words masked together.", 3
    )
    packing: bool = setting(
        "Put several short examples in one row; a batch then counts rows.", False
    )
    train_batch_size: int = setting("Examples per step, over all devices.", 4096)
    eval_batch_size: int = setting(
        "Examples per evaluation step, over all devices.", 64
    )
    optimizer: str = setting("lamb or adamw.", "lamb")
    learning_rate: float = setting("Peak of the schedule.", 0.00176)
    poly_power: float = setting("Power of the polynomial decay.", 1.0)
    weight_decay_rate: float = setting("Decoupled weight decay.", 0.01)
    clip_norm: float = setting("Global norm to which gradients are clipped.", 1.0)
    num_train_steps: int = setting("Updates of the weights.", 125000)
    num_warmup_steps: int = setting("Steps of linear warm-up.", 3125)
    start_warmup_step: int = setting("Step at which the warm-up begins.", 0)
    gradient_accumulation_steps: int = setting(
        "Pieces a device's share of a step is cut into.", 1
    )
    save_checkpoints_steps: int = setting("Steps between checkpoints.", 5000)
    keep_checkpoint_max: int = setting("Checkpoints kept.", 5)
    async_checkpoint: bool = setting("Train on while a checkpoint is written.", False)
    iterations_per_loop: int = setting("Steps per call of the compiled graph.", 100)
    log_steps: int = setting("Steps between lines of metrics.", 100)
    eval_steps: int = setting("Steps between evaluations; 0: only at the end.", 5000)
    max_eval_steps: int = setting("Batches per evaluation; 0: all.", 100)
    distribution: str = setting(
        "one_device, mirrored, multi_worker (TF_CONFIG) or tpu.", "one_device"
    )
    num_devices: int | None = setting(
        "With --distribution=mirrored: GPUs, or parts of the CPU.", None
    )
    tpu_name: str = setting(
        "With --distribution=tpu: name or address; local on a TPU VM.", "local"
    )
    precision: str = setting("float32 or bfloat16 (weights stay float32).", "float32")
    jit_compile: bool = setting("Compile the step with XLA (a TPU always does).", False)
    deterministic: bool = setting("Same command, same bits; slower on a GPU.", True)
    seed: int = setting("Of weights, order, masks and dropout.", 12345)

    def __post_init__(self):
        for name in ("input_file", "output_dir", "spm_model_file"):
            if not getattr(self, name):
                raise UsageError(f"--{name} is required")
        if bool(self.preset) == bool(self.albert_config_file):
            raise UsageError(
                "exactly one of --preset and --albert_config_file must be given, "
                f"received {self.preset!r} and {self.albert_config_file!r}"
            )
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            counts = field.type is int and field.name not in ("seed", *_MAY_BE_ZERO)
            if counts and value < 1:
                raise UsageError(f"--{field.name} must be positive, received {value}")
        for name in _MAY_BE_ZERO:
            if getattr(self, name) < 0:
                raise UsageError(
                    f"--{name} must not be negative, received {getattr(self, name)}"
                )
        if not 0 <= self.seed < 2**31:
            raise UsageError(f"--seed must be in [0, 2**31), received {self.seed}")
        if self.precision not in ("float32", "bfloat16"):
            raise UsageError(
                f"--precision must be float32 or bfloat16, received {self.precision!r}"
            )
        if self.train_batch_size % self.gradient_accumulation_steps:
            raise UsageError(
                "--train_batch_size must be a multiple of "
                "--gradient_accumulation_steps, received "
                f"{self.train_batch_size} and {self.gradient_accumulation_steps}"
            )

    def identity(self) -> dict[str, Any]:
        """What decides the trained weights."""
        values = dataclasses.asdict(self)
        return {k: v for k, v in values.items() if k not in FREE_FIELDS}


_MAY_BE_ZERO = (
    "num_warmup_steps",
    "start_warmup_step",
    "eval_steps",
    "max_eval_steps",
)
