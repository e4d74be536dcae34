"""Reads and writes TFRecord files; an index gives access to any record.

A record is `length: uint64, masked crc32c of it: uint32, payload, masked crc32c of the
payload: uint32`, little-endian. Next to each shard `x.tfrecord` is `x.tfrecord.idx`:
the byte offset of each record as little-endian uint64, without a header. A file without
this sidecar, such as the original's, is indexed by walking over its length headers.

Payloads are `tf.train.Example` messages. TensorFlow's class takes about 20 microseconds
per example of 128 tokens and needs TensorFlow in every worker. Here a whole batch
becomes bytes with a few NumPy calls. The bytes equal deterministic protobuf
serialization (map entries sorted by name), so equal examples are equal bytes on every
machine.
"""

import functools
import hashlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import google_crc32c
import numpy as np

from albert_tf.data.records import shards as shard_files
from albert_tf.data.records.open_files import OpenFiles
from albert_tf.errors import DataError, require
from albert_tf.storage import files, protobuf, streams

_HEADER = struct.Struct("<QI")
_FOOTER = struct.Struct("<I")
_FRAMING = _HEADER.size + _FOOTER.size
_MASK_DELTA = 0xA282EAD8
_NUM_DIGESTED = 16
_THREADS = 16
_INT64_LIST = protobuf.tag(3)  # of Feature
_FLOAT_LIST = protobuf.tag(2)  # of Feature
_VALUES = protobuf.tag(1)  # of Int64List and FloatList, packed
_ENTRY = protobuf.tag(1)  # of Features, and of Example


# A cached varint: lengths of small messages are very frequent.
_size = functools.lru_cache(1 << 14)(protobuf.varint)


def masked_crc(data: bytes) -> int:
    """Returns the checksum that TFRecord files use: crc32c, rotated and shifted."""
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def frame(payload: bytes) -> bytes:
    """Returns a payload framed as a record of a file."""
    length = struct.pack("<Q", len(payload))
    crcs = [_FOOTER.pack(masked_crc(part)) for part in (length, payload)]
    return b"".join((length, crcs[0], payload, crcs[1]))


def index_path(path: str) -> str:
    """Returns the path of the sidecar index of a shard."""
    return f"{path}.idx"


def shard_name(prefix: str, shard: int, num_shards: int) -> str:
    """Returns a path such as `<prefix>-00003-of-00010.tfrecord`."""
    return f"{prefix}-{shard:05d}-of-{num_shards:05d}.tfrecord"


def write_shard(path: str, payloads: Iterable[bytes]) -> int:
    """Writes one shard and its index, each completely or not at all.

    The index is renamed first: a shard under its final name is always complete. Returns
    the number of records.
    """
    offsets, at = [], 0
    with streams.write_atomically(path) as file:
        for payload in payloads:
            offsets.append(at)
            framed = frame(payload)
            file.write(framed)
            at += len(framed)
        with streams.write_atomically(index_path(path)) as index:
            index.write(np.asarray(offsets, "<u8").tobytes())
    return len(offsets)


class RecordSet:
    """The records of all shards of a data set, readable in any order.

    Record k counts through the shards in the order of their names. Raises `DataError`
    if no file matches, or a file is not a complete TFRecord file.

    Args:
        pattern: str or Sequence. A path, a glob, a comma-separated list of them, or a
            sequence of paths; also a prefix as given to `create_pretraining_data`
            (there is no file of that name, but `<prefix>-*-of-*.tfrecord`).
    """

    def __init__(self, pattern: str | Sequence[str]):
        self.paths = shard_files.find_shards(pattern)
        self._borders = load_borders(self.paths)
        counts = [len(borders) - 1 for borders in self._borders]
        self._starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        sizes = [int(borders[-1]) for borders in self._borders]
        self._files = OpenFiles(self.paths, sizes)
        if not len(self):
            raise DataError(f"{self.paths[0]}: the record files hold no records")

    def __len__(self) -> int:
        return int(self._starts[-1])

    def read(self, indices: Iterable[int] | np.ndarray) -> list[bytes]:
        """Returns serialized examples by index in the whole set, in any order."""
        indices = np.asarray(indices, np.int64).reshape(-1)
        wrong = indices[(indices < 0) | (indices >= len(self))]
        expected = f"record number must be in [0, {len(self)})"
        require(not len(wrong), expected, *wrong[:1].tolist())
        shards = np.searchsorted(self._starts, indices, side="right") - 1
        numbers = indices - self._starts[shards]
        self._files.expect(shards.tolist())
        pairs = zip(shards.tolist(), numbers.tolist(), strict=True)
        return [self._read_one(shard, number) for shard, number in pairs]

    def __getitem__(self, index: int) -> bytes:
        return self.read([index])[0]

    def counts(self) -> dict[str, int]:
        """Returns the number of records by path."""
        sizes = np.diff(self._starts).tolist()
        return dict(zip(self.paths, sizes, strict=True))

    def digest(self) -> str:
        """Returns a sha256 that distinguishes data sets without reading all of them.

        It covers the place of every record in its shard and the content of some
        records, but no path: a copy has the same digest.
        """
        sha256 = hashlib.sha256()
        for borders in self._borders:
            offsets = borders[:-1]
            sha256.update(np.asarray([len(offsets), *offsets], "<u8").tobytes())
        sample = np.linspace(0, len(self) - 1, _NUM_DIGESTED).astype(np.int64)
        for payload in self.read(np.unique(sample)):
            sha256.update(hashlib.sha256(payload).digest())
        return sha256.hexdigest()

    def locate(self, index: int) -> tuple[str, int]:
        """Returns the file of record `index` and its number there, for messages."""
        shard = int(np.searchsorted(self._starts, index, side="right")) - 1
        return self.paths[shard], int(index - self._starts[shard])

    def _read_one(self, shard: int, number: int) -> bytes:
        begin, end = self._borders[shard][number : number + 2].tolist()
        record = self._files.read(shard, begin, end - begin)
        where = f"{self.paths[shard]}: record {number} at byte {begin}"
        cut = f"{where}: the file ends inside the record"
        require(len(record) == end - begin, cut, error=DataError)
        payload = record[_HEADER.size : -_FOOTER.size]
        length, crc = _HEADER.unpack_from(record)[0], _FOOTER.unpack(record[-4:])[0]
        if length != len(payload) or crc != masked_crc(payload):
            reason = "checksum does not match, the file or its index is damaged"
            raise DataError(f"{where}: {reason}")
        return payload


