"""Turns a checkpoint into one of a deeper encoder, or of one that shares less.

Layer i of the larger encoder gets the weights of layer `i mod L` of the smaller one
with its L layers: the stack is repeated on top of itself (as in progressive stacking,
Gong et al., ICML 2019). The first L layers therefore compute what they computed before.
"""

import dataclasses
import re

from albert_tf.config import AlbertConfig, LayerWeights
from albert_tf.converters.checkpoint import Checkpoint
from albert_tf.errors import UsageError

# Fields that say how often and by whom weights are read, not their shapes.
GROWABLE = (
    "num_hidden_layers",
    "num_hidden_groups",
    "sharing",
    "share_layer_norm",
    "group_rule",
    "family",
)
_PART = re.compile(r"backbone/encoder/(\w+?)_(\d+)/(.*)")


def differences(old: AlbertConfig, new: AlbertConfig) -> dict[str, str]:
    """Returns the fields in which configs differ, each with both values in words."""
    before, after = dataclasses.asdict(old), dataclasses.asdict(new)
    return {
        name: f"{name}={before[name]!r}, not {after[name]!r}"
        for name in before
        if before[name] != after[name]
    }


def grow(checkpoint: Checkpoint, config: AlbertConfig) -> Checkpoint:
    """Returns the checkpoint as one of a larger encoder.

    Args:
        checkpoint: `Checkpoint`. It stays open, because tensors are read later.
        config: `AlbertConfig`. The larger encoder: at least as many layers, and in
            each of the first ones the weights of the checkpoint's layer. It may
            differ in `GROWABLE` only.

    Returns:
        `Checkpoint`. All weights have values of the given one.

    Raises:
        UsageError: If the weights do not fit; it names the fields or the layers.
    """
    old = checkpoint.config
    others = {k: v for k, v in differences(old, config).items() if k not in GROWABLE}
    if others:
        raise UsageError(
            f"{checkpoint.path}: cannot grow into another size, has "
            f"{'; '.join(others.values())}"
        )
    if config.num_hidden_layers < old.num_hidden_layers:
        raise UsageError(
            f"{checkpoint.path}: has num_hidden_layers={old.num_hidden_layers}, and "
            f"can only grow, received {config.num_hidden_layers}"
        )
    sources = _sources(checkpoint, config)
    tensors = {}
    for name, tensor in checkpoint.tensors.items():
        found = _PART.fullmatch(name)
        if found is None or found[1] not in sources:
            tensors[name] = tensor
            continue
        part, number, rest = found[1], int(found[2]), found[3]
        for place, source in enumerate(sources[part]):
            if source == number:
                tensors[f"backbone/encoder/{part}_{place}/{rest}"] = tensor
    return dataclasses.replace(checkpoint, config=config, tensors=tensors)


def _sources(checkpoint: Checkpoint, config: AlbertConfig) -> dict[str, list[int]]:
    """Maps each new weight's index to the old one, per part of a block."""
    old, new = checkpoint.config.layer_table(), config.layer_table()
    sources = {}
    for column, part in enumerate(LayerWeights._fields):
        found: dict[int, tuple[int, int]] = {}
        for row, weights in enumerate(new):
            place, source = weights[column], old[row % len(old)][column]
            first, before = found.setdefault(place, (row, source))
            if source != before:
                raise UsageError(
                    f"{checkpoint.path}: blocks {first} and {row} of the larger model "
                    f"share their {part}, those of the checkpoint that they would copy "
                    f"(block i mod {len(old)}) do not{_hint(checkpoint.config, config)}"
                )
        # Weights that no layer reads, as some group rules leave them, get any.
        count = max(found) + 1
        sources[part] = [found.get(place, (0, 0))[1] for place in range(count)]
    return sources


def _hint(old: AlbertConfig, new: AlbertConfig) -> str:
    groups, rest = divmod(
        old.num_hidden_groups * new.num_hidden_layers, old.num_hidden_layers
    )
    if rest or groups == new.num_hidden_groups:
        return ""
    return f"; num_hidden_groups={groups} would fit, received {new.num_hidden_groups}"
