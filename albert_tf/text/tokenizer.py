"""Base class of all tokenizers.

Legend: `V` vocabulary, `B` strings.
"""

import abc
import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from albert_tf import pretrained
from albert_tf.errors import UsageError
from albert_tf.storage import files
from albert_tf.text.normalization import to_unicode

MASK = "[MASK]"  # stands for the mask token of any vocabulary


class Tokenizer(abc.ABC):
    """Turns text into ids. Subclasses: `AlbertTokenizer`, `ByteBPETokenizer`.

    A subclass sets the attributes below in its constructor and defines the abstract
    methods.

    Args:
        model: bytes. Content of the file that, together with `get_config()`, defines
            the tokenizer.

    Attributes:
        file_name: str. Name of the file in a model folder.
        collapses_white_space: bool. Whether a run of white space counts as one space.
        vocab_size: int. V.
        pad_id, unk_id, cls_id, sep_id, mask_id: int. Ids of the special tokens.
        special_ids: list of int. Ids of these and all other special tokens, sorted.
        sha256: str. Hex digest of the file.
        model: bytes. Content of the file.
        num_threads: int. Threads of `encode_batch_flat`, where they are of use. One, as
            in `create_pretraining_data`, which runs one process per core.
    """

    num_threads = 1
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
        self._vocabulary: list[str] = []
        self._word_starts = None
        self._graph = None

    @classmethod
    def from_pretrained(cls, path: str | os.PathLike) -> "Tokenizer":
        """Loads the tokenizer of a model folder, with the options stored there.

        Args:
            path: str or path. As for `albert_tf.from_pretrained`.

        Raises:
            DataError: If the folder holds no tokenizer of this class.
        """
        return pretrained.loader().load_tokenizer_as(cls, path)

    @abc.abstractmethod
    def encode(self, text: str | bytes, allow_special: Sequence[str] = ()) -> list[int]:
        """Returns the ids of a text, without special tokens around it."""

    def encode_masked(self, text: str | bytes) -> list[int]:
        """Returns the ids of a text in which `[MASK]` marks masked tokens.

        The vocabulary's own name of the mask token (RoBERTa's `<mask>`) is accepted,
        too. For the text around them, see `allow_special` of `encode`.
        """
        mask = self.id_to_token(self.mask_id)
        text = to_unicode(text).replace(MASK, mask)
        return self.encode(text, allow_special=(mask,))

    @abc.abstractmethod
    def encode_with_offsets(
        self, text: str | bytes
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the ids of a text, and which of its characters each comes from.

        The time is linear in the length of the text.

        Returns:
            Three int32 arrays of one length: `ids`, the same as `encode(text)`;
            `starts` and `ends`: token `i` comes from `text[starts[i]:ends[i]]`, counted
            in characters (code points) of the text as given. Both never decrease. The
            white space before a word belongs to its first token; a combining accent
            belongs to its letter; tokens that each hold a part of one character all
            have that character. Where the text is bytes or holds lone surrogates,
            `normalization.to_unicode(text)` is what is counted.
        """

    @abc.abstractmethod
    def encode_batch_flat(
        self, texts: Iterable[str | bytes]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Encodes many texts into one array; faster than `encode_batch`.

        Returns:
            The concatenated ids of all texts, int32, and the row splits, int64
            `[B + 1]`: text i has `ids[splits[i]:splits[i + 1]]`.
        """

    def encode_batch(self, texts: Iterable[str | bytes]) -> list[list[int]]:
        """Encodes many texts; faster than `encode` for each."""
        ids, splits = self.encode_batch_flat(texts)
        ids, splits = ids.tolist(), splits.tolist()
        return [ids[a:b] for a, b in zip(splits, splits[1:], strict=False)]

    def __call__(self, texts):
        """Encodes in the graph: string `[B]` to ragged int32 `[B, None]`."""
        return self.graph(texts)

    @property
    def graph(self):
        """The `tf.Module` that tokenizes in the graph; attach it to exported models.

        Raises:
            UsageError: If this tokenizer cannot be expressed in the graph.
        """
        if self._graph is None:
            self._graph = self._make_graph()
        return self._graph

    @abc.abstractmethod
    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        """Returns the text of ids; special tokens are omitted or named."""

    @abc.abstractmethod
    def tokens(self, text: str | bytes) -> list[str]:
        """Returns the tokens of a text."""

    def id_to_token(self, token_id: int) -> str:
        """Returns the token of an id.

        Raises:
            UsageError: If the id is not in `[0, V)`.
        """
        if not 0 <= token_id < self.vocab_size:
            raise UsageError(
                f"token id: expected 0 to {self.vocab_size - 1}, received {token_id}"
            )
        return self._vocabulary[token_id]

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The tokens of all ids, in order."""
        return tuple(self._vocabulary)

    @abc.abstractmethod
    def id_to_text(self, token_id: int) -> str:
        """Returns a readable token, without the mark of a word's start."""

    @abc.abstractmethod
    def token_to_id(self, token: str) -> int:
        """Returns the id of a token, or `unk_id` if it is not in the vocabulary."""

    def word_start_table(self) -> np.ndarray:
        """Returns whether each token starts a word, bool `[V]`.

        A special token is a word of its own and starts it; padding does not.
        """
        if self._word_starts is None:
            table = np.array([self._starts_word(t) for t in self._vocabulary], np.bool_)
            table[self.special_ids] = True
            table[self.pad_id] = False
            table.flags.writeable = False
            self._word_starts = table
        return self._word_starts

    def save(self, path: str | os.PathLike, overwrite: bool = False) -> str:
        """Writes the tokenizer's file.

        Args:
            path: str or path. Name of the file, or a folder, in which the file is
                named `file_name`.
            overwrite: bool. Whether to replace a file with other content.

        Returns:
            str. Path of the file.

        Raises:
            UsageError: If the file exists with other content and `overwrite` is False.
        """
        path = os.fspath(path)
        if path.endswith("/") or files.is_folder(path):
            files.make_folder(path)
            path = files.join(path, self.file_name)
        if overwrite or not files.exists(path) or files.read_bytes(path) != self.model:
            files.write_bytes(path, self.model, overwrite)
        return path

    def get_config(self) -> dict[str, Any]:
        """Returns the keyword arguments that, with the file, define this tokenizer."""
        return {}

    def __getstate__(self):
        return {"model": self.model, **self.get_config()}

    def __setstate__(self, state):
        self.__init__(**state)

    @abc.abstractmethod
    def _make_graph(self):
        """Creates the value of `graph`."""

    @abc.abstractmethod
    def _starts_word(self, token: str) -> bool:
        """Returns whether a token that is not special starts a word."""

    def _split_special(
        self, text: str, allow_special: Sequence[str]
    ) -> list[str | int]:
        """Splits a text at special tokens: text, id, text, ..., text."""
        named = {self._vocabulary[i]: i for i in self.special_ids}
        for token in allow_special:
            if token not in named:
                raise UsageError(
                    f"allow_special must be among {', '.join(named)}, received {token}"
                )
        parts = re.split(f"({'|'.join(map(re.escape, allow_special))})", text)
        return [named[part] if k % 2 else part for k, part in enumerate(parts)]
