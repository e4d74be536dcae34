"""Corpus to record files with Apache Beam, on any of its runners.

Three pipelines, each over a list of small elements (`jobs/beam.py` says why):
groups of sources become files with one block of text each, these become part files,
and the parts are joined into shards. All use the functions of the local run on the same
blocks, so the shards have the same bytes. The text of a block goes through a file and
not through Beam, because Dask's runner would process all blocks of a group in the one
worker that read it. Workers and the caller must see the same files: run all on one
machine, or use paths such as `gs://`. Needs the extra `beam`.
"""

import functools
import io
import json
import os
from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np

from albert_tf.data.corpus.corpus import Corpus
from albert_tf.data.corpus.documents import RawDocument, document_digest
from albert_tf.data.prepare import blocks, parts
from albert_tf.data.prepare.output import Shard, write_shard
from albert_tf.jobs.beam import check_runner, run_each
from albert_tf.storage import files

# Of each document, as many bytes of its digest are compared as in a local run.
_DIGEST = np.dtype("<u8")
# Documents whose digests are in memory at once.
_DIGESTS = 1 << 26


class Pipelines:
    """Does on a Beam runner what `create.py` does on this machine.

    Args:
        runner: str. Name of a Beam runner.
        beam_options: Sequence. Options of Beam.

    Raises:
        UsageError: If Beam cannot use them.
    """

    def __init__(self, runner: str, beam_options: Sequence[str]):
        check_runner(runner, beam_options)
        self._given = runner, beam_options

    def make_parts(self, corpus: Corpus, job: str) -> tuple[SimpleNamespace, list[str]]:
        """Makes the parts of a corpus; each group of files is read by one worker.

        Args:
            corpus: `Corpus`. Gets the counts of all groups.
            job: str. File for `parts.read_job`, in the folder of the parts.

        Returns:
            What `documents.DuplicateCounter` has counted, and the paths of the parts.
        """
        groups = blocks.source_groups(corpus)
        read = functools.partial(_read, job)
        run_each(list(enumerate(groups)), read, *self._given)
        reports = [_read_report(job, group) for group in range(len(groups))]
        for report in reports:
            corpus.counts.update(report["counts"])
            corpus.sha256.update(report["sha256"])
        found = [(g, k) for g, r in enumerate(reports) for k in range(r["blocks"])]
        run_each(found, functools.partial(_make_part, job), *self._given)
        counted = _count_duplicates(job, reports)
        folder = os.path.dirname(job)
        paths = [parts.part_path(folder, *block) for block in found]
        return SimpleNamespace(num_duplicates=counted, is_complete=True), paths

    def write_shards(self, plan: Sequence[Shard]) -> None:
        """Writes the shards of a plan."""
        run_each(plan, write_shard, *self._given)


def _read(job: str, element: tuple[int, list[int]]) -> None:
    """Reads a group of sources: writes its blocks, digests and a report."""
    group, sources = element
    # A worker may read several groups; the counts must be those of this one.
    corpus = parts.read_job(job).corpus.restarted()
    number, digests = -1, bytearray()
    for number, block in enumerate(blocks.make_blocks(corpus.documents(sources))):
        for document in block:
            digests += document_digest(document)[: _DIGEST.itemsize]
        _write_json(block, _text_path(job, group, number))
    buffer = io.BytesIO()
    np.save(buffer, np.frombuffer(digests, _DIGEST))
    files.write_bytes(_digests_path(job, group), buffer.getvalue())
    report = {
        "blocks": number + 1,
        "documents": len(digests) // _DIGEST.itemsize,
        "counts": dict(corpus.counts),
        "sha256": corpus.sha256,
    }
    _write_json(report, _report_path(job, group))


def _make_part(job: str, block: tuple[int, int]) -> None:
    """Writes the part file of a block."""
    _, tokenizer, config = parts.read_job(job)
    documents = json.loads(files.read_bytes(_text_path(job, *block)))
    documents = [RawDocument(*document) for document in documents]
    path = parts.part_path(os.path.dirname(job), *block)
    parts.make_part(documents, path, tokenizer, config)


def _count_duplicates(job: str, reports: Sequence[dict]) -> int:
    """Returns the number of documents equal to an earlier one.

    Digests are compared in ranges, so that the memory stays bounded.
    """
    total = sum(report["documents"] for report in reports)
    ranges = total // _DIGESTS + 1
    step, distinct = -(-(1 << 64) // ranges), 0
    for k in range(ranges):
        low = np.uint64(k * step)
        high = np.uint64(min((k + 1) * step, 1 << 64) - 1)
        chosen = []
        for group in range(len(reports)):
            data = files.read_bytes(_digests_path(job, group))
            digests = np.load(io.BytesIO(data))
            chosen.append(digests[(digests >= low) & (digests <= high)])
        distinct += len(np.unique(np.concatenate(chosen)))
    return total - distinct


def _text_path(job: str, group: int, number: int) -> str:
    return _next_to(job, f"text-{group:06d}-{number:06d}.json")


def _digests_path(job: str, group: int) -> str:
    return _next_to(job, f"digests-{group:06d}.npy")


def _report_path(job: str, group: int) -> str:
    return _next_to(job, f"group-{group:06d}.json")


def _next_to(job: str, name: str) -> str:
    return files.join(os.path.dirname(job), name)


def _read_report(job: str, group: int) -> dict:
    report = json.loads(files.read_text(_report_path(job, group)))
    return report | {"counts": Counter(report["counts"])}


def _write_json(value, path: str) -> None:
    files.write_text(path, json.dumps(value))
