"""Checks a SentencePiece model before SentencePiece's own code reads it.

SentencePiece up to 0.2.1, and TensorFlow Text, trust a model: one with a very long
piece, or a character map that points beyond its end, ends the process, and so a server.
"""

import math

import numpy as np
from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2

from albert_tf.errors import DataError

# Sizes of arrays in SentencePiece (`kMaxTrieResultsSize`, `kResultSize`), and its limit
# for a piece since 0.2.2 (`kMaxPieceSize`).
_MAX_RULES, _MAX_SYMBOLS, _MAX_PIECE = 32, 64, 7_999
# Of a rule and its replacement. The longest of NFKC have 12 and 33 bytes.
_MAX_BYTES = 255


def check(model: bytes, name: str) -> None:
    """Refuses what SentencePiece cannot read safely.

    Args:
        model: bytes. A serialized `ModelProto`.
        name: str. What contains it, for the error.

    Raises:
        DataError: If the model is damaged, a piece or score cannot be used, or a
            character map leaves its bounds.
    """
    try:
        _check(sentencepiece_model_pb2.ModelProto.FromString(model))
    except (DecodeError, ValueError) as e:
        reason = "text that is not UTF-8" if isinstance(e, UnicodeDecodeError) else e
        raise DataError(
            f"{name}: not a SentencePiece model ({len(model)} bytes): {reason}"
        ) from None


def _check(proto: sentencepiece_model_pb2.ModelProto) -> None:
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
    """Returns a text of a message, which is bytes if they are not UTF-8."""
    return value if isinstance(value, str) else value.decode()


def _check_charsmap(charsmap: bytes) -> None:
    """Follows every way through the double array of a character map.

    It is the one of Darts-clone: a unit has a label, an offset to its children, and a
    bit that says whether a rule ends there; the rule's value is the place of its
    replacement, which ends in NUL.
    """
    size = int.from_bytes(charsmap[:4], "little")
    replacements = np.frombuffer(charsmap[4 + size :], np.uint8)
    if not size or size % 1024 or not replacements.size or replacements[-1]:
        raise ValueError("the sizes in its character map do not fit")
    replacements.tobytes().decode()
    nuls = np.flatnonzero(replacements == 0)
    units = np.frombuffer(charsmap[4 : 4 + size], "<u4").astype(np.int64)
    at = np.arange(units.size)
    # A unit is found from one node only, and leads to one.
    parents = np.where(units >> 31, -1, at ^ (units & 0xFF))
    nodes = at ^ (units >> 10 << ((units & 0x200) >> 6))
    ends = (units >> 8 & 1).astype(np.bool_)
    reached, rules = nodes[:1], np.zeros(1, np.int64)
    _at_most("the character map's offset", nodes[0], units.size - 1)
    for _ in range(_MAX_BYTES + 1):
        # The most rules that end on a way to a node; -1 for no way.
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
