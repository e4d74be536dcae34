"""Settings of a fine-tuning run, under the original's flag names."""

import dataclasses
import math

from albert_tf.errors import UsageError
from albert_tf.settings import setting
from albert_tf.tasks import registry
from albert_tf.tasks.tables import (
    LabelledTableSettings,
    TableSettings,
    TableSource,
)
from albert_tf.tasks.task import Task
from albert_tf.tasks.text_classification import table_task


@dataclasses.dataclass(frozen=True)
class FileSettings:
    """The files of a run, and the weights it starts from."""

    train_file: str = setting(
        "CSV or TSV table with a text and a label in every row; may be gzipped."
    )
    output_dir: str = setting("Folder to create; it can be loaded like any model.")
    dev_file: str = setting("Table to evaluate on after every epoch.", "")
    test_file: str = setting("Table to predict at the end; needs no labels.", "")
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
        """Checks that the initial weights are specified unambiguously.

        Raises:
            UsageError: If they are not.
        """
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
class FinetuneSettings(LabelledTableSettings, FileSettings):
    """A fine-tuning run on tables of texts and labels.

    Each field is described by its `metadata["help"]`, which is also the help of the
    flag of that name. An empty string means "not given". Fields that are None take the
    value of the recipe, or else a default that `resolved` computes.
    """

    labels: tuple[str, ...] = setting(
        "Label names in the order of the class indices. Default: the labels in "
        "train_file, sorted.",
        (),
    )
    many_labels: bool = setting(
        "Accept more than 50 different labels, or a different one in every row.", False
    )
    recipe: str = setting(
        "Take the next six settings from this row of the paper's Table 14, for example "
        "cola. Flags given explicitly take precedence.",
        "",
    )
    learning_rate: float | None = setting("Peak learning rate. Default: 2e-5.", None)
    train_batch_size: int | None = setting("Examples per step. Default: 32.", None)
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
    num_train_epochs: float = setting(
        "Passes over the table; ignored with num_train_steps.", 3.0
    )
    optimizer: str = setting("adamw or lamb.", "adamw")
    weight_decay_rate: float = setting(
        "Decoupled weight decay; not applied to biases and layer norms.", 0.01
    )
    clip_norm: float = setting("Maximum of the global gradient norm.", 1.0)
    eval_batch_size: int = setting("Rows per batch in evaluation.", 32)
    fixed_length: bool = setting("Pad every batch to max_seq_length.", False)
    jit_compile: bool = setting(
        "Compile the step with XLA; implies fixed_length.", False
    )
    seed: int = setting(
        "Seed of the order of examples, the new classifier and dropout.", 12345
    )
    overwrite: bool = setting(
        "Replace an earlier fine-tuning run in output_dir.", False
    )

    def make_task(self) -> Task:
        """Returns the task, whose splits are the given files."""
        labelled, unlabelled = (
            kind(
                **{
                    field.name: getattr(self, field.name)
                    for field in dataclasses.fields(kind)
                }
            )
            for kind in (LabelledTableSettings, TableSettings)
        )
        splits = {"train": TableSource(self.train_file, labelled)}
        if self.dev_file:
            splits["dev"] = TableSource(self.dev_file, labelled)
        if self.test_file:
            splits["test"] = TableSource(self.test_file, unlabelled)
        return table_task(self.labels, splits)

    def resolved(self, num_examples: int) -> "FinetuneSettings":
        """Returns a copy in which every None but dropout and max_seq_length is set.

        Args:
            num_examples: int. Number of rows of the training table.

        Raises:
            UsageError: If a value is invalid.
        """
        values = {}
        if self.recipe:
            values = dataclasses.asdict(registry.find_recipe(self.recipe))
        given = {name: getattr(self, name) for name in _OPEN_FIELDS}
        values |= {name: v for name, v in given.items() if v is not None}
        values.setdefault("learning_rate", 2e-5)
        batch = values.setdefault("train_batch_size", 32)
        _positive("train_batch_size", batch)
        _positive("eval_batch_size", self.eval_batch_size)
        _positive("num_train_epochs", self.num_train_epochs)
        steps = values.setdefault(
            "num_train_steps", math.ceil(num_examples * self.num_train_epochs / batch)
        )
        _positive("num_train_steps", steps)
        values.setdefault("num_warmup_steps", steps // 10)
        dropout = values.get("dropout")
        if dropout is not None and not 0 <= dropout < 1:
            raise UsageError(f"dropout must be in [0, 1), received {dropout}")
        if not 0 <= self.seed < 2**31:
            raise UsageError(f"seed must be from 0 to 2**31 - 1, received {self.seed}")
        fixed_length = self.fixed_length or self.jit_compile
        return dataclasses.replace(self, **values, fixed_length=fixed_length)


_OPEN_FIELDS = [
    field.name
    for field in dataclasses.fields(FinetuneSettings)
    if field.default is None
]


def _positive(name: str, value) -> None:
    if not value > 0:
        raise UsageError(f"{name} must be positive, received {value}")
