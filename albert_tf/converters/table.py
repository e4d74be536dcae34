"""Renames weights between formats by tables with one row per weight.

Some models must also be described in other terms, which do not change their outputs, or
grow: become a deeper encoder, or one that shares less. Layer i of the larger encoder
gets the weights of layer `i mod L` of the smaller one with its L layers: the stack is
repeated on top of itself (as in progressive stacking, Gong et al., ICML 2019). The
first L layers therefore compute the same as before.
"""

import dataclasses
import itertools
import re
from collections.abc import Iterable, Mapping

import numpy as np

from albert_tf.config import AlbertConfig, LayerWeights
from albert_tf.converters.checkpoint import Checkpoint, Tensor
from albert_tf.errors import UsageError, require

_FIELDS = [field.name for field in dataclasses.fields(AlbertConfig)]
# Fields in the config files of all formats; the fields from `sharing` on are our own.
CONFIG_FIELDS = tuple(_FIELDS[: _FIELDS.index("sharing")])
# Fields that BERT's config files do not have.
ALBERT_FIELDS = ("embedding_size", "num_hidden_groups", "inner_group_num")
TABLES = ("word_embeddings", "position_embeddings", "token_type_embeddings")
_DENSE = ("kernel", "bias")
PROJECTION = "backbone/encoder/embedding_projection"
# The layers of a block of BERT, as the original names them.
BERT_BLOCK = {
    "backbone/encoder/attention_{}/query": "{}/attention/self/query",
    "backbone/encoder/attention_{}/key": "{}/attention/self/key",
    "backbone/encoder/attention_{}/value": "{}/attention/self/value",
    "backbone/encoder/attention_{}/output": "{}/attention/output/dense",
    "backbone/encoder/attention_layer_norm_{}": "{}/attention/output/LayerNorm",
    "backbone/encoder/ffn_{}/intermediate": "{}/intermediate/dense",
    "backbone/encoder/ffn_{}/output": "{}/output/dense",
    "backbone/encoder/ffn_layer_norm_{}": "{}/output/LayerNorm",
}
# Fields that determine how weights are shared by layers, not their shapes.
GROWABLE = (
    "num_hidden_layers",
    "num_hidden_groups",
    "sharing",
    "share_layer_norm",
    "group_rule",
    "family",
)
_PART = re.compile(r"backbone/encoder/(\w+?)_(\d+)/(.*)")


@dataclasses.dataclass(frozen=True)
class Row:
    """Pairs a weight with its counterpart.

    Args:
        ours: str. Canonical name (`models.base.weight_names`).
        theirs: str. Name in the other format.
        transpose: bool. Whether one is the transpose of the other.
        shapes: tuple or None. Our shape and theirs, if they differ by a reshape.
    """

    ours: str
    theirs: str
    transpose: bool = False
    shapes: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    def turn(self, array: np.ndarray) -> np.ndarray:
        """Transposes an array of either side to the other side's layout if needed."""
        return array.T if self.transpose else array

    def to_ours(self, tensor: Tensor) -> Tensor:
        """Returns their tensor in our layout."""
        return self._in_layout(tensor, 0)

    def to_theirs(self, tensor: Tensor) -> Tensor:
        """Returns our tensor in their layout and with their name."""
        return self._in_layout(dataclasses.replace(tensor, name=self.theirs), 1)

    def _in_layout(self, tensor: Tensor, side: int) -> Tensor:
        # Any other shape is rejected when it is compared with the config.
        if self.shapes and tensor.shape == self.shapes[1 - side]:
            shape = self.shapes[side]
            return tensor.map(shape, lambda x: x.reshape(shape))
        return tensor.map(tensor.shape[::-1], self.turn) if self.transpose else tensor


