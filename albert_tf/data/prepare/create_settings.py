"""Settings of create_pretraining_data, under the original script's names."""

import dataclasses

from albert_tf.data.corpus.corpus import CorpusSettings
from albert_tf.data.corpus.documents import check_language
from albert_tf.data.masking.config import MaskingConfig, most_predictions
from albert_tf.data.prepare.blocks import RecordConfig
from albert_tf.data.prepare.pairs import POLICIES, PairConfig
from albert_tf.errors import UsageError, require
from albert_tf.settings import check_fields, setting

_DISTRIBUTIONS = ("inverse", "reversed", "uniform")


@dataclasses.dataclass(frozen=True)
class CreateSettings(CorpusSettings):
    """One run of `create_pretraining_data`.

    Names and defaults follow the original script, except for
    `max_predictions_per_seq` and `dupe_factor`.

    Attributes:
        input_file: Text: comma-separated files, globs, tfds:<name> or
            docstrings:[max_bytes=<n>]. Sources with shares of the tokens:
            news=a*.txt:0.3,web=b*.jsonl:0.7, or a TOML file with them.
        output_file: Prefix of the shards, or the .tfrecord files to write.
        spm_model_file: Tokenizer: SentencePiece model, tokenizer.json, WordPiece's
            vocab.txt, or a folder that contains one.
        vocab_file: Not used; set --spm_model_file.
        input_file_mode: Only r is supported; gzip is recognized.
        language: Language, for splitting sentences.
        do_lower_case: Lower-case the text. Default: as the model folder of the
            tokenizer says, or else true. pretrain and the model keep this choice.
        keep_accents: Keep accents, tone marks and vowel signs, as Thai and Hindi need.
            Default: as the model folder of the tokenizer says, or else false.
        max_seq_length: Maximum number of tokens per example.
        pair_policy: clean: sentence order prediction with balanced labels. original: as
            the original script, which sometimes pairs a segment with a random document.
            nsp: BERT's next sentence prediction. Without labels: none: one segment,
            also across documents. full_sentences: RoBERTa's, with a separator after
            each sentence; doc_sentences: the same inside a document. doc: one segment
            inside a document (SpanBERT). segments: two consecutive ones (ELECTRA).
        random_next_sentence: The same as --pair_policy=nsp.
        short_seq_prob: Fraction of examples made shorter. Default: as in the original
            of the pair policy: 0.1, 0.05 (segments), or 0 (doc, doc_sentences,
            full_sentences).
        masking: dynamic: records without masks. static: masked records.
        do_whole_word_mask: Mask whole words.
        do_permutation: Not supported.
        favor_shorter_ngram: Draw n with p(n) proportional to 1/n.
            --nofavor_shorter_ngram reverses these probabilities, as in the original
            script.
        ngram_distribution: Distribution of n instead: inverse (the same as
            --favor_shorter_ngram), reversed (--nofavor_shorter_ngram) or uniform.
        ngram: Maximum number of words masked together.
        max_predictions_per_seq: Maximum number of masked tokens per example. Default:
            masked_lm_prob of max_seq_length, for example 77 of 512. The original's 20
            masks only 4.75% of long examples instead of 15%.
        masked_lm_prob: Fraction of the tokens to mask.
        random_seed: Seed of all random choices.
        dupe_factor: Number of passes over the text, each with other examples (and
            masks). The original's 40 is not needed with dynamic masking.
        eval_fraction: Fraction of documents held out.
        drop_duplicates: Leave out repeated documents.
        num_shards: Number of training shards. Default: one per 128 MiB.
        num_processes: Number of processes. Default: one per core.
        runner: Apache Beam runner, such as DirectRunner or DaskRunner; empty: no Beam.
        beam_option: Option for Beam, as --beam_option=--name=value; may be repeated.
        overwrite: Replace existing output.
        source_temperature: T, instead of the weights of sources (news=a*.txt,...): the
            share of one with n tokens is proportional to n^(1/T); 1: as they are.
    """

    group = "examples"

    input_file: str = setting(group="inputs", common=True)
    output_file: str = setting(group="outputs", common=True)
    spm_model_file: str | None = setting(None, group="model", common=True)
    vocab_file: str | None = setting(None, group="model")
    input_file_mode: str = setting("r", group="inputs")
    language: str = setting("en", group="inputs", common=True)
    do_lower_case: bool | None = setting(None, group="model")
    keep_accents: bool | None = setting(None, group="model")
    max_seq_length: int = setting(512, group="model", common=True)
    pair_policy: str = setting("clean", common=True, choices=tuple(POLICIES))
    random_next_sentence: bool = False
    short_seq_prob: float | None = setting(None, minimum=0, maximum=1)
    masking: str = setting("dynamic", common=True, choices=("dynamic", "static"))
    do_whole_word_mask: bool = True
    do_permutation: bool = False
    favor_shorter_ngram: bool = True
    ngram_distribution: str | None = setting(None, choices=_DISTRIBUTIONS)
    ngram: int = setting(3, minimum=1)
    max_predictions_per_seq: int | None = None
    masked_lm_prob: float = setting(0.15, common=True, above=0, below=1)
    random_seed: int = setting(12345, common=True)
    dupe_factor: int = setting(1, common=True, minimum=1)
    eval_fraction: float = setting(0.0, common=True, minimum=0, below=1)
    drop_duplicates: bool = setting(False, common=True)
    num_shards: int | None = setting(None, group="outputs", common=True, minimum=1)
    num_processes: int | None = setting(None, group="devices", common=True, minimum=1)
    runner: str | None = setting(None, group="devices", common=True)
    beam_option: tuple[str, ...] = setting((), group="devices", repeated=True)
    overwrite: bool = setting(False, group="outputs", common=True)
    source_temperature: float | None = setting(None, group="inputs", above=0)

    def __post_init__(self):
        check_fields(self)
        require(
            not self.do_permutation, "--do_permutation: not supported, leave it out"
        )
        mode, vocabulary = self.input_file_mode, self.vocab_file
        require(mode in ("r", "rb"), "--input_file_mode must be r", mode)
        unused = f"; --vocab_file={vocabulary} is not used" if vocabulary else ""
        require(self.spm_model_file, f"--spm_model_file is required{unused}")
        require(self.runner or not self.beam_option, "--beam_option requires --runner")

    def record_config(self) -> RecordConfig:
        """Returns the kind of records to make, or raises `UsageError`."""
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
        demand = f"--max_predictions_per_seq must be at most --max_seq_length={length}"
        require(number <= length, demand, number)
        return number
