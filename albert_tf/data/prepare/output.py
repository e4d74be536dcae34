"""Names, plans and writes the files of a data set: shards and card."""

import dataclasses
import itertools
import math
import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from albert_tf.data.prepare import parts
from albert_tf.data.prepare.blocks import SPLITS
from albert_tf.data.records import card, tfrecord
from albert_tf.data.records import shards as shard_files
from albert_tf.errors import UsageError, require
from albert_tf.jobs.folder import split_evenly
from albert_tf.storage import files, streams
from albert_tf.wording import count_of

SHARD_BYTES = 128 << 20  # approximate size of a shard with `num_shards=None`


class OutputNames:
    """Paths of the shards, the card and the parts.

    Args:
        output: str. Prefix, or comma-separated .tfrecord files.
        num_shards: int or None. Number of training shards; None for one per 128 MiB.
    """

    def __init__(self, output: str, num_shards: int | None):
        outputs = list(filter(None, map(str.strip, output.split(","))))
        plain = [path for path in outputs if not path.endswith(".tfrecord")]
        self.explicit = None if plain else outputs
        rule = "num_shards: must be positive"
        require(num_shards is None or num_shards > 0, rule, num_shards)
        rule = "output_file: must name files or a prefix"
        require(outputs and os.path.basename(outputs[0]), rule, output)
        rule = "output_file: several files must end in .tfrecord"
        require(not plain or len(outputs) == 1, rule, *plain[:1])
        rule = "output_file: must name different files"
        require(len({*outputs}) == len(outputs), rule, output)
        fits = plain or num_shards in (None, len(outputs))
        rule = f"num_shards: must be {len(outputs)}, the number of files of output_file"
        require(fits, rule, num_shards)
        self.num_shards = len(outputs) if self.explicit else num_shards
        self.prefix = outputs[0].removesuffix(".tfrecord")
        self.folder = os.path.dirname(self.prefix)
        self.partial = f"{self.prefix}.partial"
        self.card = files.join(self.folder, card.CARD_NAME)

    def shards(self, split: str, num_examples: int, num_bytes: int) -> list[str]:
        """Returns the paths of the shards of a split."""
        count = max(1, math.ceil(num_bytes / SHARD_BYTES))
        if split == "train":
            count = self.num_shards or count
            require(
                count <= num_examples,
                f"num_shards: {count_of(count, 'shard')}, but only "
                f"{count_of(num_examples, 'example')} (run again with fewer; finished "
                "parts are kept)",
            )
            if self.explicit:
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
        """Returns the files of an earlier data set, its card among them."""
        return self.existing() + [self.card] * files.exists(self.card)

    def make_folders(self) -> None:
        """Creates the folders of files that were named."""
        folders = {os.path.dirname(path) for path in self.explicit or ()}
        for folder in filter(None, folders):
            files.make_folder(folder)

    def check_card(self) -> None:
        """Raises UsageError if the folder's card belongs to another data set."""
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
    # The file format calls these rules "mode", and ours "clean".
    rules = values["mask"].pop("rules")
    values["mask"]["mode"] = "clean" if rules == "albert_tf" else rules
    return {
        "version": 1,
        "sources": [list(source[:3]) for source in corpus.sources],
        "drop_duplicates": drop_duplicates,
        "tokenizer_sha256": tokenizer.sha256,
        "tokenizer": tokenizer.get_config(),
        "config": values,
    }


class Shard(NamedTuple):
    """One record file to write: records [begin, end) of the joined parts.

    Attributes:
        split: str. "train" or "eval".
        path: str. Final path.
        written: str. Path that is written first: another than `path` if an existing
            data set is to be replaced.
        parts: list. Part files that contain the records.
        begin, end: int. First record, and the one after the last.
    """

    split: str
    path: str
    written: str
    parts: list[str]
    begin: int
    end: int


def plan_shards(names, paths: Sequence[str], summary: parts.Summary) -> list[Shard]:
    """Distributes the records of all parts over shards, in order and evenly."""
    plan = []
    replaces = bool(names.existing())
    for split in SPLITS:
        total = summary.splits[split]["examples"]
        if not total:
            continue
        ends = np.cumsum(summary.part_sizes[split])
        shards = names.shards(split, total, summary.splits[split]["bytes"])
        borders = split_evenly(total, len(shards))
        for path, (begin, end) in zip(shards, borders, strict=True):
            first = int(np.searchsorted(ends, begin, side="right"))
            last = int(np.searchsorted(ends, end, side="left"))
            before = int(ends[first - 1]) if first else 0
            used = list(paths[first : last + 1])
            written = path
            if replaces:
                folder, name = os.path.split(path)
                written = files.join(folder, f".{name}.new")
            plan.append(Shard(split, path, written, used, begin - before, end - before))
    return plan


def finish(names: OutputNames, plan: Sequence[Shard], data_card: dict) -> None:
    """Replaces an earlier data set by the complete new one, and writes the card.

    The card is the sign that the data set is complete.
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
    # What killed runs left, perhaps with another number of shards.
    hidden = f".{os.path.basename(names.prefix)}"
    hidden = streams.escape(files.join(names.folder, hidden))
    for path in streams.glob(f"{hidden}-*-of-*.tfrecord*"):
        files.remove(path)
    card.write_card(names.folder, data_card)


def write_shard(shard: Shard) -> None:
    """Writes the records of one shard and its index."""
    payloads = parts.payloads(shard.parts, shard.split)
    chosen = itertools.islice(payloads, shard.begin, shard.end)
    tfrecord.write_shard(shard.written, chosen)
