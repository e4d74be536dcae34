"""Fine-tunes a text classifier on a CSV or TSV table.

Example: `albert-tf finetune --init_checkpoint=pretrained --train_file=train.tsv
--dev_file=dev.tsv --text_column=sentence --output_dir=sentiment`

The folder it makes can be given to `evaluate`, `predict` and `export`.
"""

import dataclasses
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from absl import flags

from albert_tf import cli
from albert_tf.training.finetune_settings import FinetuneSettings

# Names of the original's run_classifier.py.
_ALIASES = {
    "train_step": "num_train_steps",
    "warmup_step": "num_warmup_steps",
    "config_file": "albert_config_file",
    "tokenizer_file": "spm_model_file",
}


def _define(field: dataclasses.Field) -> None:
    text = field.metadata["help"]
    required = field.default is dataclasses.MISSING
    if field.type is bool:
        flags.DEFINE_bool(field.name, field.default, text)
    elif field.type == tuple[str, ...]:
        flags.DEFINE_list(field.name, list(field.default), text)
    elif field.type in (int, int | None):
        flags.DEFINE_integer(field.name, field.default, text)
    elif field.type in (float, float | None):
        flags.DEFINE_float(field.name, field.default, text)
    else:
        flags.DEFINE_string(
            field.name, None if required else field.default, text, required=required
        )


for _field in dataclasses.fields(FinetuneSettings):
    _define(_field)
for _alias, _name in _ALIASES.items():
    cli.define_alias(_alias, _name)


def main() -> None:
    """Trains and prints what `metrics.json` holds."""
    names = [field.name for field in dataclasses.fields(FinetuneSettings)]
    values = {name: getattr(flags.FLAGS, name) for name in names}
    values["labels"] = tuple(values["labels"])
    settings = FinetuneSettings(**values)
    # Before TensorFlow is imported: a forgotten flag is told at once.
    settings.check_source()
    from albert_tf.training.finetune import finetune_text_classifier

    verbose = 1 if sys.stdout.isatty() else 2
    print(json.dumps(finetune_text_classifier(settings, verbose=verbose), indent=2))


if __name__ == "__main__":
    cli.run(main)
