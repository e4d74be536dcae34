"""The same data set made by an Apache Beam pipeline, on any of its runners.

Two pipelines: documents to part files, one a block, then part files to shards. Both
steps are the local path's own functions on the same blocks, so the shards are the same
bytes. Workers and the caller must see the same files: all on one machine, or paths such
as `gs://`. Needs the extra `beam`.
"""

import contextlib
import io
import json
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from types import SimpleNamespace

from albert_tf.data.corpus.corpus import Corpus
from albert_tf.data.corpus.duplicates import document_digest
from albert_tf.data.prepare import blocks, parts
from albert_tf.data.prepare import config as prepare_config
from albert_tf.data.prepare import output as prepare_output
from albert_tf.data.records import card
from albert_tf.errors import DataError, UsageError
from albert_tf.storage import files

# Of the optional parts it looks for, it warns of each that is not there.
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
    config: prepare_config.RecordConfig,
    runner: str = "DirectRunner",
    beam_options: Sequence[str] = (),
    num_shards: int | None = None,
    overwrite: bool = False,
    flags: dict | None = None,
) -> dict:
    """`build.create_pretraining_data` on a Beam runner; same files, same card.

    Args:
        corpus: what to read; each group of files is read by one worker.
        output: as there.
        tokenizer: as there.
        config: as there.
        runner: name of a Beam runner.
        beam_options: options of Beam, as `--project=name`.
        num_shards: as there.
        overwrite: as there.
        flags: as there.

    Returns:
        The data card.
    """
    _check_options(runner, beam_options)
    names = prepare_output.OutputNames(output, num_shards)
    settings = prepare_output.run_settings(
        corpus, tokenizer, config, drop_duplicates=False
    )
    prepare_output.prepare(names, settings, overwrite)
    groups = blocks.source_groups(corpus)
    _run(
        runner,
        beam_options,
        lambda root: _make_parts(root, groups, corpus, names, tokenizer, config),
    )
    reports = [_read_report(names, group) for group in range(len(groups))]
    paths = [
        names.part(group, number)
        for group, report in enumerate(reports)
        for number in range(report["blocks"])
    ]
    for report in reports:
        corpus.counts.update(report["counts"])
        corpus.sha256.update(report["sha256"])
    summary = parts.summarize(paths)
    prepare_output.check_not_empty(names, summary, config, +corpus.counts)
    plan = prepare_output.plan_shards(names, paths, summary)
    prepare_output.remove_others(names, plan)
    _run(
        runner,
        beam_options,
        lambda root: (
            root
            | "Shards" >> beam.Create(plan)
            | "Spread shards" >> beam.Reshuffle()
            | "Write shards" >> beam.Map(prepare_output.write_shard)
        ),
    )
    repeated = json.loads(files.read_text(_duplicates_path(names)))
    counter = SimpleNamespace(num_duplicates=repeated, is_complete=True)
    data_card = card.make_card(
        summary,
        config,
        corpus,
        counter,
        tokenizer,
        prepare_output.entries(plan),
        settings,
        flags or {},
    )
    prepare_output.finish(names, data_card)
    return data_card


def _check_options(runner: str, beam_options: Sequence[str]) -> None:
    """Raises UsageError for a runner or an option that Beam does not know."""
    try:
        create_runner(runner)
    except (ValueError, ImportError, AttributeError) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(f"runner: {runner} cannot be used: {reason}") from None
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            options = PipelineOptions(list(beam_options), runner=runner)
            known = options.get_all_options()
            given = options.get_all_options(retain_unknown_options=True)
    except SystemExit:
        reason = said.getvalue().strip().rpartition("error: ")[2]
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
    """Silences the log of a runner on this machine; what fails is raised anyway.

    It tells each step of each worker, and the traceback of each error again.
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
    """An error of ours in a worker; Beam wraps or re-writes it."""
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
    """A group of sources to its blocks; leaves a report of what was skipped."""

    def __init__(self, corpus: Corpus, names):
        self._corpus = corpus
        self._names = names

    def process(self, element):
        """Yields ((group, number), block), and the digest of each document."""
        group, sources = element
        # Beam may call a DoFn many times; the counts must be this group's alone.
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
    """A block to its part file."""

    def __init__(self, names, tokenizer, config):
        self._names = names
        self._tokenizer = tokenizer
        self._config = config

    def process(self, element):
        """Writes the part."""
        (group, number), block = element
        block = [blocks.RawDocument(*document) for document in block]
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
