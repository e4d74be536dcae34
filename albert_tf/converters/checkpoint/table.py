"""Renames weights between formats by tables with one row per weight."""

import dataclasses
from collections.abc import Iterable, Mapping

import numpy as np

from albert_tf.converters.checkpoint.checkpoint import Tensor


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
        if self.shapes and tensor.shape == self.shapes[1]:
            return tensor.map(self.shapes[0], lambda x: x.reshape(self.shapes[0]))
        if self.transpose:
            return tensor.map(tensor.shape[::-1], self.turn)
        return tensor

    def to_theirs(self, tensor: Tensor) -> Tensor:
        """Returns our tensor in their layout and with their name."""
        tensor = dataclasses.replace(tensor, name=self.theirs)
        if self.shapes:
            return tensor.map(self.shapes[1], lambda x: x.reshape(self.shapes[1]))
        if self.transpose:
            return tensor.map(tensor.shape[::-1], self.turn)
        return tensor


def pair(ours: str, theirs: str, *names: str, transpose: bool = False) -> list[Row]:
    """Returns the rows of a dense layer or a layer norm.

    Args:
        ours: str. Our name of the layer.
        theirs: str. Their name of the layer.
        *names: str. Their names of its two weights, kernel or gamma first.
        transpose: bool. Whether the kernel is transposed.
    """
    norm = "norm" in ours.rsplit("/", 1)[-1]
    own = ("gamma", "beta") if norm else ("kernel", "bias")
    return [
        Row(f"{ours}/{own[0]}", f"{theirs}{names[0]}", transpose and not norm),
        Row(f"{ours}/{own[1]}", f"{theirs}{names[1]}"),
    ]


def match(
    rows: Iterable[Row], theirs: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], list[str]]:
    """Returns their tensors by our names, and the names that no row has."""
    rows = [row for row in rows if row.theirs in theirs]
    ours = {row.ours: row.to_ours(theirs[row.theirs]) for row in rows}
    known = {row.theirs for row in rows}
    return ours, sorted(set(theirs) - known)


def rename(
    rows: Iterable[Row], ours: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], list[str]]:
    """Returns our tensors by their names, and our names that no row has."""
    rows = [row for row in rows if row.ours in ours]
    theirs = {row.theirs: row.to_theirs(ours[row.ours]) for row in rows}
    known = {row.ours for row in rows}
    return theirs, sorted(set(ours) - known)
