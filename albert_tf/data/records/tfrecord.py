"""Reads and writes TFRecord files; an index gives access to any record.

A record is `length: uint64, masked crc32c of it: uint32, payload, masked crc32c of the
payload: uint32`, little-endian. Next to each shard `x.tfrecord` is `x.tfrecord.idx`:
the byte offset of each record as little-endian uint64, without a header. A file without
this sidecar, such as the original's, is indexed by walking over its length headers.
"""

import hashlib
import struct
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import google_crc32c
import numpy as np

from albert_tf import features
from albert_tf.data.records import shards as shard_files
from albert_tf.data.records import tf_example
from albert_tf.data.records.open_files import OpenFiles
from albert_tf.errors import DataError, require
from albert_tf.storage import files, streams

_MASKS = (
    features.MASKED_LM_POSITIONS,
    features.MASKED_LM_IDS,
    features.MASKED_LM_WEIGHTS,
)
_DYNAMIC = (features.INPUT_IDS, features.SEGMENT_IDS, features.TOKEN_BOUNDARY)
_STATIC = (
    *(features.INPUT_IDS, features.SEGMENT_IDS, features.INPUT_MASK),
    *(*_MASKS, features.NEXT_SENTENCE_LABELS),
)
_HEADER = struct.Struct("<QI")
_FOOTER = struct.Struct("<I")
_FRAMING = _HEADER.size + _FOOTER.size
_MASK_DELTA = 0xA282EAD8
_NUM_DIGESTED = 16
_THREADS = 16


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

    The index is renamed first: a shard under its final name is always complete.

    Returns:
        The number of records.
    """
    offsets, at = [], 0
    with streams.write_atomically(path) as file:
        for payload in payloads:
            offsets.append(at)
            framed = frame(payload)
            file.write(framed)
            at += len(framed)
        write_index(path, offsets)
    return len(offsets)


def write_index(path: str, offsets: Sequence[int] | np.ndarray) -> None:
    """Writes the sidecar of the shard `path`."""
    with streams.write_atomically(index_path(path)) as file:
        file.write(np.asarray(offsets, "<u8").tobytes())


class RecordSet:
    """The records of all shards of a data set, readable in any order.

    Record k counts through the shards in the order of their names.

    Args:
        pattern: str or Sequence. A path, a glob, a comma-separated list of them, or a
            sequence of paths; also a prefix as given to `create_pretraining_data`
            (there is no file of that name, but `<prefix>-*-of-*.tfrecord`).

    Raises:
        DataError: If no file matches, or a file is not a complete TFRecord file.
    """

    def __init__(self, pattern: str | Sequence[str]):
        self.paths = shard_files.find_shards(pattern)
        self._indexes = load_indexes(self.paths)
        counts = [len(index) for index in self._indexes]
        self._starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self._files = OpenFiles(self.paths)
        if not len(self):
            raise DataError(f"{self.paths[0]}: the record files hold no records")

    def __len__(self) -> int:
        return int(self._starts[-1])

    def read(self, indices: Iterable[int] | np.ndarray) -> list[bytes]:
        """Reads records by their number in the whole set.

        Args:
            indices: int `[n]`. Numbers in `[0, len(self))`, in any order.

        Returns:
            n serialized examples.
        """
        indices = np.asarray(indices, np.int64).reshape(-1)
        wrong = indices[(indices < 0) | (indices >= len(self))]
        rule = f"record number must be in [0, {len(self)})"
        require(not len(wrong), rule, *wrong[:1].tolist())
        shards = np.searchsorted(self._starts, indices, side="right") - 1
        numbers = indices - self._starts[shards]
        self._files.expect(shards.tolist())
        pairs = zip(shards.tolist(), numbers.tolist(), strict=True)
        return [self._read_one(shard, number) for shard, number in pairs]

    def __getitem__(self, index: int) -> bytes:
        return self.read([index])[0]

    def example(self, index: int) -> dict[str, np.ndarray]:
        """Reads and parses one record, without TensorFlow."""
        try:
            return tf_example.parse(self[index])
        except DataError as error:
            path, number = self.locate(index)
            raise DataError(f"{path}: record {number}: {error}") from None

    def describe(self) -> dict[str, int | str | None]:
        """Returns the form of a data set, judged by its first record.

        Returns:
            `form`: "dynamic" (tokens without masks, real length) or "static" (the
            original's features of fixed length); `sequence_length` S and
            `num_predictions` P of a static set, else None.

        Raises:
            DataError: If the first record is neither.
        """
        example, where = self.example(0), self.paths[0]
        is_static = any(name in example for name in _MASKS)
        kind = "masked record" if is_static else "record without masks"
        needed = _STATIC if is_static else _DYNAMIC
        for name in needed:
            if name not in example:
                raise DataError(
                    f"{where}: a {kind} needs the feature {name!r}, this one has "
                    f"{', '.join(sorted(example)) or 'none'}"
                )
        length = len(example[features.INPUT_IDS])
        predictions = len(example[_MASKS[0]]) if is_static else None
        expected = dict.fromkeys(needed, length) | dict.fromkeys(_MASKS, predictions)
        expected[features.NEXT_SENTENCE_LABELS] = 1
        sizes = {name: len(example[name]) for name in needed}
        wrong = {name: size for name, size in sizes.items() if size != expected[name]}
        rule = f"{where}: {features.INPUT_IDS} has {length} values, others {wrong}"
        require(not wrong, rule, error=DataError)
        return {
            "form": "static" if is_static else "dynamic",
            "sequence_length": length if is_static else None,
            "num_predictions": predictions,
        }

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
        for index in self._indexes:
            sha256.update(np.asarray([len(index), *index], "<u8").tobytes())
        sample = np.linspace(0, len(self) - 1, _NUM_DIGESTED).astype(np.int64)
        for payload in self.read(np.unique(sample)):
            sha256.update(hashlib.sha256(payload).digest())
        return sha256.hexdigest()

    def locate(self, index: int) -> tuple[str, int]:
        """Returns the file of record `index` and its number within, for messages."""
        shard = int(np.searchsorted(self._starts, index, side="right")) - 1
        return self.paths[shard], int(index - self._starts[shard])

    def _read_one(self, shard: int, number: int) -> bytes:
        offset = int(self._indexes[shard][number])
        where = f"{self.paths[shard]}: record {number} at byte {offset}"
        cut = f"{where}: the file ends inside the record"
        head, body = self._files.read(shard, offset, _HEADER.size, _body_size)
        require(body and len(body) == _body_size(head), cut, error=DataError)
        payload = body[: -_FOOTER.size]
        crc = _FOOTER.unpack_from(body, len(payload))[0]
        if crc != masked_crc(payload):
            raise DataError(f"{where}: checksum does not match, the file is damaged")
        return payload


def _body_size(head: bytes) -> int:
    """Returns how many bytes of a record follow its header; 0 if that is cut."""
    if len(head) < _HEADER.size:
        return 0
    return _HEADER.unpack(head)[0] + _FOOTER.size


def load_indexes(paths: Sequence[str]) -> list[np.ndarray]:
    """Returns `load_index` of each shard; remote ones are waited for together."""
    if not any(map(files.is_remote, paths)):
        return [load_index(path) for path in paths]
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(load_index, paths))


def load_index(path: str) -> np.ndarray:
    """Returns the byte offset of each record of a shard, from the sidecar or a scan.

    A sidecar that does not describe the file (its last record does not end where the
    file ends) is ignored.

    Raises:
        DataError: If the file is missing, truncated, or not a TFRecord file.
    """
    sidecar = index_path(path)
    if not files.exists(path):
        raise DataError(f"{path}: no such file")
    size = streams.size(path)
    offsets = None
    if files.exists(sidecar):
        data = files.read_bytes(sidecar)
        offsets = np.frombuffer(data[: len(data) // 8 * 8], "<u8").astype(np.int64)
        if len(data) % 8 == 0 and _describes(path, offsets, size):
            return offsets
    scanned = scan(path)
    if offsets is not None and len(scanned) < len(offsets):
        raise DataError(
            f"{path}: contains only {len(scanned)} of the {len(offsets)} records that "
            f"its index lists: the file is truncated (if that is intended, remove "
            f"{sidecar})"
        )
    return scanned


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


def scan(path: str) -> np.ndarray:
    """Returns the offset of each record by walking over the length headers.

    Raises:
        DataError: If the walk fails; names the record and its byte offset.
    """
    size, at, offsets = streams.size(path), 0, []
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
