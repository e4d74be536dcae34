"""ALBERT's tokenizer: text normalization, SentencePiece, digit-comma rule.

Legend: `V` vocabulary, `B` strings.

The Python path requires only the sentencepiece package. TensorFlow is imported when the
in-graph path (`tokenizer(tensor)`, `tokenizer.graph`) is first used.
"""

import itertools
import os
from collections.abc import Iterable, Sequence

import numpy as np
import sentencepiece

from albert_tf.errors import DataError
from albert_tf.storage import files
from albert_tf.text import offsets, sentencepiece_file
from albert_tf.text.normalization import normalize_text, to_unicode
from albert_tf.text.tokenizer import Tokenizer

_SPACE = "▁"
# Letters and punctuation that continue a word (`_is_start_piece_sp` of the original).
_PUNCTUATION = '!"#$%&"()*+,-./:;?@[\\]^_`{|}~'
_CONTINUES_WORD = frozenset("abcdefghijklmnopqrstuvwxyz" + _PUNCTUATION)


class AlbertTokenizer(Tokenizer):
    """Turns text into the same ids as the original's `FullTokenizer`.

    Text goes through `normalize_text` (white space, NFKD, accents, case), SentencePiece
    and the digit-comma rule: a piece that ends in a digit and a comma (`▁1990,`) is
    split again before the comma. Special tokens written in the text (`[CLS]`) are plain
    text unless `allow_special` names them. No string raises an error or is cut short;
    bytes that are not UTF-8 count as spaces.

    SentencePiece's rounding breaks ties (`666` as `66 6` or `6 66`). Its releases up to
    0.2.1 and TensorFlow Text agree with the original, 0.2.2 and 0.2.3 do not (1 line of
    Wikipedia in 6,000), which is why 0.2.1 is pinned.

    Args:
        model: str, path or bytes. Path of a SentencePiece model (`gs://` too), or its
            content.
        do_lower_case: bool. Whether to lower-case text, as the released vocabularies
            require.
        keep_accents: bool. Whether to skip NFKD and the removal of accents.
        digit_comma_rule: bool. Whether to apply the digit-comma rule.

    Attributes:
        vocab_size: int. V.
        pad_id, unk_id, cls_id, sep_id, mask_id: int. Read from the model.
        special_ids: list of int. Ids of these and all other control pieces, sorted.
        sha256: str. Hex digest of the model file.
        replacements: dict. Maps the id of a piece to the ids that replace it under the
            digit-comma rule.
        collapses_white_space: bool. True; a run of white space counts as one space.

    Raises:
        DataError: If the model cannot be read or lacks a special token.

    Differs from the original: splitting a piece again never adds a `▁` inside a word
    (the original intended this, but compares bytes with str in Python 3), and is
    skipped where it would produce an unknown piece. Neither case can occur with the
    released vocabulary.
    """

    file_name = "spiece.model"
    collapses_white_space = True

    def __init__(
        self,
        model: str | os.PathLike | bytes,
        do_lower_case: bool = True,
        *,
        keep_accents: bool = False,
        digit_comma_rule: bool = True,
    ):
        name = "SentencePiece model" if isinstance(model, bytes) else os.fspath(model)
        super().__init__(model if isinstance(model, bytes) else files.read_bytes(model))
        self._processor = _load(self.model, name)
        self.do_lower_case = do_lower_case
        self.keep_accents = keep_accents
        self.digit_comma_rule = digit_comma_rule
        self._read_vocabulary(name)
        self.replacements = self._find_replacements() if digit_comma_rule else {}
        self._is_replaced = np.zeros(self.vocab_size, np.bool_)
        self._is_replaced[list(self.replacements)] = True

    def encode(self, text: str | bytes, allow_special: Sequence[str] = ()) -> list[int]:
        """Returns the ids of a text, without [CLS] and [SEP].

        Args:
            text: str, or UTF-8 bytes.
            allow_special: Sequence of str. Special tokens that are recognized where
                the text contains them literally, for example `("[MASK]",)`. Text that
                follows one without white space continues the word (`[MASK].` becomes
                `[MASK]` and `.`, not `▁` and `.`).

        Raises:
            UsageError: If `allow_special` names a token that is not special.
        """
        if allow_special:
            return self._encode_with_special(to_unicode(text), allow_special)
        ids = self._processor.encode(self.normalize(text))
        if self.replacements and not self.replacements.keys().isdisjoint(ids):
            ids = [new for old in ids for new in self.replacements.get(old, (old,))]
        return ids

    def encode_with_offsets(
        self, text: str | bytes
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        text = to_unicode(text)
        ids, spans = offsets.piece_spans(
            self._processor, self.normalize(text), self.replacements
        )
        source = offsets.source_map(text, self.do_lower_case, self.keep_accents)
        begins = ids.size and self._vocabulary[ids[0]].startswith(_SPACE)
        return ids.astype(np.int32), *offsets.raw_spans(spans, source, bool(begins))

    def encode_batch_flat(
        self, texts: Iterable[str | bytes]
    ) -> tuple[np.ndarray, np.ndarray]:
        lower, keep = self.do_lower_case, self.keep_accents
        normalized = [normalize_text(text, lower, keep) for text in texts]
        rows = self._processor.encode(normalized, num_threads=self.num_threads)
        splits = np.zeros(len(rows) + 1, np.int64)
        np.cumsum([len(row) for row in rows], out=splits[1:])
        flat = itertools.chain.from_iterable(rows)
        return self._replace_flat(np.fromiter(flat, np.int32, splits[-1]), splits)

    def normalize(self, text: str | bytes) -> str:
        """Returns the text to give to SentencePiece."""
        return normalize_text(text, self.do_lower_case, self.keep_accents)

    def tokens(self, text: str | bytes) -> list[str]:
        """Returns the pieces of a text; an unknown one is shown as written."""
        text = self.normalize(text)
        ids = self._processor.encode(text)
        surfaces = self._processor.encode(text, out_type=str)
        pieces = []
        for i, surface in zip(ids, surfaces, strict=True):
            new = self.replacements.get(i)
            pieces += [surface] if new is None else map(self.id_to_token, new)
        return pieces

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        """Returns the text of ids; an unknown piece becomes ` ⁇ `.

        Args:
            ids: Iterable of int.
            skip_special: bool. Whether to omit special tokens instead of naming them.

        Raises:
            UsageError: If an id is not in `[0, V)`.
        """
        words, run = [], []
        controls = set(self.special_ids) - {self.unk_id}
        for i in map(int, ids):
            token = self.id_to_token(i)
            if i not in controls:
                run.append(i)
            elif not skip_special:
                words += [self._processor.decode(run), token]
                run = []
        words.append(self._processor.decode(run))
        return " ".join(word for word in words if word)

    def id_to_text(self, token_id: int) -> str:
        return self.id_to_token(token_id).replace(_SPACE, "")

    def token_to_id(self, token: str) -> int:
        return self._processor.piece_to_id(token)

    def get_config(self) -> dict[str, bool]:
        return {
            "do_lower_case": self.do_lower_case,
            "keep_accents": self.keep_accents,
            "digit_comma_rule": self.digit_comma_rule,
        }

    def _make_graph(self):
        from albert_tf.text.sentencepiece_graph import GraphTokenizer

        return GraphTokenizer(
            self.model,
            [self.replacements.get(i, [i]) for i in range(self.vocab_size)],
            [self._continuation(i) for i in range(self.vocab_size)],
            self.do_lower_case,
            self.keep_accents,
        )

    def _starts_word(self, piece: str) -> bool:
        """Returns whether a piece starts a word (the original's `_is_start_piece_sp`).

        A piece does if it begins with `▁` or `<`, is a single punctuation mark, or has
        a character that is neither an English letter nor in the original's punctuation
        (digits, `'`, other scripts). So `**` continues a word.
        """
        if piece.startswith((_SPACE, "<")) or piece in _PUNCTUATION:
            return True
        return not all(char.lower() in _CONTINUES_WORD for char in piece)

    def _read_vocabulary(self, name: str) -> None:
        processor = self._processor
        self.vocab_size = len(processor)
        self._vocabulary = [processor.id_to_piece(i) for i in range(self.vocab_size)]
        present = {piece: i for i, piece in enumerate(self._vocabulary)}
        names = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
        if missing := [piece for piece in names if piece not in present]:
            raise DataError(
                f"{name}: not an ALBERT vocabulary: none of its {self.vocab_size} "
                f"pieces is {', '.join(missing)}"
            )
        ids = [present[piece] for piece in names]
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = ids
        controls = [i for i in range(self.vocab_size) if processor.is_control(i)]
        self.special_ids = sorted({*ids, *controls})

    def _find_replacements(self) -> dict[int, list[int]]:
        """Returns the ids that replace each piece under the digit-comma rule."""
        replacements = {}
        for i, piece in enumerate(self._vocabulary):
            if len(piece) < 2 or piece[-1] != "," or not piece[-2].isdigit():
                continue
            body = piece[:-1].replace(_SPACE, "")
            new = [*self._processor.encode(body, out_type=str), ","]
            if piece[0] != _SPACE and new[0].startswith(_SPACE):
                new[:1] = [new[0][1:]] if len(new[0]) > 1 else []
            ids = [self.token_to_id(token) for token in new]
            if self.unk_id not in ids:
                replacements[i] = ids
        return replacements

    def _replace_flat(self, ids, splits):
        """Applies the digit-comma rule to the result of `encode_batch_flat`."""
        hits = np.flatnonzero(self._is_replaced[ids])
        if not hits.size:
            return ids, splits
        new = [self.replacements[i] for i in ids[hits].tolist()]
        counts = np.ones(len(ids), np.int64)
        counts[hits] = [len(row) for row in new]
        starts = np.concatenate([[0], np.cumsum(counts)])
        result = np.repeat(ids, counts)
        for start, row in zip(starts[hits].tolist(), new, strict=True):
            result[start : start + len(row)] = row
        return result, starts[splits]

    def _encode_with_special(self, text: str, allowed: Sequence[str]) -> list[int]:
        ids = []
        for k, part in enumerate(self._split_special(text, allowed)):
            if k % 2:
                ids.append(part)
            elif k and part[:1] and not part[0].isspace():
                ids += self._continue_word(self.encode(part))
            else:
                ids += self.encode(part)
        return ids

    def _continue_word(self, ids: list[int]) -> list[int]:
        """Removes the `▁` that SentencePiece puts before every text."""
        new = self._continuation(ids[0]) if ids else -1
        return ids[1:] if new < 0 else [new, *ids[1:]]

    def _continuation(self, token_id: int) -> int:
        """Returns the id without its `▁`; -1 if nothing remains of it."""
        token = self._vocabulary[token_id]
        if token == _SPACE:
            return -1
        new = self.token_to_id(token[1:]) if token.startswith(_SPACE) else self.unk_id
        return token_id if new == self.unk_id else new


def _load(model: bytes, name: str) -> sentencepiece.SentencePieceProcessor:
    sentencepiece_file.check(model, name)
    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(model)
    except RuntimeError as e:
        raise DataError(
            f"{name}: not a SentencePiece model ({len(model)} bytes): {e}"
        ) from None
    return processor
