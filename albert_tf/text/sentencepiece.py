"""ALBERT's tokenizer: text normalization, SentencePiece, digit-comma rule.

Legend: `V` vocabulary, `B` strings.

The Python path requires only the sentencepiece package. TensorFlow is imported when the
in-graph path (`tokenizer(tensor)`, `tokenizer.graph`) is first used.
"""

import functools
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import sentencepiece
from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2

from albert_tf.errors import DataError, require
from albert_tf.storage import files
from albert_tf.text import offsets
from albert_tf.text.normalization import normalize_text
from albert_tf.text.tokenizer import Tokenizer

_SPACE = "▁"
# Letters and punctuation that continue a word (`_is_start_piece_sp` of the original).
_PUNCTUATION = '!"#$%&"()*+,-./:;?@[\\]^_`{|}~'
_CONTINUES_WORD = frozenset("abcdefghijklmnopqrstuvwxyz" + _PUNCTUATION)

# Sizes of arrays in SentencePiece (`kMaxTrieResultsSize`, `kResultSize`), and its limit
# for a piece since 0.2.2 (`kMaxPieceSize`).
_MAX_RULES, _MAX_SYMBOLS, _MAX_PIECE = 32, 64, 7_999
# Bytes of a rule and of its replacement; the longest of NFKC have 12 and 33.
_MAX_BYTES = 255


# A line of the vocabulary list that SentencePiece writes next to a model.
_PIECE_LINE = re.compile(r"^(▁|[^\t\n]+\t-?\d)", re.MULTILINE)


