"""Corpus to record files: the parallel, resumable run on one machine.

The corpus is read once, front to back, and handed out in blocks (`blocks.py`). The
records of each block are written to a part file in `<prefix>.partial/`. When all parts
exist, they are joined into shards of equal size. A run that was killed continues with
the parts it finds. The parts need as much disk space as the records themselves.
"""

import os

import tqdm

from albert_tf.data.corpus.corpus import Corpus
from albert_tf.data.corpus.duplicates import DuplicateCounter
from albert_tf.data.prepare.blocks import make_blocks, source_groups
from albert_tf.data.prepare.config import RecordConfig
from albert_tf.data.prepare.output import (
    OutputNames,
    Shard,
    entries,
    finish,
    plan_output,
    prepare,
    run_settings,
    write_shard,
)
from albert_tf.data.prepare.pool import BlockPool, ProgressBar
from albert_tf.data.records import card


def create_pretraining_data(
    corpus: Corpus,
    output: str,
    tokenizer,
    config: RecordConfig,
    num_shards: int | None = None,
    num_processes: int | None = None,
    drop_duplicates: bool = False,
    overwrite: bool = False,
    progress: bool = True,
    flags: dict | None = None,
) -> dict:
    """Writes the record files of a corpus, their indexes and the data card.

    The files are the same bytes for any number of processes and on any machine.

    Args:
        corpus: `Corpus`. Text to read.
        output: str. Prefix of the shards (`out/wiki` gives
            `out/wiki-00000-of-00010.tfrecord`, and `out/wiki-eval-...`), or, ending in
            `.tfrecord`, the files themselves, separated by commas.
        tokenizer: `Tokenizer`, or another with its interface. It is pickled.
        config: `RecordConfig`. What records to make.
        num_shards: int. Number of training shards; None for one per 128 MiB.
        num_processes: int. None for one per core.
        drop_duplicates: bool. Whether to leave out documents whose text was already
            seen.
        overwrite: bool. Whether to replace a data set, or the parts of another run.
        progress: bool. Whether to show a progress bar.
        flags: dict. Further settings to record on the card.

    Returns:
        dict. The card (see `card.py`), also in `dataset.json` next to the shards.

    Raises:
        UsageError: If the output exists, or parts of another run.
        DataError: If the corpus cannot be read or is empty, or the disk is full.
    """
    names = OutputNames(output, num_shards)
    settings = run_settings(corpus, tokenizer, config, drop_duplicates)
    counter = DuplicateCounter(drop_duplicates)
    if num_processes is None:
        num_processes = os.cpu_count() or 1
    with BlockPool(num_processes, tokenizer, config, names.partial) as pool:
        prepare(names, settings, overwrite)
        paths = _write_parts(corpus, counter, names, pool, progress)
        summary, plan = plan_output(names, paths, config, corpus)
        _write_shards(plan, pool, progress)
    shards = entries(plan)
    data_card = card.make_card(
        summary, config, corpus, counter, tokenizer, shards, settings, flags or {}
    )
    finish(names, plan, data_card)
    return data_card


def _write_parts(corpus, counter, names, pool, progress: bool) -> list[str]:
    """Writes the part files of a corpus; returns their paths in its order."""
    paths = []
    with ProgressBar(corpus, progress) as bar:
        for group, sources in enumerate(source_groups(corpus)):
            documents = counter.filter(corpus.documents(sources))
            for number, block in enumerate(make_blocks(documents)):
                paths.append(names.part(group, number))
                pool.submit(block, paths[-1], bar.update)
        pool.finish(bar.update)
    return paths


def _write_shards(plan: list[Shard], pool, progress: bool) -> None:
    with tqdm.tqdm(
        total=len(plan), desc="shards", unit="shard", disable=not progress
    ) as bar:
        pool.each(write_shard, plan, bar.update)
