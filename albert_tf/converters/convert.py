"""Converts a checkpoint and proves it (`tools/convert_checkpoint.py`)."""

import dataclasses
import os
import re

from albert_tf.config import AlbertConfig
from albert_tf.converters import detect, load, parity
from albert_tf.converters.checkpoint.checkpoint import Checkpoint
from albert_tf.errors import DataError, UsageError
from albert_tf.heads import CLASSIFIER_HEADS, HEADS, POOLER_HEADS
from albert_tf.storage import folders

VERIFY = ("none", "reload", "peer")


def convert_checkpoint(
    source: str | os.PathLike,
    target: str | os.PathLike,
    format: str,
    *,
    head: str | None = "auto",
    source_format: str | None = None,
    config: AlbertConfig | None = None,
    tokenizer=None,
    ignore: str | None = None,
    verify: str = "reload",
    overwrite: bool = False,
) -> parity.Report:
    """Converts; the target appears only if everything agrees.

    Args:
        source: What `from_pretrained` takes.
        target: Folder to make.
        format: `"albert_tf"`, `"huggingface"`, `"keras_hub"` or `"tf1"`.
        head: Head to convert; `"auto"` for the source's.
        source_format: Where the source holds several.
        config: In place of the source's.
        tokenizer: `AlbertTokenizer` to write; default: the source's.
        ignore: Regular expression of tensor names that may be left over on either
            side. Without it, every tensor must find its counterpart.
        verify: `"none"`: names and shapes only. `"reload"`: both sides are loaded and
            run. `"peer"`: the library the files are for is run too.
        overwrite: Whether a model folder may be replaced.

    Returns:
        The `parity.Report`, also written beside the weights.

    Raises:
        DataError: If tensors are left over or numbers differ.
        UsageError: If an argument is impossible.
    """
    if verify not in VERIFY:
        raise UsageError(f"verify must be one of {', '.join(VERIFY)}, got {verify!r}")
    if format not in detect.FORMATS:
        raise UsageError(
            f"format must be one of {', '.join(detect.FORMATS)}, received {format!r}"
        )
    allowed = load.compile_ignore(ignore) if ignore else None
    with load.open_checkpoint(
        source, format=source_format, config=config, ignore=ignore
    ) as checkpoint:
        checkpoint.check_unknown()
        part = select(checkpoint, head, allowed)
        if tokenizer is not None:
            part.tokenizer = lambda: tokenizer
        with folders.writing(target, overwrite) as out:
            detect.FORMATS[format].write(part, out)
            with detect.open_path(out.path, format) as written:
                report = parity.compare(checkpoint, part, written, format)
                _refuse_leftovers(report, allowed)
                if verify != "none":
                    parity.run_both(report, part, written, with_peers=verify == "peer")
            report.target = os.fspath(target)
            report.write(out)
        return report


def select(
    checkpoint: Checkpoint, head: str | None, allowed: re.Pattern | None = None
) -> Checkpoint:
    """The part of a checkpoint that a head needs.

    Raises:
        DataError: If a tensor of the head is not there, and not allowed to be missing.
    """
    head = checkpoint.head if head == "auto" else head
    if head not in (None, *HEADS):
        raise UsageError(
            f"head must be one of {', '.join(HEADS)}, none or auto, received {head!r}"
        )
    parts = {"backbone", *_parts(head)}
    if head in CLASSIFIER_HEADS and not checkpoint.has_classifier_of(head):
        parts.remove("classifier")
    tensors = {
        name: tensor
        for name, tensor in checkpoint.tensors.items()
        if name.split("/")[0] in parts
    }
    has = {name.rpartition("/")[0] for name in tensors}
    needed = [_NEEDED[part] for part in _parts(head)]
    if head in POOLER_HEADS:
        needed.append("backbone/pooler")
    for layer in needed:
        if layer not in has and not (allowed and allowed.search(layer)):
            raise DataError(
                f"{checkpoint.path}: holds no {layer}, which a {head} needs; it is "
                "never made up (--ignore allows it to be missing)"
            )
    labels = checkpoint.labels if head == checkpoint.head else None
    return dataclasses.replace(
        checkpoint, head=head, tensors=tensors, labels=labels, notes=[]
    )


_NEEDED = {
    "mlm_head": "mlm_head/dense",
    "sop_head": "sop_head",
    "classifier": "classifier",
}


def _parts(head: str | None) -> tuple[str, ...]:
    if head in CLASSIFIER_HEADS:
        return ("classifier",)
    return {"pretraining": ("mlm_head", "sop_head"), "masked_lm": ("mlm_head",)}.get(
        head, ()
    )


def _refuse_leftovers(report: parity.Report, allowed: re.Pattern | None) -> None:
    sides = (("source", report.only_in_source), ("target", report.only_in_target))
    for side, names in sides:
        left = [name for name in names if not (allowed and allowed.search(name))]
        if left:
            more = f" and {len(left) - 1} more" if len(left) > 1 else ""
            raise DataError(
                f"{report.source}: only the {side} has {left[0]}{more}; allow it with "
                "--ignore=<regular expression>"
            )