class AlbertTokenizer(Tokenizer):
    """Turns text into the same ids as the original's `FullTokenizer`.

    Text goes through `normalize_text` (white space, NFKD, accents, case), SentencePiece
    and the digit-comma rule: a piece that ends in a digit and a comma (`▁1990,`) is
    split again before the comma. Special tokens written in the text (`[CLS]`) are plain
    text. No string raises an error or is cut short; bytes that are not UTF-8 count as
    spaces.

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
        added_tokens: sequence of dict. Tokens that are found in text before it is
            tokenized, as the entries of `added_tokens` in a `tokenizer.json`.

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

    Example:
        >>> import albert_tf
        >>> tokenizer = albert_tf.AlbertTokenizer("demo_output/spiece.model")
        >>> ids = tokenizer.encode("Returns the Axes.")
        >>> tokenizer.decode(ids)
        'returns the axes.'
        >>> tokenizer.decode([tokenizer.mask_id], skip_special=False)
        '[MASK]'
    """

    file_name = "spiece.model"
    options = ("do_lower_case", "keep_accents", "digit_comma_rule", "added_tokens")
    collapses_white_space = True
    _special_names = (("<pad>",), ("<unk>",), ("[CLS]",), ("[SEP]",), ("[MASK]",))
    _separator = " "

    def __init__(
        self,
        model: str | os.PathLike | bytes,
        do_lower_case: bool = True,
        *,
        keep_accents: bool = False,
        digit_comma_rule: bool = True,
        added_tokens: Sequence[Mapping[str, Any]] = (),
    ):
        name = "SentencePiece model" if isinstance(model, bytes) else os.fspath(model)
        super().__init__(model if isinstance(model, bytes) else files.read_bytes(model))
        self._library, pieces, controls = _load(self.model, name)
        what = f"{name}: not an ALBERT vocabulary"
        self._set_vocabulary(pieces, controls, what, added_tokens)
        self._controls.discard(self.unk_id)
        self.do_lower_case = do_lower_case
        self.keep_accents = keep_accents
        self.digit_comma_rule = digit_comma_rule
        self.replacements = self._find_replacements() if digit_comma_rule else {}
        self._is_replaced = np.zeros(self.vocab_size, np.bool_)
        self._is_replaced[list(self.replacements)] = True

    def encode(self, text: str | bytes) -> list[int]:
        if self._added:
            return super().encode(text)
        # Encoding one text directly is four times as fast as a batch of one.
        ids = self._library.encode(self.normalize(text))
        return [new for old in ids for new in self.replacements.get(old, (old,))]

    def _encode_between(self, part: str, is_first: bool, is_last: bool) -> list[int]:
        """See the base class; text right after a mask continues the word."""
        # `[MASK].` becomes `[MASK]` and `.`, not `▁` and `.`.
        ids = self.encode(part)
        if is_first or not ids or part[0].isspace():
            return ids
        new = self.continuation(ids[0])
        return ids[1:] if new < 0 else [new, *ids[1:]]

    def _encode_with_offsets(
        self, text: str
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        ids, spans = offsets.piece_spans(
            self._library, self.normalize(text), self.replacements
        )
        source = offsets.source_map(text, self.do_lower_case, self.keep_accents)
        begins = ids.size and self._vocabulary[ids[0]].startswith(_SPACE)
        return ids.astype(np.int32), *offsets.raw_spans(spans, source, bool(begins))

    def encode_batch_flat(
        self, texts: Iterable[str | bytes]
    ) -> tuple[np.ndarray, np.ndarray]:
        return self._replace_flat(*super().encode_batch_flat(texts))

    def _encode_rows(self, texts: Iterable[str | bytes]) -> list[list[int]]:
        normalized = [self.normalize(text) for text in texts]
        return self._library.encode(normalized, num_threads=self.num_threads)

    def normalize(self, text: str | bytes) -> str:
        """Returns the text to give to SentencePiece."""
        return normalize_text(text, self.do_lower_case, self.keep_accents)

    def tokens(self, text: str | bytes) -> list[str]:
        """Returns the pieces of a text; an unknown piece is shown as written."""
        if self._added:
            return super().tokens(text)
        text = self.normalize(text)
        ids = self._library.encode(text)
        surfaces = self._library.encode(text, out_type=str)
        pieces = []
        for i, surface in zip(ids, surfaces, strict=True):
            new = self.replacements.get(i)
            pieces += [surface] if new is None else map(self.id_to_token, new)
        return pieces

    def id_to_text(self, token_id: int) -> str:
        return self.id_to_token(token_id).replace(_SPACE, "")

    @functools.cached_property
    def graph(self):
        from albert_tf.text.sentencepiece_graph import GraphTokenizer

        return GraphTokenizer(self)

    @property
    def graph_offsets(self):
        self._check_plain()
        from albert_tf.text.offsets_graph import GraphOffsets

        return GraphOffsets(self)

    def _starts_word(self, piece: str) -> bool:
        """Returns whether a piece starts a word, like `_is_start_piece_sp`."""
        # It does if it begins with `▁` or `<`, is a single punctuation mark, or has a
        # character that is neither an English letter nor in the original's punctuation
        # (digits, `'`, other scripts). So `**` continues a word.
        if piece.startswith((_SPACE, "<")) or piece in _PUNCTUATION:
            return True
        return not all(char.lower() in _CONTINUES_WORD for char in piece)

    def _find_replacements(self) -> dict[int, list[int]]:
        """Returns the ids that replace each piece under the digit-comma rule."""
        replacements = {}
        for i, piece in enumerate(self._vocabulary[: self.model_size]):
            if len(piece) < 2 or piece[-1] != "," or not piece[-2].isdigit():
                continue
            body = piece[:-1].replace(_SPACE, "")
            new = [*self._library.encode(body, out_type=str), ","]
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

    def continuation(self, token_id: int) -> int:
        """Returns the id of the token without its `▁`; -1 if nothing remains."""
        token = self._vocabulary[token_id]
        if token == _SPACE:
            return -1
        new = self.token_to_id(token[1:]) if token.startswith(_SPACE) else self.unk_id
        return token_id if new == self.unk_id else new


def _load(model: bytes, name: str) -> tuple:
    check(model, name)
    try:
        return _open(model)
    except RuntimeError as e:
        raise DataError(
            f"{name}: not a SentencePiece model ({len(model)} bytes): {e}"
        ) from None


# A run opens the same model ten times, and each takes a third of a second.
@functools.lru_cache(maxsize=2)
def _open(model: bytes) -> tuple:
    """Returns the tokenizer of a model, its pieces and the ids of control symbols."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    pieces = [processor.id_to_piece(i) for i in range(len(processor))]
    return processor, pieces, [*filter(processor.is_control, range(len(pieces)))]


def check(model: bytes, name: str) -> None:
    """Checks that SentencePiece's own code can read a model safely.

    SentencePiece up to 0.2.1 and TensorFlow Text trust a model: a very long piece, or a
    character map that points beyond its end, crashes the process, and thus a server.
    Raises `DataError` if the model is damaged, a piece or score is invalid, or a
    character map leaves its bounds.
    """
    try:
        _check(model)
    except (DecodeError, ValueError) as e:
        rule = f"{name}: is the list of a model's pieces; give the model, a file .model"
        require(not _is_list(model), rule, error=DataError)
        reason = "text that is not UTF-8" if isinstance(e, UnicodeDecodeError) else e
        raise DataError(
            f"{name}: not a SentencePiece model ({len(model)} bytes): {reason}"
        ) from None


def _is_list(data: bytes) -> bool:
    """Returns whether a file is a list of pieces, with or without their scores."""
    try:
        return bool(_PIECE_LINE.search(data.decode()))
    except UnicodeDecodeError:
        return False


@functools.lru_cache(maxsize=2)
def _check(model: bytes) -> None:
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    symbols, num_unknown = [], 0
    for one in proto.pieces:
        piece = _text(one.piece).encode()
        _at_most("bytes of a piece", len(piece), _MAX_PIECE)
        if not piece or 0 in piece:
            raise ValueError(f"a piece is empty or contains NUL: {piece[:20]!r}")
        if not math.isfinite(one.score):
            raise ValueError(f"the score of {one.piece[:20]} is {one.score}")
        num_unknown += one.type == one.UNKNOWN
        if one.type == one.USER_DEFINED:
            symbols.append(piece)
    if num_unknown != 1:
        raise ValueError(f"expected one piece for the unknown, found {num_unknown}")
    _text(proto.trainer_spec.unk_surface)
    for spec in (proto.normalizer_spec, proto.denormalizer_spec):
        if spec.precompiled_charsmap:
            _check_charsmap(spec.precompiled_charsmap)
    nested = []
    for symbol in sorted(symbols):
        while nested and not symbol.startswith(nested[-1]):
            nested.pop()
        nested.append(symbol)
        _at_most("user-defined pieces that begin alike", len(nested), _MAX_SYMBOLS)


def _text(value: str | bytes) -> str:
    """Returns a text field of a message, which is bytes if it is not UTF-8."""
    return value if isinstance(value, str) else value.decode()


def _check_charsmap(charsmap: bytes) -> None:
    """Follows every path through the double array of a character map."""
    # The format is Darts-clone's: a unit has a label, an offset to its children, and a
    # bit that says whether a rule ends there; the rule's value is the offset of its
    # replacement, which ends in NUL.
    size = int.from_bytes(charsmap[:4], "little")
    replacements = np.frombuffer(charsmap[4 + size :], np.uint8)
    if not size or size % 1024 or not replacements.size or replacements[-1]:
        raise ValueError("the sizes in its character map do not fit")
    replacements.tobytes().decode()
    nuls = np.flatnonzero(replacements == 0)
    units = np.frombuffer(charsmap[4 : 4 + size], "<u4").astype(np.int64)
    at = np.arange(units.size)
    # Each unit has exactly one parent and at most one child offset.
    parents = np.where(units >> 31, -1, at ^ (units & 0xFF))
    nodes = at ^ (units >> 10 << ((units & 0x200) >> 6))
    ends = (units >> 8 & 1).astype(np.bool_)
    reached, rules = nodes[:1], np.zeros(1, np.int64)
    _at_most("the character map's offset", nodes[0], units.size - 1)
    for _ in range(_MAX_BYTES + 1):
        # Largest number of rules that end on a path to each node; -1 if unreachable.
        met = np.full(units.size, -1)
        np.maximum.at(met, reached, rules)
        found = np.flatnonzero((parents >= 0) & (met[parents] >= 0))
        if not found.size:
            return
        reached, rules = nodes[found], met[parents[found]] + ends[found]
        _at_most("the character map's offset", reached.max(), units.size - 1)
        _at_most("rules that begin alike", rules.max(), _MAX_RULES)
        values = units[reached[ends[found]]] & 0x7FFFFFFF
        if values.size:
            _at_most("place of a replacement", values.max(), replacements.size - 1)
            lengths = nuls[np.searchsorted(nuls, values)] - values
            _at_most("bytes of a replacement", lengths.max(), _MAX_BYTES)
            if np.any(replacements[values] >> 6 == 0b10):
                raise ValueError("a replacement begins within a character")
    raise ValueError(f"a rule of its character map has more than {_MAX_BYTES} bytes")


def _at_most(what: str, value: int, limit: int) -> None:
    if value > limit:
        raise ValueError(f"{what}: expected at most {limit}, received {value}")
