"""Loads and saves models in every format (`from_pretrained`, `save_pretrained`).

An upload to Hugging Face gets a model card. The numbers of a run describe the weights
of that run only. The card of the run, or its results, are therefore used only if the
model still has the weights that the run wrote.
"""

import contextlib
import math
import os
import re
import sys
import warnings

import keras
from absl import logging

from albert_tf.config import AlbertConfig
from albert_tf.converters import (
    cards,
    detect,
    huggingface,
    keras_model,
    nets,
    own_format,
    tf1,
    unfolding,
)
from albert_tf.converters.checkpoint import Checkpoint
from albert_tf.converters.detect import open_checkpoint
from albert_tf.errors import DataError, UntrainedWeightsWarning, UsageError, require
from albert_tf.models.base import ConfiguredModel
from albert_tf.storage import files, folders, hubs
from albert_tf.text import inputs
from albert_tf.text import load as tokenizers
from albert_tf.text.preprocessor import Preprocessor
from albert_tf.text.tokenizer import Tokenizer

_CARD = "README.md"
# Formats that may be downloaded again; weights in other formats may not.
_FORMATS = (own_format.NAME, huggingface.NAME)
_LIBRARY = "library_name: albert_tf"
_FRONT_MATTER = re.compile(r"---\n(.*?)^---\n", re.DOTALL | re.MULTILINE)
_FIGURE = re.compile(r"^!\[[^\]]*\]\((?!https?://)[^)]*\)\n+", re.MULTILINE)
_RUN_FILE, _METRICS_FILE = "run.json", "metrics.json"


def from_pretrained(
    path: str | os.PathLike,
    head: str | None = "auto",
    num_labels: int | None = None,
    *,
    format: str | None = None,
    config: AlbertConfig | None = None,
    ignore: str | None = None,
    seed: int | None = None,
    layers: int | None = None,
    preprocessor: Preprocessor | str | None = "auto",
    **kwargs,
) -> ConfiguredModel:
    """Loads a model from a folder of any known format, or a TensorFlow 1 checkpoint.

    If the folder holds a tokenizer, `model.preprocessor` turns strings into inputs, so
    that `fit`, `evaluate` and `predict` take texts, and `model.pad_id` is set.

    Args:
        path: path. One of our folders, a folder of Hugging Face or of
            sentence-transformers, a KerasHub preset, a folder, archive (`name.tar.gz`)
            or prefix of a TensorFlow 1 checkpoint, a TF-Hub export, the folder of a
            pretraining run, which may be unfinished, or one of its checkpoints
            (`checkpoints/step-N`); a file written by `model.save` (`name.keras`); or
            the name of a model on a hub: `hf://owner/name` (`hf://name` if the hub
            forwards it), with or without `@revision`, or `kaggle://owner/model/keras/variation[/version]`.
        head: str or None. `"auto"` for the head in the files (the backbone if there is
            none); None for the backbone; or `"pretraining"`, `"masked_lm"` (of an
            ELECTRA's files with both nets, the generator), `"discriminator"`,
            `"text_classifier"`, `"token_classifier"`, `"question_answering"`,
            `"beam_question_answering"`, `"multiple_choice"`, `"text_embedder"`.
        num_labels: int or None. Number of labels of a new classifier; default: the
            number in the files, or 2.
        format: str or None. `"albert_tf"`, `"huggingface"`, `"keras_hub"`, `"tf1"` or
            `"sentence_transformers"`, if a folder holds several.
        config: `AlbertConfig` or None. Used instead of the config in the files.
        ignore: str or None. Regular expression of tensor names that may be left
            unread.
        seed: int or None. Seed of the initial values of weights not in the files.
        layers: int or None. Number of layers, the first ones of the model in the files,
            under the same head; None for all.
        preprocessor: `Preprocessor`, `"auto"` or None. `"auto"` for the tokenizer in
            the files; None if the inputs are already tensors.
        **kwargs: Arguments of the model, such as `dtype` or `name`.

    Returns:
        The model; `model.untrained_weights` lists the weights not in the files, and an
        `UntrainedWeightsWarning` names them.

    Raises:
        DataError: If the files are damaged or not in a known format, or a hub does not
            provide them.
        UsageError: If an argument is invalid.

    Example:
        >>> import albert_tf
        >>> model = albert_tf.from_pretrained("demo_output/classifier")
        >>> type(model).__name__, model.untrained_weights
        ('AlbertTextClassifier', [])
        >>> model.predict(["Returns the sum of an array."], verbose=0).shape[0]
        1
    """
    untrained = []
    with open_checkpoint(
        path, format=format, config=config, ignore=ignore
    ) as checkpoint:
        model = keras_model.build_model(
            checkpoint,
            head,
            num_labels,
            seed,
            report=untrained.append,
            layers=layers,
            **kwargs,
        )
        if preprocessor == "auto":
            preprocessor = _preprocessor_of(checkpoint)
    for message in untrained:
        warnings.warn(message, UntrainedWeightsWarning, stacklevel=_outside())
    model.loaded_from = checkpoint.folder or checkpoint.path
    model.preprocessor = preprocessor
    if preprocessor is not None:
        model.pad_id = preprocessor.tokenizer.pad_id
    return model


