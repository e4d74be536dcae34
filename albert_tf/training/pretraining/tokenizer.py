"""The tokenizer of a pretraining run: the one that its records were made with."""

import os

from albert_tf.data.records import card, shards
from albert_tf.storage import files
from albert_tf.text.load import check_options, load_tokenizer
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.training.pretraining.settings import PretrainSettings


def load_run_tokenizer(settings: PretrainSettings) -> Tokenizer:
    """Loads the tokenizer with the options that the data cards of the records name.

    Training never tokenizes, so a wrong option would show only in the use of the model.

    Args:
        settings: `PretrainSettings`. Its options count where no card has any.

    Raises:
        UsageError: If settings and cards contradict each other.
        DataError: If the file is not a tokenizer.
    """
    given = {
        "do_lower_case": settings.do_lower_case,
        "keep_accents": settings.keep_accents,
    }
    options = {name: value for name, value in given.items() if value is not None}
    for pattern in filter(None, (*settings.input_files(), settings.eval_file)):
        for path in _cards(pattern):
            # Anything wrong with a card is reported where the records are opened.
            known = card.tokenizer_options(files.read_record(path))
            check_options(options, known, path)
            options = known | options
    return load_tokenizer(settings.spm_model_file, **options)


def _cards(pattern: str) -> list[str]:
    folders = {os.path.dirname(path) for path in shards.find_shards(pattern)}
    paths = [files.join(folder, card.CARD_NAME) for folder in sorted(folders)]
    return [path for path in paths if files.exists(path)]
