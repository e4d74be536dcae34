"""Corpus to record files with Apache Beam, on any of its runners.

Three pipelines, each over a list of small elements (`pipelines/beam.py` says why):
groups of sources become files with one block of text each, these become part files,
and the parts are joined into shards. All use the functions of the local run on the same
blocks, so the shards have the same bytes. The text of a block goes through a file and
not through Beam, because Dask's runner would process all blocks of a group in the one
worker that read it. Workers and the caller must see the same files: run all on one
machine, or use paths such as `gs://`. Needs the extra `beam`.
"""

import functools
import hashlib
import io
import json
import pickle
from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np

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
from albert_tf.pipelines.beam import check_runner, run_each
from albert_tf.storage import files

# Of each document, as many bytes of its digest are compared as in a local run.
_DIGEST = np.dtype("<u8")
# Documents whose digests are in memory at once.
_DIGESTS = 1 << 26


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
    check_runner(runner, beam_options)
    names = OutputNames(output, num_shards)
    settings = run_settings(corpus, tokenizer, config, drop_duplicates=False)
    prepare(names, settings, overwrite)
    groups = blocks.source_groups(corpus)
    job = _write_job(names, (corpus, names, tokenizer, config))
    run_each(
        list(enumerate(groups)), functools.partial(_read, job), runner, beam_options
    )
    reports = [_read_report(names, group) for group in range(len(groups))]
    for report in reports:
        corpus.counts.update(report["counts"])
        corpus.sha256.update(report["sha256"])
    found = [(g, n) for g, r in enumerate(reports) for n in range(r["blocks"])]
    run_each(found, functools.partial(_make_part, job), runner, beam_options)
    paths = [names.part(*block) for block in found]
    summary, plan = plan_output(names, paths, config, corpus)
    run_each(plan, write_shard, runner, beam_options)
    counter = SimpleNamespace(
        num_duplicates=_count_duplicates(names, reports), is_complete=True
    )
    shards = entries(plan)
    data_card = card.make_card(
        summary, config, corpus, counter, tokenizer, shards, settings, flags or {}
    )
    finish(names, plan, data_card)
    return data_card


def _write_job(names: OutputNames, job: tuple) -> str:
    """Writes what all workers need to a file, once instead of with each element.

    It is named by its content, as a worker that stays on may see several jobs.
    """
    data = pickle.dumps(job)
    name = f"job-{hashlib.sha256(data).hexdigest()[:16]}.pickle"
    path = files.join(names.partial, name)
    files.write_bytes(path, data)
    return path


@functools.lru_cache(maxsize=1)
def _read_job(path: str) -> tuple:
    return pickle.loads(files.read_bytes(path))


def _read(job: str, element: tuple[int, list[int]]) -> None:
    """Reads a group of sources: writes its blocks, digests and a report."""
    corpus, names, *_ = _read_job(job)
    group, sources = element
    # A worker may read several groups; the counts must be those of this one.
    corpus = corpus.restarted()
    number, digests = -1, bytearray()
    for number, block in enumerate(blocks.make_blocks(corpus.documents(sources))):
        for document in block:
            digests += document_digest(document)[: _DIGEST.itemsize]
        _write_json(block, _text_path(names, group, number))
    buffer = io.BytesIO()
    np.save(buffer, np.frombuffer(digests, _DIGEST))
    files.write_bytes(_digests_path(names, group), buffer.getvalue())
    report = {
        "blocks": number + 1,
        "documents": len(digests) // _DIGEST.itemsize,
        "counts": dict(corpus.counts),
        "sha256": corpus.sha256,
    }
    _write_json(report, _report_path(names, group))


def _make_part(job: str, block: tuple[int, int]) -> None:
    """Writes the part file of a block."""
    _, names, tokenizer, config = _read_job(job)
    documents = json.loads(files.read_bytes(_text_path(names, *block)))
    documents = [RawDocument(*document) for document in documents]
    parts.make_part(documents, names.part(*block), tokenizer, config)


def _count_duplicates(names: OutputNames, reports: Sequence[dict]) -> int:
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
            data = files.read_bytes(_digests_path(names, group))
            digests = np.load(io.BytesIO(data))
            chosen.append(digests[(digests >= low) & (digests <= high)])
        distinct += len(np.unique(np.concatenate(chosen)))
    return total - distinct


def _text_path(names: OutputNames, group: int, number: int) -> str:
    return files.join(names.partial, f"text-{group:06d}-{number:06d}.json")


def _digests_path(names: OutputNames, group: int) -> str:
    return files.join(names.partial, f"digests-{group:06d}.npy")


def _report_path(names: OutputNames, group: int) -> str:
    return files.join(names.partial, f"group-{group:06d}.json")


def _read_report(names: OutputNames, group: int) -> dict:
    report = json.loads(files.read_text(_report_path(names, group)))
    return report | {"counts": Counter(report["counts"])}


def _write_json(value, path: str) -> None:
    files.write_text(path, json.dumps(value))
