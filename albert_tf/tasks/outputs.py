"""Runs a model of any head over the encoded examples of a task.

Legend: `R` rows, `P` places, `b` rows of a batch.
"""

import concurrent.futures
import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tqdm

from albert_tf import features
from albert_tf.heads import HEADS, LABELS
from albert_tf.tasks.batches import BatchMaker, BatchShape
from albert_tf.tasks.task import EncodedExamples

Forward = Callable[[dict[str, np.ndarray]], "np.ndarray | Mapping[str, np.ndarray]"]


def input_ranks(head: str) -> dict[str, int]:
    """Returns the inputs of a model with this head, and their ranks."""
    ranks = {features.TOKEN_IDS: 2, features.SEGMENT_IDS: 2, features.PADDING_MASK: 2}
    if HEADS[head].answers_spans:
        return ranks | {features.P_MASK: 2}
    return ranks | {features.PLACES: 1 if HEADS[head].answers == LABELS else 2}


def collect_outputs(
    forward: Forward,
    encoded: EncodedExamples,
    shape: BatchShape,
    batch_size: int,
    on_batch: Callable[[int], None] = lambda rows: None,
    *,
    max_tokens: int | None = None,
    num_threads: int = 1,
    title: str = "",
) -> dict[str, np.ndarray]:
    """Returns the outputs of a model for all rows; see `task.Task` for their form.

    They do not depend on `num_threads`, the number of batches computed at the same
    time. A bar with a title, the rate and the time left appears if the work takes long.

    Args:
        forward: Maps a batch, with the keys of `input_ranks`, to the outputs.
        shape: Without packing.
        batch_size: `b`, at most.
        on_batch: Called with the number of rows after every batch.
        max_tokens: Maximum number of tokens of a batch, padding included.
    """
    rows, step = encoded.rows, shape.step
    splits = np.arange(len(rows) + 1)
    one_per_row = dataclasses.replace(encoded, unit_splits=splits, targets={})
    make = BatchMaker(one_per_row, shape)
    names = input_ranks(shape.head)
    batches = sorted_batches(rows.lengths, batch_size, max_tokens, step, shape.row_step)
    counts = {}
    if encoded.places is not None:
        counts["logits"] = np.diff(encoded.place_splits)
    elif HEADS[shape.head].answers_spans:
        counts = dict.fromkeys(("start_logits", "end_logits"), rows.lengths)

    def compute(numbers: np.ndarray) -> dict[str, Sequence[np.ndarray]]:
        # Devices get equal shares, and a fixed shape has a fixed number of rows.
        size = batch_size if shape.fixed_length else len(numbers)
        size += -size % shape.parts
        padding = np.repeat(numbers[:1], size - len(numbers))
        batch = make(np.concatenate([numbers, padding]))
        outputs = forward({name: batch[name] for name in names})
        if not isinstance(outputs, Mapping):
            outputs = {"logits": outputs}
        arrays = {}
        for name, values in outputs.items():
            values = np.asarray(
                values, np.float32 if values.dtype.kind == "f" else None
            )
            arrays[name] = values[: len(numbers)]
            if name in counts:  # without padding
                pairs = zip(arrays[name], counts[name][numbers], strict=True)
                arrays[name] = [row[:n] for row, n in pairs]
        return arrays

    results: dict[str, list] = {}
    done = zip(batches, in_threads(compute, batches, num_threads), strict=True)
    with _bar(title, int(rows.lengths.sum())) as bar:
        for numbers, outputs in done:
            for name, kept in outputs.items():
                results.setdefault(name, []).extend(kept)
            on_batch(len(numbers))
            bar.update(int(rows.lengths[numbers].sum()))
    back = np.argsort(np.concatenate(batches), kind="stable")
    joined = {}
    for name, values in results.items():
        join = np.concatenate if name in counts else np.stack
        joined[name] = join([values[i] for i in back])
        if HEADS[shape.head].has_several_rows:
            joined[name] = joined[name][:, 0]
    return joined


def _bar(title: str, tokens: int) -> tqdm.tqdm:
    # A terminal is redrawn often; a log file gets a line now and then.
    interval = 0.5 if sys.stderr.isatty() else 10.0
    # Counts tokens, since the shortest rows come first.
    return tqdm.tqdm(
        total=tokens,
        desc=title,
        unit="tok",
        unit_scale=True,
        mininterval=interval,
        delay=interval,
        disable=not title,
        leave=False,
        dynamic_ncols=True,
    )


def sorted_batches(
    lengths: np.ndarray,
    max_rows: int,
    max_tokens: int | None = None,
    step: int = 1,
    row_step: int = 1,
) -> list[np.ndarray]:
    """Groups row indices into batches of similar length.

    A batch has at most `max_tokens`, padding to a multiple of `step` included, but at
    least one row; where that limits it, its number of rows is a multiple of `row_step`,
    or a power of two below it.
    """
    order = np.argsort(lengths, kind="stable")
    padded = -(-lengths[order] // step) * step
    batches, start = [], 0
    while start < len(order):
        end = start + max_rows
        if max_tokens is not None:
            # The last row of a batch is its longest.
            tokens = padded[start:end] * np.arange(1, len(padded[start:end]) + 1)
            count = max(1, int(np.searchsorted(tokens, max_tokens, "right")))
            count = count // row_step * row_step or 1 << (count.bit_length() - 1)
            end = start + count
        batches.append(order[start:end])
        start = end
    return batches


def in_threads(
    function: Callable[[Any], Any], items: Sequence, num_threads: int
) -> Iterator[Any]:
    """Yields the results of a function in the order of the items.

    With `num_threads` 1, only the current thread is used.
    """
    if num_threads == 1:
        yield from map(function, items)
        return
    with concurrent.futures.ThreadPoolExecutor(num_threads) as pool:
        try:
            yield from pool.map(function, items)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
