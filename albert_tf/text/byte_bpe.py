"""Byte-level BPE tokenizer (as in GPT-2 and RoBERTa).

Built on the Hugging Face tokenizers library. `byte_bpe_file` reads and trains its file;
`byte_bpe_graph` does the same tokenization in the TensorFlow graph.

Legend: `V` vocabulary, `B` strings.
"""

import itertools
import os
import re
from collections.abc import Iterable, Sequence

import numpy as np

from albert_tf.errors import DataError
from albert_tf.storage import files
from albert_tf.text import byte_bpe_file, offsets
from albert_tf.text.normalization import to_unicode
from albert_tf.text.tokenizer import Tokenizer

# White space as Unicode defines it; `str.isspace` also accepts U+001C to U+001F.
_SPACE_BEFORE = re.compile(r"[^\S\x1c-\x1f]+\Z")
_WORD_START = "Ġ"  # how a space is written in byte-level tokens


class ByteBPETokenizer(Tokenizer):
    """Turns text into byte-level BPE ids, the same as the tokenizers library.

    Text is not normalized, and no text is unknown. Special tokens written in the text
    are plain text unless `allow_special` names them.

    Args:
        model: Path of a `tokenizer.json` or (with `merges`) of a `vocab.json`, or the
            bytes of a `tokenizer.json`.
        merges: Path of the `merges.txt` that belongs to a `vocab.json`.

    Attributes:
        vocab_size: int. V.
        pad_id, unk_id, cls_id, sep_id, mask_id: int. Read from the file.
        special_ids: list of int. Ids of these and all other special tokens, sorted.
        sha256: str. Hex digest of the `tokenizer.json`.
        collapses_white_space: bool. False; spaces are part of the tokens.

    Raises:
        DataError: If a file is invalid or lacks a special token.
        UsageError: If the tokenizers library is not installed.
    """

    file_name = "tokenizer.json"
    collapses_white_space = False

    def __init__(
        self, model: str | os.PathLike | bytes, merges: str | os.PathLike | None = None
    ):
        name = "tokenizer.json" if isinstance(model, bytes) else os.fspath(model)
        data = model if isinstance(model, bytes) else files.read_bytes(model)
        if merges is not None:
            data = byte_bpe_file.join_vocabulary(
                name, data, files.read_text(merges), merges
            )
        super().__init__(data)
        self._tokenizer = byte_bpe_file.load(data, name)
        self.vocab_size = self._tokenizer.get_vocab_size()
        self._vocabulary = [
            self._tokenizer.id_to_token(i) for i in range(self.vocab_size)
        ]
        self._read_special(name)

    def encode(self, text: str | bytes, allow_special: Sequence[str] = ()) -> list[int]:
        """Returns the ids of a text, without special tokens around it.

        Args:
            text: str, or UTF-8 bytes. Bytes that are not UTF-8 become spaces.
            allow_special: Sequence of str. Special tokens that are recognized where
                the text contains them literally, for example `("[MASK]",)`.

        Raises:
            UsageError: If `allow_special` names a token that is not special.
        """
        text = to_unicode(text)
        if not allow_special:
            return self._tokenizer.encode(text, add_special_tokens=False).ids
        ids = []
        parts = self._split_special(text, allow_special)
        for k, part in enumerate(parts):
            if k % 2:
                ids.append(part)
            else:
                # As with RoBERTa's <mask>, the special token stands for a word and the
                # space before it.
                part = _SPACE_BEFORE.sub("", part) if k < len(parts) - 1 else part
                ids += self._tokenizer.encode(part, add_special_tokens=False).ids
        return ids

    def encode_with_offsets(
        self, text: str | bytes
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        text = to_unicode(text)
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        spans = np.array(encoding.offsets, np.int32).reshape(-1, 2)
        starts, ends = spans[:, 0].copy(), spans[:, 1].copy()
        offsets.include_marks(text, starts, ends)
        return np.array(encoding.ids, np.int32), starts, ends

    def encode_batch(self, texts: Iterable[str | bytes]) -> list[list[int]]:
        encodings = self._tokenizer.encode_batch_fast(
            [to_unicode(text) for text in texts], add_special_tokens=False
        )
        return [encoding.ids for encoding in encodings]

    def encode_batch_flat(
        self, texts: Iterable[str | bytes]
    ) -> tuple[np.ndarray, np.ndarray]:
        rows = self.encode_batch(texts)
        splits = np.zeros(len(rows) + 1, np.int64)
        np.cumsum([len(row) for row in rows], out=splits[1:])
        flat = itertools.chain.from_iterable(rows)
        return np.fromiter(flat, np.int32, splits[-1]), splits

    def tokens(self, text: str | bytes) -> list[str]:
        """Returns the tokens of a text, in the byte alphabet (`Ġ` is a space)."""
        return [self._vocabulary[i] for i in self.encode(text)]

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        """Returns the text of ids.

        Args:
            ids: Iterable of int.
            skip_special: bool. Whether to omit special tokens instead of naming them.

        Raises:
            UsageError: If an id is not in `[0, V)`.
        """
        parts, run = [], []
        special = set(self.special_ids)
        for i in map(int, ids):
            token = self.id_to_token(i)
            if i not in special:
                run.append(i)
            elif not skip_special:
                parts += [self._tokenizer.decode(run), token]
                run = []
        return "".join([*parts, self._tokenizer.decode(run)])

    def id_to_text(self, token_id: int) -> str:
        return self.decode([token_id], skip_special=False).strip()

    def token_to_id(self, token: str) -> int:
        found = self._tokenizer.token_to_id(token)
        return self.unk_id if found is None else found

    def _make_graph(self):
        from albert_tf.text.byte_bpe_graph import GraphByteBPE

        return GraphByteBPE(**byte_bpe_file.graph_tables(self._tokenizer))

    def _starts_word(self, token: str) -> bool:
        """Returns whether the token begins with a space."""
        return token.startswith(_WORD_START)

    def _read_special(self, name: str) -> None:
        present = {token: i for i, token in enumerate(self._vocabulary)}
        missing = []
        for role, choices in byte_bpe_file.SPECIAL_NAMES.items():
            found = [present[choice] for choice in choices if choice in present]
            if found:
                setattr(self, f"{role}_id", found[0])
            else:
                missing.append(" or ".join(choices))
        if missing:
            raise DataError(
                f"{name}: none of its {self.vocab_size} tokens is {', '.join(missing)}"
            )
        added = self._tokenizer.get_added_tokens_decoder()
        self.special_ids = sorted(
            {getattr(self, f"{role}_id") for role in byte_bpe_file.SPECIAL_NAMES}
            | {i for i, token in added.items() if token.special}
        )
