"""Settings of create_pretraining_data, under the original script's names."""

import dataclasses

from albert_tf.data.corpus.corpus import CorpusSettings
from albert_tf.data.corpus.documents import check_language
from albert_tf.data.masking.config import (
    MaskingConfig,
    check_probability,
    most_predictions,
)
from albert_tf.data.prepare.config import RecordConfig
from albert_tf.data.prepare.pairs import POLICIES, PairConfig
from albert_tf.errors import UsageError
from albert_tf.settings import setting

_DISTRIBUTIONS = ("inverse", "reversed", "uniform")


@dataclasses.dataclass(frozen=True)
class CreateSettings(CorpusSettings):
    """One run of `create_pretraining_data`.

    Each field is described by its `metadata["help"]`, which is also the help text of
    the flag of that name. Names and defaults are those of the original script, except
    for `max_predictions_per_seq` and `dupe_factor`.
    """

    input_file: str = setting(
        "Text: comma-separated files, globs, tfds:<name> or docstrings:[max_bytes=<n>]."
    )
    output_file: str = setting("Prefix of the shards, or the .tfrecord files to write.")
    spm_model_file: str | None = setting(
        "Tokenizer: SentencePiece model, byte-level BPE's tokenizer.json, or a folder "
        "that contains one.",
        None,
    )
    vocab_file: str | None = setting("Not used; set --spm_model_file.", None)
    input_file_mode: str = setting("Only r is supported; gzip is recognized.", "r")
    language: str = setting("Language, for splitting sentences.", "en")
    do_lower_case: bool | None = setting(
        "Lower-case the text. Default: as the model folder of the tokenizer says, or "
        "else true. pretrain and the model keep this choice.",
        None,
    )
    keep_accents: bool | None = setting(
        "Keep accents, tone marks and vowel signs, as Thai and Hindi need. Default: as "
        "the model folder of the tokenizer says, or else false.",
        None,
    )
    max_seq_length: int = setting("Maximum number of tokens per example.", 512)
    pair_policy: str = setting(
        "clean: sentence order prediction with balanced labels. original: as the "
        "original script, which sometimes pairs a segment with a random document. nsp: "
        "BERT's next sentence prediction. none: one segment per example.",
        "clean",
        choices=POLICIES,
    )
    random_next_sentence: bool = setting("The same as --pair_policy=nsp.", False)
    short_seq_prob: float = setting("Fraction of examples made shorter.", 0.1)
    masking: str = setting(
        "dynamic: records without masks. static: masked records.",
        "dynamic",
        choices=("dynamic", "static"),
    )
    do_whole_word_mask: bool = setting("Mask whole words.", True)
    do_permutation: bool = setting("Not supported.", False)
    favor_shorter_ngram: bool = setting(
        "Draw n with p(n) proportional to 1/n. --nofavor_shorter_ngram reverses these "
        "probabilities, as in the original script.",
        True,
    )
    ngram_distribution: str | None = setting(
        "Distribution of n instead: inverse (the same as --favor_shorter_ngram), "
        "reversed (--nofavor_shorter_ngram) or uniform.",
        None,
        choices=_DISTRIBUTIONS,
    )
    ngram: int = setting("Maximum number of words masked together.", 3)
    max_predictions_per_seq: int | None = setting(
        "Maximum number of masked tokens per example. Default: masked_lm_prob of "
        "max_seq_length, for example 77 of 512. The original's 20 masks only 4.75% of "
        "long examples instead of 15%.",
        None,
    )
    masked_lm_prob: float = setting("Fraction of the tokens to mask.", 0.15)
    random_seed: int = setting("Seed of all random choices.", 12345)
    dupe_factor: int = setting(
        "Number of passes over the text, each with other examples (and masks). The "
        "original's 40 is not needed with dynamic masking.",
        1,
    )
    eval_fraction: float = setting("Fraction of documents held out.", 0.0)
    drop_duplicates: bool = setting("Leave out repeated documents.", False)
    num_shards: int | None = setting(
        "Number of training shards. Default: one per 128 MiB.", None
    )
    num_processes: int | None = setting(
        "Number of processes. Default: one per core.", None
    )
    runner: str | None = setting(
        "Apache Beam runner, for example DirectRunner. Default: no Beam.", None
    )
    beam_option: tuple[str, ...] = setting(
        "Option for Beam, as --beam_option=--name=value; may be repeated.",
        (),
        repeated=True,
    )
    overwrite: bool = setting("Replace existing output.", False)

    def __post_init__(self):
        if self.do_permutation:
            raise UsageError("--do_permutation: not supported, leave it out")
        if self.input_file_mode not in ("r", "rb"):
            raise UsageError(
                f"--input_file_mode: must be r, received {self.input_file_mode!r}"
            )
        if not self.spm_model_file:
            unused = f"; --vocab_file={self.vocab_file} is not used"
            raise UsageError(
                "--spm_model_file: required, but not given"
                f"{unused if self.vocab_file else ''}"
            )
        if self.beam_option and not self.runner:
            raise UsageError("--beam_option: needs --runner")

    def record_config(self) -> RecordConfig:
        """Returns what records to make.

        Raises:
            UsageError: If a setting is invalid.
        """
        check_probability(self.masked_lm_prob)
        if self.ngram < 1:
            raise UsageError(f"ngram: must be positive, received {self.ngram}")
        original = self.pair_policy == "original"
        return RecordConfig(
            pairs=PairConfig(
                policy=self.pair_policy,
                max_seq_length=self.max_seq_length,
                short_seq_prob=self.short_seq_prob,
                seed=self.random_seed,
            ),
            mask=MaskingConfig(
                unit="whole_word" if self.do_whole_word_mask else "piece",
                max_ngram=self.ngram,
                ngram_distribution=self._distribution(),
                masked_lm_prob=self.masked_lm_prob,
                max_predictions_per_seq=self._num_predictions(),
                rules="original" if original else "albert_tf",
            ),
            masking=self.masking,
            language=check_language(self.language),
            dupe_factor=self.dupe_factor,
            eval_fraction=self.eval_fraction,
        )

    def _distribution(self) -> str:
        if self.ngram_distribution is None:
            return "inverse" if self.favor_shorter_ngram else "reversed"
        if not self.favor_shorter_ngram and self.ngram_distribution != "reversed":
            raise UsageError(
                "--nofavor_shorter_ngram is the same as --ngram_distribution=reversed, "
                f"received --ngram_distribution={self.ngram_distribution}"
            )
        return self.ngram_distribution

    def _num_predictions(self) -> int:
        number, length = self.max_predictions_per_seq, self.max_seq_length
        if number is None:
            return most_predictions(length, self.masked_lm_prob)
        if number > length:
            raise UsageError(
                f"max_predictions_per_seq: must be at most max_seq_length, {length}, "
                f"received {number}"
            )
        return number
