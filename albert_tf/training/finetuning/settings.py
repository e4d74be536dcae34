"""What a fine-tuning run is determined by, under the original's flag names."""

import dataclasses
import math

from albert_tf.errors import UsageError
from albert_tf.settings import setting
from albert_tf.tasks.recipes import RECIPES


@dataclasses.dataclass(frozen=True)
class FinetuneSettings:
    """A fine-tuning run on tables of texts and labels.

    Each field is described by its `metadata["help"]`, which is also the help of the
    flag of that name. An empty string is "not given". Fields that are None take the
    recipe's value (`recipes.RECIPES`), or else a default of their own (`resolved`).
    """

    train_file: str = setting(
        "CSV or TSV with a text and a label in every row; .gz too."
    )
    output_dir: str = setting("Folder to make; it can be loaded like any model.")
    dev_file: str = setting("Table to evaluate on after every epoch.", "")
    test_file: str = setting("Table to predict at the end; needs no labels.", "")
    init_checkpoint: str = setting(
        "Pretrained model: any folder or checkpoint we load.", ""
    )
    from_scratch: bool = setting("Start from random weights, for comparison.", False)
    preset: str = setting("With from_scratch: a released model's sizes.", "")
    albert_config_file: str = setting("With from_scratch: JSON of the sizes.", "")
    spm_model_file: str = setting(
        "Tokenizer (SentencePiece or tokenizer.json), where the checkpoint has none.",
        "",
    )
    do_lower_case: bool = setting(
        "Whether text is lower-cased; with spm_model_file.", True
    )
    text_column: str = setting("Name or number (from 0) of the column.", "text")
    text_pair_column: str = setting("The second text's column, for pairs.", "")
    label_column: str = setting("Name or number of the label's column.", "label")
    labels: tuple[str, ...] = setting(
        "The label set in order; default: what is there.", ()
    )
    delimiter: str = setting("Between cells; default: tab for .tsv, else comma.", "")
    header: bool = setting("Whether the first line names the columns.", True)
    quoting: bool = setting(
        "Whether a double quote quotes a cell; false for GLUE's files.", True
    )
    recipe: str = setting(
        "Row of the paper's Table 14, such as cola, for the next six.", ""
    )
    learning_rate: float | None = setting("Peak. Default 2e-5.", None)
    train_batch_size: int | None = setting("Examples a step. Default 32.", None)
    dropout: float | None = setting("Of the encoder. Default: the checkpoint's.", None)
    num_train_steps: int | None = setting(
        "Updates. Default: num_train_epochs of them.", None
    )
    num_warmup_steps: int | None = setting(
        "Updates with a rising rate. Default 10%.", None
    )
    max_seq_length: int | None = setting(
        "Tokens of a row. Default: the longest, <= 512.", None
    )
    num_train_epochs: float = setting(
        "Passes over the table, without num_train_steps.", 3.0
    )
    optimizer: str = setting("adamw or lamb.", "adamw")
    weight_decay_rate: float = setting(
        "Decoupled, not on biases and layer norms.", 0.01
    )
    clip_norm: float = setting("Of the global gradient norm.", 1.0)
    eval_batch_size: int = setting("Rows a batch, in evaluation.", 32)
    fixed_length: bool = setting("Pad every batch to max_seq_length.", False)
    jit_compile: bool = setting("Compile the step with XLA; sets fixed_length.", False)
    seed: int = setting(
        "Of the order, the classifier's first values and dropout.", 12345
    )
    overwrite: bool = setting(
        "Replace an earlier fine-tuning run in output_dir.", False
    )

    def resolved(self, num_examples: int) -> "FinetuneSettings":
        """With every None replaced, for a table of `num_examples`.

        Raises:
            UsageError: If a value is impossible.
        """
        if self.recipe and self.recipe not in RECIPES:
            raise UsageError(
                f"recipe must be one of {', '.join(RECIPES)}, received {self.recipe!r}"
            )
        values = {}
        if self.recipe:
            values = dataclasses.asdict(RECIPES[self.recipe])
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

    def check_source(self) -> None:
        """Raises a UsageError unless it is clear which weights to start from."""
        sizes = [self.preset, self.albert_config_file]
        if self.from_scratch:
            if self.init_checkpoint:
                raise UsageError(
                    "from_scratch: needs no init_checkpoint, received both"
                )
            if sum(map(bool, sizes)) != 1 or not self.spm_model_file:
                raise UsageError(
                    "from_scratch: needs spm_model_file and one of preset and "
                    "albert_config_file"
                )
        elif not self.init_checkpoint:
            raise UsageError(
                "init_checkpoint: required; training from random weights must be asked "
                "for with from_scratch"
            )
        elif any(sizes):
            raise UsageError("preset, albert_config_file: only with from_scratch")


_OPEN_FIELDS = [
    field.name
    for field in dataclasses.fields(FinetuneSettings)
    if field.default is None
]


def _positive(name: str, value) -> None:
    if not value > 0:
        raise UsageError(f"{name} must be positive, received {value}")