def from_pretrained_as(
    kind: type[ConfiguredModel], path: str | os.PathLike, **kwargs
) -> ConfiguredModel:
    """Loads a model of one class, for `AlbertTextClassifier.from_pretrained` etc.

    Raises `UsageError` if the class is not one of this package's models.
    """
    return from_pretrained(path, keras_model.head_of(kind), **kwargs)


def load_config(path: str | os.PathLike) -> AlbertConfig:
    """Loads the config of a checkpoint in any known format."""
    with open_checkpoint(path) as checkpoint:
        return checkpoint.config


def load_preprocessor(
    path: str | os.PathLike, max_seq_length: int | None = None
) -> Preprocessor:
    """Loads the preprocessor of a folder that holds a tokenizer.

    `max_seq_length` is the length of a row, by default the length the model was
    fine-tuned with, or else the longest it can read. Raises `DataError` if there is no
    tokenizer, or it has more pieces than the model.
    """
    with open_checkpoint(path) as checkpoint:
        return _make_preprocessor(checkpoint, max_seq_length)


def _preprocessor_of(checkpoint: Checkpoint) -> Preprocessor | None:
    if checkpoint.tokenizer is None:
        return None
    try:
        return _make_preprocessor(checkpoint)
    except (DataError, UsageError) as error:
        # The weights are usable without their tokenizer.
        logging.warning("the model has no preprocessor: %s", error)
        return None


def _make_preprocessor(
    checkpoint: Checkpoint, max_seq_length: int | None = None
) -> Preprocessor:
    tokenizer = checkpoint.make_tokenizer()
    longest = checkpoint.config.max_position_embeddings
    length = max_seq_length or checkpoint.max_seq_length or longest
    inputs.check_max_seq_length(length, pairs=False, longest=longest)
    return Preprocessor(tokenizer, length)


def _outside() -> int:
    """Returns the `stacklevel` of the caller's first caller outside this package."""
    frame, level = sys._getframe(1), 1
    while frame is not None and frame.f_globals.get("__name__", "").startswith(
        "albert_tf."
    ):
        frame, level = frame.f_back, level + 1
    return level


def load_tokenizer(path: str | os.PathLike) -> Tokenizer:
    """Loads the tokenizer stored with a model's weights, with its options.

    Raises `DataError` if it is missing or has more pieces than the model.
    """
    with open_checkpoint(path) as checkpoint:
        return checkpoint.make_tokenizer()


def load_tokenizer_as(kind: type[Tokenizer], path: str | os.PathLike) -> Tokenizer:
    """Loads a tokenizer of one class, for `AlbertTokenizer.from_pretrained` etc.

    Raises `DataError` if it is missing or of another class.
    """
    tokenizer = load_tokenizer(path)
    if not isinstance(tokenizer, kind):
        raise DataError(
            f"{os.fspath(path)}: expected a tokenizer of the class {kind.__name__}, "
            f"received {type(tokenizer).__name__}"
        )
    return tokenizer


def save_pretrained(
    model: keras.Model,
    path: str | os.PathLike,
    format: str = "albert_tf",
    *,
    tokenizer: Tokenizer | str | os.PathLike | None = None,
    labels: list[str] | None = None,
    overwrite: bool = False,
    push_to: str | None = None,
    base: str | os.PathLike | None = None,
) -> None:
    """Writes a model as a folder, completely or not at all, and may upload it.

    Args:
        model: keras.Model. A backbone or one of the task models.
        path: path. Folder to create.
        format: str. `"albert_tf"`, `"huggingface"`, `"keras_hub"`, `"tf1"` or, for an
            `AlbertTextEmbedder`, `"sentence_transformers"`.
        tokenizer: `Tokenizer`, path or None. The tokenizer or its file; default: the
            tokenizer of the model's preprocessor, if it has one.
        labels: list of str or None. Names of the classes.
        overwrite: bool. Whether an existing model folder may be replaced.
        push_to: str or None. `hf://owner/name`: upload the folder to Hugging Face, with
            a model card, as `README.md`. The format must be `"albert_tf"` or
            `"huggingface"`. A new repository is private; its page can change that.
        base: path or None. A model folder around `path`, such as `model` for
            `model/adapters/films`, with the same encoder but for the weights of single
            layers (`AlbertConfig.depth_rank`): only weights that it lacks are written,
            and `path` is a model as long as it stays inside.

    Raises:
        UsageError: If the folder exists, or the format cannot express the model.
        DataError: If the upload fails; the folder is then complete.

    Example:
        >>> import albert_tf
        >>> model = albert_tf.from_pretrained("demo_output/classifier")
        >>> albert_tf.save_pretrained(model, "in_hugging_face", format="huggingface")
        >>> albert_tf.from_pretrained("in_hugging_face").labels == model.labels
        True
    """
    if push_to is not None:
        _check_push(push_to, path, format)
    if isinstance(tokenizer, (str, os.PathLike)):
        tokenizer = tokenizers.load_tokenizer(tokenizer)
    if tokenizer is None and getattr(model, "preprocessor", None) is not None:
        tokenizer = model.preprocessor.tokenizer
    checkpoint = keras_model.from_model(model, tokenizer, labels)
    if base is not None:
        require(push_to is None, "base: cannot be combined with push_to", push_to)
        need = "base: needs a model of one net, without a generator"
        require(len(nets.split(checkpoint)) == 1, need)
        checkpoint.base = own_format.base_of(base, path, format)
    card = None
    if push_to is not None:
        count = len(nets.split(checkpoint))
        need = f"push_to: {type(model).__name__} needs a folder for each of its nets; "
        need += "save it without push_to, load one of them from its folder, push that"
        require(count == 1, need)
        loaded_from = getattr(model, "loaded_from", None)
        card = model_card(checkpoint, loaded_from, push_to, format)
    with folders.writing(path, overwrite) as out:
        write_files(checkpoint, out, format)
        if card is not None:
            # After the manifest: a card may be edited on the page of the repository.
            out.write(_CARD, card.encode())
    if push_to is not None:
        origin = hubs.upload(os.fspath(path), push_to, "Upload a model of albert_tf")
        logging.info("uploaded %s", origin)


