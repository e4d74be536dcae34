"""The files that a build of records writes."""

import dataclasses
import itertools
import json
import math
import os
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from albert_tf.data.prepare import parts
from albert_tf.data.prepare.config import SPLITS, RecordConfig
from albert_tf.data.records import card, tfrecord
from albert_tf.data.records import shards as shard_files
from albert_tf.errors import DataError, UsageError
from albert_tf.storage import files, streams

# The size `num_shards=None` aims at.
SHARD_BYTES = 128 << 20


_SETTINGS = "settings.json"


def check_not_empty(names, summary, config: RecordConfig, skipped: Counter) -> None:
    """Raises DataError, and removes the parts, if there is nothing to train on."""
    if not summary.num_examples["train"]:
        streams.remove_folder(names.partial)
        raise DataError(
            f"input_file: gave no training example: {summary.counts['documents']} "
            f"documents with {summary.counts['tokens']} tokens (eval_fraction "
            f"{config.eval_fraction}; skipped or cut: {dict(skipped) or 'none'})"
        )


def finish(names, data_card: dict) -> None:
    """Writes the card, the sign that the data set is complete, and removes parts."""
    card.write_card(names.folder, data_card)
    streams.remove_folder(names.partial)


class OutputNames:
    """Where the shards, the card and the parts go."""

    def __init__(self, output: str, num_shards: int | None):
        outputs = [part.strip() for part in output.split(",") if part.strip()]
        if num_shards is not None and num_shards < 1:
            raise UsageError(f"num_shards: must be positive, got {num_shards}")
        if not outputs or os.path.basename(outputs[0]) == "":
            raise UsageError(
                f"output_file: must name files or a prefix, got {output!r}"
            )
        plain = [path for path in outputs if not path.endswith(".tfrecord")]
        if plain and len(outputs) > 1:
            raise UsageError(
                f"output_file: several files must end in .tfrecord, got {plain[0]!r}"
            )
        for path in outputs:
            if outputs.count(path) > 1:
                raise UsageError(f"output_file: names {path!r} more than once")
        self.explicit = None if plain else outputs
        if self.explicit and num_shards not in (None, len(outputs)):
            raise UsageError(
                f"num_shards: {num_shards}, but output_file names {len(outputs)}"
            )
        self.num_shards = len(outputs) if self.explicit else num_shards
        self.prefix = outputs[0].removesuffix(".tfrecord")
        self.folder = os.path.dirname(self.prefix)
        self.partial = f"{self.prefix}.partial"
        self.card = files.join(self.folder, card.CARD_NAME)

    def part(self, group: int, number: int) -> str:
        """The file of one block of a group of sources."""
        return files.join(self.partial, f"block-{group:06d}-{number:06d}.npz")

    def shards(self, split: str, num_examples: int, num_bytes: int) -> list[str]:
        """Names of the shards of a split."""
        wanted = max(1, math.ceil(num_bytes / SHARD_BYTES))
        if split == "train":
            wanted = self.num_shards or wanted
            if wanted > num_examples:
                raise UsageError(
                    f"num_shards: {wanted} shards, but only {num_examples} examples "
                    "(run again with fewer; what was made is kept)"
                )
            if self.explicit:
                return self.explicit
        prefix = self.prefix if split == "train" else f"{self.prefix}-{split}"
        return [tfrecord.shard_name(prefix, k, wanted) for k in range(wanted)]

    def existing(self) -> list[str]:
        """Files of an earlier data set under these names."""
        found = [path for path in self.explicit or () if files.exists(path)]
        if not self.explicit:
            found += shard_files.of_prefix(self.prefix)
        return found + shard_files.of_prefix(f"{self.prefix}-eval")

    def check_card(self) -> None:
        """Raises UsageError if the folder's card is of another data set."""
        if not files.exists(self.card):
            return
        try:
            names = card.shard_sizes(json.loads(files.read_text(self.card)))
        except (ValueError, KeyError, TypeError, AttributeError):
            return  # damaged, so nobody's
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
                f"({others[0]}); give each a folder of its own"
            )


