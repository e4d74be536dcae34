"""Converts checkpoints between formats and verifies the result."""

import dataclasses
import os
import re
from collections.abc import Collection
from typing import TYPE_CHECKING

from albert_tf.config import AlbertConfig
from albert_tf.converters import as_electra, detect, own_format, unfolding
from albert_tf.converters.checkpoint import Checkpoint, named_head
from albert_tf.converters.tokenizers import choose_tokenizer
from albert_tf.errors import DataError, require
from albert_tf.storage import folders
from albert_tf.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from albert_tf.converters import parity

VERIFY = ("none", "reload", "peer")
TARGETS = (*detect.FORMATS, as_electra.NAME)


def convert_checkpoint(
    source: str | os.PathLike,
    target: str | os.PathLike,
    format: str,
    *,
    head: str | None = "auto",
    source_format: str | None = None,
    config: AlbertConfig | None = None,
    tokenizer: Tokenizer | str | os.PathLike | None = None,
    do_lower_case: bool | None = None,
    keep_accents: bool | None = None,
    ignore: str | None = None,
    verify: str = "reload",
    overwrite: bool = False,
    base: str | os.PathLike | None = None,
) -> "parity.Report":
    """Converts a checkpoint; the target appears only if both sides agree.

    The format is one of `save_pretrained`, or `"electra"`: an ELECTRA in Hugging Face's
    format that computes the same, with the shared weights copied to every layer.
    `verify="none"` compares only tensors, `"reload"` also loads and runs both sides,
    `"peer"` also runs the peer library of each side. Raises `DataError` if tensors that
    `ignore` does not match are left over, or numbers differ. Returns the
    `parity.Report`, also written next to the weights.
    """
    require(verify in VERIFY, f"verify must be one of {', '.join(VERIFY)}", verify)
    require(format in TARGETS, f"format must be one of {', '.join(TARGETS)}", format)
    allowed = detect.compile_ignore(ignore) if ignore else None
    shared = None if base is None else own_format.base_of(base, target, format)
    with detect.open_checkpoint(
        source, format=source_format, config=config, ignore=ignore
    ) as opened:
        opened.check_unknown()
        checkpoint = opened.for_head(head)
        before = select(checkpoint, head, allowed)
        if format not in (own_format.NAME, as_electra.NAME):
            checkpoint = unfolding.for_format(checkpoint, format)
        # A format may fold its tensors.
        part = dataclasses.replace(select(checkpoint, head, allowed), base=shared)
        if format == as_electra.NAME:
            format = as_electra.FORMAT
            part = as_electra.rewrite(part, is_chosen=head != "auto")
            before = select(checkpoint, part.head, allowed)
            checkpoint = dataclasses.replace(part, notes=checkpoint.notes)
        if tokenizer is not None or checkpoint.tokenizer is not None:
            chosen = choose_tokenizer(
                checkpoint, tokenizer, do_lower_case, keep_accents
            )
            part.tokenizer = before.tokenizer = lambda: chosen
        with folders.writing(target, overwrite) as out:
            # Keras is imported only after the checks that do not need it.
            from albert_tf.converters import parity

            detect.FORMATS[format].write(part, out)
            with detect.open_checkpoint(out.path, format=format) as written:
                report = parity.compare(checkpoint, part, written, format)
                # Heads that the caller leaves out do not count as left over.
                left_out = checkpoint.tensors.keys() - part.tensors.keys()
                left_out = () if head == "auto" else left_out
                _refuse_leftovers(report, allowed, left_out)
                if verify != "none":
                    parity.run_both(
                        report, before, written, with_peers=verify == "peer"
                    )
            report.target = os.fspath(target)
            report.write(out)
        return report


def select(
    checkpoint: Checkpoint, head: str | None, allowed: re.Pattern | None = None
) -> Checkpoint:
    """Returns the part of a checkpoint that a head needs.

    Raises `DataError` if a tensor of the head is missing and not `allowed` to be.
    """
    generator = checkpoint.generator if head == "auto" else None
    head = checkpoint.head if head == "auto" else head
    row, checkpoint = named_head(head), checkpoint.for_head(head)
    parts = {"backbone", *row.parts}
    if row.has_classifier and not checkpoint.has_classifier_of(head):
        parts.remove("classifier")
    # Optional parts of the model, such as exits.
    also = row.prefixes if head == checkpoint.head else ()
    tensors = {
        name: tensor
        for name, tensor in checkpoint.tensors.items()
        if name.split("/")[0] in parts or name.startswith(also)
    }
    has = {name.rpartition("/")[0] for name in tensors}
    needed = list(row.layers)
    # A bare encoder is converted with or without its pooler.
    if head is not None and row.uses_pooler:
        needed.append("backbone/pooler")
    for layer in needed:
        if layer not in has and not (allowed and allowed.search(layer)):
            raise DataError(
                f"{checkpoint.path}: holds no {layer}, which a {head} needs; initial "
                "values are never written (--ignore allows it to be missing)"
            )
    changes = {"notes": [], "generator": generator}
    if head == checkpoint.head:
        return dataclasses.replace(checkpoint, tensors=tensors, **changes)
    return checkpoint.for_other(head, tensors, max_seq_length=None, **changes)


def _refuse_leftovers(
    report: "parity.Report", allowed: re.Pattern | None, left_out: Collection[str]
) -> None:
    sides = (("source", report.only_in_source), ("target", report.only_in_target))
    for side, names in sides:
        left = [name for name in names if name not in left_out]
        left = [name for name in left if not (allowed and allowed.search(name))]
        if left:
            more = f" and {len(left) - 1} more" if len(left) > 1 else ""
            raise DataError(
                f"{report.source}: only the {side} has {left[0]}{more}; allow it with "
                "--ignore=<regular expression>"
            )
