"""Writes and reads part files: the records of one block, kept until all are done.

A part is an npz file: for each split the joined bytes of the records and their sizes,
and `header`, JSON with the sums for the data card and a checksum of the block's text,
by which a resumed run checks that the part belongs to the same text.
"""

import functools
import io
import json
import pickle
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import google_crc32c
import numpy as np

from albert_tf.data.corpus.corpus import Corpus
from albert_tf.data.corpus.documents import RawDocument
from albert_tf.data.prepare import blocks
from albert_tf.data.prepare.blocks import SPLITS, RecordConfig
from albert_tf.errors import DataError
from albert_tf.storage import files


@dataclass
class Summary:
    """Sums over all parts.

    Attributes:
        splits: dict. Counts by split.
        part_sizes: dict. Number of records of each part, by split.
        lengths: int64 `[S + 1]`. Number of examples of each length.
        longest: tuple. See `blocks.Records`.
    """

    splits: dict[str, Counter]
    part_sizes: dict[str, list[int]]
    lengths: np.ndarray | int = 0
    longest: tuple[int, int, int] = (0, 0, 0)

    @property
    def counts(self) -> Counter:
        """Returns the counts of all splits."""
        return sum(self.splits.values(), Counter())


class Job(NamedTuple):
    """What all workers need; it reaches them through a file."""

    corpus: Corpus
    tokenizer: Any
    config: RecordConfig


@functools.lru_cache(maxsize=1)
def read_job(path: str) -> Job:
    """Returns the job in a file, whose name differs from that of any other job."""
    return pickle.loads(files.read_bytes(path))


def part_path(folder: str, group: int, index: int) -> str:
    """Returns the path of the part of one block of a group of sources."""
    return files.join(folder, f"block-{group:06d}-{index:06d}.npz")


def make_part(block: Sequence[RawDocument], path: str, job: str) -> tuple[int, int]:
    """Writes the part of a block, unless it exists for the same text.

    Args:
        block: Sequence. Documents.
        path: str. File of the part.
        job: str. File for `read_job`.

    Returns:
        Number of bytes of text read and of tokens written.
    """
    crc = size = 0
    for document in block:
        key = f"{document.source} {document.number} ".encode()
        for data in (key, *(text.encode() for text in document.texts)):
            crc = google_crc32c.extend(crc, data)
            size += len(data)
    # The text differs if an input changed since the run was interrupted.
    if files.exists(path) and _read(path, ())[0]["crc32c"] == crc:
        return size, 0
    _, tokenizer, config = read_job(job)
    records = blocks.process_block(block, config, tokenizer)
    header = {"crc32c": crc, "splits": {}}
    arrays = {}
    for split, part in records.items():
        header["splits"][split] = {
            "counts": dict(part.counts),
            "longest": part.longest,
            "lengths": part.lengths.tolist(),
        }
        arrays[f"{split}_sizes"] = np.array([len(p) for p in part.payloads], np.int64)
        arrays[f"{split}_bytes"] = np.frombuffer(b"".join(part.payloads), np.uint8)
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    buffer = io.BytesIO()  # writing a zip file seeks, which remote files cannot
    np.savez(buffer, **arrays)
    files.write_bytes(path, buffer.getvalue())
    return size, sum(part.counts["output_tokens"] for part in records.values())


def _read(path: str, names: Sequence[str]) -> tuple[dict, list[np.ndarray | None]]:
    try:
        with files.reading(path) as file, np.load(file) as part:
            header = json.loads(part["header"].tobytes())
            return header, [part.get(name) for name in names]
    except DataError:
        raise
    except (EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: damaged part file, remove it: {error}") from error


def summarize(paths: Sequence[str]) -> Summary:
    """Returns the sums over the headers of all parts."""
    total = Summary(
        splits={split: Counter() for split in SPLITS},
        part_sizes={split: [0] * len(paths) for split in SPLITS},
    )
    for number, path in enumerate(paths):
        for split, part in _read(path, ())[0]["splits"].items():
            total.splits[split].update(part["counts"])
            total.part_sizes[split][number] = part["counts"].get("examples", 0)
            total.lengths = total.lengths + np.array(part["lengths"], np.int64)
            total.longest = max(total.longest, tuple(part["longest"]))
    return total


def payloads(paths: Sequence[str], split: str) -> Iterator[bytes]:
    """Yields the records of a split, part after part."""
    for path in paths:
        _, (sizes, data) = _read(path, (f"{split}_sizes", f"{split}_bytes"))
        if sizes is None:
            continue
        view, at = data.tobytes(), 0
        for size in sizes.tolist():
            yield view[at : at + size]
            at += size
