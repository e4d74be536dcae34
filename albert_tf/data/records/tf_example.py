"""Writes `tf.train.Example` messages, many at a time.

TensorFlow's message class takes about 20 microseconds per example of 128 tokens and
needs TensorFlow in every worker. Here a whole batch becomes bytes with a few NumPy
calls. The bytes are those of deterministic protobuf serialization (map
entries sorted by name), so equal examples are equal bytes on every machine.
"""

import functools
from collections.abc import Mapping, Sequence

import numpy as np

from albert_tf.storage import protobuf

_INT64_LIST = protobuf.tag(3)  # of Feature
_FLOAT_LIST = protobuf.tag(2)  # of Feature
_VALUES = protobuf.tag(1)  # of Int64List and FloatList, packed
_ENTRY = protobuf.tag(1)  # of Features, and of Example


# A varint: lengths of small messages are very frequent.
_size = functools.lru_cache(1 << 14)(protobuf.varint)


def pack_floats(values: np.ndarray, lengths: np.ndarray) -> list[bytes]:
    """Encodes rows of floats, as `pack_varints` does, in little-endian float32."""
    packed, ends = values.astype("<f4").tobytes(), 4 * np.cumsum(lengths)
    starts = np.concatenate([[0], ends[:-1]]).tolist()
    return [packed[a:b] for a, b in zip(starts, ends.tolist(), strict=True)]


def pack_varints(values: np.ndarray, lengths: np.ndarray) -> list[bytes]:
    """Encodes rows of non-negative integers as packed varints.

    Args:
        values: int `[sum(lengths)]`. All rows, one after the other.
        lengths: int `[rows]`. Number of values of each row.

    Returns:
        The packed bytes of each row.
    """
    values = np.asarray(values)
    ends = np.cumsum(lengths)
    if not len(values) or values.max() < 0x80:
        packed, byte_ends = values.astype(np.uint8).tobytes(), ends
    else:
        groups = -(-int(values.max()).bit_length() // 7)
        octets = np.empty((len(values), groups), np.uint8)
        used = np.ones((len(values), groups), np.bool_)
        sizes = np.ones(len(values), np.uint8)
        for k in range(groups):
            octets[:, k] = values >> 7 * k & 0x7F
            if k + 1 < groups:
                more = values >= 1 << 7 * (k + 1)
                octets[:, k] |= more.view(np.uint8) << 7
                used[:, k + 1] = more
                sizes += more.view(np.uint8)
        packed = octets[used].tobytes()
        byte_ends = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])[ends]
    starts = np.concatenate([[0], byte_ends[:-1]]).tolist()
    return [packed[a:b] for a, b in zip(starts, byte_ends.tolist(), strict=True)]


def _key(name: str) -> bytes:
    """Returns the key of a `Features.feature` map entry and the tag of its value."""
    return protobuf.delimited(1, name.encode()) + protobuf.tag(2)


def _message(entries: Sequence[tuple[bytes, bytes, bytes]]) -> bytes:
    """Returns a serialized `tf.train.Example`.

    Args:
        entries: Sequence. Key (from `_key`), tag of the kind of list, and packed
            values; sorted by name.
    """
    parts, total = [], 0
    for key, kind, payload in entries:
        # From the inside out: packed values, list, feature, map entry.
        size = _size(len(payload))
        listed = 1 + len(size) + len(payload) if payload else 0
        list_size = _size(listed)
        feature = 1 + len(list_size) + listed
        feature_size = _size(feature)
        entry = len(key) + len(feature_size) + feature
        entry_size = _size(entry)
        total += 1 + len(entry_size) + entry
        parts += (_ENTRY, entry_size, key, feature_size, kind, list_size)
        if payload:
            parts += (_VALUES, size, payload)
    return b"".join((_ENTRY, _size(total), *parts))


def serialize_batch(
    columns: Mapping[str, tuple[np.ndarray, np.ndarray]],
    widths: Mapping[str, int] | None = None,
) -> list[bytes]:
    """Serializes many examples.

    Args:
        columns: dict. Feature name -> (values of all rows, length of each row). Float
            arrays become float lists, integer arrays int64 lists.
        widths: dict. Feature name -> number of values that each row is padded to with
            zeros.
    """
    names = sorted(columns)
    packed, kinds = [], []
    for name in names:
        values, lengths = columns[name]
        is_float = np.issubdtype(values.dtype, np.floating)
        kinds.append(_FLOAT_LIST if is_float else _INT64_LIST)
        rows = (pack_floats if is_float else pack_varints)(values, lengths)
        if width := (widths or {}).get(name):
            missing = (4 if is_float else 1) * (width - np.asarray(lengths))
            pairs = zip(rows, missing.tolist(), strict=True)
            rows = [row + bytes(zeros) for row, zeros in pairs]
        packed.append(rows)
    keys = [_key(name) for name in names]
    return [
        _message(list(zip(keys, kinds, row, strict=True)))
        for row in zip(*packed, strict=True)
    ]
