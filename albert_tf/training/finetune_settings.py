"""Settings of a fine-tuning run, under the original's flag names."""

import dataclasses
import math
import os
from collections.abc import Collection
from typing import Any, ClassVar

from albert_tf.config import AlbertConfig
from albert_tf.errors import require
from albert_tf.heads import EXIT_MODES, FROZEN, NONE, POOLINGS
from albert_tf.settings import setting
from albert_tf.tasks.embedding import EMBEDDER
from albert_tf.tasks.opening import DataSettings
from albert_tf.tasks.task import Recipe
from albert_tf.text.inputs import check_max_seq_length
from albert_tf.training.settings import TrainingSettings

ON_COLLAPSE = ("warn", "stop", "restart")
TRAINED = ALL, DEPTH = ("all", "depth")
# How layers count the powers of the decay; see `learning_rate_multipliers`.
DECAY_RULES = ("standard", "original", "corrected")
# Settings of a config or a recipe that a setting given with it replaces as well: the
# steps of a recipe, and their warm-up, are meant for all of its examples.
_REPLACES = {
    "num_train_epochs": ("num_train_steps", "num_warmup_steps"),
    "max_train_examples": ("num_train_steps", "num_warmup_steps"),
    "num_train_steps": ("num_train_epochs", "num_warmup_steps"),
    "num_warmup_steps": ("warmup_proportion",),
    "warmup_proportion": ("num_warmup_steps",),
}