def run_settings(corpus, tokenizer, config, drop_duplicates) -> dict:
    """What the records depend on; a resumed run must have the same.

    But for what changes the text of blocks: parts hold a checksum of it.
    """
    return {
        "version": 1,
        "sources": [list(source[:3]) for source in corpus.sources],
        "drop_duplicates": drop_duplicates,
        "tokenizer_sha256": tokenizer.sha256,
        "tokenizer": tokenizer.get_config(),
        "config": dataclasses.asdict(config),
    }


def prepare(names: OutputNames, settings: dict, overwrite: bool) -> None:
    """Makes the folder of the parts, or checks that it is this run's."""
    path = files.join(names.partial, _SETTINGS)
    names.check_card()
    resumed = False
    if files.exists(path):
        resumed = _read_settings(path) == settings
        started = bool(
            streams.glob(files.join(streams.escape(names.partial), "block*"))
        )
        if not resumed and started and not overwrite:
            raise UsageError(
                f"output_file: {names.partial} holds the parts of an unfinished run "
                "with other flags, inputs or tokenizer; finish that run, remove the "
                "folder or give --overwrite"
            )
    if not resumed:
        existing = names.existing() + [names.card] * files.exists(names.card)
        if existing and not overwrite:
            raise UsageError(
                f"output_file: {existing[0]} exists; give --overwrite or another name"
            )
        streams.remove_folder(names.partial)
        for old in existing:
            files.remove(old)
            files.remove(tfrecord.index_path(old))
    for folder in {os.path.dirname(path) for path in names.explicit or ()} | {
        names.partial
    }:
        try:
            if folder:
                files.make_folder(folder)
        except OSError as error:
            raise UsageError(
                f"output_file: {folder} cannot be made: {error.strerror}"
            ) from error
    with streams.write_atomically(path) as file:
        file.write(json.dumps(settings, indent=1, sort_keys=True).encode())


def _read_settings(path: str) -> dict | None:
    """The settings of an unfinished run; None if the file is damaged."""
    try:
        return json.loads(files.read_text(path))
    except ValueError:
        return None


class Shard(NamedTuple):
    """One record file to be made: records [begin, end) of the parts, end to end."""

    split: str
    path: str
    parts: list[str]
    begin: int
    end: int

    def entry(self) -> dict:
        """What the card says of it."""
        name = os.path.basename(self.path)
        return {"path": name, "records": self.end - self.begin}


def plan_shards(names, paths: Sequence[str], summary: parts.Summary) -> list[Shard]:
    """Spreads the records of all parts over shards, in order and evenly."""
    plan = []
    for split in SPLITS:
        total = summary.num_examples[split]
        if not total:
            continue
        ends = np.cumsum(summary.part_sizes[split])
        shards = names.shards(split, total, summary.num_bytes[split])
        for k, path in enumerate(shards):
            begin = total * k // len(shards)
            end = total * (k + 1) // len(shards)
            first = int(np.searchsorted(ends, begin, side="right"))
            last = int(np.searchsorted(ends, end, side="left"))
            before = int(ends[first - 1]) if first else 0
            used = list(paths[first : last + 1])
            plan.append(Shard(split, path, used, begin - before, end - before))
    return plan


def remove_others(names: OutputNames, plan: Sequence[Shard]) -> None:
    """Removes shards of an earlier try, which was to make another number of them."""
    for path in set(names.existing()) - {shard.path for shard in plan}:
        files.remove(path)
        files.remove(tfrecord.index_path(path))


def write_shard(shard: Shard) -> None:
    """Writes one shard."""
    payloads = parts.payloads(shard.parts, shard.split)
    taken = itertools.islice(payloads, shard.begin, shard.end)
    tfrecord.write_shard(shard.path, taken)


def entries(plan: Sequence[Shard]) -> dict[str, list[dict]]:
    """The card's entries of the shards, by split."""
    made: dict[str, list[dict]] = {}
    for shard in plan:
        made.setdefault(shard.split, []).append(shard.entry())
    return made
