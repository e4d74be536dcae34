"""TFRecord files: framing, a sidecar index, and reading any record without a scan.

A record is `length: uint64, masked crc32c of it: uint32, payload, masked crc32c of the
payload: uint32`, little-endian. Beside each shard `x.tfrecord` lies `x.tfrecord.idx`:
the byte offset of each record as little-endian uint64, no header. A file without a
sidecar, such as the original's, is indexed by walking over its length headers.
"""

import mmap
import struct
from collections.abc import Iterable, Sequence

import google_crc32c
import numpy as np

from albert_tf.data.records import shards as shard_files
from albert_tf.data.records import tf_example
from albert_tf.errors import DataError, UsageError
from albert_tf.storage import files, streams

_HEADER = struct.Struct("<QI")
_FOOTER = struct.Struct("<I")
_FRAMING = _HEADER.size + _FOOTER.size
_MASK_DELTA = 0xA282EAD8


def masked_crc(data: bytes) -> int:
    """The checksum TFRecord files use: crc32c, rotated and shifted."""
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def frame(payload: bytes) -> bytes:
    """One record as it stands in the file."""
    length = struct.pack("<Q", len(payload))
    return b"".join(
        (
            length,
            _FOOTER.pack(masked_crc(length)),
            payload,
            _FOOTER.pack(masked_crc(payload)),
        )
    )


def index_path(path: str) -> str:
    """Where the sidecar index of a shard lies."""
    return f"{path}.idx"


def shard_name(prefix: str, shard: int, num_shards: int) -> str:
    """`<prefix>-00003-of-00010.tfrecord`."""
    return f"{prefix}-{shard:05d}-of-{num_shards:05d}.tfrecord"


def write_shard(path: str, payloads: Iterable[bytes]) -> int:
    """Writes one shard and its index, both complete or not at all.

    The index takes its name first: a shard under its final name is always whole.

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
        pattern: a path, a glob, a comma-separated list of them, or a sequence of
            paths. A prefix as given to `create_pretraining_data` (no file of that
            name, but `<prefix>-*-of-*.tfrecord`) is found too.
        verify: bool, check the checksum of each payload that is read.

    Raises:
        DataError: No file matches, or a file is no whole TFRecord file.
    """

    def __init__(self, pattern: str | Sequence[str], verify: bool = True):
        self.paths = shard_files.find_shards(pattern)
        self.verify = verify
        self._indexes = [load_index(path) for path in self.paths]
        counts = [len(index) for index in self._indexes]
        self._starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self._open: dict[int, mmap.mmap | object] = {}
        if not len(self):
            raise DataError(f"{self.paths[0]}: the record files hold no records")

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getstate__(self) -> dict:
        return self.__dict__ | {"_open": {}}

    def read(self, indices: Iterable[int] | np.ndarray) -> list[bytes]:
        """Reads records by their number in the whole set.

        Args:
            indices: int `[n]`, each in `[0, len(self))`, in any order.

        Returns:
            n serialized examples.
        """
        indices = np.asarray(indices, np.int64).reshape(-1)
        wrong = indices[(indices < 0) | (indices >= len(self))]
        if len(wrong):
            raise UsageError(
                f"record number must be in [0, {len(self)}), got {wrong[0]}"
            )
        shards = np.searchsorted(self._starts, indices, side="right") - 1
        numbers = indices - self._starts[shards]
        pairs = zip(shards.tolist(), numbers.tolist(), strict=True)
        return [self._read_one(shard, number) for shard, number in pairs]

    def __getitem__(self, index: int) -> bytes:
        return self.read([index])[0]

    def example(self, index: int) -> dict[str, np.ndarray]:
        """Reads and parses one record, without TensorFlow."""
        shard = int(np.searchsorted(self._starts, index, side="right")) - 1
        try:
            return tf_example.parse(self[index])
        except DataError as error:
            number = index - self._starts[shard]
            raise DataError(f"{self.paths[shard]}: record {number}: {error}") from None

    def counts(self) -> dict[str, int]:
        """Path -> the number of its records."""
        sizes = np.diff(self._starts).tolist()
        return dict(zip(self.paths, sizes, strict=True))

    def locate(self, index: int) -> tuple[str, int]:
        """The file and the number within it of record `index`, for messages."""
        shard = int(np.searchsorted(self._starts, index, side="right")) - 1
        return self.paths[shard], int(index - self._starts[shard])

    def _read_one(self, shard: int, number: int) -> bytes:
        offset = int(self._indexes[shard][number])
        where = f"{self.paths[shard]}: record {number} at byte {offset}"
        source = self._source(shard)
        head = _slice(source, offset, _HEADER.size)
        if len(head) < _HEADER.size:
            raise DataError(f"{where}: the file ends inside the record")
        length, _ = _HEADER.unpack(head)
        body = _slice(source, offset + _HEADER.size, length + _FOOTER.size)
        if len(body) < length + _FOOTER.size:
            raise DataError(f"{where}: the file ends inside the record")
        payload = body[:length]
        crc = _FOOTER.unpack_from(body, length)[0]
        if self.verify and crc != masked_crc(payload):
            raise DataError(f"{where}: checksum does not match, the file is damaged")
        return payload

    def _source(self, shard: int):
        if shard not in self._open:
            path = self.paths[shard]
            try:
                if files.is_remote(path):
                    self._open[shard] = files.open_binary(path)
                else:
                    with open(path, "rb") as file:
                        self._open[shard] = mmap.mmap(
                            file.fileno(), 0, access=mmap.ACCESS_READ
                        )
            except (OSError, ValueError) as error:
                raise DataError(f"{path}: cannot be read: {error}") from error
        return self._open[shard]


