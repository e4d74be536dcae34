"""Answers of a SavedModel to the rows of files, on any runner of Apache Beam.

Three pipelines (`jobs/beam.py` says why): every file is cut into blocks of
neighbouring rows, the blocks are answered, and the answers are joined into
files of equal numbers of rows. A block is answered as a whole, in batches that depend
only on its texts. So the files have the same bytes with any runner and number of
workers, also if some of them die. Workers and the caller must see the same files.
Needs the extra `beam` and TensorFlow.
"""

import functools
import json
import threading
from collections.abc import Sequence
from typing import Any

from albert_tf.errors import DataError, UsageError
from albert_tf.inference.pipeline import outputs, rows, saved_model
from albert_tf.inference.pipeline.outputs import Block, OutputFiles
from albert_tf.inference.pipeline.rows import Reading, Source
from albert_tf.inference.pipeline.settings import PipelineSettings
from albert_tf.jobs.beam import check_runner, run_each
from albert_tf.storage import files
from albert_tf.storage.lock import locked_workplace

_LOADING = threading.Lock()


def predict_with_beam(settings: PipelineSettings) -> list[str]:
    """Writes the answers of a SavedModel to all rows as JSON Lines.

    A line has the index of the row in all files, `index`, then the copied
    columns and the outputs of the signature. A run that was interrupted goes on with
    the blocks that it finds.

    Returns:
        list of str. Paths of the files.

    Raises:
        UsageError: If a setting is invalid, files exist, or another process works on
            this output.
        DataError: If a file or the model cannot be read.
    """
    check_runner(settings.runner, settings.beam_option)
    names = OutputFiles(settings.output_file, settings.num_shards)
    reading = _choose_reading(settings)
    sources = rows.find_sources(settings.input_file)
    rows.check_readable(sources, reading)
    with locked_workplace(names.partial):
        return _run(settings, names, sources, reading)


def _run(
    settings: PipelineSettings,
    names: OutputFiles,
    sources: Sequence[Source],
    reading: Reading,
) -> list[str]:
    """Cuts, answers and joins; returns the paths of the files."""
    runner, options = settings.runner, settings.beam_option
    names.prepare(_determining(settings, sources, reading), settings.overwrite)
    done = {files.join(names.partial, n) for n in files.list_folder(names.partial)}
    unread = [(k, s) for k, s in enumerate(sources) if names.report(k) not in done]
    read = functools.partial(_read, names, reading)
    run_each(unread, read, runner, options)
    blocks = _list_blocks(names, len(sources))
    if not blocks:
        raise DataError(f"input_file: {settings.input_file}: contains no text")
    plan = outputs.plan_shards(names, blocks)
    unanswered = [block for block in blocks if block.answers not in done]
    run_each(unanswered, functools.partial(_answer, settings), runner, options)
    run_each(plan, outputs.write_shard, runner, options)
    return names.finish(len(plan))


def _choose_reading(settings: PipelineSettings) -> Reading:
    """Returns how rows are read, checked against the inputs of the signature."""
    ranks, given = saved_model.read_signature(settings.saved_model, settings.signature)
    if taken := sorted({"index", *given} & set(settings.copy_columns)):
        raise UsageError(
            f"copy_columns: the answers have a field {taken[0]!r} of their own"
        )
    chosen = settings.chosen_columns()
    if unknown := sorted(chosen.keys() - ranks.keys()):
        raise UsageError(
            f"columns: {settings.signature} takes {', '.join(ranks)}, received "
            f"{', '.join(unknown)}"
        )
    columns = {name: chosen.get(name, name) for name in ranks}
    return Reading(columns, ranks, list(settings.copy_columns), settings.block_size)


def _determining(
    settings: PipelineSettings, sources: Sequence[Source], reading: Reading
) -> dict[str, Any]:
    """Returns what determines the answers to the blocks."""
    return {
        "version": 1,
        "sources": sources,
        "model": saved_model.digest(settings.saved_model),
        "signature": settings.signature,
        "reading": reading,
        "batch_size": settings.batch_size,
    }


def _read(names: OutputFiles, reading: Reading, element: tuple[int, Source]) -> None:
    """Cuts a file into blocks; writes them and then their sizes."""
    number, source = element
    blocks = rows.read_blocks(source.path, reading)
    for k, block in enumerate(blocks):
        files.write_text(names.content(number, k), json.dumps(block))
    report = json.dumps([block["rows"] for block in blocks])
    files.write_text(names.report(number), report)


def _list_blocks(names: OutputFiles, num_sources: int) -> list[Block]:
    """Returns all blocks in the order of the files."""
    blocks: list[Block] = []
    start = 0
    for source in range(num_sources):
        sizes = json.loads(files.read_text(names.report(source)))
        for k, size in enumerate(sizes):
            content, answers = names.content(source, k), names.answers(source, k)
            blocks.append(Block(content, answers, start, size))
            start += size
    return blocks


def _answer(settings: PipelineSettings, block: Block) -> None:
    """Writes the answers to a block."""
    block = Block(*block)  # Beam may hand over a plain tuple
    content = json.loads(files.read_bytes(block.content))
    with _LOADING:  # one model for all threads of a process
        model = _load(settings.saved_model, settings.signature)
    found = model.answer(content["inputs"], settings.batch_size)
    _write_answers(block, content, found)


@functools.lru_cache(maxsize=1)
def _load(path: str, signature: str) -> saved_model.ServedModel:
    return saved_model.ServedModel(path, signature)


def _write_answers(block: Block, content: dict[str, Any], found: list) -> None:
    lines = []
    for k, answer in enumerate(found):
        copied = {name: values[k] for name, values in content["copied"].items()}
        row = {"index": block.start + k, **copied, **answer}
        lines.append(files.to_json(row, ensure_ascii=False) + "\n")
    files.write_text(block.answers, "".join(lines))
