r"""Makes pretraining records (TFRecord files) from text.

Example:
  python tools/create_pretraining_data.py --input_file='text/*.txt' \
      --output_file=data/wiki --spm_model_file=spiece.model

Flags of the original script keep their names. By default (--masking=dynamic) records
contain only tokens, and training masks them afresh in each epoch. --masking=static
writes masked records for scripts that expect the original's files.
"""

import dataclasses
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from absl import flags, logging

from albert_tf.cli.flags import define_alias, define_settings, read_settings
from albert_tf.cli.run import run
from albert_tf.data.prepare.create_settings import CreateSettings
from albert_tf.errors import UsageError
from albert_tf.storage import files

define_settings(CreateSettings)
define_alias("tokenizer_file", "spm_model_file")
define_alias("text_column", "text_field")


def main() -> None:
    """Makes the data set and prints its summary."""
    settings = read_settings(CreateSettings)
    policy = flags.FLAGS["pair_policy"]
    if settings.random_next_sentence:
        if policy.present and policy.value != "nsp":
            raise UsageError(
                f"--random_next_sentence: not with --pair_policy={policy.value}"
            )
        settings = dataclasses.replace(settings, pair_policy="nsp")
    from albert_tf.data.prepare.create import create_from_settings
    from albert_tf.data.records import card

    warning = settings.record_config().mask.shortfall(settings.max_seq_length)
    if warning and settings.masking == "static":
        logging.warning("%s", warning)
    data_card = create_from_settings(settings)
    print("\n".join(card.summary_lines(data_card)))
    if settings.eval_fraction and "eval" not in data_card["splits"]:
        logging.warning(
            "nothing is held out: --eval_fraction=%g draws whole documents, and none "
            "of these was drawn; raise it",
            settings.eval_fraction,
        )
    folder = os.path.dirname(settings.output_file.split(",")[0].strip())
    print(f"data card: {files.join(folder, card.MARKDOWN_NAME)}")


if __name__ == "__main__":
    run(main)
