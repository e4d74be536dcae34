"""Finds out which kind of records a data set holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from albert_tf import features
from albert_tf.errors import DataError

if TYPE_CHECKING:
    from albert_tf.data.records.tfrecord import RecordSet

_MASKS = (
    features.MASKED_LM_POSITIONS,
    features.MASKED_LM_IDS,
    features.MASKED_LM_WEIGHTS,
)


def describe(records: RecordSet) -> dict[str, int | str | None]:
    """Returns the form of a data set, judged by its first record.

    Returns:
        `form`: "dynamic" (tokens without masks, real length) or "static" (the
        original's features of fixed length); `sequence_length` S and
        `num_predictions` P of a static set, else None.

    Raises:
        DataError: If the first record is neither.
    """
    first = records.example(0)
    form, length, predictions = record_form(first, records.paths[0])
    return {
        "form": form,
        "sequence_length": length,
        "num_predictions": predictions,
    }


def record_form(
    example: dict[str, np.ndarray], where: str
) -> tuple[str, int | None, int | None]:
    """Returns (form, S, P) of a parsed example; S and P are None for a dynamic one.

    Raises:
        DataError: If features are missing or differ in length.
    """
    for name in (features.INPUT_IDS, features.SEGMENT_IDS):
        if name not in example:
            raise DataError(
                f"{where}: a pretraining record needs the feature {name!r}, "
                f"this one has {', '.join(sorted(example)) or 'none'}"
            )
    length = len(example[features.INPUT_IDS])
    is_static = any(name in example for name in _MASKS)
    if is_static:
        predictions = _num_predictions(example, where)
        per_token = (features.SEGMENT_IDS, features.INPUT_MASK)
    else:
        predictions = None
        per_token = (features.SEGMENT_IDS, features.TOKEN_BOUNDARY)
        if features.TOKEN_BOUNDARY not in example:
            raise DataError(
                f"{where}: a record without masks needs {features.TOKEN_BOUNDARY!r}, "
                f"this one has {', '.join(sorted(example)) or 'none'}"
            )
    lengths = {name: len(example[name]) for name in per_token}
    wrong = {name: n for name, n in lengths.items() if n != length}
    if wrong:
        raise DataError(
            f"{where}: {features.INPUT_IDS} has {length} values, others {wrong}"
        )
    if is_static:
        return "static", length, predictions
    return "dynamic", None, None


def _num_predictions(example: dict[str, np.ndarray], where: str) -> int:
    needed = {*_MASKS, features.INPUT_MASK, features.NEXT_SENTENCE_LABELS}
    if missing := sorted(needed - set(example)):
        raise DataError(f"{where}: a masked record lacks {missing}")
    lengths = {len(example[name]) for name in _MASKS}
    if len(lengths) > 1:
        raise DataError(f"{where}: the masked_lm_* features differ in length")
    return lengths.pop()
