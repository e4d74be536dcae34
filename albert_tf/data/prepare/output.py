"""The files of a data set: parts during the run, then shards and the card.

A part is an npz file with the records of one block: for each split their joined bytes
and their sizes, and `header`, JSON with the sums for the data card and a checksum of
the block's text, by which a resumed run checks that the part belongs to the same text.
"""

import dataclasses
import functools
import hashlib
import io
import itertools
import json
import math
import os
import pickle
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import google_crc32c
import numpy as np

from albert_tf.data.corpus.corpus import Corpus
from albert_tf.data.corpus.documents import RawDocument
from albert_tf.data.prepare import blocks
from albert_tf.data.prepare.blocks import SPLITS, RecordConfig
from albert_tf.data.prepare.mixture import Group, Piece
from albert_tf.data.records import card, tfrecord
from albert_tf.data.records import shards as shard_files
from albert_tf.errors import DataError, UsageError, count_of, require
from albert_tf.jobs.folder import Workplace, split_evenly
from albert_tf.storage import files, streams

SHARD_BYTES = 128 << 20  # approximate size of a shard with `num_shards=None`


@dataclasses.dataclass
class Summary:
    """Sums over all parts.

    Attributes:
        parts: dict. `PartSize` of each part, by split.
        text_of_sources: dict. Counts of the text by index of a part's first source.
        lengths: int64 `[S + 1]`. Number of examples of each length.
        longest: tuple. See `blocks.Records`.
    """

    splits: dict[str, Counter]
    parts: dict[str, list["PartSize"]]
    text_of_sources: dict[int, Counter]
    lengths: np.ndarray | int = 0
    longest: tuple[int, int, int] = (0, 0, 0)

    @property
    def counts(self) -> Counter:
        """Returns the counts of all splits."""
        return sum(self.splits.values(), Counter())


class PartSize(NamedTuple):
    """The amount of data of a split in a part."""

    source: int  # index of the source of its first document
    records: int
    tokens: int  # of the records


class Job(NamedTuple):
    """The input of all workers; it reaches them through a file."""

    corpus: Corpus
    tokenizer: Any
    config: RecordConfig


def write_job(place: Workplace, job: Job) -> str:
    """Writes a job for other processes to a file of unique name; returns its path."""
    content = pickle.dumps(job)
    path = place.join(f"job-{hashlib.sha256(content).hexdigest()[:16]}.pickle")
    files.write_bytes(path, content)
    return path


@functools.lru_cache(1)
def read_job(path: str) -> Job:
    """Returns the job in a file."""
    return pickle.loads(files.read_bytes(path))


def part_path(folder: str, group: int, index: int) -> str:
    """Returns the path of the part of one block of a group of sources."""
    return files.join(folder, f"block-{group:06d}-{index:06d}.npz")


