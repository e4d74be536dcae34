"""Settings of a fine-tuning run, under the original's flag names."""

import dataclasses
import functools
import math
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from albert_tf.errors import require
from albert_tf.heads import EXIT_MODES, FROZEN
from albert_tf.settings import redefined, setting
from albert_tf.tasks.own_files import DataSettings
from albert_tf.text.inputs import check_max_seq_length
from albert_tf.training.settings import TrainingSettings, usual_log_steps

ON_COLLAPSE = ("warn", "stop", "restart")
# What else of a config a setting replaces that is given beside it: the steps of a
# recipe, and their warm-up, are for all of its examples.
_REPLACES = {
    "num_train_epochs": ("num_train_steps", "num_warmup_steps"),
    "max_train_examples": ("num_train_steps", "num_warmup_steps"),
    "num_train_steps": ("num_train_epochs", "num_warmup_steps"),
    "num_warmup_steps": ("warmup_proportion",),
    "warmup_proportion": ("num_warmup_steps",),
}


def beside(config: dict[str, Any], given: Collection[str]) -> dict[str, Any]:
    """Returns the settings of a config that those given beside it leave in force.

    Args:
        config: dict. Values by name.
        given: collection of str. Names of the settings that take precedence.
    """
    replaced = {name for setting in given for name in _REPLACES.get(setting, ())}
    return {name: value for name, value in config.items() if name not in replaced}


