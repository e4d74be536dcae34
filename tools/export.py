"""Exports a model for TensorFlow Serving (raw strings) or for another runtime.

Example: `albert-tf export --model=sentiment --output_dir=served --version=1`

Example: `albert-tf export --model=sentiment --output_dir=phone --format=litert
--quantization=dynamic_int8 --eval_file=dev.tsv`

Without `--version` the SavedModel is `--output_dir` itself. To load it in Python, or
with saved_model_cli, import tensorflow_text first (the last lines of the output say
how); TensorFlow Serving needs nothing.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from absl import logging

from albert_tf.cli.flags import define_alias, define_settings, read_settings
from albert_tf.cli.run import run
from albert_tf.errors import UsageError
from albert_tf.export import server_files
from albert_tf.export.export_settings import (
    QUANTIZATIONS,
    ExportSettings,
    check_packages,
)
from albert_tf.tasks.opening import DataSettings, remembered

define_settings(ExportSettings)
define_settings(DataSettings)
# TensorFlow Serving has these operations; Python has them after an import.
_LOADING = (
    "in Python: import tensorflow_text before tf.saved_model.load('%s')",
    'saved_model_cli: python -c "import tensorflow_text; from '
    'tensorflow.python.tools.saved_model_cli import main; main()" show --all --dir=%s',
)
_NEEDS = (
    "eval_file: max_accuracy_drop and flags about data need this or --data_dir, and "
    "--format="
    f"{', '.join(QUANTIZATIONS)}"
)
define_alias("init_checkpoint", "model")
define_alias("export_dir", "output_dir")
define_alias("tokenizer_file", "spm_model_file")
define_alias("dev_file", "eval_file")


def main() -> None:
    """Loads the model, exports it and prints the folder."""
    settings = read_settings(ExportSettings)
    data = read_settings(DataSettings)
    has_data = bool(settings.eval_file) != bool(data.data_dir)
    to_runtime = settings.format in QUANTIZATIONS
    is_gated = data != DataSettings() or settings.max_accuracy_drop is not None
    if is_gated and not (has_data and to_runtime):
        raise UsageError(_NEEDS)
    # Keras and TensorFlow are imported after the checks that do not need them.
    from albert_tf.converters.detect import open_checkpoint
    from albert_tf.converters.tokenizers import choose_tokenizer

    if settings.server_files:
        server_files.make_server_files(settings.output_dir)  # before the work
    if to_runtime:
        check_packages(settings.format)
        if has_data:
            data = _as_trained(settings, data)
    head = None if settings.head in ("", "none") else settings.head
    with open_checkpoint(settings.model) as checkpoint:
        checkpoint.check_unknown(with_heads=head == "auto")
        tokenizer = choose_tokenizer(
            checkpoint,
            settings.spm_model_file or None,
            settings.do_lower_case,
            settings.keep_accents,
        )
        from albert_tf.converters.keras_model import build_model

        model = build_model(checkpoint, head, layers=settings.layers)
    common = {
        "tokenizer": tokenizer,
        "labels": settings.labels or None,
        "max_seq_length": settings.max_seq_length,
    }
    if to_runtime:
        from albert_tf.export.runtime_folder import export_for_runtime
        from albert_tf.inference.converted import labelled_check

        common["check"] = labelled_check(
            model, tokenizer, data, **settings.check_options
        )
        options = common | settings.runtime_options
        print(export_for_runtime(model, settings.output_dir, **options))
        return
    from albert_tf.export.saved_model import export_saved_model

    options = common | settings.saved_model_options
    folder = export_saved_model(model, settings.output_dir, **options)
    print(folder)
    if settings.server_files:
        print(*server_files.write_server_files(settings.output_dir), sep="\n")
    for line in _LOADING:
        logging.info(line, folder)


def _as_trained(settings: ExportSettings, data: DataSettings) -> DataSettings:
    """Returns the columns of the table; reads it, so that errors are reported now."""
    from albert_tf.inference.predictor import find_task
    from albert_tf.tasks.opening import read_labelled

    task = find_task(settings.model, data.task)
    data = read_settings(DataSettings, remembered(task, settings.eval_file))
    if settings.eval_file:
        read_labelled(task, data, "dev", settings.eval_file)
    return data


if __name__ == "__main__":
    run(main)