def _slice(source, offset: int, count: int) -> bytes:
    if isinstance(source, mmap.mmap):
        return source[offset : offset + count]
    source.seek(offset)
    return source.read(count)


def load_index(path: str) -> np.ndarray:
    """The byte offset of each record of a shard, from the sidecar or by a scan.

    A sidecar that does not describe the file (its last record does not end where the
    file ends) is ignored in favour of a scan.

    Raises:
        DataError: The file is missing, cut off, or no TFRecord file.
    """
    sidecar = index_path(path)
    if not files.exists(path):
        raise DataError(f"{path}: no such file")
    size = streams.size(path)
    offsets = None
    if files.exists(sidecar):
        with files.open_binary(sidecar) as file:
            data = file.read()
        offsets = np.frombuffer(data[: len(data) // 8 * 8], "<u8").astype(np.int64)
        if len(data) % 8 == 0 and _describes(path, offsets, size):
            return offsets
    scanned = scan(path)
    if offsets is not None and len(scanned) < len(offsets):
        raise DataError(
            f"{path}: holds {len(scanned)} records, its index {len(offsets)}: the file "
            f"is cut off (remove {sidecar} if the file is meant to be so)"
        )
    return scanned


def _describes(path: str, offsets: np.ndarray, size: int) -> bool:
    if not len(offsets):
        return size == 0
    last = int(offsets[-1])
    if offsets[0] != 0 or np.any(np.diff(offsets) < _FRAMING) or last + 12 > size:
        return False
    with files.open_binary(path) as file:
        file.seek(last)
        length = struct.unpack("<Q", file.read(8))[0]
    return last + _FRAMING + length == size


def scan(path: str) -> np.ndarray:
    """Finds the offset of each record by walking over the length headers.

    Raises:
        DataError: Naming the record and its byte offset where the walk fails.
    """
    size, at, offsets = streams.size(path), 0, []
    with files.open_binary(path) as file:
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
                    "this is no TFRecord file or it is damaged"
                )
            if at + _FRAMING + length > size:
                raise DataError(f"{where}: the file ends inside the record")
            offsets.append(at)
            at += _FRAMING + length
    return np.asarray(offsets, np.int64)
