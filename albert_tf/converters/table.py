"""Renames weights between formats by tables with one row per weight."""

import dataclasses
import itertools
import re
from collections.abc import Iterable, Mapping

import numpy as np

from albert_tf.config import AlbertConfig
from albert_tf.converters.checkpoint import Checkpoint, Tensor
from albert_tf.errors import UsageError, require

_FIELDS = [field.name for field in dataclasses.fields(AlbertConfig)]
# Fields in the config files of all formats; the fields from `sharing` on are our own.
CONFIG_FIELDS = tuple(_FIELDS[: _FIELDS.index("sharing")])
# Fields that BERT's config files do not have.
ALBERT_FIELDS = ("embedding_size", "num_hidden_groups", "inner_group_num")
TABLES = ("word_embeddings", "position_embeddings", "token_type_embeddings")
DENSE = ("kernel", "bias")
ENCODER = "backbone/encoder/"
# Beginning of the names of weights that a single layer has of its own.
OWN = f"{ENCODER}depth_"
PROJECTION = f"{ENCODER}embedding_projection"
# The layers of a block whose kernels `AlbertConfig.depth_matrices` names.
KERNELS = {
    "query": "attention_{}/query",
    "key": "attention_{}/key",
    "value": "attention_{}/value",
    "attention_output": "attention_{}/output",
    "ffn_intermediate": "ffn_{}/intermediate",
    "ffn_output": "ffn_{}/output",
}
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


@dataclasses.dataclass(frozen=True)
class Row:
    """Pairs a weight with its counterpart.

    Args:
        ours: str. Canonical name (`models.base.weight_names`).
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
    """Returns the two rows of each dense layer and layer norm, by their suffixes."""
    rows = []
    for ours, theirs in layers.items():
        is_norm = "norm" in ours.rsplit("/", 1)[-1]
        own, names = (("gamma", "beta"), norm) if is_norm else (DENSE, dense)
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
    """Returns a `Checkpoint` of the tensors in files; they may show another head."""
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
