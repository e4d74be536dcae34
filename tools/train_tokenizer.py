"""Trains a tokenizer on text, with ALBERT's settings.

Example: `albert-tf train_tokenizer --input_file='text/*.txt' --output_prefix=my` writes
my.model, a SentencePiece model for --spm_model_file of the other commands. The same
text, flags and seed give the same bytes.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from absl import flags, logging

from albert_tf.cli.flags import define_alias, define_settings, read_settings
from albert_tf.cli.run import run
from albert_tf.data.corpus import corpus
from albert_tf.errors import UsageError, require
from albert_tf.text import train

_INPUT_FILE = flags.DEFINE_string(
    "input_file",
    None,
    "Training text: comma-separated files or patterns, or `docstrings:`.",
    required=True,
)
define_settings(corpus.CorpusSettings)
define_alias("text_column", "text_field")
_LANGUAGE = flags.DEFINE_string("language", "en", "Language, for splitting sentences.")
_OUTPUT_MODEL = flags.DEFINE_string("output_model", None, "File to write.")
_OUTPUT_PREFIX = flags.DEFINE_string(
    "output_prefix", None, "Instead of --output_model: its name without suffix."
)
_MODEL_TYPE = flags.DEFINE_enum(
    "model_type",
    "unigram",
    train.MODEL_TYPES,
    "unigram: SentencePiece (.model); byte_bpe: like RoBERTa's (tokenizer.json); "
    "wordpiece: like BERT's (vocab.txt).",
)
_VOCAB_SIZE = flags.DEFINE_integer("vocab_size", 30000, "Number of tokens.")
_DO_LOWER_CASE = flags.DEFINE_bool("do_lower_case", True, "Lower-case the text.")
_KEEP_ACCENTS = flags.DEFINE_bool(
    "keep_accents", False, "Keep accents, tone marks and vowel signs."
)
_CHARACTER_COVERAGE = flags.DEFINE_float(
    "character_coverage", 0.99995, "Fraction of characters with their own token."
)
_INPUT_SENTENCE_SIZE = flags.DEFINE_integer(
    "input_sentence_size", 10_000_000, "Maximum number of sentences to train on."
)
_SEED = flags.DEFINE_integer("seed", 12345, "Seed for drawing sentences.")
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Replace existing output.")


def main() -> None:
    """Trains the tokenizer and writes its file."""
    output = _output()
    documents = corpus.open_corpus(
        _INPUT_FILE.value,
        language=_LANGUAGE.value,
        **read_settings(corpus.CorpusSettings).options,
    )
    train.train_tokenizer(
        (sentence for document in documents for sentence in document),
        output,
        model_type=_MODEL_TYPE.value,
        vocab_size=_VOCAB_SIZE.value,
        do_lower_case=_DO_LOWER_CASE.value,
        keep_accents=_KEEP_ACCENTS.value,
        character_coverage=_CHARACTER_COVERAGE.value,
        input_sentence_size=_INPUT_SENTENCE_SIZE.value,
        seed=_SEED.value,
        overwrite=_OVERWRITE.value,
    )
    logging.info("wrote %s", output)


def _output() -> str:
    """Returns the file to write; with --output_prefix, adds the suffix."""
    if (_OUTPUT_MODEL.value is None) == (_OUTPUT_PREFIX.value is None):
        raise UsageError(
            "--output_model or --output_prefix: exactly one is required, received "
            f"{_OUTPUT_MODEL.value} and {_OUTPUT_PREFIX.value}"
        )
    suffixes = {"unigram": ".model", "byte_bpe": ".json", "wordpiece": ".txt"}
    suffix = suffixes[_MODEL_TYPE.value]
    output = _OUTPUT_MODEL.value
    if output is None:
        return f"{_OUTPUT_PREFIX.value}{suffix}"
    # Other commands distinguish the kinds by it: any other ending is SentencePiece.
    found = pathlib.PurePath(output).suffix
    is_known = found == suffix or {found, suffix}.isdisjoint({".json", ".txt"})
    rule = f"--output_model must end in {suffix} with --model_type={_MODEL_TYPE.value}"
    require(is_known, rule, output)
    return output


if __name__ == "__main__":
    run(main)
