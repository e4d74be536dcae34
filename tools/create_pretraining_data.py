"""Makes pretraining records (TFRecord files) of text.

The flags of the original script keep their names; those it lacks are new. Records hold
the tokens only and are masked afresh each epoch while training (--masking=dynamic);
--masking=static writes masked records for scripts that expect the original's files.
"""

import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from absl import flags

from albert_tf.cli.flags import define_alias
from albert_tf.cli.run import run
from albert_tf.errors import UsageError
from albert_tf.storage import files

_INPUT = flags.DEFINE_string(
    "input_file",
    None,
    "Comma-separated files, globs, tfds:<name> or docstrings:[max_bytes=<n>].",
)
_OUTPUT = flags.DEFINE_string(
    "output_file", None, "Prefix of the shards, or the .tfrecord files themselves."
)
_MODEL = flags.DEFINE_string(
    "spm_model_file",
    None,
    "The tokenizer: SentencePiece model, byte-level BPE's tokenizer.json, or a folder.",
)
define_alias("tokenizer_file", "spm_model_file")
_VOCAB = flags.DEFINE_string("vocab_file", None, "Not used; give --spm_model_file.")
_FORMAT = flags.DEFINE_enum(
    "input_format",
    "auto",
    ["auto", "lines", "paragraphs", "wikiextractor", "jsonl", "parquet"],
    "Format of the files; gzip is recognized. lines: a sentence a line, a blank line "
    "between documents.",
)
_MODE = flags.DEFINE_string("input_file_mode", "r", "Only r; gzip is recognized.")
_FIELD = flags.DEFINE_string("text_field", "text", "Field of jsonl, parquet, TFDS.")
_BAD = flags.DEFINE_enum(
    "on_bad_input", "error", ["error", "skip"], "skip: count bad lines, leave them out."
)
_LANGUAGE = flags.DEFINE_string("language", "en", "For splitting sentences.")
_LOWER = flags.DEFINE_bool("do_lower_case", True, "Lower-case the text.")
_LENGTH = flags.DEFINE_integer("max_seq_length", 512, "Tokens of an example.")
_POLICY = flags.DEFINE_enum(
    "pair_policy",
    "clean",
    ["clean", "original", "nsp", "none"],
    "clean: order of two segments, balanced. original: as the original, with random "
    "documents. nsp: BERT's. none: one segment.",
)
_RANDOM_NEXT = flags.DEFINE_bool(
    "random_next_sentence", False, "The same as --pair_policy=nsp."
)
_SHORT = flags.DEFINE_float("short_seq_prob", 0.1, "Share of shorter examples.")
_MASKING = flags.DEFINE_enum("masking", "dynamic", ["dynamic", "static"], "See above.")
_WHOLE_WORD = flags.DEFINE_bool("do_whole_word_mask", True, "Mask whole words.")
_PERMUTATION = flags.DEFINE_bool("do_permutation", False, "Not supported.")
_SHORTER = flags.DEFINE_bool(
    "favor_shorter_ngram", True, "p(n) proportional to 1/n; else uniform."
)
_NGRAM = flags.DEFINE_integer("ngram", 3, "Longest masked n-gram, in words.")
_PREDICTIONS = flags.DEFINE_integer(
    "max_predictions_per_seq",
    None,
    "Most masked tokens of an example. Default: masked_lm_prob of max_seq_length, 77 "
    "of 512; the original's 20 masks 4.75% of long examples, not 15%.",
)
_PROB = flags.DEFINE_float("masked_lm_prob", 0.15, "Share of masked tokens.")
_SEED = flags.DEFINE_integer("random_seed", 12345, "Of every random choice.")
_DUPE = flags.DEFINE_integer(
    "dupe_factor",
    1,
    "Passes over the text with other cuts (and masks). The original's 40 is not needed "
    "with dynamic masks.",
)
_EVAL = flags.DEFINE_float("eval_fraction", 0.0, "Share of documents held out.")
_DROP = flags.DEFINE_bool("drop_duplicates", False, "Leave out repeated documents.")
_SHARDS = flags.DEFINE_integer("num_shards", None, "Default: one each 128 MiB.")
_PROCESSES = flags.DEFINE_integer("num_processes", None, "Default: one each core.")
_RUNNER = flags.DEFINE_string(
    "runner", None, "Apache Beam runner, such as DirectRunner. Default: no Beam."
)
_BEAM = flags.DEFINE_multi_string("beam_option", [], "Option for Beam, --name=value.")
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Replace an existing data set.")
flags.mark_flags_as_required(["input_file", "output_file"])


def main() -> None:
    """Runs the command."""
    from albert_tf.data.prepare.create import create_from_options
    from albert_tf.data.records import card

    if _PERMUTATION.value:
        raise UsageError("--do_permutation: has no counterpart here, leave it out")
    if _MODE.value not in ("r", "rb"):
        raise UsageError(f"--input_file_mode: must be r, got {_MODE.value!r}")
    if not _MODEL.value:
        named = f"; --vocab_file={_VOCAB.value} is not used" if _VOCAB.value else ""
        raise UsageError(f"--spm_model_file: required, but not given{named}")
    policy = _POLICY.value
    if _RANDOM_NEXT.value:
        if flags.FLAGS["pair_policy"].present and policy != "nsp":
            raise UsageError(f"--random_next_sentence: not with --pair_policy={policy}")
        policy = "nsp"
    own = flags.FLAGS.get_key_flags_for_module(sys.argv[0])
    made = create_from_options(
        {flag.name: flag.value for flag in own if flag.name != "tokenizer_file"}
        | {"pair_policy": policy}
    )
    print("\n".join(card.summary_lines(made)))
    folder = os.path.dirname(_OUTPUT.value.split(",")[0].strip())
    print(f"data card: {files.join(folder, card.MARKDOWN_NAME)}")


if __name__ == "__main__":
    run(main)