def make_part(block: Sequence[RawDocument], path: str, job: str) -> tuple[int, int]:
    """Writes the part of a block, unless it exists for the same text.

    `path` is the part, `job` a file for `read_job`. Returns the number of bytes of text
    read and of tokens written.
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
    corpus, tokenizer, config = read_job(job)
    records = blocks.process_block(block, config, tokenizer, corpus)
    header = {"crc32c": crc, "source": block[0].source, "splits": {}}
    arrays = {}
    for split, part in records.items():
        header["splits"][split] = {
            "counts": dict(part.counts),
            "longest": part.longest,
            "lengths": part.lengths.tolist(),
        }
        arrays[f"{split}_sizes"] = np.array([len(p) for p in part.payloads], np.int64)
        arrays[f"{split}_lengths"] = part.sizes
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
        parts={split: [] for split in SPLITS},
        text_of_sources={},
    )
    for path in paths:
        header = _read(path, ())[0]
        source = header["source"]
        for split in SPLITS:
            part = header["splits"].get(split)
            counts = part["counts"] if part else {}
            sizes = (counts.get(name, 0) for name in ("examples", "output_tokens"))
            total.parts[split].append(PartSize(source, *sizes))
            if part:
                total.splits[split].update(counts)
                total.text_of_sources.setdefault(source, Counter()).update(counts)
                total.lengths = total.lengths + np.array(part["lengths"], np.int64)
                total.longest = max(total.longest, tuple(part["longest"]))
    return total


def read_lengths(path: str) -> np.ndarray:
    """Returns the lengths of the training records of a part, int32 `[N]`."""
    return _read(path, ("train_lengths",))[1][0]


def _payloads(pieces: Sequence[Piece], split: str) -> Iterator[bytes]:
    """Yields the records of a split, piece after piece."""
    for path, records, _ in pieces:
        if not records:
            continue
        _, (sizes, data) = _read(path, (f"{split}_sizes", f"{split}_bytes"))
        view, at = data.tobytes(), 0
        for size in sizes[:records].tolist():
            yield view[at : at + size]
            at += size


class OutputNames:
    """Paths of the shards, the card and the parts.

    output: str. Prefix, or comma-separated .tfrecord files.
        num_shards: int or None. Number of training shards; None for one per 128 MiB.
    """

    def __init__(self, output: str, num_shards: int | None):
        outputs = list(filter(None, map(str.strip, output.split(","))))
        plain = [path for path in outputs if not path.endswith(".tfrecord")]
        self.explicit = None if plain else outputs
        need = "num_shards: must be positive"
        require(num_shards is None or num_shards > 0, need, num_shards)
        need = "output_file: must name files or a prefix"
        require(outputs and os.path.basename(outputs[0]), need, output)
        need = "output_file: several files must end in .tfrecord"
        require(not plain or len(outputs) == 1, need, *plain[:1])
        need = "output_file: must name different files"
        require(len({*outputs}) == len(outputs), need, output)
        fits = plain or num_shards in (None, len(outputs))
        need = f"num_shards: must be {len(outputs)}, the number of files of output_file"
        require(fits, need, num_shards)
        self.num_shards = len(outputs) if self.explicit else num_shards
        self.prefix = outputs[0].removesuffix(".tfrecord")
        self.folder = os.path.dirname(self.prefix)
        self.partial = f"{self.prefix}.partial"
        self.card = files.join(self.folder, card.CARD_NAME)

    def num_files(self, split: str, num_examples: int, num_bytes: float) -> int:
        """Returns the number of shards for some records of a split."""
        count = max(1, math.ceil(num_bytes / SHARD_BYTES))
        if split == "train":
            count = self.num_shards or count
            require(
                count <= num_examples,
                f"num_shards: {count_of(count, 'shard')}, but only "
                f"{count_of(num_examples, 'example')} (run again with fewer; finished "
                "parts are kept)",
            )
        return count

    def shards(self, split: str, count: int) -> list[str]:
        """Returns the paths of the shards of a split."""
        if split == "train" and self.explicit:
            return self.explicit
        prefix = self.prefix if split == "train" else f"{self.prefix}-{split}"
        return [tfrecord.shard_name(prefix, k, count) for k in range(count)]

    def existing(self) -> list[str]:
        """Returns the shards of an earlier data set with these names."""
        paths = list(filter(files.exists, self.explicit or ()))
        for prefix in [f"{self.prefix}-eval"] + [self.prefix] * (not self.explicit):
            paths += shard_files.of_prefix(prefix)
        return sorted(paths)

    def in_the_way(self) -> list[str]:
        """Returns the files of an earlier data set, including its card."""
        return self.existing() + [self.card] * files.exists(self.card)

    def make_folders(self) -> None:
        """Creates the folders of explicitly named files."""
        folders = {os.path.dirname(path) for path in self.explicit or ()}
        for folder in filter(None, folders):
            files.make_folder(folder)

    def check_card(self) -> None:
        """Raises `UsageError` if the folder's card belongs to another data set."""
        content = files.read_record(self.card)
        try:
            names = card.shard_sizes(content)
        except (ValueError, KeyError, TypeError, AttributeError):
            return  # a damaged card belongs to nobody
        explicit = [os.path.basename(path) for path in self.explicit or ()]
        prefix = os.path.basename(self.prefix)
        if others := [
            name
            for name in names
            if name not in explicit
            and shard_files.prefix_of(name) not in (prefix, f"{prefix}-eval")
        ]:
            raise UsageError(
                f"output_file: {self.card} is the card of another data set "
                f"({others[0]}); write each data set to a folder of its own"
            )