def write_files(
    checkpoint: Checkpoint, out: folders.FolderWriter, format: str = "albert_tf"
) -> None:
    """Writes the files of a checkpoint into a folder that is being written.

    Of two nets, the one that is not fine-tuned gets a folder inside, except in the
    original's format, in which one file holds both. The caller may add files of its
    own.
    """
    detect.check_format(format)
    if format == tf1.NAME:
        checkpoint = nets.main_of(checkpoint)
    stored = nets.split(checkpoint)
    if format != own_format.NAME:
        stored = {k: unfolding.for_format(net, format) for k, net in stored.items()}
    *others, (_, main) = stored.items()
    for folder, net in others:
        inside = folders.FolderWriter(os.path.join(out.path, folder))
        detect.FORMATS[format].write(net, inside)
    detect.FORMATS[format].write(main, out)


def _check_push(push_to: str, path: str | os.PathLike, format: str) -> None:
    """Raises `UsageError` if a folder of that format cannot be uploaded."""
    hubs.check_upload(push_to)
    expected = f"one of {', '.join(_FORMATS)}, whose files may be downloaded again"
    require(format in _FORMATS, f"push_to: format must be {expected}", format)
    demand = "push_to: needs a folder on this machine"
    require(not files.is_remote(path), demand, str(path))


def model_card(
    checkpoint: Checkpoint, loaded_from: str | None, push_to: str, format: str
) -> str:
    """Returns the model card: the card of the run, or else a short one.

    The model was loaded from `loaded_from` and gets the name `push_to`.
    """
    text, metrics = "", {}
    if loaded_from and _holds_same_weights(loaded_from, checkpoint):
        text = _card_of(loaded_from)
        metrics = _metrics_of(loaded_from)
    return _with_front_matter(
        text
        or cards.render(
            "uploaded_card",
            title=push_to.removeprefix(hubs.HUGGING_FACE).partition("/")[2],
            config=checkpoint.config,
            head=checkpoint.head,
            parameters=sum(math.prod(t.shape) for t in checkpoint.tensors.values()),
            format=format,
            labels=checkpoint.labels,
            push_to=push_to,
            metrics=metrics,
        )
    )


def _holds_same_weights(path: str, checkpoint: Checkpoint) -> bool:
    # It may no longer exist, or have been opened with arguments unknown here.
    refused = contextlib.suppress(DataError, UsageError)
    with refused, open_checkpoint(path) as stored:
        return stored.digest() == checkpoint.digest()
    return False


def _card_of(path: str) -> str:
    """Returns the card of a model folder, or of the pretraining run around it."""
    parent, name = os.path.split(path.rstrip("/"))
    folders = [path]
    if name == "model" and files.exists(files.join(parent, _RUN_FILE)):
        folders.append(parent)
    for folder in folders:
        where = files.join(folder, _CARD)
        if files.exists(where):
            return _FIGURE.sub("", files.read_text(where))
    return ""


def _metrics_of(path: str) -> dict[str, str | int | float]:
    """Returns the results of a fine-tuning run; empty if the folder is not one."""
    where = files.join(path, _METRICS_FILE)
    if not files.exists(where):
        return {}
    metrics = files.read_json(where)
    return {k: v for k, v in metrics.items() if isinstance(v, str | int | float)}


def _with_front_matter(text: str) -> str:
    """Names the library in a card's front matter, preserving its other lines."""
    match = _FRONT_MATTER.match(text)
    if match is None:
        return f"---\n{_LIBRARY}\n---\n\n{text}"
    lines = match[1].splitlines()
    others = [line for line in lines if not line.startswith("library_name:")]
    return "\n".join(["---", _LIBRARY, *others, "---", text[match.end() :]])
