"""Prints sizes and costs of models, with the paper's numbers next to ours.

It prints parameters by part, how many times as many BERT has, FLOPs per token (a
multiply-add counts as two), the memory of weights, gradients, optimizer and
activations, and the bytes that devices sum in every step. Sharing weights saves
parameters, not time. With --num_train_tokens and --device_teraflops, it estimates the
FLOPs, hours and cost of a training.

Example: `albert-tf facts --preset=albert_base_v2,bert_base --batch_size=64`
"""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from absl import flags

from albert_tf.cli.flags import define_alias, define_settings, read_settings, refuse
from albert_tf.cli.run import run
from albert_tf.planning import facts

_PRESET = flags.DEFINE_list("preset", [], "Presets to describe. Default: all.")
_CONFIG_FILE = flags.DEFINE_list(
    "albert_config_file",
    [],
    "Config files to describe, instead of or in addition to --preset.",
)
_BATCH_SIZE = flags.DEFINE_integer(
    "batch_size", 32, "Batch size of the activations.", 1
)
_MAX_SEQ_LENGTH = flags.DEFINE_integer(
    "max_seq_length", None, "Sequence length. Default: the longest of each model.", 1
)
_PRECISION = flags.DEFINE_enum(
    "precision",
    "float32",
    ["float32", "bfloat16", "float16"],
    "Precision of the activations.",
)
_JSON = flags.DEFINE_bool("json", False, "Print JSON.")
define_settings(facts.Training, required=False)
define_alias("config_file", "albert_config_file")
define_alias("train_batch_size", "batch_size")


def main() -> None:
    """Prints the tables."""
    from albert_tf.config import PRESETS, AlbertConfig
    from albert_tf.errors import UsageError

    presets = _PRESET.value or ([] if _CONFIG_FILE.value else list(PRESETS))
    for name in presets:
        if name not in PRESETS:
            raise UsageError(
                f"--preset: must be one of {', '.join(PRESETS)}, received {name!r}"
            )
    configs = {name: AlbertConfig.from_preset(name) for name in presets}
    configs |= {path: AlbertConfig.from_json(path) for path in _CONFIG_FILE.value}
    options = {
        "batch_size": _BATCH_SIZE.value,
        "sequence_length": _MAX_SEQ_LENGTH.value,
        "bytes_per_value": 4 if _PRECISION.value == "float32" else 2,
    }
    if flags.FLAGS.num_train_tokens is None:
        refuse("only used with --num_train_tokens", facts.Training)
    else:
        options["training"] = read_settings(facts.Training)
    if _JSON.value:
        rows = {name: facts.describe(c, **options) for name, c in configs.items()}
        paper = [{**r._asdict(), "agrees": r.agrees} for r in facts.comparisons()]
        print(json.dumps({"models": rows, "paper": paper}, indent=2))
        return
    print(facts.table(configs, **options))
    if not _CONFIG_FILE.value and "training" not in options:
        print("\n" + facts.paper_table())


if __name__ == "__main__":
    run(main)
