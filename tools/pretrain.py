"""Pretrains ALBERT from TFRecords; the same command resumes a stopped run.

Example:
  python tools/pretrain.py --config=configs/demo.py --input_file=data/docs \
      --spm_model_file=spiece.model --output_dir=runs/demo

Values come from the defaults, then --config, then the flags that are given. Leaves in
--output_dir: run.json, metrics.jsonl, tensorboard/, checkpoints/, curves.png,
README.md (the model card) and model/, for albert_tf.from_pretrained.
"""

import dataclasses
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from absl import flags

from albert_tf import cli
from albert_tf.training.settings import PretrainSettings, load_experiment

_DEFINE = {
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    bool: flags.DEFINE_bool,
}
_FIELDS = dataclasses.fields(PretrainSettings)

CONFIG = flags.DEFINE_string("config", None, "Python file with get_config(); configs/.")
for _field in _FIELDS:
    _type = int if _field.type == int | None else _field.type
    _given = _field.default is not dataclasses.MISSING
    _DEFINE.get(_type, flags.DEFINE_string)(
        _field.name, _field.default if _given else None, _field.metadata["help"]
    )
cli.define_alias("tokenizer_file", "spm_model_file")


def main() -> None:
    """Trains and prints the model's folder."""
    values = load_experiment(CONFIG.value) if CONFIG.value else {}
    for name in (field.name for field in _FIELDS):
        if flags.FLAGS[name].present or name not in values:
            values[name] = flags.FLAGS[name].value
    settings = PretrainSettings(**values)
    # TensorFlow only now: --help and mistakes are answered at once.
    from albert_tf.training.pretrain import pretrain

    print(f"model: {pretrain(settings)}")


if __name__ == "__main__":
    cli.run(main)