_shared = functools.partial(redefined, TrainingSettings)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuneSettings(TrainingSettings, DataSettings):
    """A fine-tuning run.

    Each field is described by its `metadata["help"]`, which is also the help of the
    flag of that name. An empty string means "not given". Fields that are None take the
    value of the recipe, or else a default that `resolved` computes.
    """

    kind: ClassVar[str] = "finetune"
    retired: ClassVar[Mapping[str, Any]] = {"search": ()}

    do_lower_case: bool | None = _shared("do_lower_case", identity="tokenizer")
    keep_accents: bool | None = _shared("keep_accents", identity="tokenizer")
    task: str = setting(
        "cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli, squad1, squad2, race, "
        "swag, codah, conll2003, wnut17, or table for files of your own.",
        "table",
    )
    train_file: str = setting(
        "Your own training examples (or a task's, instead of --data_dir).",
        "",
        identity="data",
    )
    dev_file: str = setting("Examples to evaluate on.", "", identity="data")
    dev_fraction: float | None = setting(
        "Share of the training examples to hold back as dev examples, of all labels "
        "alike, where there are none. Default: 0.1 of a data_dir whose test examples "
        "have labels, otherwise 0.",
        None,
        minimum=0,
        below=1,
    )
    test_file: str = setting(
        "Examples to predict at the end; need no labels.", "", identity="data"
    )
    init_checkpoint: str = setting(
        "Pretrained model: a folder or checkpoint in any supported format, or a name "
        "such as hf://owner/name.",
        "",
        identity="init_checkpoint",
    )
    from_scratch: bool = setting(
        "Start from random weights, for comparison with a pretrained model.", False
    )
    preset: str = setting(
        "With from_scratch: released model to take sizes from.", "", identity="config"
    )
    albert_config_file: str = setting(
        "With from_scratch: JSON file with the model's sizes. With init_checkpoint: "
        "the checkpoint's own, as the original's commands give it; needed only where "
        "the checkpoint has none.",
        "",
        identity="config",
    )
    spm_model_file: str = setting(
        "SentencePiece model or tokenizer.json, if the model has none.",
        "",
        identity="tokenizer",
    )
    labels: tuple[str, ...] = setting(
        "Label names in the order of the class indices, or of the class ids (from 0, "
        "or from 1) in train_file; a file labels.txt beside it does the same. Default: "
        "the task's, or those in train_file, sorted.",
        (),
    )
    many_labels: bool = setting(
        "Accept more than 50 different labels, or a different one in every row.", False
    )
    answer_head: str = setting(
        "SQuAD: beam for the original's head of SQuAD 2.0, span for that of SQuAD 1.1, "
        "as other packages use it for both. Default: the original's.",
        "",
        choices=("", "beam", "span"),
    )
    doc_stride: int | None = setting(
        "SQuAD: tokens from the start of one window to the next. Default: 128.",
        None,
        identity="follows",
    )
    max_query_length: int | None = setting(
        "SQuAD: tokens kept of a question. Default: 64.", None, minimum=1
    )
    max_answer_length: int | None = setting(
        "SQuAD: tokens of the longest answer. Default: 30.", None, minimum=1
    )
    n_best_size: int | None = setting(
        "SQuAD: number of answers to list. Default: 20.", None, minimum=1
    )
    max_qa_length: int | None = setting(
        "RACE: tokens kept of a question with a choice. Default: 128.", None, minimum=1
    )
    overwrite: bool = setting("Replace existing output.", False, identity=False)
    recipe: str = setting(
        "Take learning_rate, train_batch_size, dropout, num_train_steps, "
        "num_warmup_steps and max_seq_length from this row of the paper's Table 14, "
        "for example cola. Default: the task's own row. Flags given explicitly take "
        "precedence.",
        "",
    )
    learning_rate: float | None = _shared(
        "learning_rate", more="Default: 2e-5.", identity="follows"
    )
    train_batch_size: int | None = _shared(
        "train_batch_size", more="Default: 32.", identity="follows"
    )
    dropout: float | None = setting(
        "Dropout of the encoder. Default: the checkpoint's.",
        None,
        minimum=0,
        below=1,
        identity="follows",
    )
    num_train_steps: int | None = _shared(
        "num_train_steps",
        more="Default: those of num_train_epochs.",
        identity="follows",
    )
    num_warmup_steps: int | None = _shared(
        "num_warmup_steps", more="Default: 10% of all.", identity="follows"
    )
    warmup_proportion: float | None = setting(
        "Share of the updates during which the learning rate rises, instead of "
        "num_warmup_steps.",
        None,
        minimum=0,
        maximum=1,
    )
    max_seq_length: int | None = _shared(
        "max_seq_length",
        more="Default: the model's maximum, at most 512.",
        identity="follows",
    )
    num_train_epochs: float | None = setting(
        "Passes over the training examples, instead of num_train_steps. Default: 3.",
        None,
        above=0,
    )
    max_train_examples: int = setting(
        "Train on this many examples, drawn with the seed; 0: on all.", 0, minimum=0
    )
    layerwise_decay: float | None = setting(
        "Factor of the learning rate from each layer to the one below it, such as 0.9, "
        "for models without shared layers (BERT). Refused for others, ALBERT included, "
        "whose layers have one rate.",
        None,
        above=0,
        maximum=1,
    )
    ema_decay: float = _shared(
        "ema_decay", more="The average is what is evaluated, kept and saved."
    )
    class_weights: tuple[str, ...] = setting(
        "Weights of the classes in the loss, such as spam=5,ham=1; or balanced.", ()
    )
    label_smoothing: float = setting(
        "Share of the label that is spread over all classes.", 0.0, minimum=0, below=1
    )
    exits: str = setting(
        "Text classifiers: also train classifiers on every layer, with which the model "
        "can stop early: joint (with the model) or frozen (on a fine-tuned model, "
        "which stays as it is).",
        "none",
        choices=EXIT_MODES,
    )
    packing: bool = setting(
        "Put several short examples of a batch into one row. Changes no result, but "
        "which values the encoder's dropout drops, where it has any.",
        True,
    )
    fixed_length: bool = setting(
        "Pad every batch to max_seq_length; implied by --distribution=tpu.",
        False,
        identity="follows",
    )
    jit_compile: bool = _shared("jit_compile", more="Implies fixed_length.")
    eval_steps: int | None = _shared(
        "eval_steps", more="Default: an epoch.", identity="follows"
    )
    metric: str = setting(
        "Metric on the dev examples that selects the weights to keep; any name but one "
        "of the task's is refused with the list. Default: the task's.",
        "",
    )
    keep: str = setting(
        "Weights of the model: those with the best metric, or the last ones.",
        "best",
        choices=("best", "last"),
        identity="follows",
    )
    early_stopping_patience: int = setting(
        "Stop after this many evaluations without a better metric; 0: never.",
        0,
        minimum=0,
    )
    on_collapse: str = setting(
        "What to do if training collapses (one class, only empty answers, a loss at "
        "chance): warn, stop, or restart with the next seed.",
        "warn",
        choices=ON_COLLAPSE,
    )
    num_seeds: int = setting(
        "Number of runs with consecutive seeds; the best one is kept.", 1, minimum=1
    )

    def check_source(self) -> None:
        """Checks that data and initial weights are specified unambiguously.

        Raises:
            UsageError: If they are not.
        """
        require(self.output_dir, "--output_dir: required, but not given")
        require(
            bool(self.data_dir) != bool(self.train_file),
            "exactly one of --data_dir (a task's official files) and --train_file "
            "must be given",
            *(self.data_dir, self.train_file),
        )
        require(
            self.train_file or not (self.dev_file or self.test_file),
            "--dev_file, --test_file: only with --train_file; --data_dir has files of "
            "its own",
        )
        if self.from_scratch:
            sizes = bool(self.preset) + bool(self.albert_config_file)
            require(
                not self.init_checkpoint,
                "--from_scratch: cannot be combined with --init_checkpoint, received "
                "both",
            )
            require(
                sizes == 1 and self.spm_model_file,
                "--from_scratch: requires --spm_model_file and either --preset or "
                "--albert_config_file",
            )
            return
        require(
            self.init_checkpoint,
            "--init_checkpoint: required; to train from random weights, pass "
            "--from_scratch",
        )
        require(not self.preset, "--preset: only with --from_scratch")

    def resolved(
        self, num_examples: int, recipe: dict[str, Any] | None = None
    ) -> "FinetuneSettings":
        """Returns a copy with the values of the recipe and the lengths of the run.

        Args:
            num_examples: int. Number of units of the training examples.
            recipe: dict. Values of `task.Recipe`, or None.

        Raises:
            UsageError: If a value is invalid.
        """
        self.check_given()
        values = dict(recipe or {})
        epochs = self.num_train_epochs
        own_length = epochs is not None or self.num_train_steps is not None
        if own_length or self.max_train_examples:
            # The steps of a recipe, and their warm-up, are for all of its examples.
            for name in ("num_train_steps", "num_warmup_steps"):
                values.pop(name, None)
        share = self.warmup_proportion
        if share is not None:
            values.pop("num_warmup_steps", None)
        given = {name: getattr(self, name) for name in _RECIPE_FIELDS}
        values |= {name: v for name, v in given.items() if v is not None}
        values.setdefault("learning_rate", 2e-5)
        batch = values.setdefault("train_batch_size", 32)
        epochs = 3.0 if epochs is None else epochs
        steps = values.setdefault(
            "num_train_steps", math.ceil(num_examples * epochs / batch)
        )
        if self.exits == FROZEN:
            # No metric of the last layer changes, so none can be the best.
            values["keep"] = "last"
        warmup = steps // 10 if share is None else int(steps * share)
        values.setdefault("num_warmup_steps", warmup)
        values["eval_steps"] = self.eval_steps
        if self.eval_steps is None:
            values["eval_steps"] = min(math.ceil(num_examples / batch), steps)
        values["log_steps"] = self.log_steps or usual_log_steps(steps)
        # XLA, which a TPU always uses, compiles one shape.
        compiled = self.jit_compile or self.distribution == "tpu"
        values["fixed_length"] = self.fixed_length or compiled
        settings = dataclasses.replace(self, **values)
        settings.check_values()
        return settings

    def check_given(self) -> None:
        """Raises a UsageError if settings that were given cannot be used together."""
        for one, other in (
            ("num_train_epochs", "num_train_steps"),
            ("warmup_proportion", "num_warmup_steps"),
        ):
            values = getattr(self, one), getattr(self, other)
            rule = f"--{one}: cannot be combined with {other}"
            require(None in values, rule, *values)
        self.check_values()

    def check_values(self) -> None:
        """Raises a UsageError if a value is out of its range."""
        self.check_training()
        if self.max_seq_length is not None:
            check_max_seq_length(self.max_seq_length, pairs=False)
        require(
            self.exits != FROZEN
            or not (self.early_stopping_patience or self.num_seeds > 1),
            "--exits: frozen leaves every metric as it is, so that "
            "early_stopping_patience and num_seeds have nothing to compare",
        )

    def needs_dev(self) -> list[str]:
        """Returns the given settings that mean nothing without dev examples."""
        asked = {
            "early_stopping_patience": self.early_stopping_patience > 0,
            "on_collapse": self.on_collapse != "warn",
            "metric": bool(self.metric),
            "num_seeds": self.num_seeds > 1,
        }
        return [name for name, is_given in asked.items() if is_given]


_RECIPE_FIELDS = (
    "learning_rate",
    "train_batch_size",
    "dropout",
    "num_train_steps",
    "num_warmup_steps",
    "max_seq_length",
)
