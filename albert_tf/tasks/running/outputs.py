"""Runs a model over the encoded examples of a task, whatever its head.

Legend: `R` rows, `P` places, `b` rows of a batch.
"""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from albert_tf import features
from albert_tf.heads import HEADS
from albert_tf.tasks.definitions.family import EncodedExamples
from albert_tf.tasks.running.batches import BatchShape, batch_maker

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
    return ranks | {features.PLACES: 2 if head != "text_classifier" else 1}


def collect_outputs(
    forward: Forward,
    encoded: EncodedExamples,
    shape: BatchShape,
    batch_size: int,
    on_batch: Callable[[int], None] = lambda rows: None,
) -> dict[str, np.ndarray]:
    """Returns the outputs of a model for all rows, as `family.Family` describes them.

    Args:
        forward: callable. From a batch, whose keys are those of `input_ranks`, to the
            outputs of the model.
        encoded: `EncodedExamples`. `R` rows.
        shape: `BatchShape`. Without packing.
        batch_size: int. `b`.
        on_batch: callable. Is told the number of rows after every batch.
    """
    rows = encoded.rows
    make = batch_maker(_one_row_per_unit(encoded), shape)
    names = input_ranks(shape.head)
    # Rows of similar length together: less padding.
    order = np.argsort(rows.lengths, kind="stable")
    results: dict[str, list] = {}
    for start in range(0, len(order), batch_size):
        numbers = order[start : start + batch_size]
        # Devices take equal shares, and a fixed shape has a fixed number of rows.
        size = batch_size if shape.fixed_length else len(numbers)
        batch = make(_padded(numbers, -(-size // shape.parts) * shape.parts))
        outputs = forward({name: batch[name] for name in names})
        if not isinstance(outputs, Mapping):
            outputs = {"logits": outputs}
        for name, values in outputs.items():
            kept = _kept(encoded, shape.head, name, numbers, values[: len(numbers)])
            results.setdefault(name, []).extend(kept)
        on_batch(len(numbers))
    back = np.argsort(order, kind="stable")
    return {
        name: _joined(encoded, shape.head, name, [values[i] for i in back])
        for name, values in results.items()
    }


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
