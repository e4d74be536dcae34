"""Names, plans and writes the files of a prediction pipeline."""

import bisect
import itertools
import json
import math
import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from albert_tf.errors import UsageError
from albert_tf.storage import files, streams
from albert_tf.storage.lock import LOCK_FILE

_ROWS_PER_SHARD = 100_000
_SETTINGS = "settings.json"
# Names of the shards that may have got their final names already.
_PLACED = "placed.json"
# What a run writes until it ends, and what is left of such a file if it is killed.
_OWN = re.compile(
    r"\.?(answers|placed|rows|settings|shard|source)[-0-9]*\.jsonl?"
    r"(\.[0-9a-f]{8})?(\.partial)?"
)


class Block(NamedTuple):
    """Neighbouring rows of a file.

    Attributes:
        content: str. Path of the rows.
        answers: str. Path of the answers to them: JSON Lines.
        start: int. Index of the first row in all files.
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

        Shards that this run had already put in place when it was stopped are not in
        its way.

        Raises:
            UsageError: If answers, or the work of another run, exist and `overwrite`
                is not set, or the folder has what no run wrote.
        """
        found = self._list_partial()
        path = files.join(self.partial, _SETTINGS)
        is_unfinished = _SETTINGS in found
        is_same = is_unfinished and files.read_json(path) == json.loads(
            json.dumps(settings)
        )
        placed = self._placed() if is_same else set()
        others = [p for p in self.existing() if os.path.basename(p) not in placed]
        if others and not overwrite:
            raise UsageError(
                f"output_file: {others[0]} exists; give --overwrite or another name"
            )
        if is_same:
            return
        if is_unfinished and not overwrite:
            raise UsageError(
                f"output_file: {self.partial} holds the work of an unfinished run "
                "with other flags, inputs or model; finish that run, remove the "
                "folder or give --overwrite"
            )
        self._remove_partial()
        files.make_folder(self.partial)
        files.write_text(path, json.dumps(settings, indent=1, sort_keys=True))

    def finish(self, count: int) -> list[str]:
        """Gives complete shards their names; removes old ones and unfinished work."""
        final = [self.final(number, count) for number in range(count)]
        placed = self._placed() | set(map(os.path.basename, final))
        path = files.join(self.partial, _PLACED)
        files.write_text(path, json.dumps({"names": sorted(placed)}))
        for number, path in enumerate(final):
            files.rename(self.shard(number), path)
        for path in set(self.existing()) - set(final):
            files.remove(path)
        self._remove_partial()
        return final

    def _placed(self) -> set[str]:
        path = files.join(self.partial, _PLACED)
        return set(files.read_json(path)["names"]) if files.exists(path) else set()

    def _list_partial(self) -> list[str]:
        """Returns the names in the folder of unfinished work.

        Raises:
            UsageError: If no run wrote the folder, or something else was added.
        """
        if not files.is_folder(self.partial):
            return []
        names = [n for n in files.list_folder(self.partial) if n != LOCK_FILE]
        strange = [name for name in names if not _OWN.fullmatch(name)]
        if _SETTINGS not in names:
            # A run that is killed at once leaves half of this file.
            strange += [name for name in names if not name.startswith(".")]
        if strange:
            raise UsageError(
                f"output_file: {self.partial} is not the work of an unfinished run "
                f"alone: it holds {strange[0]}; move that away or give another name"
            )
        return names

    def _remove_partial(self) -> None:
        """Removes the folder so that a run killed meanwhile is continued.

        The sizes of blocks go first, as each promises that all rows of its file are
        there; what tells whose work it is goes last.
        """
        order = {_PLACED: 1, _SETTINGS: 2}
        for name in sorted(
            self._list_partial(),
            key=lambda name: -1 if name.startswith("source-") else order.get(name, 0),
        ):
            files.remove(files.join(self.partial, name))
        files.remove_empty_folder(self.partial)


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
