"""Fine-tunes a text classifier on a CSV or TSV table.

Example: `albert-tf finetune --init_checkpoint=pretrained --train_file=train.tsv
--dev_file=dev.tsv --text_column=sentence --output_dir=sentiment`

The resulting folder can be passed to `evaluate`, `predict` and `export`.
"""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from albert_tf.cli.flags import define_alias, define_settings, read_settings
from albert_tf.cli.run import run
from albert_tf.training.finetuning.settings import FinetuneSettings

# Names of the original's run_classifier.py.
_ALIASES = {
    "train_step": "num_train_steps",
    "warmup_step": "num_warmup_steps",
    "config_file": "albert_config_file",
    "tokenizer_file": "spm_model_file",
}


define_settings(FinetuneSettings)
for _alias, _name in _ALIASES.items():
    define_alias(_alias, _name)


def main() -> None:
    """Trains and prints the content of `metrics.json`."""
    settings = read_settings(FinetuneSettings)
    # Before TensorFlow is imported, so that a missing flag is reported at once.
    settings.check_source()
    from albert_tf.training.finetuning.finetune import finetune_text_classifier

    verbose = 1 if sys.stdout.isatty() else 2
    print(json.dumps(finetune_text_classifier(settings, verbose=verbose), indent=2))


if __name__ == "__main__":
    run(main)
