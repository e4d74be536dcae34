"""Uploads a saved model to Hugging Face, with a model card.

The numbers of a run describe its weights and no others. So the card of the run, or its
results, are taken over only if the model still has the weights that the run wrote.
"""

import contextlib
import math
import os
import re

from absl import logging

from albert_tf.converters import detect, huggingface, own_format
from albert_tf.converters.checkpoint import Checkpoint
from albert_tf.errors import DataError, UsageError, require
from albert_tf.reports import cards
from albert_tf.storage import files, hubs

CARD = "README.md"
# What may be downloaded again: the other formats' weights are not.
_FORMATS = (own_format.NAME, huggingface.NAME)
_LIBRARY = "library_name: albert_tf"
_FRONT_MATTER = re.compile(r"---\n(.*?)^---\n", re.DOTALL | re.MULTILINE)
_FIGURE = re.compile(r"^!\[[^\]]*\]\((?!https?://)[^)]*\)\n+", re.MULTILINE)
_RUN_FILE, _METRICS_FILE = "run.json", "metrics.json"


def check(push_to: str, path: str | os.PathLike, format: str) -> None:
    """Raises a UsageError if a folder of that format cannot be uploaded."""
    hubs.check_upload(push_to)
    require(
        format in _FORMATS,
        f"push_to: format must be one of {', '.join(_FORMATS)}, whose files may be "
        "downloaded again",
        format,
    )
    require(
        not files.is_remote(path), "push_to: needs a folder on this machine", str(path)
    )


def push(path: str | os.PathLike, push_to: str) -> None:
    """Uploads a complete folder in one commit.

    Raises:
        DataError: If the upload fails.
    """
    origin = hubs.upload(os.fspath(path), push_to, "Upload a model of albert_tf")
    logging.info("uploaded %s", origin)


def card(
    checkpoint: Checkpoint, loaded_from: str | None, push_to: str, format: str
) -> str:
    """Returns the model card: that of the run, or else a short one.

    Args:
        checkpoint: `Checkpoint`. The model to be uploaded.
        loaded_from: str or None. Path that it was loaded from.
        push_to: str. Name that it gets.
        format: str. Name of the format that it is written in.
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
    # It may be gone, or have been opened with arguments that are not known here.
    refused = contextlib.suppress(DataError, UsageError)
    with refused, detect.open_checkpoint(path) as stored:
        return stored.digest() == checkpoint.digest()
    return False


def _card_of(path: str) -> str:
    """Returns the card of a model folder, or of the pretraining run that it lies in."""
    parent, name = os.path.split(path.rstrip("/"))
    folders = [path]
    if name == "model" and files.exists(files.join(parent, _RUN_FILE)):
        folders.append(parent)
    for folder in folders:
        where = files.join(folder, CARD)
        if files.exists(where):
            return _FIGURE.sub("", files.read_text(where))
    return ""


def _metrics_of(path: str) -> dict[str, str | int | float]:
    """Returns the results of a fine-tuning run, if the folder is that of one."""
    where = files.join(path, _METRICS_FILE)
    if not files.exists(where):
        return {}
    found = files.read_json(where)
    return {k: v for k, v in found.items() if isinstance(v, str | int | float)}


def _with_front_matter(text: str) -> str:
    """Names the library in a card's front matter, and keeps what else it says."""
    match = _FRONT_MATTER.match(text)
    if match is None:
        return f"---\n{_LIBRARY}\n---\n\n{text}"
    lines = match[1].splitlines()
    kept = [line for line in lines if not line.startswith("library_name:")]
    return "\n".join(["---", _LIBRARY, *kept, "---", text[match.end() :]])
