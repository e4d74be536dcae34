"""Grows a model into a deeper encoder or one that shares less, or cuts it short.

Layer i of the larger encoder gets the weights of layer `i mod L` of the smaller one
with its L layers: the stack is repeated on top of itself (as in progressive stacking,
Gong et al., ICML 2019). The first L layers therefore compute the same as before. A
model that is cut short has the first layers alone, under the same head.
"""

import dataclasses
import re

from albert_tf.config import DEPTH_FIELDS, AlbertConfig, LayerWeights
from albert_tf.converters.checkpoint import Checkpoint
from albert_tf.converters.equivalents import differences, is_new
from albert_tf.errors import UsageError, require

# Fields that determine how weights are shared by layers, not their shapes, and which
# weights layers have of their own.
GROWABLE = (
    "num_hidden_layers",
    "num_hidden_groups",
    "sharing",
    "share_layer_norm",
    "group_rule",
    "family",
    *DEPTH_FIELDS,
)
_PART = re.compile(r"backbone/encoder/(\w+?)_(\d+)/(.*)")


def grow(checkpoint: Checkpoint, config: AlbertConfig) -> Checkpoint:
    """Returns the checkpoint as one of a larger encoder, by fields in `GROWABLE`.

    It has at least as many layers, and in each of the first ones the weights of the
    checkpoint's layer. The checkpoint must stay open, because tensors are read later.
    All new weights are copies, but weights of single layers that the model had none of
    are left to `build_model`. Raises `UsageError` if the weights do not fit.
    """
    old = checkpoint.config
    others = {
        name: text
        for name, text in differences(old, config).items()
        if name not in GROWABLE or name in DEPTH_FIELDS and not is_new(name, old)
    }
    if others:
        raise UsageError(
            f"{checkpoint.path}: cannot grow into another size, has "
            f"{'; '.join(others.values())}"
        )
    layers = config.num_hidden_layers
    has = f"{checkpoint.path}: has num_hidden_layers={old.num_hidden_layers}"
    require(layers >= old.num_hidden_layers, f"{has}, and can only grow", layers)
    return _with_layers(checkpoint, config)


def first_layers(checkpoint: Checkpoint, layers: int) -> Checkpoint:
    """Returns the checkpoint with only the first layers of its encoder.

    Layers share weights as before. Where no config divides so few layers into the same
    groups, each layer gets weights of its own. The checkpoint must stay open, because
    tensors are read later. Raises `UsageError` if it does not have that many layers.
    """
    old = checkpoint.config
    most = old.num_hidden_layers
    fits = type(layers) is int and 1 <= layers <= most
    need = f"layers: must be from 1 to {most}, the layers of {checkpoint.path}"
    require(fits, need, layers)
    if layers == most:
        return checkpoint
    # The family does not depend on whether so few layers still share weights.
    changes = {"num_hidden_layers": layers, "family": old.family}
    rows = old.layer_table()[: layers * old.inner_group_num]
    for groups in range(1, layers + 1):
        shorter = old.replace(num_hidden_groups=groups, group_rule="integer", **changes)
        if shorter.layer_table() == rows:
            return _with_layers(checkpoint, shorter)
    return _with_layers(
        checkpoint, old.replace(sharing="none", num_hidden_groups=1, **changes)
    )


def _with_layers(checkpoint: Checkpoint, config: AlbertConfig) -> Checkpoint:
    """Returns the checkpoint with more or fewer layers, or ones that share less."""
    sources = _sources(checkpoint, config)
    tensors = {}
    for name, tensor in checkpoint.tensors.items():
        match = _PART.fullmatch(name)
        if match is None or match[1] not in sources:
            tensors[name] = tensor
            continue
        part, number, rest = match[1], int(match[2]), match[3]
        for place, source in enumerate(sources[part]):
            if source == number:
                tensors[f"backbone/encoder/{part}_{place}/{rest}"] = tensor
    return dataclasses.replace(checkpoint, config=config, tensors=tensors)


def _sources(checkpoint: Checkpoint, config: AlbertConfig) -> dict[str, list[int]]:
    """Maps each new weight's index to the old one, per part of a block."""
    old, new = checkpoint.config.layer_table(), config.layer_table()
    sources = {}
    for column, part in enumerate(LayerWeights._fields):
        copies: dict[int, tuple[int, int]] = {}
        for row, weights in enumerate(new):
            place, source = weights[column], old[row % len(old)][column]
            first, before = copies.setdefault(place, (row, source))
            if source != before:
                raise UsageError(
                    f"{checkpoint.path}: blocks {first} and {row} of the larger model "
                    f"share their {part}, those of the checkpoint that they would copy "
                    f"(block i mod {len(old)}) do not{_hint(checkpoint.config, config)}"
                )
        # Weights that no layer reads, as under some group rules, get arbitrary values.
        count = max(copies) + 1
        sources[part] = [copies.get(place, (0, 0))[1] for place in range(count)]
    return {**sources, "depth": [row % len(old) for row in range(len(new))]}


def _hint(old: AlbertConfig, new: AlbertConfig) -> str:
    """Suggests a number of groups that would fit, if there is one."""
    groups, rest = divmod(
        old.num_hidden_groups * new.num_hidden_layers, old.num_hidden_layers
    )
    if rest or groups == new.num_hidden_groups:
        return ""
    return f"; num_hidden_groups={groups} would fit, received {new.num_hidden_groups}"
