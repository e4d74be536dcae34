"""Describes what a pretraining run starts from by content, whatever its path."""

import hashlib
import os
from collections.abc import Mapping
from typing import Any

from albert_tf.config import AlbertConfig
from albert_tf.converters.checkpoint.checkpoint import Checkpoint
from albert_tf.data.records import card
from albert_tf.data.records.tfrecord import RecordSet
from albert_tf.storage import files


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
    data = {"records": records.digest(), **_cards(records)}
    for length, others in (more or {}).items():
        found = {"records": others.digest(), **_cards(others)}
        data |= {f"{name} of {length} tokens": v for name, v in found.items()}
    return {
        "data": data,
        "tokenizer": {"sha256": tokenizer.sha256, **tokenizer.get_config()},
        "config": config.to_dict(),
        "init_checkpoint": "" if checkpoint is None else checkpoint.digest(),
    }


def _cards(records: RecordSet) -> dict[str, str]:
    """Returns the digest of the data cards; nothing without a card."""
    sha256 = hashlib.sha256()
    folders = dict.fromkeys(os.path.dirname(path) for path in records.paths)
    paths = [files.join(folder, card.CARD_NAME) for folder in folders]
    found = [path for path in paths if files.exists(path)]
    for path in found:
        sha256.update(card.content_digest(files.read_json(path)).encode())
    return {"card": sha256.hexdigest()} if found else {}
