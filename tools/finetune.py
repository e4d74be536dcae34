"""Fine-tunes a model on a task: GLUE, SQuAD, RACE, ..., or files of your own.

Example: `albert-tf finetune --task=mrpc --data_dir=glue --init_checkpoint=pretrained
--output_dir=mrpc`

Example: `albert-tf finetune --init_checkpoint=pretrained --train_file=train.tsv
--dev_file=dev.tsv --text_column=sentence --output_dir=sentiment`

The same command continues a run that was stopped. The resulting folder can be passed to
`evaluate`, `predict` and `export`.
"""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from absl import flags

from albert_tf.cli import start
from albert_tf.cli.flags import define_settings, read_settings
from albert_tf.cli.original_flags import define_original_flags
from albert_tf.cli.run import run
from albert_tf.settings import load_experiment
from albert_tf.training.finetune_settings import FinetuneSettings, beside

_CONFIG = flags.DEFINE_string(
    "config",
    "",
    "Python file with get_config(), as those in configs/; flags take precedence.",
)
define_settings(FinetuneSettings, required=False)
define_original_flags()


def main() -> None:
    """Trains and prints the content of `metrics.json`."""
    base = {"output_dir": ""}
    if _CONFIG.value:
        given = [name for name in flags.FLAGS if flags.FLAGS[name].present]
        base |= beside(load_experiment(_CONFIG.value, FinetuneSettings), given)
    settings = read_settings(FinetuneSettings, base)
    start.use_backend(settings.backend)
    # Before TensorFlow is imported, so that mistakes are reported at once.
    from albert_tf.training import examples, run_folder

    settings = run_folder.prepared(settings)
    read = examples.read_ahead(settings)
    from albert_tf.reports.run_page import draw_run
    from albert_tf.training.seeds import finetune

    print(json.dumps(finetune(settings, read, draw_run), indent=2))


if __name__ == "__main__":
    run(main)
