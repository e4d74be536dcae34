"""Reads the `.keras` file that `model.save` wrote for one of this package's models."""

import json
import os
import tempfile
import zipfile

from albert_tf.config import AlbertConfig
from albert_tf.converters.checkpoint import Checkpoint
from albert_tf.errors import DataError
from albert_tf.heads import all_rows
from albert_tf.storage import files

ENDING = ".keras"
_CONFIG = "config.json"
# How Keras calls the classes of this package.
_OURS = "albert_tf>"


def read(path: str, config: AlbertConfig | None = None) -> Checkpoint:
    """Reads the model into memory; what it was compiled with is left out.

    Args:
        path: str. The file.
        config: `AlbertConfig` or None. Used instead of the config in the file.

    Raises:
        DataError: If there is no such file, or it holds no model of this package.
    """
    with tempfile.TemporaryDirectory(prefix="albert_tf-") as folder:
        local = path
        if files.is_remote(path):
            local = os.path.join(folder, f"model{ENDING}")
            files.write_bytes(local, files.read_bytes(path))
        _check(path, local)
        import keras

        from albert_tf.converters.keras_model import from_model

        try:
            model = keras.saving.load_model(local, compile=False)
        except Exception as e:  # Keras raises many kinds
            reason = " ".join(str(e).split())[:200]
            raise DataError(f"{path}: cannot be loaded: {reason}") from None
    preprocessor = model.preprocessor
    tokenizer = None if preprocessor is None else preprocessor.tokenizer
    checkpoint = from_model(model, tokenizer)
    checkpoint.format, checkpoint.path = "keras", path
    if tokenizer is not None:
        checkpoint.tokenizer_options = tokenizer.get_config()
    checkpoint.config = config or checkpoint.config
    return checkpoint


def _check(path: str, local: str) -> None:
    """Refuses a file of another class: Keras would import what it names."""
    try:
        with zipfile.ZipFile(local) as archive:
            values = json.loads(archive.read(_CONFIG))
        name = values["registered_name"] or values["class_name"]
    except FileNotFoundError:
        raise DataError(f"{path}: no such file or folder") from None
    except (OSError, zipfile.BadZipFile, KeyError, TypeError, ValueError):
        name = "a damaged or other file"
    ours = {_OURS + row.keras_class.rpartition(".")[2] for row in all_rows()}
    if name not in ours:
        raise DataError(
            f"{path}: may contain code; only models of albert_tf are read from "
            f"{ENDING} files, received {name}"
        )
