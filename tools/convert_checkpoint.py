"""Converts a checkpoint between formats and prints a parity report.

Formats: albert_tf (this package's folder), huggingface, keras_hub, tf1 (the original's
checkpoint), sentence_transformers (of a text embedder). An ALBERT can also be written
as electra: in Hugging Face's format, as an ELECTRA that computes the same, with the
shared weights copied to every layer. The input may also be a released .tar.gz or a
TF-Hub export; its format is detected. Nothing is written unless every tensor has a
counterpart and both sides compute the same outputs.

Example: `albert-tf convert_checkpoint --input=albert_base_v2.tar.gz
--output=albert_base_hf --format=huggingface`
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from absl import flags

from albert_tf.cli.flags import define_alias
from albert_tf.cli.run import run

_FORMATS = ["albert_tf", "huggingface", "keras_hub", "tf1", "sentence_transformers"]
_INPUT = flags.DEFINE_string(
    "input", None, "Folder, archive or checkpoint prefix.", required=True
)
_OUTPUT = flags.DEFINE_string("output", None, "Folder to create.", required=True)
_FORMAT = flags.DEFINE_enum(
    "format", None, [*_FORMATS, "electra"], "Format of the output.", required=True
)
_FROM = flags.DEFINE_enum(
    "from", None, _FORMATS, "Format of the input, if it holds several."
)
_HEAD = flags.DEFINE_string(
    "head",
    "auto",
    "auto: the input's head; none: the encoder alone; or the name of a head.",
)
_CONFIG_FILE = flags.DEFINE_string(
    "albert_config_file", "", "Config to use instead of the input's, or if it has none."
)
_SPM_MODEL_FILE = flags.DEFINE_string(
    "spm_model_file",
    "",
    "SentencePiece model, tokenizer.json or vocab.txt, if the model has none.",
)
_DO_LOWER_CASE = flags.DEFINE_bool(
    "do_lower_case", None, "Lower-case text, if the model does not say. Default: true."
)
_KEEP_ACCENTS = flags.DEFINE_bool(
    "keep_accents", None, "Keep accents, if the model does not say. Default: false."
)
_IGNORE = flags.DEFINE_string(
    "ignore", "", "Regular expression of tensors that may be left over or missing."
)
_VERIFY = flags.DEFINE_enum(
    "verify",
    "reload",
    ["none", "reload", "peer"],
    "reload: run input and output here; peer: also run the library each is for.",
)
_BASE = flags.DEFINE_string(
    "base",
    "",
    "Model folder around the output, such as BASE for BASE/adapters/NAME: only weights "
    "that it lacks are written. The rest of the encoder must be the same.",
)
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Replace existing output.")
define_alias("to", "format")
define_alias("init_checkpoint", "input")
define_alias("output_dir", "output")
define_alias("config_file", "albert_config_file")
define_alias("tokenizer_file", "spm_model_file")


def main() -> None:
    """Converts and prints the report."""
    from albert_tf.config import AlbertConfig
    from albert_tf.converters.convert import convert_checkpoint

    config = _CONFIG_FILE.value and AlbertConfig.from_json(_CONFIG_FILE.value)
    report = convert_checkpoint(
        _INPUT.value,
        _OUTPUT.value,
        _FORMAT.value,
        head=None if _HEAD.value in ("", "none") else _HEAD.value,
        source_format=_FROM.value,
        config=config or None,
        tokenizer=_SPM_MODEL_FILE.value or None,
        do_lower_case=_DO_LOWER_CASE.value,
        keep_accents=_KEEP_ACCENTS.value,
        ignore=_IGNORE.value or None,
        verify=_VERIFY.value,
        overwrite=_OVERWRITE.value,
        base=_BASE.value or None,
    )
    print(report.to_text())


if __name__ == "__main__":
    run(main)