def run_settings(corpus, tokenizer, config, drop_duplicates) -> dict:
    """Returns the settings that determine the records.

    A run can be resumed only with identical settings. Changes in the input text are
    detected separately, by the checksum in each part file.
    """
    values = dataclasses.asdict(config)
    # The file format calls these rules "mode", and our own rules "clean".
    rules = values["mask"].pop("rules")
    values["mask"]["mode"] = "clean" if rules == "albert_tf" else rules
    mixture = {
        "named_sources": {name: source.weight for name, source in corpus.named.items()},
        "source_temperature": corpus.source_temperature,
    }
    return {
        "version": 2 if config.pairs.rules.others else 1,
        "sources": [list(source[:3]) for source in corpus.sources],
        **(mixture if corpus.named else {}),
        "drop_duplicates": drop_duplicates,
        "tokenizer_sha256": tokenizer.sha256,
        "tokenizer": tokenizer.get_config(),
        "config": values,
    }


class Shard(NamedTuple):
    """One record file to write: records [begin, end) of the joined parts.

    Attributes:
        written: str. Path that is written first; it differs from `path` if an existing
            data set is to be replaced.
        parts: list of `Piece`. Contain the records.
        begin, end: int. First record, and the one after the last.
        source: str. Named source of all its records, or "".
    """

    split: str
    path: str
    written: str
    parts: list[Piece]
    begin: int
    end: int
    source: str = ""


def plan_shards(
    names: OutputNames, groups: dict[str, list[Group]], summary: Summary
) -> list[Shard]:
    """Distributes the records of each group over shards, in order and evenly."""
    plan = []
    replaces = bool(names.existing())
    for split, filled in groups.items():
        filled = [group for group in filled if group.records]
        counts = summary.splits[split]
        sizes = [counts["bytes"] * g.records / counts["examples"] for g in filled]
        numbers = [
            names.num_files(split, group.records, size)
            for group, size in zip(filled, sizes, strict=True)
        ]
        shards = iter(names.shards(split, sum(numbers)))
        for group, number in zip(filled, numbers, strict=True):
            ends = np.cumsum([piece.records for piece in group.pieces])
            for begin, end in split_evenly(group.records, number):
                path = written = next(shards)
                first = int(np.searchsorted(ends, begin, side="right"))
                last = int(np.searchsorted(ends, end, side="left"))
                before = int(ends[first - 1]) if first else 0
                used = group.pieces[first : last + 1]
                if replaces:
                    folder, name = os.path.split(path)
                    written = files.join(folder, f".{name}.new")
                places = begin - before, end - before
                plan.append(Shard(split, path, written, used, *places, group.source))
    return plan


def finish(names: OutputNames, plan: Sequence[Shard], data_card: dict) -> None:
    """Replaces an earlier data set with the complete new one, and writes the card.

    The card marks the data set as complete.
    """
    if names.existing():
        files.remove(names.card)
    for path in set(names.existing()) - {shard.path for shard in plan}:
        files.remove(path)
        files.remove(tfrecord.index_path(path))
    for shard in plan:
        if shard.written != shard.path:
            index = tfrecord.index_path(shard.written)
            files.rename(index, tfrecord.index_path(shard.path))
            files.rename(shard.written, shard.path)
    # Left by interrupted runs, perhaps with another number of shards.
    hidden = f".{os.path.basename(names.prefix)}"
    hidden = streams.escape(files.join(names.folder, hidden))
    for path in streams.glob(f"{hidden}-*-of-*.tfrecord*"):
        files.remove(path)
    card.write_card(names.folder, data_card)


def write_shard(shard: Shard) -> None:
    """Writes the records of one shard and its index."""
    payloads = _payloads(shard.parts, shard.split)
    chosen = itertools.islice(payloads, shard.begin, shard.end)
    tfrecord.write_shard(shard.written, chosen)
