"""Describes an encoder as an ELECTRA, in which every layer has its own weights.

ALBERT's encoder differs from ELECTRA's only by the sharing: layer norm of the
embeddings in E, a projection to D, then BERT's blocks. With the shared block copied to
every layer, any library that runs an ELECTRA runs an ALBERT, and computes the same.
"""

import dataclasses

from albert_tf.config import AlbertConfig
from albert_tf.converters import huggingface
from albert_tf.converters.checkpoint import Checkpoint
from albert_tf.converters.unfolding import UNSHARED, notes_on, unfold
from albert_tf.errors import UsageError, require
from albert_tf.heads import FINE_TUNED, Head, find

NAME = "electra"
# The format in which such a model is stored.
FORMAT = huggingface.NAME
_POOLER = "backbone/pooler/"


def rewrite(checkpoint: Checkpoint, is_chosen: bool = False) -> Checkpoint:
    """Returns the checkpoint of an ELECTRA that computes the same.

    The head is left out if ELECTRA's computes something else and the encoder is useful
    without it, as after pretraining, unless the user named it (`is_chosen`); the notes
    say so, and state the model's size. The checkpoint must stay open, because tensors
    are read later. Raises `UsageError` if ELECTRA cannot express the encoder, or a head
    that is needed.
    """
    old = checkpoint.config
    need = f"{NAME}: a layer is one block, inner_group_num must be 1"
    require(old.inner_group_num == 1, need, old.inner_group_num)
    need = f"{NAME}: positions count from the table's first row, position_offset must "
    require(old.position_offset == 0, f"{need}be 0", old.position_offset)
    new = old.replace(family=NAME, **UNSHARED)
    row, notes = find(checkpoint.head), []
    if reason := _why_lost(row, old, new):
        if is_chosen or row.answers in FINE_TUNED:
            raise UsageError(
                f"{NAME}: cannot keep the head {row.name}, {reason}; --head=none "
                "writes the encoder alone"
            )
        notes.append(f"{NAME}: the head {row.name} is left out, {reason}")
        row = find(None)
    tensors = {
        name: tensor
        for name, tensor in checkpoint.tensors.items()
        if name.startswith("backbone/") or row.owns(name)
    }
    if not (row.name and row.uses_pooler):
        left = [name for name in tensors if name.startswith(_POOLER)]
        if left:
            notes.append(f"{NAME}: its encoder has no pooler; the pooler is left out")
        tensors = {name: t for name, t in tensors.items() if name not in left}
    shared = dataclasses.replace(
        checkpoint, head=row.name, tensors=tensors, notes=notes
    )
    result = unfold(shared, new)
    notes += notes_on(shared, result, NAME)
    return result


def _why_lost(row: Head, old: AlbertConfig, new: AlbertConfig) -> str:
    """Returns the reason why a head cannot be kept in the new model, or ""."""
    family = huggingface.FAMILIES[NAME]
    if row.name and not family.class_name(row.written_as or row.name):
        return "as no class of ELECTRA has it"
    if row.has_masked_lm and old.head_act != new.head_act:
        return f"as ELECTRA's computes {new.head_act}, not {old.head_act}"
    if row.name and row.uses_pooler and old.pooler_act != new.pooler_act:
        return (
            f"as ELECTRA's computes {new.pooler_act} where its pooler computes "
            f"{old.pooler_act}"
        )
    return ""
