"""Corpus to record files with Apache Beam, on any of its runners.

The first pipeline turns documents into part files, one per block; the second joins the
parts into shards. Both use the functions of the local run on the same blocks, so the
shards have the same bytes. Workers and the caller must see the same files: run all on
one machine, or use paths such as `gs://`. Needs the extra `beam`.
"""

import contextlib
import io
import json
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from types import SimpleNamespace

from albert_tf.data.corpus.corpus import Corpus, RawDocument
from albert_tf.data.corpus.duplicates import document_digest
from albert_tf.data.prepare import blocks, parts
from albert_tf.data.prepare.config import RecordConfig
from albert_tf.data.prepare.output import (
    OutputNames,
    entries,
    finish,
    plan_output,
    prepare,
    run_settings,
    write_shard,
)
from albert_tf.data.records import card
from albert_tf.errors import DataError, UsageError
from albert_tf.storage import files

# Beam warns about every optional component that is not installed.
logging.getLogger("apache_beam.io").setLevel(logging.ERROR)
logging.getLogger("apache_beam.internal").setLevel(logging.ERROR)
try:
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.runners.runner import create_runner
except ImportError as error:
    raise UsageError(
        "runner: needs Apache Beam: pip install albert_tf[beam]"
    ) from error


_LOCAL_RUNNERS = (
    "DirectRunner",
    "FnApiRunner",
    "BundleBasedDirectRunner",
    "PrismRunner",
)


def create_with_beam(
    corpus: Corpus,
    output: str,
    tokenizer,
    config: RecordConfig,
    runner: str = "DirectRunner",
    beam_options: Sequence[str] = (),
    num_shards: int | None = None,
    overwrite: bool = False,
    flags: dict | None = None,
) -> dict:
    """Does what `local.create_pretraining_data` does, on a Beam runner.

    Args:
        corpus: `Corpus`. Text to read; each group of files is read by one worker.
        runner: str. Name of a Beam runner.
        beam_options: Sequence. Options of Beam, for example `--project=name`.
        output, tokenizer, config, num_shards, overwrite, flags: As for
            `local.create_pretraining_data`.

    Returns:
        dict. The data card.
    """
    _check_options(runner, beam_options)
    names = OutputNames(output, num_shards)
    settings = run_settings(corpus, tokenizer, config, drop_duplicates=False)
    prepare(names, settings, overwrite)
    groups = blocks.source_groups(corpus)
    _run(
        runner,
        beam_options,
        lambda root: _make_parts(root, groups, corpus, names, tokenizer, config),
    )
    paths = _collect_parts(names, len(groups), corpus)
    summary, plan = plan_output(names, paths, config, corpus)
    _run(runner, beam_options, lambda root: _write_shards(root, plan))
    num_duplicates = json.loads(files.read_text(_duplicates_path(names)))
    counter = SimpleNamespace(num_duplicates=num_duplicates, is_complete=True)
    shards = entries(plan)
    data_card = card.make_card(
        summary, config, corpus, counter, tokenizer, shards, settings, flags or {}
    )
    finish(names, plan, data_card)
    return data_card


def _collect_parts(names, num_groups: int, corpus: Corpus) -> list[str]:
    """Returns the paths of all parts; adds the workers' counts to the corpus."""
    paths = []
    for group in range(num_groups):
        report = _read_report(names, group)
        paths += [names.part(group, number) for number in range(report["blocks"])]
        corpus.counts.update(report["counts"])
        corpus.sha256.update(report["sha256"])
    return paths


def _write_shards(root, plan) -> None:
    _ = (
        root
        | "Shards" >> beam.Create(plan)
        | "Spread shards" >> beam.Reshuffle()
        | "Write shards" >> beam.Map(write_shard)
    )


