"""Corpus to record files: the parallel, resumable run on one machine.

The corpus is read once, front to back, and handed out in blocks (`blocks.py`). What a
block becomes is written to a part file in `<prefix>.partial/`; when all are there, they
are joined into shards of equal size. A killed run takes up its part files again. The
parts need as much disk as the records themselves while the run lasts.
"""

import os

import tqdm

from albert_tf.data.corpus.corpus import Corpus
from albert_tf.data.corpus.duplicates import DuplicateCounter
from albert_tf.data.prepare import blocks, parts
from albert_tf.data.prepare.config import RecordConfig
from albert_tf.data.prepare.output import (
    OutputNames,
    check_not_empty,
    entries,
    finish,
    plan_shards,
    prepare,
    remove_others,
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
    """Makes the record files of a corpus, their indexes and the data card.

    The files are the same bytes for any number of processes and on any machine.

    Args:
        corpus: what to read.
        output: prefix of the shards (`out/wiki` gives
            `out/wiki-00000-of-00010.tfrecord`, and `out/wiki-eval-...`), or, ending in
            `.tfrecord`, the files themselves, separated by commas.
        tokenizer: a `Tokenizer`, or another with its interface; pickled.
        config: what to make.
        num_shards: of the training split; None for one each 128 MiB.
        num_processes: None for one each core.
        drop_duplicates: leave out documents whose text was there before.
        overwrite: replace a data set, or the parts of another run.
        progress: show a progress bar.
        flags: further settings to note on the card.

    Returns:
        The card (see `card.py`), also in `dataset.json` beside the shards.

    Raises:
        UsageError: The output exists, or another run's parts do.
        DataError: The corpus cannot be read, is empty, or the disk is full.
    """
    names = OutputNames(output, num_shards)
    settings = run_settings(corpus, tokenizer, config, drop_duplicates)
    counter = DuplicateCounter(drop_duplicates)
    paths = []
    if num_processes is None:
        num_processes = os.cpu_count() or 1
    with BlockPool(num_processes, tokenizer, config) as pool:
        prepare(names, settings, overwrite)
        with ProgressBar(corpus, progress) as bar:
            for group, sources in enumerate(blocks.source_groups(corpus)):
                documents = counter.filter(corpus.documents(sources))
                for number, block in enumerate(blocks.make_blocks(documents)):
                    paths.append(names.part(group, number))
                    pool.submit(block, paths[-1], bar.update)
            pool.finish(bar.update)
        summary = parts.summarize(paths)
        check_not_empty(names, summary, config, +corpus.counts)
        plan = plan_shards(names, paths, summary)
        remove_others(names, plan)
        with tqdm.tqdm(
            total=len(plan), desc="shards", unit="shard", disable=not progress
        ) as bar:
            pool.each(write_shard, plan, bar.update)
    data_card = card.make_card(
        summary,
        config,
        corpus,
        counter,
        tokenizer,
        entries(plan),
        settings,
        flags or {},
    )
    finish(names, data_card)
    return data_card