def load_borders(paths: Sequence[str]) -> list[np.ndarray]:
    """Returns `shard_borders` of all shards; remote ones are read concurrently."""
    if not any(map(files.is_remote, paths)):
        return [shard_borders(path) for path in paths]
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(shard_borders, paths))


def shard_borders(path: str) -> np.ndarray:
    """Returns the byte offset of each record and the size of the file, `[records + 1]`.

    The offsets are int64, from the sidecar. A sidecar that does not describe the file
    (its last record does not end where the file ends) is ignored, and the file is
    scanned. Raises `DataError` if the file is missing, truncated, or not a TFRecord
    file.
    """
    sidecar = index_path(path)
    require(files.exists(path), f"{path}: no such file", error=DataError)
    size = streams.status(path).size
    data = files.read_bytes(sidecar) if files.exists(sidecar) else b""
    offsets = np.frombuffer(data[: len(data) // 8 * 8], "<u8").astype(np.int64)
    if len(data) % 8 == 0 and _describes(path, offsets, size):
        return np.append(offsets, size)
    scanned = scan(path, size)
    demand = f"{path}: contains only {len(scanned)} of the {len(offsets)} records that "
    demand += "its index lists: the file is truncated (if that is intended, remove "
    require(len(scanned) >= len(offsets), f"{demand}{sidecar})", error=DataError)
    return np.append(scanned, size)


def _describes(path: str, offsets: np.ndarray, size: int) -> bool:
    if not len(offsets):
        return size == 0
    last = int(offsets[-1])
    if offsets[0] != 0 or np.any(np.diff(offsets) < _FRAMING) or last + 12 > size:
        return False
    with files.reading(path) as file:
        file.seek(last)
        length = struct.unpack("<Q", file.read(8))[0]
    return last + _FRAMING + length == size


def scan(path: str, size: int) -> np.ndarray:
    """Returns the offset of each record by walking over the length headers."""
    at, offsets = 0, []
    with files.reading(path) as file:
        while at < size:
            where = f"{path}: record {len(offsets)} at byte {at}"
            file.seek(at)
            head = file.read(_HEADER.size)
            if len(head) < _HEADER.size:
                raise DataError(f"{where}: the file ends inside the record")
            length, crc = _HEADER.unpack(head)
            if crc != masked_crc(head[:8]):
                raise DataError(
                    f"{where}: checksum of the length does not match, "
                    "this is not a TFRecord file or it is damaged"
                )
            if at + _FRAMING + length > size:
                raise DataError(f"{where}: the file ends inside the record")
            offsets.append(at)
            at += _FRAMING + length
    return np.asarray(offsets, np.int64)


def pack_floats(values: np.ndarray, lengths: np.ndarray) -> list[bytes]:
    """Encodes rows of floats, as `pack_varints` does, in little-endian float32."""
    packed, ends = values.astype("<f4").tobytes(), 4 * np.cumsum(lengths)
    starts = np.concatenate([[0], ends[:-1]]).tolist()
    return [packed[a:b] for a, b in zip(starts, ends.tolist(), strict=True)]


def pack_varints(values: np.ndarray, lengths: np.ndarray) -> list[bytes]:
    """Encodes rows of non-negative integers as packed varints.

    `values` is int `[sum(lengths)]`, all rows one after the other, and `lengths` int
    `[rows]`. Returns the packed bytes of each row.
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
    """Returns the key of a `Features.feature` entry and the tag of its value."""
    return protobuf.delimited(1, name.encode()) + protobuf.tag(2)


def _message(entries: Sequence[tuple[bytes, bytes, bytes]]) -> bytes:
    """Serializes a `tf.train.Example` of sorted (`_key`, tag, packed values)."""
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
    """Serializes examples with float or integer values, padded with zeros to `widths`.

    A column has the values of all rows and the length of each row.
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
