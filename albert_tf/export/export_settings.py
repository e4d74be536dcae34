"""Settings of the command `export`."""

import dataclasses
import importlib.util
import math
from typing import Any

from albert_tf.errors import require
from albert_tf.export.server_files import MAX_BATCH_SIZE
from albert_tf.models.exit_rules import ExitRule
from albert_tf.settings import setting

# Quantizations of each runtime other than TensorFlow's.
QUANTIZATIONS = {
    "litert": ("none", "float16", "dynamic_int8"),
    "onnx": ("none", "dynamic_int8"),
    "openvino": ("none", "bfloat16", "int8_weights"),
}
FORMATS = ("saved_model", *QUANTIZATIONS)
# Packages that are needed to write and run such a model.
PACKAGES = {
    "litert": ("tensorflow",),
    "onnx": ("onnx", "onnxruntime", "tf2onnx"),
    "openvino": ("openvino",),
}
_OF_RUNTIMES = ("quantization", "eval_file", "max_accuracy_drop")
_OF_SAVED_MODELS = (
    "version",
    "server_files",
    "precision",
    "exit",
    "exits_curve",
    "null_threshold",
    "n_best_size",
    "top_k",
    "warmup_batch_sizes",
)


def check_packages(format: str) -> None:
    """Raises `UsageError` if a package that a runtime needs is not installed."""
    for package in PACKAGES[format]:
        need = f"format: {format} needs {package}; pip install 'albert_tf[{format}]'"
        require(importlib.util.find_spec(package), need)


def check_quantization(format: str, quantization: str) -> None:
    """Raises `UsageError` if a runtime has no such quantization."""
    names = QUANTIZATIONS[format]
    message = f"quantization: must be one of {', '.join(names)} for {format}"
    require(quantization in names, message, quantization)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportSettings:
    """The model to export, its form and its destination.

    Attributes:
        model: Model folder or checkpoint of any known format.
        output_dir: Folder to write.
        format: saved_model: takes strings, for TensorFlow Serving. litert (phones and
            small CPUs), onnx and openvino take token ids.
        version: Write a SavedModel to output_dir/version, where servers look for it.
        head: auto: the input's head; none: the encoder alone; or the name of a head.
        spm_model_file: SentencePiece model, tokenizer.json or vocab.txt, if the model
            has none.
        layers: Compute only so many layers of the model, the first ones, under its
            head. Default: all.
        do_lower_case: Lower-case text, if the model does not say. Default: true.
        keep_accents: Keep accents, if the model does not say. Default: false.
        max_seq_length: Longer texts are cut. Default: as in fine-tuning, or else the
            model's maximum.
        labels: Names of the labels. Default: those in the model folder.
        warmup_batch_sizes: Batch sizes of warm-up requests; may be empty.
        server_files: Also write models.config, batching.config, Dockerfile and
            kserve.yaml next to output_dir; needs --version.
        precision: Precision of a SavedModel. bfloat16 needs CPUs with AVX512_BF16 or
            AMX_BF16 where the model is served.
        exit: Stop early, text classifiers only: entropy:H (stop once the entropy of the
            probabilities, in nats, is below H), patience:K (once K layers in a row have
            agreed with the one before) or layers:N (after N layers).
        exits_curve: JSON of `evaluate --exits_curve` to put into the manifest. Default:
            exits.json of the model folder, if there is one.
        top_k: Number of tokens per mask, for the signature fill_mask(text). Default:
            10.
        null_threshold: Question answering: a question whose null score is above it is
            not answered. Default: as in fine-tuning.
        n_best_size: Question answering: number of answers. Default: as in fine-tuning.
        quantization: litert: float16 (weights) or dynamic_int8 (weights and matrix
            products); onnx: dynamic_int8; openvino: bfloat16 or int8_weights.
        eval_file: Labelled examples on which the written model is compared with the
            Keras model, instead of --data_dir; not of a SavedModel. See `evaluate`.
        max_accuracy_drop: With eval_file or data_dir: points (hundredths) that the
            task's metric may fall by; if it falls by more, nothing is written. Default:
            1.
    """

    group = "outputs"

    model: str = setting(group="model", common=True)
    output_dir: str = setting(common=True)
    format: str = setting(FORMATS[0], common=True, choices=FORMATS)
    version: int | None = setting(None, common=True)
    head: str = setting("auto", group="model")
    spm_model_file: str = setting("", group="model", common=True)
    layers: int | None = setting(None, group="model", common=True)
    do_lower_case: bool | None = setting(None, group="model")
    keep_accents: bool | None = setting(None, group="model")
    max_seq_length: int | None = setting(None, group="model", common=True)
    labels: tuple[str, ...] = setting((), group="inputs")
    warmup_batch_sizes: tuple[str, ...] = ("1", "8")
    server_files: bool = False
    precision: str = setting(
        "float32", group="training", common=True, choices=("float32", "bfloat16")
    )
    exit: str = setting("", group="model", common=True)
    exits_curve: str = ""
    top_k: int | None = None
    null_threshold: float | None = None
    n_best_size: int | None = None
    quantization: str = setting(
        "none",
        common=True,
        choices=tuple(dict.fromkeys(sum(QUANTIZATIONS.values(), ()))),
    )
    eval_file: str = setting("", group="inputs", common=True)
    max_accuracy_drop: float | None = None

    def __post_init__(self):
        sizes = self.warmup_batch_sizes
        require(
            all(x.isdecimal() and 0 < int(x) <= MAX_BATCH_SIZE for x in sizes),
            "--warmup_batch_sizes: expected positive numbers, at most "
            f"{MAX_BATCH_SIZE} (with a larger request a server that batches does not "
            f"load the model), received {','.join(sizes)}",
        )
        drop = self.max_accuracy_drop
        finite = drop is None or math.isfinite(drop)
        require(finite, "max_accuracy_drop: must be a number", drop)
        if self.exit:
            ExitRule.parse(self.exit)
        versioned = self.version is not None or not self.server_files
        require(versioned, "server_files: needs --version, received none")
        wanted, others = "saved_model", _OF_SAVED_MODELS
        if self.format == "saved_model":
            wanted, others = ", ".join(QUANTIZATIONS), _OF_RUNTIMES
        else:
            check_quantization(self.format, self.quantization)
        for field in dataclasses.fields(self):
            is_set = getattr(self, field.name) != field.default
            message = f"{field.name}: only with --format={wanted}"
            require(not is_set or field.name not in others, message)

    @property
    def runtime_options(self) -> dict[str, Any]:
        """Arguments of `export_for_runtime`."""
        return {"format": self.format, "quantization": self.quantization}

    @property
    def check_options(self) -> dict[str, Any]:
        """Arguments of `labelled_check`."""
        return {
            "eval_file": self.eval_file,
            "max_seq_length": self.max_seq_length,
            "max_drop": 1.0
            if self.max_accuracy_drop is None
            else self.max_accuracy_drop,
        }

    @property
    def saved_model_options(self) -> dict[str, Any]:
        """Arguments of `export_saved_model` that the runtimes do not have."""
        from albert_tf.export.saved_model import find_exits  # imports Keras

        answering = {
            "null_threshold": self.null_threshold,
            "n_best_size": self.n_best_size,
        }
        return {
            "version": self.version,
            "warmup_batch_sizes": [int(size) for size in self.warmup_batch_sizes],
            "top_k": self.top_k,
            "precision": self.precision,
            "exit": self.exit or None,
            "exits_curve": self.exits_curve or find_exits(self.model),
            "answering": {k: v for k, v in answering.items() if v is not None},
        }
