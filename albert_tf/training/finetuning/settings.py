"""Settings of a fine-tuning run, under the original's flag names."""

import dataclasses
import math
from typing import Any

from albert_tf.errors import UsageError
from albert_tf.settings import setting
from albert_tf.tasks.own_files import OwnFileSettings
from albert_tf.training.intervals import Intervals

# They change how a run is carried out or watched, not what it computes, so a run may be
# resumed with other values.
NOT_IN_IDENTITY = frozenset(
    {
        "output_dir",
        "overwrite",
        "log_steps",
        "save_checkpoints_steps",
        "keep_checkpoint_max",
        "distribution",
        "num_devices",
        "tpu_name",
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
ON_COLLAPSE = ("warn", "stop", "restart")


@dataclasses.dataclass(frozen=True)
class SourceSettings:
    """The data of a run, and the weights it starts from."""

    output_dir: str = setting(
        "Folder of the run: new, or holding this same run, which is resumed. At the "
        "end it can be loaded like any model."
    )
    task: str = setting(
        "cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli, squad1, squad2, race, "
        "swag, codah, conll2003, wnut17, or table for files of your own.",
        "table",
    )
    data_dir: str = setting(
        "Folder with the official files of the task, or the name of a TensorFlow "
        "Datasets set, such as tfds:glue/mnli.",
        "",
    )
    tfds_data_dir: str = setting(
        "Folder of the prepared TensorFlow Datasets. Default: theirs.", ""
    )
    download: bool = setting(
        "Let TensorFlow Datasets download a set that is not prepared.", False
    )
    train_file: str = setting(
        "Your own training examples (or a task's, instead of --data_dir).", ""
    )
    dev_file: str = setting("Examples to evaluate on.", "")
    test_file: str = setting("Examples to predict at the end; need no labels.", "")
    init_checkpoint: str = setting(
        "Pretrained model: a folder or checkpoint in any supported format.", ""
    )
    from_scratch: bool = setting(
        "Start from random weights, for comparison with a pretrained model.", False
    )
    preset: str = setting("With from_scratch: released model to take sizes from.", "")
    albert_config_file: str = setting(
        "With from_scratch: JSON file with the model's sizes.", ""
    )
    spm_model_file: str = setting(
        "Tokenizer (SentencePiece or tokenizer.json), if the checkpoint has none.", ""
    )
    do_lower_case: bool | None = setting(
        "Whether to lower-case text, if the checkpoint does not say. Default: true.",
        None,
    )
    keep_accents: bool | None = setting(
        "Whether to keep accents, if the checkpoint does not say. Default: false.",
        None,
    )

    def check_source(self) -> None:
        """Checks that data and initial weights are specified unambiguously.

        Raises:
            UsageError: If they are not.
        """
        if not self.output_dir:
            raise UsageError("output_dir: required, but not given")
        if bool(self.data_dir) == bool(self.train_file):
            raise UsageError(
                "exactly one of data_dir (a task's official files) and train_file must "
                f"be given, received {self.data_dir!r} and {self.train_file!r}"
            )
        if self.data_dir and (self.dev_file or self.test_file):
            raise UsageError(
                "dev_file, test_file: only with train_file; data_dir has files of its "
                "own"
            )
        sizes = [self.preset, self.albert_config_file]
        if self.from_scratch:
            if self.init_checkpoint:
                raise UsageError(
                    "from_scratch: cannot be combined with init_checkpoint, received "
                    "both"
                )
            if sum(map(bool, sizes)) != 1 or not self.spm_model_file:
                raise UsageError(
                    "from_scratch: requires spm_model_file and either preset or "
                    "albert_config_file"
                )
        elif not self.init_checkpoint:
            raise UsageError(
                "init_checkpoint: required; to train from random weights, pass "
                "from_scratch"
            )
        elif any(sizes):
            raise UsageError("preset, albert_config_file: only with from_scratch")


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
    optimizer: str = setting("adamw or lamb.", "adamw")
    weight_decay_rate: float = setting(
        "Decoupled weight decay; not applied to biases and layer norms.", 0.01
    )
    layerwise_decay: float | None = setting(
        "Factor of the learning rate from one layer to the one below. Only for models "
        "whose layers do not share weights.",
        None,
    )
    clip_norm: float = setting("Maximum of the global gradient norm.", 1.0)
    class_weights: tuple[str, ...] = setting(
        "Weights of the classes in the loss, such as spam=5,ham=1; or balanced.", ()
    )
    label_smoothing: float = setting(
        "Share of the label that is spread over all classes.", 0.0
    )
    gradient_accumulation_steps: int = setting(
        "Micro-batches that each device's share of a step is cut into.", 1
    )
    eval_batch_size: int = setting("Rows per batch in evaluation.", 32)
    packing: bool = setting(
        "Put several short examples of a batch into one row. Changes no result.", True
    )
    fixed_length: bool = setting("Pad every batch to max_seq_length.", False)
    jit_compile: bool = setting(
        "Compile the step with XLA; implies fixed_length.", False
    )
    precision: str = setting(
        "float32, or bfloat16 (weights stay float32).",
        "float32",
        choices=("float32", "bfloat16"),
    )
    distribution: str = setting(
        "one_device, mirrored, multi_worker (TF_CONFIG) or tpu, for which there is no "
        "TensorFlow as new as the required one.",
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
    save_checkpoints_steps: int = setting("Steps between checkpoints.", 500)
    keep_checkpoint_max: int = setting("Number of checkpoints to keep.", 2)
    metric: str = setting(
        "Metric on the dev examples that selects the weights to keep. Default: the "
        "task's.",
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
    search: tuple[str, ...] = setting(
        "Values to try of a setting, such as learning_rate:1e-5,2e-5. May be repeated: "
        "all combinations are tried.",
        (),
        repeated=True,
    )


@dataclasses.dataclass(frozen=True)
class ExampleSettings:
    """How examples are read and cut into rows."""

    labels: tuple[str, ...] = setting(
        "Label names in the order of the class indices. Default: the task's, or those "
        "in train_file, sorted.",
        (),
    )
    many_labels: bool = setting(
        "Accept more than 50 different labels, or a different one in every row.", False
    )
    on_bad_input: str = setting(
        "stop at an example that cannot be used, or skip and count it.",
        "stop",
        choices=("stop", "skip"),
    )
    answer_head: str = setting(
        "SQuAD: beam for the original's head of SQuAD 2.0, span for that of SQuAD 1.1, "
        "as other packages use it for both. Default: the original's.",
        "",
        choices=("", "beam", "span"),
    )
    doc_stride: int | None = setting(
        "SQuAD: tokens from the start of one window to the next. Default: 128.", None
    )
    max_query_length: int | None = setting(
        "SQuAD: tokens kept of a question. Default: 64.", None
    )
    max_answer_length: int | None = setting(
        "SQuAD: tokens of the longest answer. Default: 30.", None
    )
    n_best_size: int | None = setting(
        "SQuAD: number of answers to list. Default: 20.", None
    )
    max_qa_length: int | None = setting(
        "RACE: tokens kept of a question with a choice. Default: 128.", None
    )
    overwrite: bool = setting(
        "Replace an earlier fine-tuning run in output_dir.", False
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuneSettings(
    ExampleSettings,
    WatchSettings,
    TrainingSettings,
    OwnFileSettings,
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
        """Returns a copy in which every None but dropout and max_seq_length is set.

        Args:
            num_examples: int. Number of units of the training examples.
            recipe: dict. Values of `task.Recipe`, or None.

        Raises:
            UsageError: If a value is invalid.
        """
        values = dict(recipe or {})
        if self.num_train_epochs is not None:
            for name in ("num_train_steps", "num_warmup_steps"):
                values.pop(name, None)
        given = {name: getattr(self, name) for name in _RECIPE_FIELDS}
        values |= {name: v for name, v in given.items() if v is not None}
        values.setdefault("learning_rate", 2e-5)
        batch = values.setdefault("train_batch_size", 32)
        epochs = 3.0 if self.num_train_epochs is None else self.num_train_epochs
        _positive("train_batch_size", batch)
        _positive("num_train_epochs", epochs)
        steps = values.setdefault(
            "num_train_steps", math.ceil(num_examples * epochs / batch)
        )
        _positive("num_train_steps", steps)
        values.setdefault("num_warmup_steps", steps // 10)
        values["eval_steps"] = self.eval_steps
        if self.eval_steps is None:
            values["eval_steps"] = min(math.ceil(num_examples / batch), steps)
        values["log_steps"] = self.log_steps or max(1, min(100, steps // 20))
        values["fixed_length"] = self.fixed_length or self.jit_compile
        settings = dataclasses.replace(self, **values)
        settings.check_values()
        return settings

    def check_values(self) -> None:
        """Raises a UsageError if a value is out of its range."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.type is int and field.name not in _MAY_BE_ZERO:
                _positive(field.name, value)
        for name in _MAY_BE_ZERO:
            value = getattr(self, name)
            if value is not None and value < 0:
                raise UsageError(f"{name} must not be negative, received {value}")
        for name in ("dropout", "label_smoothing"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise UsageError(f"{name} must be in [0, 1), received {value}")
        if not 0 <= self.seed < 2**31:
            raise UsageError(f"seed must be from 0 to 2**31 - 1, received {self.seed}")
        batch = self.train_batch_size
        if batch is not None and batch % self.gradient_accumulation_steps:
            raise UsageError(
                "train_batch_size must be a multiple of gradient_accumulation_steps, "
                f"received {batch} and {self.gradient_accumulation_steps}"
            )

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
    "seed",
)


def _positive(name: str, value) -> None:
    if not value > 0:
        raise UsageError(f"{name} must be positive, received {value}")
