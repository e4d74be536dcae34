"""What all tokenizers have, whatever their pieces are made of.

Legend: `V` vocabulary, `B` strings.
"""

import abc
import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from albert_tf.errors import UsageError
from albert_tf.storage import files


class Tokenizer(abc.ABC):
    """Turns text into ids; `AlbertTokenizer` and `ByteBPETokenizer` are the kinds.

    A kind sets the attributes below in its constructor and has the abstract methods.

    Args:
        model: Content of the file that with `get_config()` makes the tokenizer.

    Attributes:
        file_name: What the file is called in a folder.
        collapses_white_space: Whether a run of white space counts as one space.
        vocab_size: int, V.
        pad_id, unk_id, cls_id, sep_id, mask_id: int.
        special_ids: Sorted list of these and all other special pieces.
        sha256: Hex digest of the file.
        model: bytes, its content.
    """

    file_name: str
    collapses_white_space: bool
    vocab_size: int
    pad_id: int
    unk_id: int
    cls_id: int
    sep_id: int
    mask_id: int
    special_ids: list[int]

    def __init__(self, model: bytes):
        self.model = model
        self.sha256 = hashlib.sha256(model).hexdigest()
        self._pieces: list[str] = []
        self._word_starts = None
        self._graph = None

    @abc.abstractmethod
    def encode(self, text: str | bytes, allow_special: Sequence[str] = ()) -> list[int]:
        """The ids of a text, without special ones around it."""

    @abc.abstractmethod
    def encode_batch_flat(
        self, texts: Iterable[str | bytes]
    ) -> tuple[np.ndarray, np.ndarray]:
        """`encode` for many texts, fastest.

        Returns:
            The ids of all texts one after another, int32, and the row splits, int64
            `[B + 1]`: text i has `ids[splits[i]:splits[i + 1]]`.
        """

    def encode_batch(self, texts: Iterable[str | bytes]) -> list[list[int]]:
        """`encode` for many texts, faster."""
        ids, splits = self.encode_batch_flat(texts)
        ids, splits = ids.tolist(), splits.tolist()
        return [ids[a:b] for a, b in zip(splits, splits[1:], strict=False)]

    def __call__(self, texts):
        """`encode` in the graph: string `[B]` to a ragged int32 `[B, None]`."""
        return self.graph(texts)

    @property
    def graph(self):
        """What tokenizes in the graph, a `tf.Module` to attach to what is exported.

        Raises:
            UsageError: If this tokenizer has no such form.
        """
        if self._graph is None:
            self._graph = self._make_graph()
        return self._graph

    @abc.abstractmethod
    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        """Text of ids; special ones are left out or named."""

    @abc.abstractmethod
    def tokens(self, text: str | bytes) -> list[str]:
        """The pieces of a text."""

    def id_to_token(self, token_id: int) -> str:
        """The piece of an id.

        Raises:
            UsageError: If the id is not in `[0, V)`.
        """
        if not 0 <= token_id < self.vocab_size:
            raise UsageError(
                f"token id: expected 0 to {self.vocab_size - 1}, got {token_id}"
            )
        return self._pieces[token_id]

    @abc.abstractmethod
    def id_to_text(self, token_id: int) -> str:
        """A piece for people, without the mark of a word's start."""

    @abc.abstractmethod
    def token_to_id(self, token: str) -> int:
        """The id of a piece, `unk_id` if there is none."""

    def is_word_start(self, token_id: int) -> bool:
        """Whether whole-word masking starts a word at this piece."""
        return bool(self.word_start_table()[token_id])

    def word_start_table(self) -> np.ndarray:
        """For each piece, bool `[V]`: does it start a word?

        Special pieces stand for themselves and start one, except padding.
        """
        if self._word_starts is None:
            table = np.array([self._starts_word(p) for p in self._pieces], np.bool_)
            table[self.special_ids] = True
            table[self.pad_id] = False
            table.flags.writeable = False
            self._word_starts = table
        return self._word_starts

    def save(self, path: str | os.PathLike, overwrite: bool = False) -> str:
        """Writes the file; in a folder, as `file_name`.

        Returns:
            The path of the file.

        Raises:
            UsageError: If another file is there and `overwrite` is false.
        """
        path = os.fspath(path)
        if path.endswith("/") or files.is_folder(path):
            files.make_folder(path)
            path = files.join(path, self.file_name)
        if overwrite or not files.exists(path) or files.read_bytes(path) != self.model:
            files.write_bytes(path, self.model, overwrite)
        return path

    def get_config(self) -> dict[str, Any]:
        """The keyword arguments that with the file make this tokenizer."""
        return {}

    def __getstate__(self):
        return {"model": self.model, **self.get_config()}

    def __setstate__(self, state):
        self.__init__(**state)

    @abc.abstractmethod
    def _make_graph(self):
        """What `graph` returns."""

    @abc.abstractmethod
    def _starts_word(self, piece: str) -> bool:
        """Whether a piece that is not special starts a word."""

    def _split_special(
        self, text: str, allow_special: Sequence[str]
    ) -> list[str | int]:
        """Text and, at every second place, ids of special pieces written in it."""
        named = {self._pieces[i]: i for i in self.special_ids}
        for token in allow_special:
            if token not in named:
                raise UsageError(
                    f"allow_special: expected some of {', '.join(named)}, got {token}"
                )
        parts = re.split(f"({'|'.join(map(re.escape, allow_special))})", text)
        return [named[part] if k % 2 else part for k, part in enumerate(parts)]
