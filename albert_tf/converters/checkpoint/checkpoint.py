"""What every checkpoint format is read into, and written from.

A `Checkpoint` names its tensors as `models.base.weight_names` names the weights of a
model around a backbone (`backbone/…`, `mlm_head/…`, `sop_head/…`, `classifier/…`), in
our layouts. Its tensors are promises: a value is read when it is asked for, so that a
conversion holds one tensor at a time and never two copies of a model.
"""

import contextlib
import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from albert_tf.config import AlbertConfig
from albert_tf.errors import DataError

# Names of encoder weights in all formats; anything else belongs to some head.
_IN_ENCODER = re.compile(r"(albert|bert|backbone|layers|embeddings|encoder|pooler)[./]")


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A tensor that is read when it is needed.

    Args:
        name: str. What the file it comes from calls it.
        shape: tuple of ints, of what `read` returns.
        read: Function without arguments; returns a float32 array.
    """

    name: str
    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]

    @classmethod
    def of(cls, name: str, array: np.ndarray) -> "Tensor":
        """A tensor that is in memory already."""
        return cls(name, tuple(array.shape), lambda: array)

    def map(self, shape: Sequence[int], turn: Callable) -> "Tensor":
        """The same tensor in another layout."""
        return dataclasses.replace(
            self, shape=tuple(shape), read=lambda: turn(self.read())
        )


@dataclasses.dataclass
class Checkpoint:
    """A model as files hold it.

    Args:
        format: str. Where it comes from.
        path: str. For messages.
        config: `AlbertConfig`.
        tensors: Canonical name to `Tensor`.
        head: One of `config.HEADS`, or None for a bare encoder.
        also: Other heads that the classifier may be; the files do not say.
        labels: Names of the classes, or None.
        problem_type: `"regression"`, `"single_label_classification"`,
            `"multi_label_classification"` or None.
        max_seq_length: int. Row length a classifier was fine-tuned with, or None.
        tokenizer: Function that returns the `AlbertTokenizer`, or None.
        untrained: Canonical names of weights that have only initial values.
        unknown: Names in the files that no table has.
        dropped: Names that are known to be no weights (optimizer slots, counters).
        notes: What a user should know about the conversion, one line each.
        resources: What is open until the checkpoint's `with` block ends.
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
    tokenizer: Callable[[], Any] | None = None
    untrained: list[str] = dataclasses.field(default_factory=list)
    unknown: list[str] = dataclasses.field(default_factory=list)
    dropped: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    resources: contextlib.ExitStack = dataclasses.field(
        default_factory=contextlib.ExitStack, repr=False
    )

    def __enter__(self) -> "Checkpoint":
        return self

    def __exit__(self, *error) -> None:
        self.resources.close()

    @property
    def num_labels(self) -> int | None:
        """Outputs of the classifier, from its kernel; None without one."""
        kernel = self.tensors.get("classifier/kernel")
        if kernel is None:
            return None
        if len(kernel.shape) != 2:
            raise DataError(f"{self.path}: {kernel.name} has shape {kernel.shape}")
        return kernel.shape[1]

    @property
    def has_pooler(self) -> bool:
        """Whether the pooler's weights are here."""
        return "backbone/pooler/kernel" in self.tensors

    def make_tokenizer(self):
        """The tokenizer of the files.

        Raises:
            DataError: If there is none, or it has more pieces than the model.
        """
        if self.tokenizer is None:
            raise DataError(f"{self.path}: holds no tokenizer")
        tokenizer = self.tokenizer()
        if tokenizer.vocab_size > self.config.vocab_size:
            raise DataError(
                f"{self.path}: its tokenizer has {tokenizer.vocab_size} pieces, but "
                f"the model's vocab_size is {self.config.vocab_size}"
            )
        return tokenizer

    def has_classifier_of(self, head: str | None) -> bool:
        """Whether the classifier here is one for that head."""
        return head is not None and head in (self.head, *self.also)

    def guess_head(self) -> str | None:
        """What the tensors are for, where that is unambiguous."""
        has = {name.split("/")[0] for name in self.tensors}
        if "mlm_head" in has:
            return "pretraining" if "sop_head" in has else "masked_lm"
        return None

    def check_unknown(self, with_heads: bool = True) -> None:
        """Raises a DataError that names a tensor which no table has.

        Args:
            with_heads: Whether a tensor outside of the encoder is refused too.
        """
        found = [n for n in self.unknown if with_heads or _IN_ENCODER.match(n)]
        if found:
            more = f" and {len(found) - 1} more" if len(found) > 1 else ""
            raise DataError(
                f"{self.path}: unknown tensor {found[0]}{more} ({self.format} "
                "format); name it to be ignored if it is no weight of the model"
            )
