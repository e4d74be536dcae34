"""Corpus to record files: resumable, on this machine or with Apache Beam.

The corpus is handed out in blocks (`blocks.py`). The records of each block are written
to a part file in `<prefix>.partial/`. When all parts exist, they are joined into shards
of equal size. An interrupted run continues with the existing parts. The parts need as
much disk space as the records themselves.
"""

import dataclasses
import math
import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

import tqdm
from absl import logging

from albert_tf.data.corpus.corpus import Corpus
from albert_tf.data.corpus.documents import DuplicateCounter, RawDocument
from albert_tf.data.prepare import blocks, output
from albert_tf.data.prepare.create_settings import CreateSettings
from albert_tf.data.prepare.mixture import Mixture, plan_mixture
from albert_tf.data.records import card
from albert_tf.errors import DataError, count_of, list_counts, require
from albert_tf.jobs.folder import Workplace
from albert_tf.jobs.run import open_runner


def create_from_settings(settings: CreateSettings) -> dict:
    """Makes a data set as the command does; returns the data card."""
    from albert_tf.text.load import load_tokenizer

    config = settings.record_config()
    tokenizer = load_tokenizer(
        settings.spm_model_file, settings.do_lower_case, settings.keep_accents
    )
    return create_pretraining_data(
        Corpus(
            settings.input_file,
            source_temperature=settings.source_temperature,
            **settings.options,
        ),
        settings.output_file,
        tokenizer,
        config,
        settings.num_shards,
        settings.num_processes,
        settings.drop_duplicates,
        settings.overwrite,
        flags=dataclasses.asdict(settings),
        runner=settings.runner,
        beam_options=settings.beam_option,
    )


def create_pretraining_data(
    corpus: Corpus,
    output_file: str,
    tokenizer,
    config: blocks.RecordConfig,
    num_shards: int | None = None,
    num_processes: int | None = None,
    drop_duplicates: bool = False,
    overwrite: bool = False,
    progress: bool = True,
    flags: dict | None = None,
    runner: str | None = None,
    beam_options: tuple[str, ...] = (),
) -> dict:
    """Writes the record files of a corpus, their indexes and the data card it returns.

    The files are the same bytes for any number of processes and on any machine.
    `output_file` is a prefix of the shards (`out/wiki` gives
    `out/wiki-00000-of-00010.tfrecord`, and `out/wiki-eval-...`), or, ending in
    `.tfrecord`, the files themselves, separated by commas. The tokenizer is pickled. By
    default there is a shard per 128 MiB and a process per core. Raises `UsageError` if
    the output or parts of another run exist, or another process works on them, and
    `DataError` if the corpus cannot be read or is empty, or the disk is full.
    """
    if num_processes is None:
        num_processes = os.cpu_count() or 1
    require(num_processes > 0, "num_processes: must be positive", num_processes)
    require(
        not (runner and drop_duplicates),
        "--drop_duplicates: not supported with --runner, whose workers do not see each "
        "other's documents",
    )
    if runner:
        from albert_tf.data.prepare import beam

        on_beam = beam.Pipelines(runner, beam_options)
    names = output.OutputNames(output_file, num_shards)
    names.check_card()
    settings = output.run_settings(corpus, tokenizer, config, drop_duplicates)
    place = Workplace(names.partial, settings)
    counter = DuplicateCounter(drop_duplicates)
    job = output.Job(corpus, tokenizer, config)
    with (
        place.open(names.in_the_way(), overwrite),
        open_runner(
            work := _Work(output.write_job(place, job)),
            num_processes,
            flag="num_processes",
        ) as run,
    ):
        names.make_folders()
        if runner:
            paths = on_beam.make_parts(corpus, work.job, counter)
        else:
            paths = _make_parts(corpus, names.partial, counter, run, progress)
        summary = output.summarize(paths)
        try:
            mixture = _plan_mixture(corpus, config, summary, paths)
        except DataError:
            place.remove()
            raise
        plan = output.plan_shards(names, mixture.groups, summary)
        place.claim([names.card, *(shard.path for shard in plan)])
        if runner:
            on_beam.write_shards(plan)
        else:
            bar = tqdm.tqdm(total=len(plan), desc="shards", disable=not progress)
            with bar:
                run(plan, lambda shard, done: bar.update())
        data_card = card.make_card(
            summary,
            config,
            corpus,
            counter,
            tokenizer,
            plan,
            mixture,
            settings,
            flags or {},
        )
        output.finish(names, plan, data_card)
        place.remove()
    return data_card


def _plan_mixture(corpus, config, summary, paths) -> Mixture:
    """Plans the records to write; raises `DataError` if there are none."""
    counts = summary.counts
    if not summary.splits["train"]["examples"]:
        raise DataError(
            "input_file: contains no training example: "
            f"{count_of(counts['documents'], 'document')} with "
            f"{count_of(counts['tokens'], 'token')} (eval_fraction "
            f"{config.eval_fraction}; skipped or cut: "
            f"{list_counts(+corpus.counts)})"
        )
    for split, total in summary.splits.items():
        if lonely := total["pairs_without_another_document"]:
            message = (
                f"input_file: {count_of(lonely, 'pair')} for {split} found no other "
                f"document to take B from; {total['labels_1']:,} of "
                f"{count_of(total['examples'], 'example')} have label 1"
            )
            enough = config.pairs.policy != "nsp" or counts["labels_1"]
            require(enough, f"{message}; --pair_policy=nsp needs two", error=DataError)
            logging.warning("%s", message)
    seed = config.pairs.seed
    return plan_mixture(corpus, summary, paths, output.read_lengths, seed)


class _Block(NamedTuple):
    documents: list[RawDocument]
    path: str  # of its part

    def __str__(self) -> str:
        return f"the text of {os.path.basename(self.path)}"


class _Work(NamedTuple):
    """Makes the parts of blocks, and shards; see `run.Work`."""

    job: str  # file for `output.read_job`

    def open(self, num_threads: int) -> Callable:
        def compute(item: _Block | output.Shard, on_rows):
            if isinstance(item, output.Shard):
                return output.write_shard(item)
            return output.make_part(*item, self.job)

        return compute


def _make_parts(
    corpus: Corpus, folder: str, counter: DuplicateCounter, run, progress: bool
) -> list[str]:
    """Makes the parts of a corpus, read front to back; returns their paths."""
    paths: list[str] = []

    def make_blocks() -> Iterator[_Block]:
        for group, sources in enumerate(blocks.source_groups(corpus)):
            documents = counter.filter(corpus.documents(sources))
            for index, block in enumerate(blocks.make_blocks(documents)):
                paths.append(output.part_path(folder, group, index))
                yield _Block(block, paths[-1])

    sizes = [
        0 if source.name.endswith((".gz", ".parquet")) else source.size
        for source in corpus.sources
    ]
    bar = tqdm.tqdm(
        total=sum(sizes) if all(sizes) else None,
        unit="B",
        unit_scale=True,
        disable=not progress,
        desc="text",
    )
    tokens = 0

    def left() -> float:
        return math.inf if bar.total is None else bar.total - bar.n

    def show(block: _Block, done: tuple[int, int]) -> None:
        nonlocal tokens
        tokens += done[1]
        rate = tokens / (bar.format_dict["elapsed"] or 1e-9)
        bar.set_postfix_str(f"{rate:,.0f} tokens/s", refresh=False)
        # Markup and white space belong to no document, and the characters counted for a
        # document may exceed the size of the file.
        bar.update(min(done[0], left()))

    with bar:
        run(make_blocks(), show)
        bar.update(left() if bar.total else 0)
    return paths