def beside(config: dict[str, Any], given: Collection[str]) -> dict[str, Any]:
    """Returns the values of a config or recipe that the `given` ones leave in force."""
    replaced = {name for setting in given for name in _REPLACES.get(setting, ())}
    return {name: value for name, value in config.items() if name not in replaced}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuneSettings(TrainingSettings, DataSettings):
    """A fine-tuning run.

    An empty string means "not given". Fields that are None take the value of the
    recipe, or else a default that `resolved` computes.

    Attributes:
        task: cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli, squad1, squad2, race,
            swag, codah, conll2003, wnut17, or table for files of your own.
        train_file: Your own training examples (or a task's, instead of --data_dir).
        dev_file: Examples to evaluate on. With one table only: dev_fraction.
        dev_fraction: Share of the training examples to hold back as dev examples, of
            all labels alike, where there are none. Default: 0.1 of a data_dir whose
            test examples have labels, otherwise 0.
        test_file: Examples to predict at the end; need no labels.
        init_checkpoint: Pretrained model: a folder or checkpoint in any supported
            format, or a name such as hf://owner/name.
        from_scratch: Start from random weights, for comparison with a pretrained model.
        preset: With from_scratch: released model to take sizes from.
        albert_config_file: With from_scratch: JSON file with the model's sizes. With
            init_checkpoint: the checkpoint's own, as the original's commands give it;
            needed only where the checkpoint has none.
        spm_model_file: SentencePiece model, tokenizer.json or vocab.txt, if the model
            has none.
        labels: Label names in the order of the class indices, or of the class ids (from
            0, or from 1) in train_file; a file labels.txt next to it does the same.
            Default: the task's, or those in train_file, sorted.
        many_labels: Accept more than 50 different labels, or a different one in every
            row.
        answer_head: SQuAD: beam for the original's head of SQuAD 2.0, span for its head
            of SQuAD 1.1, which other packages use for both. Default: the original's.
            STS-B: embedder for vectors instead of a score.
        embedding_pooling: Vectors: mean or max over the tokens of a text, cls, or
            pooled for the pooler's output. Default: the checkpoint's, or the mean.
        projection_size: Vectors: numbers after a dense layer. Default: the
            checkpoint's, or none; with teacher_vectors of another size, theirs.
        prompt: Vectors: text before a text, after its role, such as "query=search: ";
            may be repeated. Roles are query for text_column, passage for the others.
        similarity_scale: Vectors: factor of the cosines in the loss of pairs, and of
            CoSENT.
        both_directions: Vectors: also rank the texts for each positive.
        score_loss: Vectors: loss of pairs with scores: cosent (their order) or mse (the
            cosines themselves, for scores from -1 to 1).
        embedding_dims: Vectors: also train the first numbers of each vector, such as
            256,128,64 (Matryoshka).
        embedding_layers: Vectors: also train the vectors after these layers, counted
            from 1.
        teacher_vectors: Vectors: array (.npy) that embed wrote for train_file with
            another model, as the target of texts alone.
        teacher_loss: Vectors: cosine or mse.
        cache_teacher: File (.npz) that keeps the teacher's outputs for other runs, and
            for the same one if it is stopped. Default: they are computed at each start.
        doc_stride: SQuAD: tokens from the start of one window to the next. Default:
            128.
        max_query_length: SQuAD: tokens kept of a question. Default: 64.
        max_answer_length: SQuAD: tokens of the longest answer. Default: 30.
        n_best_size: SQuAD: number of answers to list. Default: 20.
        max_qa_length: RACE: tokens kept of a question with a choice. Default: 128.
        overwrite: Replace existing output.
        recipe: Take learning_rate, train_batch_size, dropout, num_train_steps,
            num_warmup_steps and max_seq_length from this row of the paper's Table 14,
            for example cola. Default: the task's own row. Flags given explicitly take
            precedence.
        learning_rate: Peak learning rate. Default: 2e-5.
        train_batch_size: Examples per step, over all devices. Default: 32.
        dropout: Dropout of the encoder. Default: the checkpoint's.
        num_train_steps: Number of updates. Default: as many as num_train_epochs need.
        num_warmup_steps: Updates during which the learning rate rises. Default: 10% of
            all.
        warmup_proportion: Share of the updates during which the learning rate rises,
            instead of num_warmup_steps.
        max_seq_length: Tokens per row. Default: the model's maximum, at most 512.
        num_train_epochs: Passes over the training examples, instead of num_train_steps.
            Default: 3.
        max_train_examples: Train on this many examples, drawn with the seed; 0: on all.
        layerwise_decay: Factor of the learning rate from each layer to the one below
            it, such as 0.9, for models without shared layers (BERT). Rejected for
            others, including ALBERT, whose layers have one rate.
        layerwise_decay_rule: With --layerwise_decay: standard gives the top layer the
            full rate; original multiplies the rates of all layers and of the embeddings
            by the factor twice more, as ELECTRA's code does; corrected once more, as
            was meant there.
        ema_decay: Decay of an exponential moving average of the weights, such as 0.999;
            0: no average. The average is evaluated, kept and saved.
        class_weights: Weights of the classes in the loss, such as spam=5,ham=1; or
            balanced.
        label_smoothing: Share of the label that is spread over all classes.
        exits: Text classifiers: also train classifiers on every layer, with which the
            model can stop early: joint (with the model) or frozen (on a fine-tuned
            model, which stays as it is).
        train: Weights to train: all; or depth, the ones that single layers have of
            their own (depth_rank, depth_embedding), and the head. All other weights of
            the encoder stay as they are, except for a pooler that the checkpoint lacks.
        packing: Put several short examples of a batch into one row. Does not change
            results, except through the values that the encoder's dropout drops, where
            it has any. Not with rows of fixed length, and not with --backend=jax.
        fixed_length: Pad every batch to max_seq_length; implied by --distribution=tpu.
            Without it, --backend=jax pads to that, its half, a quarter and so on.
        jit_compile: Compile the whole step with XLA (a TPU always does). Implies
            fixed_length.
        eval_steps: Steps between evaluations; 0: only at the end. Default: an epoch.
        metric: Metric on the dev examples that selects the weights to keep; any other
            name than the task's is rejected, with the list. Default: the task's.
        keep: Weights of the model: the ones with the best metric, or the last ones.
        early_stopping_patience: Stop after this many evaluations without a better
            metric; 0: never.
        on_collapse: What to do if training collapses (one class, only empty answers, a
            loss at chance): warn, stop, or restart with the next seed.
        num_seeds: Number of runs with consecutive seeds; the best one is kept.
    """

    kind: ClassVar[str] = "finetune"

    do_lower_case: bool | None = setting(None, identity="tokenizer")
    keep_accents: bool | None = setting(None, identity="tokenizer")
    task: str = "table"
    train_file: str = setting("", group="inputs", common=True, identity="data")
    dev_file: str = setting("", group="inputs", common=True, identity="data")
    dev_fraction: float | None = setting(None, group="inputs", minimum=0, below=1)
    test_file: str = setting("", group="inputs", common=True, identity="data")
    init_checkpoint: str = setting(
        "", group="model", common=True, identity="init_checkpoint"
    )
    from_scratch: bool = setting(False, group="model")
    preset: str = setting("", group="model", common=True, identity="config")
    albert_config_file: str = setting("", group="model", common=True, identity="config")
    spm_model_file: str = setting("", group="model", common=True, identity="tokenizer")
    labels: tuple[str, ...] = setting((), group="inputs")
    many_labels: bool = setting(False, group="inputs")
    answer_head: str = setting(
        "", group="model", choices=("", "beam", "span", EMBEDDER)
    )
    embedding_pooling: str = setting("", group="model", choices=("", *POOLINGS))
    projection_size: int = setting(0, group="model", minimum=0)
    prompt: tuple[str, ...] = setting((), group="examples", repeated=True)
    similarity_scale: float = setting(20.0, group="training", above=0)
    both_directions: bool = setting(False, group="training")
    score_loss: str = setting("cosent", group="training", choices=("cosent", "mse"))
    embedding_dims: tuple[str, ...] = setting((), group="training")
    embedding_layers: tuple[str, ...] = setting((), group="training")
    teacher_vectors: str = setting("", group="inputs", identity="data")
    teacher_loss: str = setting("cosine", group="training", choices=("cosine", "mse"))
    cache_teacher: str = setting("", group="inputs", identity=False)
    doc_stride: int | None = setting(None, group="examples", identity="follows")
    max_query_length: int | None = setting(None, group="examples", minimum=1)
    max_answer_length: int | None = setting(None, group="outputs", minimum=1)
    n_best_size: int | None = setting(None, group="outputs", minimum=1)
    max_qa_length: int | None = setting(None, group="outputs", minimum=1)
    overwrite: bool = setting(False, group="outputs", common=True, identity=False)
    recipe: str = ""
    learning_rate: float | None = setting(None, identity="follows")
    train_batch_size: int | None = setting(None, identity="follows")
    dropout: float | None = setting(None, minimum=0, below=1, identity="follows")
    num_train_steps: int | None = setting(None, identity="follows")
    num_warmup_steps: int | None = setting(None, identity="follows")
    warmup_proportion: float | None = setting(None, minimum=0, maximum=1)
    max_seq_length: int | None = setting(None, identity="follows")
    num_train_epochs: float | None = setting(None, common=True, above=0)
    max_train_examples: int = setting(0, group="inputs", minimum=0)
    layerwise_decay: float | None = setting(None, above=0, maximum=1)
    layerwise_decay_rule: str = setting("standard", choices=DECAY_RULES)
    ema_decay: float = 0.0
    class_weights: tuple[str, ...] = ()
    label_smoothing: float = setting(0.0, minimum=0, below=1)
    exits: str = setting("none", group="model", choices=EXIT_MODES)
    train: str = setting("all", choices=TRAINED)
    packing: bool = setting(True, group="examples")
    fixed_length: bool = setting(False, group="examples", identity="recorded")
    jit_compile: bool = False
    eval_steps: int | None = setting(None, identity="follows")
    metric: str = setting("", group="evaluation")
    keep: str = setting(
        "best", group="evaluation", choices=("best", "last"), identity="follows"
    )
    early_stopping_patience: int = setting(0, minimum=0)
    on_collapse: str = setting("warn", choices=ON_COLLAPSE)
    num_seeds: int = setting(1, minimum=1)

    def __post_init__(self):
        """Raises `UsageError` for settings that no run can have."""
        self._check_source()
        self.check_training()
        self._check_teacher()
        for one, other in (
            ("num_train_epochs", "num_train_steps"),
            ("warmup_proportion", "num_warmup_steps"),
        ):
            values = getattr(self, one), getattr(self, other)
            need = f"--{one}: cannot be combined with {other}"
            require(None in values, need, *values)
        rule, usual = self.layerwise_decay_rule, DECAY_RULES[0]
        message = "--layerwise_decay_rule: requires --layerwise_decay"
        require(rule == usual or self.layerwise_decay is not None, message, rule)
        if self.max_seq_length is not None:
            check_max_seq_length(self.max_seq_length, pairs=False)
        require(
            self.exits != FROZEN
            or not (self.early_stopping_patience or self.num_seeds > 1),
            "--exits: frozen leaves every metric as it is, so that "
            "early_stopping_patience and num_seeds have nothing to compare",
        )
        need = "--train=depth: requires --init_checkpoint, whose other weights are kept"
        require(self.train == ALL or not self.from_scratch, need)
        need = "--train=depth: cannot be combined with --exits=frozen, which trains the"
        need = f"{need} exits alone"
        require(self.train == ALL or self.exits != FROZEN, need)
        reads_every = self.exits != NONE or bool(self.embedding_layers)
        for flag, is_set in (
            (f"--depth={self.depth}", self.depth != "unrolled"),
            ("--depth_range", self.depth_range),
        ):
            need = f"{flag}: cannot be combined with --exits and --embedding_layers, "
            require(not (reads_every and is_set), f"{need}which read every layer")

    def _check_teacher(self) -> None:
        """Raises `UsageError` if settings of the examples do not fit a teacher."""
        usual, taught = self.defaults(), bool(self.teacher)
        several = self.num_seeds > 1 or self.on_collapse == "restart"
        other = "other examples for every seed do not fit one --cache_teacher"
        for names, fits, need in (
            (("teacher_vectors",), not taught, "cannot be combined with --teacher"),
            (
                ("class_weights", "label_smoothing"),
                not taught or self.teacher_weight < 1,
                "with --teacher, requires a --teacher_weight below 1",
            ),
            (("max_train_examples",), not (several and self.cache_teacher), other),
        ):
            for name in names:
                value = getattr(self, name)
                require(fits or value == usual[name], f"--{name}: {need}", value)

    def _check_source(self) -> None:
        """Raises `UsageError` if data or initial weights are missing or ambiguous."""
        require(self.output_dir, "--output_dir: required, but not given")
        folder = os.path.abspath(self.output_dir)
        for name in ("init_checkpoint", "teacher"):
            given = getattr(self, name)
            need = f"--output_dir: is --{name}, too, which the run would replace"
            require(not given or os.path.abspath(given) != folder, need, given)
        require(
            bool(self.data_dir) != bool(self.train_file),
            "exactly one of --data_dir (a task's official files) and --train_file "
            "must be given",
            self.data_dir,
            self.train_file,
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
        """Returns a copy with the values of any recipe and the lengths of the run.

        The training examples have `num_examples` units. Raises `UsageError` if lengths
        do not fit each other.
        """
        defaults = self.defaults()
        given = [name for name in _REPLACES if getattr(self, name) != defaults[name]]
        values = {"learning_rate": 2e-5, "train_batch_size": 32}
        values |= beside(recipe or {}, given)
        explicit = {f.name: getattr(self, f.name) for f in dataclasses.fields(Recipe)}
        values |= {name: v for name, v in explicit.items() if v is not None}
        epochs, batch = self.num_train_epochs or 3.0, values["train_batch_size"]
        usual = math.ceil(num_examples * epochs / batch)
        steps = values.setdefault("num_train_steps", usual)
        if self.exits == FROZEN:
            # No metric of the last layer changes, so there is no best evaluation.
            values["keep"] = "last"
        share = self.warmup_proportion
        warmup = steps // 10 if share is None else int(steps * share)
        values.setdefault("num_warmup_steps", warmup)
        epoch = min(math.ceil(num_examples / batch), steps)
        values["eval_steps"] = epoch if self.eval_steps is None else self.eval_steps
        # XLA, which a TPU always uses, compiles for a single shape.
        compiled = self.jit_compile or self.distribution == "tpu"
        values["fixed_length"] = self.fixed_length or compiled
        settings = self.having(**values)
        settings.check_lengths()
        return settings

    def needs_dev(self) -> list[str]:
        """Returns the given settings that have no meaning without dev examples."""
        names = ("early_stopping_patience", "on_collapse", "metric", "num_seeds")
        usual = self.defaults()
        return [name for name in names if getattr(self, name) != usual[name]]


def learning_rate_multipliers(
    decay: float | None, config: AlbertConfig, rule: str = "standard"
) -> dict[str, float]:
    """Returns the factors of the layers' learning rates, by patterns of paths.

    The rate of layer `l` of `L`, counted from 0, is multiplied by `decay^(L - 1 - l)`,
    and the rate of the embeddings and their projection by `decay^L`, with a decay in
    (0, 1] or None. Pooler and head have the full rate. With the rule `"original"` the
    exponents are `L + 1 - l` and `L + 2`, as in google-research/electra, which counts a
    pooler that its model does not have (issue 51); with `"corrected"` they are `L - l`
    and `L + 1`, which count only the head.

    Raises `UsageError` if layers cannot have learning rates of their own.
    """
    if decay is None:
        return {}
    columns = list(zip(*config.layer_table(), strict=True))
    require(
        all(len(set(column)) == len(column) for column in columns),
        "layerwise_decay: the layers of this model share their weights (sharing="
        f"{config.sharing}), so that there is only one learning rate for all of them",
    )
    layers, inner = config.num_hidden_layers, config.inner_group_num
    parts = "attention|attention_layer_norm|ffn|ffn_layer_norm|depth"
    top = {"standard": 0, "corrected": 1, "original": 2}[rule]
    multipliers = {
        # Unshared parts are numbered by the application of the block.
        rf"(^|/)encoder/({parts})_{layer * inner + i}/": decay
        ** (top + layers - 1 - layer)
        for layer in range(layers)
        for i in range(inner)
    }
    embeddings = "(^|/)(embeddings|encoder/embedding_projection)/"
    multipliers[embeddings] = decay ** (top + layers)
    return multipliers
