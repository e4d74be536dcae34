"""Defines `Checkpoint`, which every format is read into and written from.

A `Checkpoint` names its tensors as `models.base.weight_names` names the weights of a
model around a backbone (`backbone/…`, `mlm_head/…`, `sop_head/…`, `classifier/…`), in
our layouts. A tensor's value is read only when needed, so a conversion holds one tensor
at a time and never two copies of a model.
"""

import contextlib
import dataclasses
import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from albert_tf.config import AlbertConfig
from albert_tf.errors import DataError, require
from albert_tf.heads import HEADS, OPTION_RULES, PAIRS, Head, find

# Names of encoder weights in all formats; all other names belong to a head.
_IN_ENCODER = re.compile(
    r"(albert|bert|roberta|electra|backbone|layers|embeddings|encoder|pooler)[./]"
)


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A tensor that is read when it is needed.

    Args:
        name: str. Name in the file it comes from.
        read: callable. Returns a float32 array.
    """

    name: str
    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]

    @classmethod
    def of(cls, name: str, array: np.ndarray) -> "Tensor":
        """Wraps an array in memory as a tensor."""
        return cls(name, tuple(array.shape), lambda: array)

    def map(self, shape: Sequence[int], turn: Callable) -> "Tensor":
        """Returns the same tensor in another layout."""
        return dataclasses.replace(
            self, shape=tuple(shape), read=lambda: turn(self.read())
        )


def as_float32(array: np.ndarray, where: str) -> np.ndarray:
    """Returns a weight as float32.

    Raises `DataError` if it is not floating-point, or is beyond float32's range.
    """
    # NumPy has no class for bfloat16.
    fits = array.dtype.kind == "f" or array.dtype.name == "bfloat16"
    expected = f"{where}: must hold floating-point numbers"
    require(fits, expected, array.dtype.name, error=DataError)
    with np.errstate(over="raise"):
        try:
            return array.astype(np.float32, copy=False)
        except FloatingPointError:
            raise DataError(f"{where}: holds numbers beyond float32's range") from None


@dataclasses.dataclass
class Checkpoint:
    """A model as stored in files.

    Args:
        path: str. Path, for errors, as the user gave it.
        tensors: dict. Canonical name to `Tensor`.
        head: str or None. One of `heads.HEADS`, or None for a bare encoder.
        also: tuple of str. Other heads that the classifier may be, if the files do
            not record which one it is.
        problem_type: str or None. `"regression"`, `"single_label_classification"` or
            `"multi_label_classification"`.
        max_seq_length: int or None. Row length a classifier was fine-tuned with.
        task: dict or None. The task it was fine-tuned on; see `tasks.saved`.
        generator: `Checkpoint` or None. The masked LM that an ELECTRA's discriminator
            was trained with, if the same files hold it.
        is_generator: bool. Whether the files say that it is such a masked LM.
        head_options: dict. Values of the head's `heads.Head.options` in the files.
        tokenizer: callable or None. Builds the tokenizer; use `make_tokenizer`.
        untrained: list of str. Canonical names of weights with initial values only.
        unknown: list of str. Names in the files that no table lists.
        dropped: list of str. Names known not to be weights (optimizer slots, counters).
        base: tuple or None. Of an adapter that is written: the model folder that holds
            its other weights, and the number of folders between them.
        folder: str or None. The local folder, if `path` is a name on a hub.
        origin: str or None. That name with the commit or version that was read.
        resources: ExitStack. Closed when the checkpoint's `with` block ends.
    """

    format: str
    path: str
    config: AlbertConfig
    tensors: dict[str, Tensor]
    head: str | None = None
    also: tuple[str, ...] = ()
    labels: list[str] | None = None
    problem_type: str | None = None
    max_seq_length: int | None = None
    task: dict[str, Any] | None = None
    generator: "Checkpoint | None" = None
    is_generator: bool = False
    head_options: dict[str, Any] = dataclasses.field(default_factory=dict)
    tokenizer: Callable[[], Any] | None = None
    tokenizer_options: dict[str, bool] = dataclasses.field(default_factory=dict)
    untrained: list[str] = dataclasses.field(default_factory=list)
    unknown: list[str] = dataclasses.field(default_factory=list)
    dropped: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    base: tuple[str, int] | None = None
    folder: str | None = None
    origin: str | None = None
    resources: contextlib.ExitStack = dataclasses.field(
        default_factory=contextlib.ExitStack, repr=False
    )
    _tokenizer: Any = dataclasses.field(default=None, init=False, repr=False)

    def __enter__(self) -> "Checkpoint":
        return self

    def __exit__(self, *error) -> None:
        self.resources.close()

    @property
    def num_labels(self) -> int | None:
        """The number of the classifier's outputs; None without a classifier."""
        kernel = self.tensors.get("classifier/kernel")
        if kernel is None:
            return None
        expected = f"{self.path}: the shape of {kernel.name} must have two dimensions"
        require(len(kernel.shape) == 2, expected, kernel.shape, error=DataError)
        return kernel.shape[1]

    @property
    def nets(self) -> dict[str, "Checkpoint"]:
        """The models in the files, by the prefix of their weights' names there."""
        others = {} if self.generator is None else {"generator/": self.generator}
        return {"": self, **others}

    def for_head(self, head: str | None) -> "Checkpoint":
        """Returns the model that has a head: this one, or its generator."""
        twin = self.generator
        is_its = twin is not None and head is not None and head == twin.head
        return twin if is_its and head != self.head else self

    def without_head(self) -> "Checkpoint":
        """Returns the encoder alone, so that a new head can be built on it."""
        owns, tensors = find(self.head).owns, self.tensors
        return self.for_other(None, {k: t for k, t in tensors.items() if not owns(k)})

    def for_other(
        self, head: str | None, tensors: dict[str, Tensor], **changes: Any
    ) -> "Checkpoint":
        """Returns it with another head, about which the files say nothing."""
        own = dict.fromkeys(("labels", "problem_type", "task")) | {"head_options": {}}
        values = {"head": head, "tensors": tensors, **own, **changes}
        return dataclasses.replace(self, **values)

    @property
    def has_pooler(self) -> bool:
        """Whether the checkpoint has the pooler's weights."""
        return "backbone/pooler/kernel" in self.tensors

    def need(self, name: str, shape: Sequence[int] | None = None) -> Tensor:
        """Returns a tensor; raises `DataError` if there is none of that shape."""
        tensor = self.tensors.get(name)
        short = name.removeprefix("backbone/")
        message = f"{self.path}: no tensor for {short} ({self.format} format)"
        require(tensor is not None, message, error=DataError)
        if shape is not None:
            message = f"{self.path}: {tensor.name} must have shape {tuple(shape)}"
            fits = tensor.shape == tuple(shape)
            require(fits, message, tensor.shape, error=DataError)
        return tensor

    def make_tokenizer(self):
        """Returns the tokenizer of the files, building it on the first call.

        Raises `DataError` if it is missing or has more pieces than the model.
        """
        if self._tokenizer is None:
            message = f"{self.path}: holds no tokenizer"
            require(self.tokenizer is not None, message, error=DataError)
            tokenizer, rows = self.tokenizer(), self.config.vocab_size
            message = (
                f"{self.path}: its tokenizer has {tokenizer.vocab_size} pieces, but "
                f"the model's vocab_size is {rows}"
            )
            require(tokenizer.vocab_size <= rows, message, error=DataError)
            self.config.check_pad_id(tokenizer.pad_id, self.path)
            self._tokenizer = tokenizer.for_segments(self.config.num_segments)
        return self._tokenizer

    def digest(self) -> str:
        """Returns a sha256 of the tensors, the same in every format."""
        sha256 = hashlib.sha256()
        for name, tensor in sorted(self.tensors.items()):
            value = tensor.read()
            sha256.update(f"{name} {value.shape}".encode())
            sha256.update(value.tobytes())
        return sha256.hexdigest()

    def has_classifier_of(self, head: str | None) -> bool:
        """Returns whether the checkpoint has a classifier for that head."""
        return head is not None and head in (self.head, *self.also)

    def guess_head(self) -> str | None:
        """Returns the head that the tensors are for, if it is unambiguous."""
        has = {name.split("/")[0] for name in self.tensors}
        every_head = (*HEADS.values(), *PAIRS.values())
        rows = [row for row in every_head if row.parts and has.issuperset(row.parts)]
        most = max((len(row.parts) for row in rows), default=0)
        names = [row.name for row in rows if len(row.parts) == most]
        return names[0] if len(names) == 1 else None

    def set_head(self, values: dict[str, Any], where: str) -> None:
        """Sets the head and the other values that a file contains about it.

        Raises `DataError` if the values are damaged, or do not fit the tensors.
        """
        row, count = find(values.get("head")), self.num_labels
        need = f"{where}: a {row.name} needs classifier/kernel, which the weights lack"
        fits = count is not None or not row.has_classifier
        require(fits, need, error=DataError)
        if row.has_classifier and row.fixed_labels not in (None, count):
            raise DataError(
                f"{where}: a {row.name} has {row.fixed_labels} outputs, the checkpoint "
                f"{count}"
            )
        labels, kind = values.get("labels"), values.get("problem_type")
        fits = labels is None or (
            isinstance(labels, list)
            and all(isinstance(label, str) for label in labels)
            and len(labels) == count
        )
        need = f"{where}: labels must be {count} strings"
        require(fits, need, labels, error=DataError)
        need = f"{where}: problem_type must be a string"
        require(isinstance(kind, str | None), need, kind, error=DataError)
        names = ("max_seq_length", *row.options)
        numbers = {k: values[k] for k in names if values.get(k) is not None}
        is_count = ("a positive integer", lambda x: type(x) is int and x > 0)
        for name, value in numbers.items():
            rule, fits = OPTION_RULES.get(name, is_count)
            need = f"{where}: {name} must be {rule}"
            require(fits(value), need, value, error=DataError)
        self.head, self.labels, self.problem_type = row.name, labels, kind
        self.max_seq_length = numbers.pop("max_seq_length", None)
        self.head_options = numbers

    def check_unknown(self, with_heads: bool = True) -> None:
        """Raises `DataError` if there is a tensor that no table lists.

        With `with_heads=False`, unknown tensors outside the encoder are tolerated.
        """
        unlisted = [n for n in self.unknown if with_heads or _IN_ENCODER.match(n)]
        if unlisted:
            more = f" and {len(unlisted) - 1} more" if len(unlisted) > 1 else ""
            raise DataError(
                f"{self.path}: unknown tensor {unlisted[0]}{more} ({self.format} "
                "format); ignore it by name if it is not a weight of the model"
            )


def named_head(name: str | None) -> Head:
    """Returns the row of a head, or of the backbone for None.

    Raises `UsageError` if there is no head of that name.
    """
    names = f"{', '.join(HEADS)}, none or auto"
    require(name in (None, *HEADS), f"head must be one of {names}", name)
    return find(name)
