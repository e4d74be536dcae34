"""Describes what a pretraining run starts from by content, whatever its path."""

import hashlib
import json
import os
from typing import Any

from albert_tf.config import AlbertConfig
from albert_tf.converters.load import open_checkpoint
from albert_tf.data.records import card
from albert_tf.data.records.tfrecord import RecordSet
from albert_tf.storage import files
from albert_tf.training.pretraining.settings import PretrainSettings


def content_of(
    settings: PretrainSettings, config: AlbertConfig, tokenizer, records: RecordSet
) -> dict[str, Any]:
    """Returns the content that the result of a run depends on, beside its settings.

    Args:
        settings: `PretrainSettings`. Settings of the run.
        config: `AlbertConfig`. Config of the model.
        tokenizer: `Tokenizer`. The one that the records were made with.
        records: `RecordSet`. The training data.

    Returns:
        dict by the values of `settings.CONTENT_OF`, ready for JSON.
    """
    checkpoint = settings.init_checkpoint
    return {
        "data": {"records": records.digest(), **_cards(records)},
        "tokenizer": {"sha256": tokenizer.sha256, **tokenizer.get_config()},
        "config": config.to_dict(),
        "init_checkpoint": _weights(checkpoint) if checkpoint else "",
    }


def _cards(records: RecordSet) -> dict[str, str]:
    """Returns the digest of the data cards; nothing without a card."""
    sha256 = hashlib.sha256()
    folders = dict.fromkeys(os.path.dirname(path) for path in records.paths)
    paths = [files.join(folder, card.CARD_NAME) for folder in folders]
    found = [path for path in paths if files.exists(path)]
    for path in found:
        sha256.update(card.content_digest(json.loads(files.read_text(path))).encode())
    return {"card": sha256.hexdigest()} if found else {}


def _weights(path: str) -> str:
    """Returns a digest of a checkpoint's tensors, the same in every format."""
    sha256 = hashlib.sha256()
    with open_checkpoint(path) as checkpoint:
        for name, tensor in sorted(checkpoint.tensors.items()):
            value = tensor.read()
            sha256.update(f"{name} {value.shape}".encode())
            sha256.update(value.tobytes())
    return sha256.hexdigest()
