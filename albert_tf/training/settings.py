"""Everything that a pretraining run is determined by, under the original's names."""

import dataclasses
import importlib.util
import os
from typing import Any

from albert_tf.errors import DataError, UsageError

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


def _field(text: str, *default):
    """A field with its description and, unless it is required, its default."""
    kwargs = {"default": default[0]} if default else {}
    return dataclasses.field(metadata={"help": text}, **kwargs)


@dataclasses.dataclass(frozen=True)
class PretrainSettings:
    """A pretraining run. Names and defaults are those of `run_pretraining.py`.

    Each field is described by its `metadata["help"]`, which is also the help of the
    flag of that name. Steps are updates of the weights.
    """

    input_file: str = _field(
        "TFRecords: prefix of create_pretraining_data, or paths, by commas."
    )
    output_dir: str = _field("Folder of the run: new, empty, or holding this same run.")
    spm_model_file: str = _field(
        "Tokenizer the records were made with: SentencePiece model, byte-level BPE's "
        "tokenizer.json, or a folder with one."
    )
    eval_file: str = _field("Held-out TFRecords; none, no evaluation.", "")
    preset: str = _field(
        "Size of the model, such as albert_base_v2; or --albert_config_file.", ""
    )
    albert_config_file: str = _field("JSON of the sizes of the model.", "")
    init_checkpoint: str = _field(
        "Start from these weights (any format of from_pretrained).", ""
    )
    max_seq_length: int = _field("Tokens per example; shorter ones are padded.", 512)
    max_predictions_per_seq: int = _field(
        "Masked tokens per example, at most; 77 is 15% of 512.", 77
    )
    masking: str = _field(
        "albert, bert, bert_wwm, roberta, spanbert or electra.", "albert"
    )
    masked_lm_prob: float = _field("Share of the tokens to mask.", 0.15)
    ngram: int = _field(
        "With --masking=albert: longest n-gram of words masked together.", 3
    )
    packing: bool = _field(
        "Put several short examples in one row; a batch then counts rows.", False
    )
    train_batch_size: int = _field("Examples per step, over all devices.", 4096)
    eval_batch_size: int = _field("Examples per evaluation step, over all devices.", 64)
    optimizer: str = _field("lamb or adamw.", "lamb")
    learning_rate: float = _field("Peak of the schedule.", 0.00176)
    poly_power: float = _field("Power of the polynomial decay.", 1.0)
    weight_decay_rate: float = _field("Decoupled weight decay.", 0.01)
    clip_norm: float = _field("Global norm to which gradients are clipped.", 1.0)
    num_train_steps: int = _field("Updates of the weights.", 125000)
    num_warmup_steps: int = _field("Steps of linear warm-up.", 3125)
    start_warmup_step: int = _field("Step at which the warm-up begins.", 0)
    gradient_accumulation_steps: int = _field(
        "Pieces a device's share of a step is cut into.", 1
    )
    save_checkpoints_steps: int = _field("Steps between checkpoints.", 5000)
    keep_checkpoint_max: int = _field("Checkpoints kept.", 5)
    async_checkpoint: bool = _field("Train on while a checkpoint is written.", False)
    iterations_per_loop: int = _field("Steps per call of the compiled graph.", 100)
    log_steps: int = _field("Steps between lines of metrics.", 100)
    eval_steps: int = _field("Steps between evaluations; 0: only at the end.", 5000)
    max_eval_steps: int = _field("Batches per evaluation; 0: all.", 100)
    distribution: str = _field(
        "one_device, mirrored, multi_worker (TF_CONFIG) or tpu.", "one_device"
    )
    num_devices: int | None = _field(
        "With --distribution=mirrored: GPUs, or parts of the CPU.", None
    )
    tpu_name: str = _field(
        "With --distribution=tpu: name or address; local on a TPU VM.", "local"
    )
    precision: str = _field("float32 or bfloat16 (weights stay float32).", "float32")
    jit_compile: bool = _field("Compile the step with XLA (a TPU always does).", False)
    deterministic: bool = _field("Same command, same bits; slower on a GPU.", True)
    seed: int = _field("Of weights, order, masks and dropout.", 12345)

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


def load_experiment(path: str | os.PathLike) -> dict[str, Any]:
    """Settings of a Python config such as `configs/demo.py`.

    The file defines `get_config() -> dict` with names of `PretrainSettings`; its
    docstring records command, hardware and result. It is executed: use your own.

    Raises:
        DataError: If the file cannot be used.
    """
    path = os.fspath(path)
    if not os.path.isfile(path):
        raise DataError(f"--config={path}: no such file")
    spec = importlib.util.spec_from_file_location("albert_tf_experiment", path)
    if spec is None or spec.loader is None:
        raise DataError(f"--config={path}: must be a Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        values = module.get_config()
    except Exception as e:
        raise DataError(f"--config={path}: {type(e).__name__}: {e}") from None
    known = {field.name for field in dataclasses.fields(PretrainSettings)}
    unknown = sorted(set(values) - known) if isinstance(values, dict) else ["(no dict)"]
    if unknown:
        raise DataError(f"--config={path}: unknown settings {', '.join(unknown)}")
    return values
