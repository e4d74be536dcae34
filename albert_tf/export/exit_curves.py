"""Takes the measurements of a model's exits into its export."""

import os
from typing import Any, NamedTuple

import keras
from absl import logging

from albert_tf.converters.checkpoint.keras_model import from_model
from albert_tf.errors import DataError, UsageError
from albert_tf.storage import files, hubs

FILE = "exits.json"
PICTURE = "assets.extra/exits.png"


class Curve(NamedTuple):
    """What `evaluate --exits_curve` wrote."""

    numbers: dict[str, Any]
    picture: bytes | None


def find(model: str) -> str | None:
    """Returns the file in a model folder, or None if there is none."""
    if hubs.is_name(model) or not files.is_folder(model):
        return None
    path = files.join(model, FILE)
    return path if files.exists(path) else None


def read(path: str | os.PathLike | None, model: keras.Model) -> Curve | None:
    """Reads the measurements of a model; those of other weights are not taken.

    Args:
        path: str, path or None. The JSON file, or None for none.
        model: keras.Model. The model that is exported.

    Raises:
        DataError: If the file is damaged.
        UsageError: If it is about other weights.
    """
    if path is None:
        return None
    numbers = files.read_json(path)
    if not isinstance(numbers, dict) or "weights" not in numbers:
        raise DataError(f"{path}: not written by evaluate --exits_curve")
    with from_model(model) as checkpoint:
        digest = checkpoint.digest()
    if numbers["weights"] != digest:
        message = f"exits_curve: {path} is about other weights than the model's"
        if os.path.basename(path) != FILE:
            raise UsageError(message)
        logging.warning("%s; it is left out of the manifest", message)
        return None
    picture = os.fspath(path).removesuffix(".json") + ".png"
    data = files.read_bytes(picture) if files.exists(picture) else None
    return Curve(numbers, data)
