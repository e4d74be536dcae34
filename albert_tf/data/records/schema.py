"""Finds out which kind of records a data set holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from albert_tf import features
from albert_tf.errors import DataError, require

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
    example, where = records.example(0), records.paths[0]
    for name in (features.INPUT_IDS, features.SEGMENT_IDS):
        _require(
            name in example,
            where,
            f"a pretraining record needs the feature {name!r}",
            example,
        )
    is_static = any(name in example for name in _MASKS)
    if is_static:
        per_token = (features.SEGMENT_IDS, features.INPUT_MASK)
        for name in (*_MASKS, features.INPUT_MASK, features.NEXT_SENTENCE_LABELS):
            _require(name in example, where, f"a masked record needs {name!r}", example)
        predictions = {len(example[name]) for name in _MASKS}
        rule = f"{where}: the masked_lm_* features differ in length"
        require(len(predictions) == 1, rule, error=DataError)
    else:
        per_token = (features.SEGMENT_IDS, features.TOKEN_BOUNDARY)
        rule = f"a record without masks needs {features.TOKEN_BOUNDARY!r}"
        _require(features.TOKEN_BOUNDARY in example, where, rule, example)
    length = len(example[features.INPUT_IDS])
    wrong = {k: len(example[k]) for k in per_token if len(example[k]) != length}
    rule = f"{where}: {features.INPUT_IDS} has {length} values, others {wrong}"
    require(not wrong, rule, error=DataError)
    return {
        "form": "static" if is_static else "dynamic",
        "sequence_length": length if is_static else None,
        "num_predictions": predictions.pop() if is_static else None,
    }


def _require(condition: bool, where: str, rule: str, example: dict) -> None:
    names = ", ".join(sorted(example)) or "none"
    require(condition, f"{where}: {rule}, this one has {names}", error=DataError)
