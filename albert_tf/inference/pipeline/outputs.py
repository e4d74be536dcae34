"""Names, plans and writes the files of a prediction pipeline."""

import bisect
import itertools
import json
import math
import os
from collections.abc import Sequence
from typing import NamedTuple

from albert_tf.errors import UsageError
from albert_tf.storage import files, streams

_ROWS_PER_SHARD = 100_000
_SETTINGS = "settings.json"


class Block(NamedTuple):
    """Neighbouring rows of a file.

    Attributes:
        content: str. Path of the rows.
        answers: str. Path of the answers to them: JSON Lines.
        start: int. Number of the first row among those of all files.
        rows: int. Number of rows.
    """

    content: str
    answers: str
    start: int
    rows: int


class Shard(NamedTuple):
    """One file to write: rows [begin, end) of the joined answers of some blocks."""

    path: str
    answers: list[str]
    begin: int
    end: int


class OutputFiles:
    """Paths of the answers, and of what a run keeps until all are there.

    Args:
        output: str. Prefix of the files, or one file that ends in `.jsonl`.
        num_shards: int or None. Number of files; None for one per 100,000 rows.
    """

    def __init__(self, output: str, num_shards: int | None):
        if not os.path.basename(output):
            raise UsageError(
                f"output_file: must name files or a prefix, received {output!r}"
            )
        self.is_single = output.endswith(".jsonl")
        self.num_shards = 1 if self.is_single else num_shards
        self.output = output
        self.folder = os.path.dirname(output)
        self.partial = f"{output.removesuffix('.jsonl')}.partial"

    def content(self, source: int, number: int) -> str:
        """Returns the path of the rows of a block of a source."""
        return files.join(self.partial, f"rows-{source:06d}-{number:06d}.json")

    def answers(self, source: int, number: int) -> str:
        """Returns the path of the answers to a block of a source."""
        return files.join(self.partial, f"answers-{source:06d}-{number:06d}.jsonl")

    def report(self, source: int) -> str:
        """Returns the path of the sizes of the blocks of a source."""
        return files.join(self.partial, f"source-{source:06d}.json")

    def shard(self, number: int) -> str:
        """Returns where a shard is written first."""
        return files.join(self.partial, f"shard-{number:06d}.jsonl")

    def final(self, number: int, count: int) -> str:
        """Returns the final path of a shard."""
        if self.is_single:
            return self.output
        return f"{self.output}-{number:05d}-of-{count:05d}.jsonl"

    def existing(self) -> list[str]:
        """Returns the files of an earlier run with this output."""
        if self.is_single:
            return [self.output] * files.exists(self.output)
        number = "[0-9]" * 5
        pattern = f"{streams.escape(self.output)}-{number}-of-{number}.jsonl"
        return streams.glob(pattern)

    def prepare(self, settings: dict, overwrite: bool) -> None:
        """Creates the folder of unfinished work, or checks that it is of this run.

        Raises:
            UsageError: If answers, or the work of another run, exist and `overwrite`
                is not set.
        """
        path = files.join(self.partial, _SETTINGS)
        if (existing := self.existing()) and not overwrite:
            raise UsageError(
                f"output_file: {existing[0]} exists; give --overwrite or another name"
            )
        if files.exists(path):
            if files.read_json(path) == json.loads(json.dumps(settings)):
                return
            if not overwrite:
                raise UsageError(
                    f"output_file: {self.partial} holds the work of an unfinished run "
                    "with other flags, inputs or model; finish that run, remove the "
                    "folder or give --overwrite"
                )
        streams.remove_folder(self.partial)
        files.make_folder(self.partial)
        files.write_text(path, json.dumps(settings, indent=1, sort_keys=True))

    def finish(self, count: int) -> list[str]:
        """Gives complete shards their names; removes old ones and unfinished work."""
        final = [self.final(number, count) for number in range(count)]
        for path in set(self.existing()) - set(final):
            files.remove(path)
        for number, path in enumerate(final):
            files.rename(self.shard(number), path)
        streams.remove_folder(self.partial)
        return final


def plan_shards(names: OutputFiles, blocks: Sequence[Block]) -> list[Shard]:
    """Distributes the rows of all blocks over shards, in order and evenly.

    Raises:
        UsageError: If there are fewer rows than shards.
    """
    total = blocks[-1].start + blocks[-1].rows
    count = names.num_shards or math.ceil(total / _ROWS_PER_SHARD)
    if count > total:
        raise UsageError(f"num_shards: {count} files, but only {total} texts")
    starts = [block.start for block in blocks]
    plan = []
    for number in range(count):
        begin, end = total * number // count, total * (number + 1) // count
        last = bisect.bisect_left(starts, end)
        used = blocks[bisect.bisect_right(starts, begin) - 1 : last]
        first = used[0].start
        paths = [block.answers for block in used]
        plan.append(Shard(names.shard(number), paths, begin - first, end - first))
    return plan


def write_shard(shard: Shard) -> None:
    """Writes the answers of one shard."""
    lines = itertools.chain.from_iterable(map(_lines, shard.answers))
    with files.open_atomically(shard.path) as file:
        for line in itertools.islice(lines, shard.begin, shard.end):
            file.write(line)


def _lines(path: str) -> list[bytes]:
    return files.read_bytes(path).splitlines(keepends=True)
