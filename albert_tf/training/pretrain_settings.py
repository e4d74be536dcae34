"""The settings of a pretraining run, with the names of the original's flags.

The module also computes the phases of a run whose sequences grow longer. Records of one
length cannot serve another: a longer example cannot be cut, because its label is about
two whole segments, and rows of short examples would be mostly padding.
"""

import dataclasses
import math
import re
from typing import Any

from albert_tf.data.masking.config import most_predictions
from albert_tf.errors import require
from albert_tf.objectives.recipes import OF_PAIRS, OWN_SETTINGS, find_recipe
from albert_tf.settings import setting
from albert_tf.text.inputs import PROMPTS
from albert_tf.text.tokenizer import MASK
from albert_tf.training.settings import Phase, TrainingSettings

# The batch of ALBERT's pretraining, for which its rate of 0.00176 is meant.
REFERENCE_BATCH_SIZE = 4096


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainSettings(TrainingSettings):
    """A pretraining run. Names and defaults follow `run_pretraining.py`.

    Steps are updates of the weights. Fields that are None take the value of the
    objective's paper (`objectives.recipes`).

    Attributes:
        input_file: TFRecords: the prefix given to create_pretraining_data, or paths
            separated by commas.
        spm_model_file: Tokenizer that the records were made with: a SentencePiece
            model, a tokenizer.json, WordPiece's vocab.txt, or a folder with one.
            Default: the tokenizer of --init_checkpoint.
        eval_file: Held-out TFRecords; without them there is no evaluation.
        objective: What to learn: albert, bert (for records of --pair_policy=nsp),
            roberta, spanbert or electra (for records without labels, such as with
            --pair_policy=none). It sets model, losses, --masking and, as in its paper,
            optimizer, batch, steps and learning rate (docs/relatives.md).
        pair_loss_weight: Weight of the loss about a pair of segments (SOP or NSP); the
            loss of the masked tokens has weight 1.
        max_span: With --objective=spanbert: number of tokens of a span, from its first
            one, that are predicted from its ends.
        span_edges: With --objective=spanbert: original predicts no token of a span that
            begins or ends the text from its ends, all does.
        generator_size: With --objective=electra: width of the generator as a share of
            the discriminator's, which the other flags describe. Default: 1/3 for
            --preset=electra_base and electra_albert_base, 1 with --share_encoder, else
            1/4.
        generator_layers: With --objective=electra: the same for the number of layers.
        embedding_sharing: With --objective=electra: with tied, generator and
            discriminator read the same embeddings; with disentangled, the discriminator
            adds a difference to the generator's, which it does not train; with none,
            both have their own.
        share_encoder: With --objective=electra: the generator applies the
            discriminator's only block, --generator_layers times as often.
        teacher_layers: With --teacher: pairs of layers, student:teacher, such as 2:4,
            6:12, counted from 1: the states after the student's layer also learn those
            after the teacher's. Where their widths differ, a matrix that is trained
            with the model, but not saved with it, lies between them.
        temperature: With --objective=electra: divides the generator's logits before
            tokens are drawn.
        disallow_correct: With --objective=electra: never draw the original token.
        depth_consistency: With --depth_range: every step also computes all layers. Its
            loss is the one after all layers, plus this weight times the loss after the
            fewer layers and the mean squared difference of the last states of both,
            where the states after all layers are constants. LoopFormer has 0.1.
        preset: Size of the model, such as albert_base_v2. Exclusive with
            --albert_config_file. Without either: the size of --init_checkpoint.
        albert_config_file: JSON file with the sizes of the model.
        init_checkpoint: Checkpoint with the initial weights, in any format of
            from_pretrained.
        grow: Accept an --init_checkpoint with fewer layers or groups than the config:
            layer i begins with the weights of its layer i modulo their number.
        max_seq_length: Tokens per row. Shorter examples are padded.
        sequence_length_schedule: Steps by length, such as 128:9000,512:1000, or with
            batch sizes, 128:9000:4096,512:1000:1024. --input_file then contains
            {length}, for the records of each; --max_predictions_per_seq is for the
            longest.
        max_predictions_per_seq: Maximum number of masked tokens per example. Default:
            the number in the records, if they hold masks, or masked_lm_prob of
            max_seq_length, 77 of 512.
        masking: albert, bert, bert_wwm, roberta, spanbert or electra. Default: as
            --objective requires.
        masked_lm_prob: Fraction of the tokens to mask.
        ngram: Maximum number of words masked together.
        packing: Put several short examples into one row; batch sizes then count rows.
        scale_learning_rate: Take --learning_rate as the rate for a batch of 4096, for
            which published rates are meant, and multiply it by sqrt(train_batch_size /
            4096). --num_warmup_steps stays, as in the LAMB paper.
        poly_power: With --learning_rate_schedule=original: power of the decay.
        ema_decay: Decay of an exponential moving average of the weights, such as 0.999;
            0: no average. The average is saved and evaluated (ema_loss, …) with the
            weights.
        export_weights: Weights of model/: the last ones, or with --ema_decay their
            average.
        change_num_train_steps: Continue a run made with another --num_train_steps: end
            it early, or go on. The learning rate follows the schedule of the new
            number.
        start_warmup_step: With --learning_rate_schedule=original: step at which the
            warm-up begins.
        keep_best: Metric of the evaluations, such as loss, mlm_accuracy or ema_loss:
            the model with the best value is kept in best/, next to the checkpoints.
        sample_texts: Sentence with [MASK] that the model fills in at each evaluation,
            for samples.jsonl; may be repeated. Empty: none. Not on a TPU.
        async_checkpoint: Continue training while a checkpoint is written.
        iterations_per_loop: Steps per call of the compiled graph.
        max_eval_steps: Maximum number of batches per evaluation; 0: all.
        eval_masked_lm_prob: Fraction of the tokens to mask in evaluations. Default:
            --masked_lm_prob.
        eval_ngram: With --masking=albert: maximum number of words masked together in
            evaluations. Default: --ngram.
        on_divergence: When a loss or gradient is not finite, or far above the usual:
            stop, or rollback to the last checkpoint and leave that batch out.
        max_loss_ratio: A loss above this multiple of its running median is a
            divergence; 0: off.
        max_grad_norm_ratio: A gradient norm above this multiple of its running median
            is a divergence; 0: off.
        jit_compile: Compile the whole step with XLA (a TPU always does). On a CPU this
            is faster for tiny models only: for albert_base 1.4 times slower in float32,
            and about 2.5 times in bfloat16 on CPUs with AMX.
        fuse_elementwise: On CPUs, compile the activation gelu_new and its gradient with
            XLA, one loop each.
        deterministic: The same command gives the same bits. Default: true, except on a
            GPU, where it takes more time and memory.
    """

    input_file: str = setting(group="inputs", common=True, identity="data")
    spm_model_file: str = setting("", group="model", common=True, identity="tokenizer")
    eval_file: str = setting("", group="inputs", common=True, identity=False)
    objective: str = setting(
        "albert",
        common=True,
        choices=("albert", "bert", "roberta", "spanbert", "electra"),
    )
    pair_loss_weight: float = setting(1.0, minimum=0)
    max_span: int = setting(15, minimum=1)
    span_edges: str = setting("original", choices=("original", "all"))
    generator_size: float | None = setting(None, above=0, identity="follows")
    generator_layers: float = setting(1.0, above=0)
    embedding_sharing: str = setting("tied", choices=("tied", "disentangled", "none"))
    share_encoder: bool = False
    teacher_layers: tuple[str, ...] = ()
    temperature: float = setting(1.0, above=0)
    disallow_correct: bool = False
    depth_consistency: float = setting(0.0, minimum=0)
    preset: str = setting("", group="model", common=True, identity="config")
    albert_config_file: str = setting("", group="model", common=True, identity="config")
    init_checkpoint: str = setting(
        "", group="model", common=True, identity="init_checkpoint"
    )
    grow: bool = setting(False, group="model")
    max_seq_length: int = 512
    sequence_length_schedule: str = setting("", group="examples")
    max_predictions_per_seq: int | None = setting(
        None, group="examples", minimum=1, identity="follows"
    )
    masking: str | None = setting(
        None, group="examples", common=True, identity="follows"
    )
    masked_lm_prob: float = setting(0.15, group="examples", common=True)
    ngram: int = setting(3, group="examples", minimum=1)
    packing: bool = setting(False, group="examples")
    train_batch_size: int | None = None
    eval_batch_size: int = setting(64, identity=False)
    optimizer: str | None = None
    learning_rate: float | None = None
    learning_rate_schedule: str | None = None
    weight_decay_rate: float | None = None
    clip_norm: float | None = None
    beta_2: float | None = None
    epsilon: float | None = None
    bias_correction: bool | None = None
    exclude_from_weight_decay: str | None = None
    scale_learning_rate: bool = False
    poly_power: float = setting(1.0, above=0)
    ema_decay: float = 0.0
    # Not part of the identity: the batch is the same, only divided differently.
    gradient_accumulation_steps: int = setting(1, identity=False)
    export_weights: str = setting(
        "last", group="evaluation", choices=("last", "average")
    )
    num_train_steps: int | None = None
    change_num_train_steps: bool = setting(False, identity=False)
    num_warmup_steps: int | None = None
    start_warmup_step: int = setting(0, minimum=0)
    save_checkpoints_steps: int = 5000
    keep_checkpoint_max: int = 5
    keep_best: str = setting("", group="evaluation", identity=False)
    sample_texts: tuple[str, ...] = setting(
        PROMPTS, group="evaluation", repeated=True, identity=False
    )
    async_checkpoint: bool = setting(True, group="evaluation", identity=False)
    iterations_per_loop: int = setting(100, group="devices", minimum=1, identity=False)
    eval_steps: int = setting(5000, identity=False)
    max_eval_steps: int = setting(100, group="evaluation", minimum=0, identity=False)
    eval_masked_lm_prob: float | None = setting(None, group="examples", identity=False)
    eval_ngram: int | None = setting(None, group="examples", minimum=1, identity=False)
    on_divergence: str = setting("stop", choices=("stop", "rollback"), identity=False)
    max_loss_ratio: float = setting(3.0, identity=False)
    max_grad_norm_ratio: float = setting(100.0, identity=False)
    jit_compile: bool = False
    fuse_elementwise: bool = setting(True, group="devices", identity=False)
    deterministic: bool | None = setting(None, group="devices", identity=False)

    def __post_init__(self):
        """Raises `UsageError` for settings that no run can have."""
        for name in ("input_file", "output_dir"):
            require(getattr(self, name), f"--{name} is required")
        self._complete()
        self.check_training()
        self._check_objective()
        need = "--spm_model_file is required without --init_checkpoint"
        require(self.spm_model_file or self.init_checkpoint, need)
        self._check_start()
        message = f"--keep_best requires --eval_file, received {self.keep_best!r} alone"
        require(self.eval_file or not self.keep_best, message)
        for text in filter(None, self.sample_texts):
            require(MASK in text, f"--sample_texts must contain {MASK}", text)
        message = "--export_weights=average requires an --ema_decay"
        require(self.export_weights == "last" or self.ema_decay, message, 0)
        for name in ("max_loss_ratio", "max_grad_norm_ratio"):
            value = getattr(self, name)
            fits = value == 0 or 1 < value < math.inf
            require(fits, f"--{name} must be above 1, or 0 for none", value)
        if self.sequence_length_schedule:
            _ = self.phases  # checks the phases, and the settings of each

    def _complete(self) -> None:
        """Fills fields that are None from the recipe of the objective."""
        recipe = find_recipe(self.objective, self.preset)
        if self.share_encoder and self.objective == "electra":
            recipe["generator_size"] = 1.0
        missing = [name for name in recipe if getattr(self, name) is None]
        batch = recipe["train_batch_size"]
        fits = "learning_rate" not in missing or batch == REFERENCE_BATCH_SIZE
        require(
            fits or not self.scale_learning_rate,
            f"--scale_learning_rate with --objective={self.objective} requires a "
            f"--learning_rate; its own is that of a batch of {batch}",
        )
        for name in missing:
            object.__setattr__(self, name, recipe[name])

    def _check_objective(self) -> None:
        """Raises `UsageError` for settings of another objective."""
        name, defaults = self.objective, self.defaults()
        for other, flags in OWN_SETTINGS.items():
            for flag in flags if other != name else ():
                value = getattr(self, flag)
                need = f"--{flag}={value} requires --objective={other}"
                require(value == defaults[flag], need, name)
        ranges = ",".join(self.depth_range)
        need = "--depth_range: one number of layers does not fit the two nets of "
        require(not ranges or name != "electra", f"{need}--objective=electra", ranges)
        need = "--depth_consistency requires --depth_range"
        require(ranges or not self.depth_consistency, need, self.depth_consistency)
        need = "--optimizer=lamb: its trust ratio would hold the difference, which "
        need += "starts as 0, close to 0; use adamw, or another --embedding_sharing"
        stays = (self.optimizer, self.embedding_sharing) == ("lamb", "disentangled")
        require(not stays, need, self.embedding_sharing)
        weight = self.pair_loss_weight
        usual = name in OF_PAIRS or weight == defaults["pair_loss_weight"]
        need = f"--pair_loss_weight={weight} requires an objective with a loss about "
        require(usual, f"{need}pairs", name)
        need = "--teacher: ELECTRA's discriminator predicts no tokens, which a teacher "
        need += "could teach; give another --objective"
        require(not self.teacher or name != "electra", need, name)
        need = "--teacher_layers must be pairs of layers, student:teacher, such as 2:4"
        for pair in self.teacher_layers:
            require(_LAYERS.fullmatch(pair), need, pair)
        pairs, given = self.layer_pairs, ",".join(self.teacher_layers)
        need = "--teacher_layers must name no pair of layers twice"
        require(len({*pairs}) == len(pairs), need, given)
        for flag, is_set in (
            (f"--depth={self.depth}", self.depth != "unrolled"),
            ("--depth_range", self.depth_range),
        ):
            need = f"{flag}: cannot be combined with --teacher_layers, which read all"
            require(not (self.teacher_layers and is_set), need)
        need = "--depth_consistency: cannot be combined with --teacher"
        require(not (self.teacher and self.depth_consistency), need)

    def _check_start(self) -> None:
        """Checks the source of the model's sizes and weights."""
        has_start = bool(self.init_checkpoint) and not self.grow
        count = bool(self.preset) + bool(self.albert_config_file)
        require(
            count == 1 or (has_start and not count),
            "exactly one of --preset and --albert_config_file must be given, or "
            "--init_checkpoint without --grow, whose config is then taken",
            self.preset,
            self.albert_config_file,
        )
        need = "--grow requires --init_checkpoint, received none"
        require(self.init_checkpoint or not self.grow, need)

    @property
    def optimizer_arguments(self) -> dict[str, Any]:
        """Arguments of `create_optimizer`."""
        return {
            **super().optimizer_arguments,
            "learning_rate": self.peak_learning_rate,
            "poly_power": self.poly_power,
            "start_warmup_step": self.start_warmup_step,
        }

    @property
    def phases(self) -> list[Phase]:
        """The phases of the run; more than one if sequences grow longer."""
        if not self.sequence_length_schedule:
            return super().phases
        parts = _parts_of(self)
        phases, first = [], 0
        for length, steps, batch in parts:
            # 77 predictions in 512 tokens correspond to 20 in 128, as in the original.
            predictions = self.max_predictions_per_seq
            if predictions is not None:
                predictions = -(-predictions * length // parts[-1][0])
            phase = dataclasses.replace(
                self,
                sequence_length_schedule="",
                input_file=self.input_file.replace(PLACEHOLDER, str(length)),
                max_seq_length=length,
                max_predictions_per_seq=predictions,
                train_batch_size=batch,
            )
            phases.append(Phase(first, first + steps, phase))
            first += steps
        return phases

    def input_files(self) -> list[str]:
        """Returns `input_file` for each phase, the shortest sequences first."""
        return [phase.settings.input_file for phase in self.phases]

    @property
    def peak_learning_rate(self) -> float:
        """The peak of the schedule: `learning_rate`, scaled if the settings say so.

        It follows the square-root rule of LAMB (arXiv:1904.00962), which also holds for
        Adam (arXiv:2205.10287): neither's update depends on the scale of the gradients.
        """
        if not self.scale_learning_rate:
            return self.learning_rate
        share = self.train_batch_size / REFERENCE_BATCH_SIZE
        return self.learning_rate * math.sqrt(share)

    def describe_learning_rate(self) -> str:
        """Describes the peak of the schedule, and its origin, for people."""
        if not self.scale_learning_rate:
            return f"learning rate {self.learning_rate:g}"
        return (
            f"learning rate {self.peak_learning_rate:.4g} ({self.learning_rate:g} x "
            f"sqrt({self.train_batch_size} / {REFERENCE_BATCH_SIZE}))"
        )

    def describe_steps(self) -> str:
        """Describes the steps and batches of each phase for people."""
        what = "packed rows" if self.packing else "examples"
        return ", then ".join(
            f"{one.last_step - one.first_step:,} steps of "
            f"{one.settings.train_batch_size:,} {what} of at most "
            f"{one.settings.max_seq_length} tokens"
            for one in self.phases
        )

    @property
    def layer_pairs(self) -> tuple[tuple[int, ...], ...]:
        """Layers of the student and of the teacher, counted from 1."""
        return tuple(tuple(map(int, x.split(":"))) for x in self.teacher_layers)

    @property
    def num_predictions(self) -> int:
        """Number of masked tokens that a row of `max_seq_length` has room for."""
        if self.max_predictions_per_seq is not None:
            return self.max_predictions_per_seq
        return most_predictions(self.max_seq_length, self.masked_lm_prob)

    def identity(self) -> dict[str, Any]:
        """Returns the settings that decide the trained weights."""
        # The number decides, whether it was given or is the default.
        return super().identity() | {"max_predictions_per_seq": self.num_predictions}


_LAYERS = re.compile(r"\d+:\d+", re.ASCII)
# In --input_file, stands for the length of a phase.
PLACEHOLDER = "{length}"
_PART = re.compile(r"(\d+):(\d+)(?::(\d+))?")


def _parts_of(settings: Any) -> list[tuple[int, ...]]:
    """Returns length, steps and batch of each phase, checked against other settings."""
    text, size = settings.sequence_length_schedule, settings.train_batch_size
    matches = [_PART.fullmatch(part.strip()) for part in text.split(",")]
    parts = [tuple(map(int, m.groups(size))) for m in matches if m]
    lengths = [length for length, *_ in parts]
    rising = lengths == sorted(set(lengths))
    require(
        rising and len(parts) == len(matches) and all(map(all, parts)),
        "--sequence_length_schedule must be rising lengths with positive numbers "
        "of steps and perhaps batch sizes, such as 128:9000,512:1000 or "
        "128:9000:4096,512:1000:1024",
        text,
    )
    schedule = f"--sequence_length_schedule={text}"
    steps = sum(steps for _, steps, _ in parts)
    for name, value, what in (
        ("num_train_steps", steps, "sum"),
        ("max_seq_length", lengths[-1], "longest"),
    ):
        actual, need = getattr(settings, name), f"--{name} must be {value}"
        require(actual == value, f"{need}, the {what} of {schedule}", actual)
    require(
        len(parts) == 1 or PLACEHOLDER in settings.input_file,
        f"--input_file must contain {PLACEHOLDER} with {schedule}, because each "
        f"length needs its own records, received {settings.input_file}",
    )
    require(
        not settings.scale_learning_rate or {batch for *_, batch in parts} == {size},
        f"--scale_learning_rate knows one --train_batch_size={size}, received "
        f"{schedule}; give the rate itself",
    )
    return parts
