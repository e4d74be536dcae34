"""Exports a model as a SavedModel that takes raw strings, for TensorFlow Serving.

Example: `albert-tf export --model=sentiment --output_dir=served --version=1`

Without `--version` the SavedModel is `--output_dir` itself. To load it in Python, or
with saved_model_cli, import tensorflow_text first (the last lines of the output say
how); TensorFlow Serving needs nothing.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from absl import flags, logging

from albert_tf.cli.flags import define_alias
from albert_tf.cli.run import run

_MODEL = flags.DEFINE_string(
    "model", None, "Model folder or checkpoint of any known format.", required=True
)
_OUTPUT_DIR = flags.DEFINE_string("output_dir", None, "Folder to write.", required=True)
_VERSION = flags.DEFINE_integer(
    "version", None, "Write to output_dir/version, where servers look for it."
)
_HEAD = flags.DEFINE_string(
    "head", "auto", "auto: the head in the files; none: the encoder; or a head's name."
)
_SPM_MODEL_FILE = flags.DEFINE_string(
    "spm_model_file",
    "",
    "SentencePiece model or tokenizer.json, if the model folder has none.",
)
_DO_LOWER_CASE = flags.DEFINE_bool(
    "do_lower_case", None, "Lower-case text, if the model does not say. Default: true."
)
_KEEP_ACCENTS = flags.DEFINE_bool(
    "keep_accents", None, "Keep accents, if the model does not say. Default: false."
)
_MAX_SEQ_LENGTH = flags.DEFINE_integer(
    "max_seq_length", None, "Longer texts are cut. Default: the model's maximum."
)
_LABELS = flags.DEFINE_list(
    "labels", [], "Names of the labels. Default: those in the model folder."
)
_WARMUP_BATCH_SIZES = flags.DEFINE_list(
    "warmup_batch_sizes", ["1", "8"], "Batch sizes of warm-up requests; may be empty."
)
_TOP_K = flags.DEFINE_integer(
    "top_k", 10, "Number of tokens per mask, for the signature fill_mask(text)."
)
# TensorFlow Serving has these operations; Python has them after an import.
_LOADING = (
    "in Python: import tensorflow_text before tf.saved_model.load('%s')",
    'saved_model_cli: python -c "import tensorflow_text; from '
    'tensorflow.python.tools.saved_model_cli import main; main()" show --all --dir=%s',
)
define_alias("init_checkpoint", "model")
define_alias("export_dir", "output_dir")
define_alias("tokenizer_file", "spm_model_file")


def main() -> None:
    """Loads the model, exports it and prints the folder."""
    from albert_tf.converters import load
    from albert_tf.converters.checkpoint import keras_model
    from albert_tf.errors import UsageError
    from albert_tf.export.saved_model import export_saved_model

    sizes = _WARMUP_BATCH_SIZES.value
    if not all(size.isdecimal() and int(size) for size in sizes):
        raise UsageError(
            "--warmup_batch_sizes: expected positive numbers, received "
            f"{','.join(sizes)}"
        )
    head = None if _HEAD.value in ("", "none") else _HEAD.value
    with load.open_checkpoint(_MODEL.value) as checkpoint:
        checkpoint.check_unknown(with_heads=head == "auto")
        model = keras_model.build_model(checkpoint, head)
        tokenizer = load.choose_tokenizer(
            checkpoint,
            _SPM_MODEL_FILE.value or None,
            _DO_LOWER_CASE.value,
            _KEEP_ACCENTS.value,
        )
    folder = export_saved_model(
        model,
        _OUTPUT_DIR.value,
        tokenizer=tokenizer,
        labels=_LABELS.value or None,
        max_seq_length=_MAX_SEQ_LENGTH.value,
        version=_VERSION.value,
        warmup_batch_sizes=[int(size) for size in sizes],
        top_k=_TOP_K.value,
    )
    print(folder)
    for line in _LOADING:
        logging.info(line, folder)


if __name__ == "__main__":
    run(main)
