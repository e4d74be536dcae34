"""Reads and writes our own folders: config, weights, tokenizer and a manifest.

Also reads the `.keras` file that `model.save` wrote for one of this package's models.
"""

import json
import os
import tempfile
import zipfile

from albert_tf.config import AlbertConfig
from albert_tf.converters import safetensors_file, tokenizers
from albert_tf.converters.checkpoint import Checkpoint
from albert_tf.errors import DataError
from albert_tf.heads import HEADS, all_rows
from albert_tf.storage import files, folders
from albert_tf.text.load import load_tokenizer

NAME = "albert_tf"
CONFIG = "config.json"
WEIGHTS = "model.safetensors"
KERAS_ENDING = ".keras"
# How Keras calls the classes of this package.
_OURS = "albert_tf>"


def matches(path: str, names: set[str], config: dict | None) -> bool:
    """Returns whether a folder is one of ours."""
    return config is not None and config.get("format") == NAME


def read(path: str, config: AlbertConfig | None = None) -> Checkpoint:
    """Opens a folder that `write` made.

    Raises:
        DataError: If a file is missing, changed or invalid.
    """
    listed = folders.verify(path)
    for name in (CONFIG, WEIGHTS):
        if name not in listed:
            raise DataError(f"{path}: the manifest does not list {name}")
    config_path = files.join(path, CONFIG)
    config = config or AlbertConfig.from_json(config_path)
    values = files.read_json(config_path)
    model, options = values.get("model") or {}, values.get("tokenizer") or {}
    if not (isinstance(model, dict) and isinstance(options, dict)):
        raise DataError(f"{config_path}: model and tokenizer must be objects")
    if model.get("head") not in (None, *HEADS):
        raise DataError(f"{config_path}: head must be one of {', '.join(HEADS)}")
    checkpoint = Checkpoint(
        format=NAME,
        path=path,
        config=config,
        tensors=safetensors_file.read(files.join(path, WEIGHTS)),
        task=model.get("task"),
        untrained=model.get("untrained") or [],
        tokenizer=tokenizers.finder(
            path,
            [name for name in (tokenizers.SPIECE, tokenizers.JSON) if name in listed],
            lambda where: _tokenizer(where, options),
        ),
        tokenizer_options=options,
    )
    checkpoint.set_head(model, config_path)
    exits = checkpoint.head_options.get("num_exits")
    most = config.num_hidden_layers - 1
    if exits not in (None, most):
        raise DataError(
            f"{config_path}: num_exits must be {most}, one for each layer but the "
            f"last, received {exits}"
        )
    return checkpoint


def write(checkpoint: Checkpoint, out: folders.FolderWriter) -> None:
    """Writes the files of a folder."""
    config = checkpoint.config.to_dict()
    config["model"] = {
        "head": checkpoint.head,
        "num_labels": checkpoint.num_labels,
        "labels": checkpoint.labels,
        "problem_type": checkpoint.problem_type,
        "untrained": checkpoint.untrained,
        **checkpoint.head_options,
    }
    if checkpoint.max_seq_length is not None:
        config["model"]["max_seq_length"] = checkpoint.max_seq_length
    if checkpoint.task is not None:
        config["model"]["task"] = checkpoint.task
    if checkpoint.tokenizer is not None:
        tokenizer = checkpoint.make_tokenizer()
        config["tokenizer"] = tokenizer.get_config()
        out.write(tokenizer.file_name, tokenizer.model)
    with out.open(WEIGHTS) as f:
        safetensors_file.write(f, checkpoint.tensors, {"format": NAME})
    out.write_json(CONFIG, config)
    out.write_manifest()


def _tokenizer(path: str, options: dict):
    try:
        return load_tokenizer(path, **options)
    except TypeError:
        raise DataError(f"{path}: unknown tokenizer options {options}") from None


def read_keras(path: str, config: AlbertConfig | None = None) -> Checkpoint:
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
            local = os.path.join(folder, f"model{KERAS_ENDING}")
            files.write_bytes(local, files.read_bytes(path))
        _check_class(path, local)
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


def _check_class(path: str, local: str) -> None:
    """Refuses a file of another class: Keras would import what it names."""
    try:
        with zipfile.ZipFile(local) as archive:
            values = json.loads(archive.read(CONFIG))
        name = values["registered_name"] or values["class_name"]
    except FileNotFoundError:
        raise DataError(f"{path}: no such file or folder") from None
    except (OSError, zipfile.BadZipFile, KeyError, TypeError, ValueError):
        name = "a damaged or other file"
    ours = {_OURS + row.keras_class.rpartition(".")[2] for row in all_rows()}
    if name not in ours:
        raise DataError(
            f"{path}: may contain code; only models of albert_tf are read from "
            f"{KERAS_ENDING} files, received {name}"
        )
