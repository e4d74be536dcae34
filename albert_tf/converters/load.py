"""Loads and saves models in every format (`from_pretrained`, `save_pretrained`)."""

import os
import re

import keras

from albert_tf.config import AlbertConfig
from albert_tf.converters import detect
from albert_tf.converters.checkpoint import keras_model
from albert_tf.converters.checkpoint.checkpoint import Checkpoint
from albert_tf.errors import UsageError
from albert_tf.models.base import ConfiguredModel
from albert_tf.storage import folders
from albert_tf.text import load as tokenizers
from albert_tf.text.tokenizer import Tokenizer


def from_pretrained(
    path: str | os.PathLike,
    head: str | None = None,
    num_labels: int | None = None,
    *,
    format: str | None = None,
    config: AlbertConfig | None = None,
    ignore: str | None = None,
    seed: int | None = None,
    **kwargs,
) -> ConfiguredModel:
    """Loads a model from a folder of any known format, or a TensorFlow 1 checkpoint.

    Args:
        path: path. One of our folders, a Hugging Face folder, a KerasHub preset, a
            folder, `.tar.gz` or prefix of a TensorFlow 1 checkpoint, a TF-Hub export,
            or the folder of a pretraining run, which may be unfinished, or one of its
            checkpoints (`checkpoints/step-N`).
        head: str or None. None for the backbone; `"pretraining"`, `"masked_lm"`,
            `"text_classifier"`, `"token_classifier"`, `"question_answering"`,
            `"multiple_choice"`; or `"auto"` for the head in the files.
        num_labels: int or None. Number of labels of a new classifier; default: the
            number in the files, or 2.
        format: str or None. `"albert_tf"`, `"huggingface"`, `"keras_hub"` or
            `"tf1"`, if a folder holds several.
        config: `AlbertConfig` or None. Used instead of the config in the files.
        ignore: str or None. Regular expression of tensor names that may be left
            unread.
        seed: int or None. Seed of the initial values of weights not in the files.
        **kwargs: Arguments of the model, such as `dtype` or `name`.

    Returns:
        The model; `model.untrained_weights` lists the weights not in the files.

    Raises:
        DataError: If the files are damaged or not of a known format.
        UsageError: If an argument is invalid.
    """
    with open_checkpoint(
        path, format=format, config=config, ignore=ignore
    ) as checkpoint:
        return keras_model.build_model(checkpoint, head, num_labels, seed, **kwargs)


def open_checkpoint(
    path: str | os.PathLike,
    *,
    format: str | None = None,
    config: AlbertConfig | None = None,
    ignore: str | None = None,
) -> Checkpoint:
    """Detects the format of `path` and reads everything but the tensors' values.

    Opening unpacks an archive or hashes a folder's files, so a command opens a path
    once and takes the config, labels, tokenizer (`make_tokenizer`) and model
    (`keras_model.build_model`) from it, all inside a `with` statement.

    Args:
        path: path. See `from_pretrained`.
        format: str or None. Name of the format, if the path holds several.
        config: `AlbertConfig` or None. Used instead of the config in the files.
        ignore: str or None. Regular expression of tensor names that may be left
            unread.

    Returns:
        The `Checkpoint`; `build_model` refuses its `unknown` tensors.
    """
    if format is not None:
        _check_format(format)
    checkpoint = detect.open_path(os.fspath(path), format, config)
    if ignore is not None:
        pattern = compile_ignore(ignore)
        kept = [name for name in checkpoint.unknown if not pattern.search(name)]
        checkpoint.dropped += sorted(set(checkpoint.unknown) - set(kept))
        checkpoint.unknown = kept
    return checkpoint


def compile_ignore(ignore: str) -> re.Pattern:
    """Compiles the pattern of an `ignore` argument.

    Raises:
        UsageError: If it is not a regular expression.
    """
    try:
        return re.compile(ignore)
    except re.error as e:
        raise UsageError(f"ignore: not a regular expression: {e}") from None


def load_tokenizer(path: str | os.PathLike) -> Tokenizer:
    """Loads the tokenizer stored beside a model's weights, with its options.

    Raises:
        DataError: If there is none, or it has more pieces than the model.
    """
    with open_checkpoint(path) as checkpoint:
        return checkpoint.make_tokenizer()


def save_pretrained(
    model: keras.Model,
    path: str | os.PathLike,
    format: str = "albert_tf",
    *,
    tokenizer: Tokenizer | str | os.PathLike | None = None,
    labels: list[str] | None = None,
    overwrite: bool = False,
) -> None:
    """Writes a model as a folder, completely or not at all.

    Args:
        model: keras.Model. A backbone or one of the task models.
        path: path. Folder to create.
        format: str. `"albert_tf"`, `"huggingface"`, `"keras_hub"` or `"tf1"`.
        tokenizer: `Tokenizer` or path. The tokenizer or its file.
        labels: list of str or None. Names of the classes.
        overwrite: bool. Whether an existing model folder may be replaced.

    Raises:
        UsageError: If the folder exists, or the format cannot express the model.
    """
    if isinstance(tokenizer, (str, os.PathLike)):
        tokenizer = tokenizers.load_tokenizer(tokenizer)
    write_checkpoint(
        keras_model.from_model(model, tokenizer, labels),
        path,
        format,
        overwrite=overwrite,
    )


def write_checkpoint(
    checkpoint: Checkpoint,
    path: str | os.PathLike,
    format: str,
    *,
    overwrite: bool = False,
) -> None:
    """Writes a checkpoint, tensor by tensor; see `save_pretrained`."""
    _check_format(format)
    with folders.writing(path, overwrite) as out:
        write_files(checkpoint, out, format)


def write_files(
    checkpoint: Checkpoint, out: folders.FolderWriter, format: str = "albert_tf"
) -> None:
    """Writes the files of a checkpoint into a folder that is being written.

    Args:
        checkpoint: `Checkpoint`. What to write.
        out: `FolderWriter`. Destination; the caller may add files of its own.
        format: str. Name of the format; see `save_pretrained`.
    """
    _check_format(format)
    detect.FORMATS[format].write(checkpoint, out)


def _check_format(format: str) -> None:
    if format not in detect.FORMATS:
        raise UsageError(
            f"format must be one of {', '.join(detect.FORMATS)}, received {format!r}"
        )
