"""Runs a model of any head over the encoded examples of a task.

Legend: `R` rows, `P` places, `b` rows of a batch.
"""

import concurrent.futures
import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tqdm

from albert_tf import features
from albert_tf.heads import HEADS, LABELS
from albert_tf.tasks.batches import BatchMaker, BatchShape
from albert_tf.tasks.task import EncodedExamples

if TYPE_CHECKING:
    import keras

Forward = Callable[[dict[str, np.ndarray]], "np.ndarray | Mapping[str, np.ndarray]"]


def input_ranks(head: str) -> dict[str, int]:
    """Returns the inputs of a model with this head, with their ranks.

    Args:
        head: str. Name of a head, one of `heads.HEADS`.
    """
    ranks = {
        features.TOKEN_IDS: 2,
        features.SEGMENT_IDS: 2,
        features.PADDING_MASK: 2,
    }
    if HEADS[head].answers_spans:
        return ranks | {features.P_MASK: 2}
    return ranks | {features.PLACES: 1 if HEADS[head].answers == LABELS else 2}


def as_forward(model: "keras.Model", head: str) -> Forward:
    """Returns a function from a batch of arrays to the outputs, as arrays.

    One graph serves batches of any size. Run eagerly, a model would keep every layer's
    hidden states and attention maps until the call returns.

    Args:
        model: keras.Model. Takes the inputs of `outputs.input_ranks`.
        head: str. Name of its head.
    """
    import keras

    ranks = input_ranks(head)

    def call(batch):
        return model(batch, training=False)

    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        spec = {n: tf.TensorSpec([None] * rank, tf.int32) for n, rank in ranks.items()}
        call = tf.function(call, input_signature=[spec])

    def forward(batch: Mapping[str, np.ndarray]) -> Any:
        tensors = {n: keras.ops.convert_to_tensor(batch[n], "int32") for n in ranks}
        return keras.tree.map_structure(keras.ops.convert_to_numpy, call(tensors))

    return forward


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
    """Returns the outputs of a model for all rows, as `task.Family` describes them.

    Args:
        forward: callable. From a batch, whose keys are those of `input_ranks`, to the
            outputs of the model.
        encoded: `EncodedExamples`. `R` rows.
        shape: `BatchShape`. Without packing.
        batch_size: int. `b`, at most.
        on_batch: callable. Called with the number of rows after every batch.
        max_tokens: int or None. Tokens of a batch, padding included, at most.
        num_threads: int. How many batches are computed at the same time. The outputs do
            not depend on it.
        title: str. Title of a bar with the rate and the time left, which appears if it
            takes long; empty for none.
    """
    rows = encoded.rows
    make = BatchMaker(_one_row_per_unit(encoded), shape)
    names = input_ranks(shape.head)
    batches = sorted_batches(rows.lengths, batch_size, max_tokens, shape.step)

    def compute(numbers: np.ndarray) -> dict[str, list[np.ndarray]]:
        # Devices take equal shares, and a fixed shape has a fixed number of rows.
        size = batch_size if shape.fixed_length else len(numbers)
        batch = make(_padded(numbers, -(-size // shape.parts) * shape.parts))
        outputs = forward({name: batch[name] for name in names})
        if not isinstance(outputs, Mapping):
            outputs = {"logits": outputs}
        return {
            name: _kept(encoded, shape.head, name, numbers, values[: len(numbers)])
            for name, values in outputs.items()
        }

    results: dict[str, list] = {}
    done = zip(batches, in_threads(compute, batches, num_threads), strict=True)
    with _bar(title, int(rows.lengths.sum())) as bar:
        for numbers, outputs in done:
            for name, kept in outputs.items():
                results.setdefault(name, []).extend(kept)
            on_batch(len(numbers))
            bar.update(int(rows.lengths[numbers].sum()))
    back = np.argsort(np.concatenate(batches), kind="stable")
    return {
        name: _joined(encoded, shape.head, name, [values[i] for i in back])
        for name, values in results.items()
    }


def _bar(title: str, tokens: int) -> tqdm.tqdm:
    # A terminal is redrawn often; a log file gets a line now and then.
    interval = 0.5 if sys.stderr.isatty() else 10.0
    # Tokens, as the shortest rows come first.
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
    lengths: np.ndarray, max_rows: int, max_tokens: int | None = None, step: int = 1
) -> list[np.ndarray]:
    """Groups row indices into batches of similar length.

    Args:
        lengths: int `[R]`. Tokens of each row.
        max_rows: int. Rows of a batch, at most.
        max_tokens: int or None. Tokens of a batch, padding included, at most; but a
            batch has at least one row.
        step: int. Rows are padded to a multiple of it.
    """
    order = np.argsort(lengths, kind="stable")
    padded = -(-lengths[order] // step) * step
    batches, start = [], 0
    while start < len(order):
        end = start + max_rows
        if max_tokens is not None:
            # The last row of a batch is its longest.
            tokens = padded[start:end] * np.arange(1, len(padded[start:end]) + 1)
            end = start + max(1, int(np.searchsorted(tokens, max_tokens, "right")))
        batches.append(order[start:end])
        start = end
    return batches


def in_threads(
    function: Callable[[Any], Any], items: Sequence, num_threads: int
) -> Iterator[Any]:
    """Yields the results of a function in the order of the items.

    Args:
        function: callable. Of one item.
        items: sequence.
        num_threads: int. 1 for this thread alone.
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


def _one_row_per_unit(encoded: EncodedExamples) -> EncodedExamples:
    numbers = np.arange(len(encoded.rows) + 1)
    return dataclasses.replace(encoded, unit_splits=numbers, targets={})


def _padded(numbers: np.ndarray, size: int) -> np.ndarray:
    return np.concatenate([numbers, np.repeat(numbers[:1], size - len(numbers))])


def _kept(encoded, head, name, numbers, values) -> list[np.ndarray]:
    """Returns what belongs to each row, without padding."""
    values = np.asarray(values, np.float32 if values.dtype.kind == "f" else None)
    if encoded.places is not None:
        counts = np.diff(encoded.place_splits)[numbers]
        return [row[:n] for row, n in zip(values, counts, strict=True)]
    if HEADS[head].answers_spans and name in ("start_logits", "end_logits"):
        lengths = encoded.rows.lengths[numbers]
        return [row[:n] for row, n in zip(values, lengths, strict=True)]
    return list(values)


def _joined(encoded, head, name, values) -> np.ndarray:
    spans = HEADS[head].answers_spans and name in ("start_logits", "end_logits")
    if encoded.places is not None or spans:
        return np.concatenate(values)
    joined = np.stack(values)
    return joined[:, 0] if HEADS[head].input_rank == 3 else joined
