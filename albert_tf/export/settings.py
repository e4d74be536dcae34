"""Settings of the command `export`."""

import dataclasses

from albert_tf.errors import UsageError
from albert_tf.settings import setting

FORMATS = ("saved_model", "litert")
QUANTIZATIONS = ("none", "float16", "dynamic_int8")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportSettings:
    """What is exported, as what, and where to."""

    model: str = setting("Model folder or checkpoint of any known format.")
    output_dir: str = setting("Folder to write.")
    format: str = setting(
        "saved_model: takes strings, for TensorFlow Serving. litert: takes token ids, "
        "for phones and small CPUs.",
        FORMATS[0],
        choices=FORMATS,
    )
    version: int | None = setting(
        "Write a SavedModel to output_dir/version, where servers look for it.", None
    )
    head: str = setting(
        "auto: the head in the files; none: the encoder; or a head's name.", "auto"
    )
    spm_model_file: str = setting(
        "SentencePiece model or tokenizer.json, if the model folder has none.", ""
    )
    do_lower_case: bool | None = setting(
        "Lower-case text, if the model does not say. Default: true.", None
    )
    keep_accents: bool | None = setting(
        "Keep accents, if the model does not say. Default: false.", None
    )
    max_seq_length: int | None = setting(
        "Longer texts are cut. Default: as in fine-tuning, or else the model's "
        "maximum.",
        None,
    )
    labels: tuple[str, ...] = setting(
        "Names of the labels. Default: those in the model folder.", ()
    )
    warmup_batch_sizes: tuple[str, ...] = setting(
        "Batch sizes of warm-up requests; may be empty.", ("1", "8")
    )
    server_files: bool = setting(
        "Also write models.config, batching.config, Dockerfile and kserve.yaml beside "
        "output_dir; needs --version.",
        False,
    )
    precision: str = setting(
        "Of a SavedModel. bfloat16 needs CPUs with AVX512_BF16 or AMX_BF16 where the "
        "model is served.",
        "float32",
        choices=("float32", "bfloat16"),
    )
    top_k: int = setting(
        "Number of tokens per mask, for the signature fill_mask(text).", 10
    )
    null_threshold: float | None = setting(
        "Question answering: a question whose null score is not below it is not "
        "answered. Default: as in fine-tuning.",
        None,
    )
    n_best_size: int | None = setting(
        "Question answering: number of answers. Default: as in fine-tuning.", None
    )
    quantization: str = setting(
        "Of LiteRT: float16 weights, or int8 weights and matrix products.",
        QUANTIZATIONS[0],
        choices=QUANTIZATIONS,
    )
    eval_file: str = setting(
        "Labelled examples on which LiteRT is compared with the model, instead of "
        "--data_dir. See `evaluate`.",
        "",
    )
    max_accuracy_drop: float = setting(
        "Points (hundredths) that the task's metric may fall by; if it falls by more, "
        "nothing is written.",
        1.0,
    )

    def __post_init__(self):
        if not all(size.isdecimal() and int(size) for size in self.warmup_batch_sizes):
            raise UsageError(
                "--warmup_batch_sizes: expected positive numbers, received "
                f"{','.join(self.warmup_batch_sizes)}"
            )
        if self.server_files and self.version is None:
            raise UsageError("server_files: needs --version, received none")
        if self.format != "litert":
            for name, value in (
                ("quantization", self.quantization != QUANTIZATIONS[0]),
                ("eval_file", self.eval_file),
            ):
                if value:
                    raise UsageError(f"{name}: only with --format=litert")
        elif self.version is not None:
            raise UsageError(
                f"version: TensorFlow Serving's, not of LiteRT, received {self.version}"
            )

    @property
    def answering(self) -> dict[str, float]:
        """The given options of question answering."""
        given = {"null_threshold": self.null_threshold, "n_best_size": self.n_best_size}
        return {name: value for name, value in given.items() if value is not None}
