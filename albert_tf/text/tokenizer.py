"""Base class of all tokenizers.

Legend: `V` vocabulary, `B` strings.
"""

import abc
import copy
import functools
import hashlib
import itertools
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

import albert_tf
from albert_tf.errors import DataError, UsageError, require
from albert_tf.storage import files
from albert_tf.text.added_tokens import AddedTokens, complete
from albert_tf.text.normalization import to_unicode

MASK = "[MASK]"  # stands for the mask token of any vocabulary
# A warning needs more unknown tokens than this fraction, and than this number.
_MOST_UNKNOWN, _FEW_UNKNOWN = 0.05, 4


class Tokenizer(abc.ABC):
    """Turns text into ids.

    A subclass (`AlbertTokenizer`, `ByteBPETokenizer`, `WordPieceTokenizer`) calls
    `_set_vocabulary` in its constructor, sets `_library` to the object that encodes and
    decodes (or defines `_decode`), and defines the abstract methods.

    Args:
        model: bytes. Content of the file that, together with `get_config()`, defines
            the tokenizer.

    Attributes:
        file_name: str. Name of the file in a model folder.
        options: tuple of str. Names of its options, which a model folder stores next to
            the file; each is an attribute and a keyword argument.
        collapses_white_space: bool. Whether a run of white space (as `str.split`
            defines it) counts as one space.
        vocab_size: int. V.
        pad_id, unk_id, cls_id, sep_id, mask_id: int. Ids of the special tokens.
        special_ids: list of int. Ids of these and all other special tokens, sorted.
        added_tokens: sequence of dict. Entries of the tokens that were added to the
            vocabulary or are matched literally in text, as in a `tokenizer.json`.
        model_size: int. Size of the vocabulary without the tokens added after it.
        sha256: str. Hex digest of the file.
        model: bytes. Content of the file.
        pair_separators: int. Separators between the two texts of a pair. With two, as
            RoBERTa has them, both texts are in segment 0; see `for_segments`.
        num_threads: int. Threads of `encode_batch_flat`, where the library supports
            them. One suits `create_pretraining_data`, which runs a process per core.
    """

    pair_separators = 1
    num_threads = 1
    file_name: str
    options: tuple[str, ...] = ()
    collapses_white_space: bool
    vocab_size: int
    pad_id: int
    unk_id: int
    cls_id: int
    sep_id: int
    mask_id: int
    special_ids: list[int]
    added_tokens: Sequence[dict[str, Any]] = ()
    model_size: int
    # The accepted tokens of each role, in the order of the ids above.
    _special_names: tuple[tuple[str, ...], ...]
    _separator: str  # joins decoded text with the special tokens around it

    def __init__(self, model: bytes):
        self.model = model
        self.sha256 = hashlib.sha256(model).hexdigest()
        self._library: Any = None
        self._num_tokens = self._num_unknown = 0
        self._has_warned = False

    def _set_vocabulary(
        self,
        tokens: list[str],
        controls: Iterable[int],
        name: str,
        added: Iterable[Mapping[str, Any]] = (),
    ):
        """Stores the tokens of all ids, and finds the special ones."""
        # `controls` are special tokens without a role; added tokens may lack an id.
        self.model_size = len(tokens)
        self._ids = ids_of = {token: i for i, token in enumerate(tokens)}
        entries = []
        for new in sorted(added, key=lambda t: t.get("id", sys.maxsize)):
            i = ids_of.setdefault(new["content"], len(ids_of))
            rule = f"{name}: the id of the added token {new['content']!r} must be {i}"
            require(new.get("id", i) == i, rule, new.get("id"), error=DataError)
            entries.append(complete(new, i))
        self._vocabulary = tokens = list(tokens) + [*ids_of][self.model_size :]
        self.vocab_size = len(tokens)
        found = [[t for t in names if t in self._ids] for names in self._special_names]
        pairs = zip(self._special_names, found, strict=True)
        missing = ", ".join(" or ".join(names) for names, there in pairs if not there)
        rule = f"{name}: none of its {self.vocab_size} tokens is {missing}"
        require(not missing, rule, error=DataError)
        ids = [self._ids[present[0]] for present in found]
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = ids
        self.added_tokens = [t for t in entries if t["id"] not in ids]
        special = [t["id"] for t in self.added_tokens if t["special"]]
        self.special_ids = sorted({*ids, *controls, *special})
        # Ids that `decode` omits or writes as tokens.
        self._controls = {*self.special_ids, *(t["id"] for t in self.added_tokens)}
        self._plain = {t["id"] for t in self.added_tokens if not t["special"]}

    @classmethod
    def from_pretrained(cls, path: str | os.PathLike) -> "Tokenizer":
        """Loads the tokenizer of a model folder, with the options stored there.

        Args:
            path: str or path. As for `albert_tf.from_pretrained`.

        Raises:
            DataError: If the folder holds no tokenizer of this class.
        """
        return albert_tf._loader().load_tokenizer_as(cls, path)

    def for_segments(self, num_segments: int) -> "Tokenizer":
        """Returns this tokenizer adapted to a model with that many segments.

        Without segments, two separators mark where the second text of a pair begins.
        """
        separators = 2 if num_segments == 1 else 1
        if separators == self.pair_separators:
            return self
        result = copy.copy(self)
        result.pair_separators = separators
        return result

    def encode(self, text: str | bytes) -> list[int]:
        """Returns the ids of a text, without special tokens around it.

        Args:
            text: str, or UTF-8 bytes. Bytes that are not UTF-8 become spaces. Special
                tokens written in it are plain text.
        """
        return self.encode_batch([text])[0]

    def after_word(self, text: str) -> str:
        """Returns a text as to be passed to `encode` after a word and a space.

        If the space before a word is part of its first token, as in byte-level BPE, it
        is prepended, as transformers' `add_prefix_space` does.
        """
        return text

    def encode_masked(self, text: str | bytes) -> list[int]:
        """Returns the ids of a text in which `[MASK]` marks masked tokens.

        The vocabulary's own name of the mask token (RoBERTa's `<mask>`) is also
        accepted.
        """
        mask = self.id_to_token(self.mask_id)
        parts = to_unicode(text).replace(MASK, mask).split(mask)
        ids = self._encode_between(parts[0], True, len(parts) == 1)
        for k, part in enumerate(parts[1:], start=2):
            ids += [self.mask_id, *self._encode_between(part, False, k == len(parts))]
        return ids

    def _encode_between(self, part: str, is_first: bool, is_last: bool) -> list[int]:
        """Returns the ids of a part of a text that was cut at masks."""
        del is_first, is_last
        return self.encode(part)

    def encode_with_offsets(
        self, text: str | bytes
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the ids of a text, and the span of characters each comes from.

        The time is linear in the length of the text. Raises `UsageError` if added
        tokens are matched only after the text is normalized.

        Returns:
            Three int32 arrays of one length: `ids`, the same as `encode(text)`;
            `starts` and `ends`: token `i` comes from `text[starts[i]:ends[i]]`, counted
            in characters (code points) of the text as given. Both never decrease. The
            white space before a word belongs to its first token; a combining accent
            belongs to its letter (WordPiece: neither belongs to a token); tokens that
            each contain part of one character all span that character. If the text is
            bytes or contains lone surrogates, positions refer to
            `normalization.to_unicode(text)`.
        """
        text = to_unicode(text)
        if self._added is None:
            return self._encode_with_offsets(text)
        stage = self._added.stages[-1]
        rule = "places in the text are not known for added tokens that are searched for"
        rule += f" in normalized text, such as {[*stage.tokens][0]!r}"
        require(not stage.is_normalized, rule)
        columns, at = [], 0
        for part in self._added.split(text):
            if isinstance(part, int):
                surface = self._vocabulary[part]
                new = np.array([part]), np.zeros(1, int), np.array([len(surface)])
            else:
                surface, new = part, self._encode_with_offsets(part)
            columns.append([new[0], new[1] + at, new[2] + at])
            at += len(surface)
        return tuple(
            np.concatenate(c).astype(np.int32) for c in zip(*columns, strict=True)
        )

    @abc.abstractmethod
    def _encode_with_offsets(
        self, text: str
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Implements `encode_with_offsets` for a text without added tokens."""

    def encode_batch_flat(
        self, texts: Iterable[str | bytes]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Encodes many texts into one array; faster than `encode_batch`.

        Returns:
            The concatenated ids of all texts, int32, and the row splits, int64
            `[B + 1]`: text i has `ids[splits[i]:splits[i + 1]]`.
        """
        rows = (
            self._rows_around_added(texts) if self._added else self._encode_rows(texts)
        )
        splits = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        flat = itertools.chain.from_iterable(rows)
        ids = np.fromiter(flat, np.int32, splits[-1])
        self._warn_of_unknown(ids)
        return ids, splits

    def _warn_of_unknown(self, ids: np.ndarray) -> None:
        """Logs one line, once, if many of the tokens so far are unknown."""
        self._num_tokens += len(ids)
        self._num_unknown += int(np.count_nonzero(ids == self.unk_id))
        most = max(_FEW_UNKNOWN, _MOST_UNKNOWN * self._num_tokens)
        if self._num_unknown > most and not self._has_warned:
            self._has_warned = True
            logging.warning(
                "%d of the first %d tokens of the text are unknown to the tokenizer "
                "(%s), so the model sees nothing of them: does its vocabulary (%d "
                "tokens, such as %s) suit this language and script?",
                *(self._num_unknown, self._num_tokens, self._vocabulary[self.unk_id]),
                *(self.vocab_size, ", ".join(self._vocabulary[-3:])),
            )

    def normalize(self, text: str | bytes) -> str:
        """Returns the text in which tokens are searched for."""
        return to_unicode(text)

    @functools.cached_property
    def _added(self) -> AddedTokens | None:
        """Splits text at the added tokens; None if the library does so itself."""
        tokens = self.added_tokens
        return AddedTokens(tokens, self.normalize) if tokens else None

    def _rows_around_added(self, texts: Iterable[str | bytes]) -> list[list[int]]:
        """Does the same as `_encode_rows`, but handles added tokens in the texts."""
        rows = [self._added.split(to_unicode(text)) for text in texts]
        between = [part for row in rows for part in row if isinstance(part, str)]
        encoded = iter(self._encode_rows(between))
        return [
            [i for x in row for i in (next(encoded) if isinstance(x, str) else [x])]
            for row in rows
        ]

    @abc.abstractmethod
    def _encode_rows(self, texts: Iterable[str | bytes]) -> list[list[int]]:
        """Returns the ids that the library produces for many texts."""

    def encode_batch(self, texts: Iterable[str | bytes]) -> list[list[int]]:
        """Encodes many texts; faster than calling `encode` for each."""
        ids, splits = self.encode_batch_flat(texts)
        ids, splits = ids.tolist(), splits.tolist()
        return [ids[a:b] for a, b in zip(splits, splits[1:], strict=False)]

    def __call__(self, texts):
        """Encodes in the graph: string `[B]` to ragged int32 `[B, None]`."""
        return self.graph(texts)

    @property
    @abc.abstractmethod
    def graph(self):
        """The `tf.Module` that tokenizes in the graph; attach it to exported models.

        Raises `UsageError` if this tokenizer cannot be expressed in the graph.
        """

    @property
    @abc.abstractmethod
    def graph_offsets(self):
        """The callable that turns strings `[B]` into `TokensWithOffsets` in the graph.

        Raises `UsageError` if this tokenizer cannot be expressed in the graph.
        """

    def _check_plain(self) -> None:
        """Raises `UsageError` for added tokens, which have no offsets in the graph."""
        rule = "places in the text cannot be found in the graph with added tokens"
        require(not self.added_tokens, rule, *(t["content"] for t in self.added_tokens))

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        """Returns the text of ids; SentencePiece's unknown piece becomes `" ⁇ "`.

        Raises `UsageError` if an id is not in `[0, V)`.

        Args:
            ids: Iterable of int.
            skip_special: bool. Whether to omit special tokens instead of naming them.
        """
        parts, run = [], []
        for i in map(int, ids):
            token = self.id_to_token(i)
            if i not in self._controls:
                run.append(i)
            elif not skip_special or i in self._plain:
                parts += [self._decode(run), token]
                run = []
        return self._separator.join(filter(None, [*parts, self._decode(run)]))

    def _decode(self, ids: list[int]) -> str:
        """Returns the text of ids that are not special."""
        return self._library.decode(ids)

    def tokens(self, text: str | bytes) -> list[str]:
        """Returns the tokens of a text."""
        return [self._vocabulary[i] for i in self.encode(text)]

    def id_to_token(self, token_id: int) -> str:
        """Returns the token of an id.

        Raises `UsageError` if the id is not in `[0, V)`.
        """
        last = self.vocab_size - 1
        require(0 <= token_id <= last, f"token id: expected 0 to {last}", token_id)
        return self._vocabulary[token_id]

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The tokens of all ids, in order."""
        return tuple(self._vocabulary)

    @abc.abstractmethod
    def id_to_text(self, token_id: int) -> str:
        """Returns a readable token, without the mark of a word's start."""

    def token_to_id(self, token: str) -> int:
        """Returns the id of a token, or `unk_id` if it is not in the vocabulary."""
        return self._ids.get(token, self.unk_id)

    def word_start_table(self) -> np.ndarray:
        """Returns a bool `[V]` that marks the tokens that start a word.

        A special token is a word of its own and starts it; padding does not.
        """
        return self._word_starts

    @functools.cached_property
    def _word_starts(self) -> np.ndarray:
        table = np.array([self._starts_word(t) for t in self._vocabulary], np.bool_)
        table[[*self._controls, *self.special_ids]] = True
        table[self.pad_id] = False
        table.flags.writeable = False
        return table

    def special_tokens_mask(self, ids: Any) -> np.ndarray:
        """Marks the special tokens: padding, `[CLS]`, `[SEP]`, `[MASK]`, ...

        These are the ids in `special_ids`, the unknown token included, as in Hugging
        Face's `get_special_tokens_mask(ids, already_has_special_tokens=True)`.

        Args:
            ids: Integers in an array, a list or a tensor of any shape: the ids of a
                row, or `token_ids` of a `Preprocessor`, `[B, T]`.

        Returns:
            int32 array of the shape of `ids`: 1 for special tokens, 0 for all others.

        Raises:
            UsageError: If an id is not in `[0, V)`, or rows differ in length.

        Example:
            >>> batch = preprocessor(["What a film!", "Never again."])
            >>> tokenizer.special_tokens_mask(batch["token_ids"])
        """
        try:
            ids = np.asarray(ids)
        except ValueError:
            raise UsageError("ids: rows must be padded to one length") from None
        last = self.vocab_size - 1
        valid = not ids.size or (
            ids.dtype.kind in "iu" and 0 <= ids.min() <= ids.max() <= last
        )
        require(valid, f"ids: expected integers from 0 to {last}", ids)
        return np.isin(ids, self.special_ids).astype(np.int32)

    def save(self, path: str | os.PathLike, overwrite: bool = False) -> str:
        """Writes the tokenizer's file and returns its path.

        Args:
            path: str or path. Name of the file, or a folder, in which the file is named
                `file_name`.
            overwrite: bool. Whether to replace a file with other content.

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
        config = {name: getattr(self, name) for name in self.options}
        if not self.added_tokens:
            config.pop("added_tokens", None)
        return config

    def with_options(self, **options: bool) -> "Tokenizer":
        """Returns a tokenizer of the same file with other options."""
        return type(self)(self.model, **{**self.get_config(), **options})

    def __getstate__(self):
        return {"model": self.model, **self.get_config()}, self.pair_separators

    def __setstate__(self, state):
        options, self.pair_separators = state
        self.__init__(**options)

    @abc.abstractmethod
    def _starts_word(self, token: str) -> bool:
        """Returns whether a token that is not special starts a word."""
