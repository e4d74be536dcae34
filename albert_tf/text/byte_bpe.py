"""Byte-level BPE (GPT-2's, RoBERTa's) over the Hugging Face tokenizers library.

Its file is `byte_bpe_file`'s, its form in the graph `byte_bpe_graph`'s.

Legend: `V` vocabulary, `B` strings.
"""

import itertools
import os
import re
from collections.abc import Iterable, Sequence

import numpy as np

from albert_tf.errors import DataError
from albert_tf.storage import files
from albert_tf.text import byte_bpe_file
from albert_tf.text.normalization import to_unicode
from albert_tf.text.tokenizer import Tokenizer

# White space by Unicode; Python's `str.isspace` has the separators 1c to 1f as well.
_SPACE_BEFORE = re.compile(r"[^\S\x1c-\x1f]+\Z")
_WORD_START = "Ġ"  # how a space looks in byte-level pieces


class ByteBPETokenizer(Tokenizer):
    """Turns text into byte-level BPE ids, those of the tokenizers library.

    Text is not normalized; nothing is ever unknown. Special pieces written in the text
    are plain text unless `allow_special` names them.

    Args:
        model: Path of a `tokenizer.json`, of a `vocab.json` (with `merges`), or the
            bytes of a `tokenizer.json`.
        merges: Path of the `merges.txt` that belongs to a `vocab.json`.

    Attributes:
        vocab_size: int, V.
        pad_id, unk_id, cls_id, sep_id, mask_id: int, read from the file.
        special_ids: Sorted list of these and all other special pieces.
        sha256: Hex digest of the `tokenizer.json`.
        collapses_white_space: False; blanks are part of the pieces.

    Raises:
        DataError: If a file is not what it must be, or lacks a special piece.
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
        self._pieces = [self._tokenizer.id_to_token(i) for i in range(self.vocab_size)]
        self._read_special(name)

    def encode(self, text: str | bytes, allow_special: Sequence[str] = ()) -> list[int]:
        """The ids of a text, without special ones around it.

        Args:
            text: Any string, or UTF-8 bytes (what is not UTF-8 becomes spaces).
            allow_special: Special pieces that become their ids where they are
                written literally, such as `("[MASK]",)`.

        Raises:
            UsageError: If `allow_special` names something else than a special piece.
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
                # As RoBERTa's <mask>: the special piece stands for a word with the
                # space before it.
                part = _SPACE_BEFORE.sub("", part) if k < len(parts) - 1 else part
                ids += self._tokenizer.encode(part, add_special_tokens=False).ids
        return ids

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
        """The pieces of a text, in the byte alphabet (`Ġ` is a space)."""
        return [self._pieces[i] for i in self.encode(text)]

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        """Text of ids; special ones are left out or named.

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

    def _starts_word(self, piece: str) -> bool:
        """Those that begin with a space."""
        return piece.startswith(_WORD_START)

    def _read_special(self, name: str) -> None:
        present = {piece: i for i, piece in enumerate(self._pieces)}
        missing = []
        for role, choices in byte_bpe_file.SPECIAL_NAMES.items():
            found = [present[choice] for choice in choices if choice in present]
            if found:
                setattr(self, f"{role}_id", found[0])
            else:
                missing.append(" or ".join(choices))
        if missing:
            raise DataError(
                f"{name}: of its {self.vocab_size} pieces none is {', '.join(missing)}"
            )
        added = self._tokenizer.get_added_tokens_decoder()
        self.special_ids = sorted(
            {getattr(self, f"{role}_id") for role in byte_bpe_file.SPECIAL_NAMES}
            | {i for i, token in added.items() if token.special}
        )
