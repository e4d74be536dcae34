"""What a pretraining run starts from, looked at without TensorFlow."""

import hashlib
import os
from collections.abc import Iterable, Mapping
from typing import Any

from albert_tf.config import AlbertConfig
from albert_tf.converters.checkpoint import Checkpoint
from albert_tf.converters.detect import check_path
from albert_tf.data.records import card, shards
from albert_tf.data.records.tfrecord import RecordSet
from albert_tf.errors import UsageError
from albert_tf.storage import files
from albert_tf.text.load import check_options, load_tokenizer
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.training.pretraining.settings import PretrainSettings


def check_files(settings: PretrainSettings) -> None:
    """Raises what `pretrain` raises if config, tokenizer, records or weights lack."""
    if settings.init_checkpoint:
        check_path(settings.init_checkpoint)
    tokenizer = load_run_tokenizer(settings)
    if settings.preset or settings.albert_config_file:
        check_sizes(settings, load_config(settings, None), tokenizer)


def check_sizes(settings: PretrainSettings, config: AlbertConfig, tokenizer) -> None:
    """Checks that rows and tokens fit the model.

    Raises:
        UsageError: If not.
    """
    if settings.max_seq_length > config.max_position_embeddings:
        raise UsageError(
            f"--max_seq_length must be at most max_position_embeddings="
            f"{config.max_position_embeddings}, received {settings.max_seq_length}"
        )
    if tokenizer.vocab_size > config.vocab_size:
        raise UsageError(
            f"--spm_model_file={settings.spm_model_file}: must have at most as many "
            f"pieces as the config's vocab_size={config.vocab_size}, has "
            f"{tokenizer.vocab_size}"
        )


def load_config(settings: PretrainSettings, start: Checkpoint | None) -> AlbertConfig:
    """Returns the model's config, from a preset, a file or the initial checkpoint."""
    if settings.preset:
        try:
            return AlbertConfig.from_preset(settings.preset)
        except ValueError as e:
            raise UsageError(f"--preset={settings.preset}: {e}") from None
    if start is not None and not settings.albert_config_file:
        return start.config
    return AlbertConfig.from_json(settings.albert_config_file)


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
        for path in _card_paths(shards.find_shards(pattern)):
            # Anything wrong with a card is reported where the records are opened.
            known = card.tokenizer_options(files.read_record(path))
            check_options(options, known, path)
            options = known | options
    return load_tokenizer(settings.spm_model_file, **options)


def content_of(
    config: AlbertConfig,
    tokenizer,
    records: RecordSet,
    checkpoint: Checkpoint | None = None,
    more: Mapping[int, RecordSet] | None = None,
) -> dict[str, Any]:
    """Returns the content that the result of a run depends on, beside its settings.

    Args:
        config: `AlbertConfig`. Config of the model.
        tokenizer: `Tokenizer`. The one that the records were made with.
        records: `RecordSet`. The training data.
        checkpoint: `Checkpoint` or None. The initial checkpoint, open.
        more: dict or None. The training data of other lengths, by the length.

    Returns:
        dict by the values of `settings.CONTENT_OF`, ready for JSON.
    """
    data = {"records": records.digest(), **_card_digest(records)}
    for length, others in (more or {}).items():
        found = {"records": others.digest(), **_card_digest(others)}
        data |= {f"{name} of {length} tokens": v for name, v in found.items()}
    return {
        "data": data,
        "tokenizer": {"sha256": tokenizer.sha256, **tokenizer.get_config()},
        "config": config.to_dict(),
        "init_checkpoint": "" if checkpoint is None else checkpoint.digest(),
    }


def _card_digest(records: RecordSet) -> dict[str, str]:
    """Returns the digest of the data cards; nothing without a card."""
    sha256, found = hashlib.sha256(), _card_paths(records.paths)
    for path in found:
        sha256.update(card.content_digest(files.read_json(path)).encode())
    return {"card": sha256.hexdigest()} if found else {}


def _card_paths(paths: Iterable[str]) -> list[str]:
    """Returns the data cards beside record files, in the order of the files."""
    folders = dict.fromkeys(os.path.dirname(path) for path in paths)
    found = [files.join(folder, card.CARD_NAME) for folder in folders]
    return [path for path in found if files.exists(path)]
