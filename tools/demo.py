"""Runs the whole main job, small: text, tokenizer, records, pretraining, use, serving.

`make demo` calls this. Each step is one of the commands a user would run; it is
printed before it runs. Everything is left in --output_dir.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from absl import flags

from albert_tf.cli.run import run

OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", "demo_output", "New folder for all results."
)
INPUT_FILE = flags.DEFINE_string(
    "input_file",
    "docstrings:max_bytes=20000000",
    "Text, as for create_pretraining_data; default: docstrings of what is installed.",
)
NUM_TRAIN_STEPS = flags.DEFINE_integer(
    "num_train_steps", None, "Pretraining steps. Default: those of configs/demo.py."
)


def main() -> None:
    """Runs the demo and prints where to look."""
    from albert_tf import demo

    demo.run(OUTPUT_DIR.value, INPUT_FILE.value, NUM_TRAIN_STEPS.value)


if __name__ == "__main__":
    run(main)