def rows_of(
    layers: Mapping[str, str],
    dense: tuple[str, str],
    norm: tuple[str, str],
    transpose: bool = False,
) -> list[Row]:
    """Returns the two rows of each dense layer and layer norm.

    Args:
        dense: tuple of str. Their suffixes for the kernel and the bias.
        norm: tuple of str. Their suffixes for gamma and beta.
    """
    rows = []
    for ours, theirs in layers.items():
        is_norm = "norm" in ours.rsplit("/", 1)[-1]
        own, names = (("gamma", "beta"), norm) if is_norm else (_DENSE, dense)
        for part, name in zip(own, names, strict=True):
            turned = transpose and part == "kernel"
            rows.append(Row(f"{ours}/{part}", f"{theirs}{name}", turned))
    return rows


@dataclasses.dataclass(frozen=True)
class Names:
    """The names of one family of models in one format.

    Args:
        tables: str. Name of an embedding table, with `{}` for our name of it.
        layers: mapping. Our names of dense layers and layer norms to theirs, in the
            order in which they are written. A layer of a block has `{}` for the block's
            index in our name, and for its scope in theirs.
        scope: str. Scope of a block, with `{group}` for the index of its group, which
            is the index of its layer if nothing is shared, and `{inner}` within the
            group.
    """

    tables: str
    layers: Mapping[str, str]
    scope: str

    def table_rows(self) -> list[Row]:
        """Returns the rows of the embedding tables."""
        stem = "backbone/embeddings/"
        return [Row(f"{stem}{name}", self.tables.format(name)) for name in TABLES]

    def layers_of(self, config: AlbertConfig) -> dict[str, str]:
        """Returns our names of the layers of a model to theirs, block by block."""
        count = max(row.attention for row in config.layer_table()) + 1
        groups = config.group_numbers() if config.sharing == "all" else range(count)
        result = {}
        parts = itertools.groupby(self.layers.items(), lambda names: "{}" in names[0])
        for in_block, names in parts:
            names = list(names)
            for block in range(count if in_block else 1):
                layer, inner = divmod(block, config.inner_group_num)
                scope = self.scope.format(group=groups[layer], inner=inner)
                for ours, theirs in names:
                    result[ours.format(block)] = theirs.format(scope)
        return result


def check_layers(config: AlbertConfig, names: Names, format: str, kind: str) -> None:
    """Raises `UsageError` if a model without shared layers cannot hold a config.

    `format` and the `kind` of the family in it appear in the message. The layers must
    not share weights, and the embeddings be projected as in the family.
    """
    plain = config.replace(sharing="none", inner_group_num=1)
    demand = f"{format}: {kind}'s layers share no weights: sharing and inner_group_num"
    fits = config.layer_table() == plain.layer_table()
    require(fits, demand, config.sharing, config.inner_group_num)
    differ = config.embedding_size != config.hidden_size
    differ = differ and PROJECTION in names.layers
    demand = f"{format}: {kind} needs embedding_projection={differ}"
    require(config.has_embedding_projection == differ, demand, not differ)


def read_checkpoint(
    format: str,
    path: str,
    config: AlbertConfig,
    head: str | None,
    rows: Iterable[Row],
    theirs: Mapping[str, Tensor],
    no_weights: re.Pattern,
) -> Checkpoint:
    """Returns a `Checkpoint` of the tensors in files.

    Args:
        head: str or None. The head, for when the tensors do not show it.
        no_weights: compiled pattern. Matches the names of entries that are not weights.
    """
    rows = [row for row in rows if row.theirs in theirs]
    ours = {row.ours: row.to_ours(theirs[row.theirs]) for row in rows}
    checkpoint = Checkpoint(format=format, path=path, config=config, tensors=ours)
    for name in sorted(theirs.keys() - {row.theirs for row in rows}):
        no_weight = no_weights.search(name)
        (checkpoint.dropped if no_weight else checkpoint.unknown).append(name)
    checkpoint.head = checkpoint.guess_head() or head
    return checkpoint