def _check_options(runner: str, beam_options: Sequence[str]) -> None:
    """Raises UsageError for a runner or an option unknown to Beam."""
    try:
        create_runner(runner)
    except (ValueError, ImportError, AttributeError) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(f"runner: {runner} cannot be used: {reason}") from None
    stderr = io.StringIO()
    try:
        with contextlib.redirect_stderr(stderr):
            options = PipelineOptions(list(beam_options), runner=runner)
            known = options.get_all_options()
            given = options.get_all_options(retain_unknown_options=True)
    except SystemExit:
        reason = stderr.getvalue().strip().rpartition("error: ")[2]
        raise UsageError(f"beam_option: {reason}") from None
    unknown = sorted(given.keys() - known.keys())
    unknown += [option for option in beam_options if not option.startswith("--")]
    if unknown:
        raise UsageError(f"beam_option: Beam has no option {unknown[0]!r}")


def _run(runner: str, beam_options: Sequence[str], construct) -> None:
    options = PipelineOptions(list(beam_options), runner=runner)
    try:
        root = beam.Pipeline(options=options)
    except (ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise UsageError(f"runner: {runner} cannot be used: {reason}") from None
    try:
        with _quiet(runner), root:
            construct(root)
    except Exception as error:
        known = _find_known_error(error)
        if known is None:
            raise
        raise known from error


@contextlib.contextmanager
def _quiet(runner: str) -> Iterator[None]:
    """Silences the log of a runner on this machine; errors are raised anyway.

    It reports every step of every worker, and repeats the traceback of every error.
    """
    logger = logging.getLogger("apache_beam")
    before = logger.level
    if runner in _LOCAL_RUNNERS:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def _find_known_error(error: BaseException) -> DataError | UsageError | None:
    """Returns our own error from a worker, which Beam wraps or rewrites."""
    seen: BaseException | None = error
    while seen is not None:
        for kind in (DataError, UsageError):
            if isinstance(seen, kind):
                return kind(str(seen).partition(" [while running")[0])
        seen = seen.__cause__ or seen.__context__
    return None


def _make_parts(root, groups, corpus, names, tokenizer, config):
    read = (
        root
        | "Sources" >> beam.Create(list(enumerate(groups)))
        | "Spread sources" >> beam.Reshuffle()
        | "Read" >> beam.ParDo(_Read(corpus, names)).with_outputs("digests", main="b")
    )
    _ = (
        read.b
        | "Spread blocks" >> beam.Reshuffle()
        | "Make part" >> beam.ParDo(_MakePart(names, tokenizer, config))
    )
    _ = (
        read.digests
        | "Count documents" >> beam.combiners.Count.PerElement()
        | "Repeated" >> beam.Map(lambda pair: pair[1] - 1)
        | "Add" >> beam.CombineGlobally(sum)
        | "Note" >> beam.Map(_write_json, path=_duplicates_path(names))
    )


class _Read(beam.DoFn):
    """Reads a group of sources as blocks; writes a report of what was skipped."""

    def __init__(self, corpus: Corpus, names):
        self._corpus = corpus
        self._names = names

    def process(self, element):
        """Yields ((group, number), block), and the digest of each document."""
        group, sources = element
        # Beam may call a DoFn many times; the counts must be those of this group.
        corpus = self._corpus.restarted()
        number = -1
        documents = corpus.documents(sources)
        for number, block in enumerate(blocks.make_blocks(documents)):
            for document in block:
                yield beam.pvalue.TaggedOutput("digests", document_digest(document))
            yield (group, number), block
        report = {
            "blocks": number + 1,
            "counts": dict(corpus.counts),
            "sha256": corpus.sha256,
        }
        _write_json(report, _report_path(self._names, group))


class _MakePart(beam.DoFn):
    """Writes the part file of a block."""

    def __init__(self, names, tokenizer, config):
        self._names = names
        self._tokenizer = tokenizer
        self._config = config

    def process(self, element):
        """Writes the part."""
        (group, number), block = element
        block = [RawDocument(*document) for document in block]
        path = self._names.part(group, number)
        parts.make_part(block, path, self._tokenizer, self._config)


def _report_path(names, group: int) -> str:
    return files.join(names.partial, f"group-{group:06d}.json")


def _duplicates_path(names) -> str:
    return files.join(names.partial, "duplicates.json")


def _read_report(names, group: int) -> dict:
    report = json.loads(files.read_text(_report_path(names, group)))
    return report | {"counts": Counter(report["counts"])}


def _write_json(value, path: str) -> None:
    files.write_text(path, json.dumps(value))
