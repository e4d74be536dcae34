"""Corpus to record files with Apache Beam, on any of its runners.

There are three pipelines, each over a list of small elements (`jobs/beam.py` explains
why): groups of sources become files with one block of text each, these become part
files, and the parts are joined into shards. All use the functions of the local run on
the same blocks, so the shards have the same bytes. The text of a block goes through a
file and not through Beam, because Dask's runner would process all blocks of a group in
the one worker that read it. Workers and the caller must see the same files: run all on
one machine, or use paths such as `gs://`. Needs the extra `beam`.
"""

import functools
import json
import os
from collections.abc import Sequence

from albert_tf.data.corpus.corpus import Corpus
from albert_tf.data.corpus.documents import (
    DIGEST_BYTES,
    DuplicateCounter,
    RawDocument,
    document_digest,
)
from albert_tf.data.prepare import blocks, output
from albert_tf.jobs.beam import check_runner, run_each
from albert_tf.storage import files


class Pipelines:
    """Does on a Beam runner what `create.py` does on this machine.

    Raises `UsageError` if Beam cannot use the runner or its options.
    """

    def __init__(self, runner: str, beam_options: Sequence[str]):
        check_runner(runner, beam_options)
        self._given = runner, beam_options

    def make_parts(
        self, corpus: Corpus, job: str, counter: DuplicateCounter
    ) -> list[str]:
        """Makes the parts of a corpus, one worker per group; returns their paths.

        The corpus gets the counts and checksums of all groups, and the counter all
        documents. `job` is a file for `output.read_job`, in the folder of the parts.
        """
        groups = list(enumerate(blocks.source_groups(corpus)))
        run_each(groups, functools.partial(_read, job), *self._given)
        part_keys = []
        for group, _ in groups:
            report = json.loads(files.read_bytes(_path(job, "group", group)))
            corpus.counts.update(report["counts"])
            corpus.sha256.update(report["sha256"])
            part_keys += [(group, number) for number in range(report["blocks"])]
            digests = files.read_bytes(_path(job, "digests", group))
            for at in range(0, len(digests), DIGEST_BYTES):
                counter.is_new(digests[at : at + DIGEST_BYTES])
        run_each(part_keys, functools.partial(_make_part, job), *self._given)
        return [output.part_path(os.path.dirname(job), *block) for block in part_keys]

    def write_shards(self, plan: Sequence[output.Shard]) -> None:
        """Writes the shards of a plan."""
        run_each(plan, output.write_shard, *self._given)


def _read(job: str, element: tuple[int, list[int]]) -> None:
    """Reads a group of sources: writes its blocks, digests and a report."""
    group, sources = element
    # A worker may read several groups; the counts must cover only this one.
    corpus = output.read_job(job).corpus.restarted()
    number, digests = 0, bytearray()
    for block in blocks.make_blocks(corpus.documents(sources)):
        digests += b"".join(map(document_digest, block))
        text = json.dumps(block).encode()
        files.write_bytes(_path(job, "text", group, number), text)
        number += 1
    files.write_bytes(_path(job, "digests", group), bytes(digests))
    report = {"blocks": number, "counts": corpus.counts, "sha256": corpus.sha256}
    files.write_bytes(_path(job, "group", group), json.dumps(report).encode())


def _make_part(job: str, block: tuple[int, int]) -> None:
    """Writes the part file of a block."""
    documents = json.loads(files.read_bytes(_path(job, "text", *block)))
    documents = [RawDocument(*document) for document in documents]
    path = output.part_path(os.path.dirname(job), *block)
    output.make_part(documents, path, job)


def _path(job: str, kind: str, *numbers: int) -> str:
    """Returns a file that passes data of a step to the next one, next to the job's."""
    name = "-".join([kind, *(f"{number:06d}" for number in numbers)])
    return files.join(os.path.dirname(job), name)