def rename(
    rows: Iterable[Row], ours: Mapping[str, Tensor], format: str
) -> dict[str, Tensor]:
    """Returns our tensors by a format's names, or raises `UsageError`."""
    by_name = {row.ours: row for row in rows}
    if left := sorted(ours.keys() - by_name):
        raise UsageError(f"{format} has no name for {left[0]}")
    used = (row for row in by_name.values() if row.ours in ours)
    return {row.theirs: row.to_theirs(ours[row.ours]) for row in used}


def as_groups(config: AlbertConfig, format: str, rule: str) -> AlbertConfig:
    """Describes a model as ALBERT's config does, by groups of equal layers.

    `rule` is the `group_rule` of the format. Raises `UsageError` if the model cannot be
    described that way.

    Returns:
        A config with the sharing `"all"`. Each layer that shares nothing becomes a
        group of its own. The names of the weights do not change.
    """
    if config.sharing == "none":
        layers = config.num_hidden_layers
        config = config.replace(
            sharing="all", num_hidden_groups=layers, share_layer_norm=True
        )
    if config.sharing != "all":
        raise UsageError(f"{format} cannot express sharing={config.sharing!r}")
    table = config.layer_table()
    config = config.replace(group_rule=rule)
    if config.layer_table() != table:
        raise UsageError(
            f"{format} would give some of {config.num_hidden_layers} layers another "
            f"of {config.num_hidden_groups} groups"
        )
    return config


def read_groups(config: AlbertConfig, rule: str) -> AlbertConfig:
    """Sets a format's group rule in a config, if it makes a difference."""
    other = config.replace(group_rule=rule)
    return config if config.layer_table() == other.layer_table() else other


def fold_projection(checkpoint: Checkpoint) -> None:
    """Removes a projection that is the identity, and adapts the config.

    Hugging Face and KerasHub project even if E = D; the original does not.
    """
    config, ours, kind = checkpoint.config, checkpoint.tensors, "auto"
    kernel, bias = (ours.get(f"{PROJECTION}/{part}") for part in _DENSE)
    is_there = kernel is not None and bias is not None
    if config.embedding_size == config.hidden_size and is_there:
        identity = np.eye(config.hidden_size, dtype=np.float32)
        if bias.read().any() or not np.array_equal(kernel.read(), identity):
            kind = "always"
        else:
            for part in _DENSE:
                del ours[f"{PROJECTION}/{part}"]
    checkpoint.config = config.replace(embedding_projection=kind)


def unfold_projection(
    config: AlbertConfig, ours: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Returns the tensors with an identity added if there is no projection."""
    ours, size = dict(ours), config.hidden_size
    if not config.has_embedding_projection:
        for part, value in (("kernel", np.eye(size)), ("bias", np.zeros(size))):
            name = f"{PROJECTION}/{part}"
            ours[name] = Tensor.of(name, value.astype(np.float32))
    return ours


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

    It must stay open, because tensors are read later. All new weights are copies.
    Raises `UsageError` if the weights do not fit; the message names the fields or
    layers.

    Args:
        config: `AlbertConfig`. The larger encoder: at least as many layers, and in
            each of the first ones the weights of the checkpoint's layer. It may
            differ in `GROWABLE` only.
    """
    old = checkpoint.config
    others = {k: v for k, v in differences(old, config).items() if k not in GROWABLE}
    if others:
        raise UsageError(
            f"{checkpoint.path}: cannot grow into another size, has "
            f"{'; '.join(others.values())}"
        )
    layers = config.num_hidden_layers
    has = f"{checkpoint.path}: has num_hidden_layers={old.num_hidden_layers}"
    require(layers >= old.num_hidden_layers, f"{has}, and can only grow", layers)
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
    return sources


def _hint(old: AlbertConfig, new: AlbertConfig) -> str:
    """Suggests a number of groups that would fit, if there is one."""
    groups, rest = divmod(
        old.num_hidden_groups * new.num_hidden_layers, old.num_hidden_layers
    )
    if rest or groups == new.num_hidden_groups:
        return ""
    return f"; num_hidden_groups={groups} would fit, received {new.num_hidden_groups}"
