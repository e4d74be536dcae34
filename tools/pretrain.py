r"""Pretrains ALBERT or a relative from TFRecords; the same command resumes a run.

Example:
  python tools/pretrain.py --config=configs/pretrain/demo.py --input_file=data/docs \
      --spm_model_file=spiece.model --output_dir=runs/demo

Flags take precedence over --config, and --config over the defaults. Writes to
--output_dir: run.json, the tokenizer, metrics.jsonl, tensorboard/, checkpoints/,
curves.png, report.html, README.md (the model card) and model/, with --eval_file also
samples.jsonl, with --keep_best best/. All commands accept the folder as a model; while
the run is unfinished, they use its latest checkpoint. A run that is stopped leaves a
report.html of what it has reached.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from absl import flags

from albert_tf.cli import start
from albert_tf.cli.flags import define_alias, define_settings, read_settings
from albert_tf.cli.run import run
from albert_tf.settings import load_experiment
from albert_tf.training.pretrain_settings import PretrainSettings

_CONFIG = flags.DEFINE_string(
    "config",
    None,
    "Python file with get_config(), as those in configs/; flags take precedence.",
)
define_settings(PretrainSettings, required=False)
define_alias("tokenizer_file", "spm_model_file")


def main() -> None:
    """Trains and prints the model's folder."""
    values = load_experiment(_CONFIG.value, PretrainSettings) if _CONFIG.value else {}
    settings = read_settings(PretrainSettings, values)
    from albert_tf.training.pretrain_inputs import check_files

    start.use_backend(settings.backend, settings.deterministic)
    start.use_onednn(settings.precision)
    check_files(settings)
    # TensorFlow is imported only now, so that --help and mistakes are answered at once.
    from albert_tf.reports.run_page import draw_run
    from albert_tf.training.pretrain import pretrain

    print(f"model: {pretrain(settings, draw_run)}")


if __name__ == "__main__":
    run(main)
