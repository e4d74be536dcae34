"""What the records of a file hold."""

import numpy as np

from albert_tf.data.records.tfrecord import RecordSet
from albert_tf.errors import DataError

MASK_FEATURES = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")


def describe(records: RecordSet) -> dict[str, int | str | None]:
    """Tells the form of a data set from its first record.

    Returns:
        `form`: "dynamic" (tokens without masks, real length) or "static" (the
        original's eight features of fixed length); `sequence_length` S and
        `num_predictions` P of a static set, else None.

    Raises:
        DataError: The first record is neither.
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
    """(form, S, P) of one parsed example; S and P are None for a dynamic one."""
    for name in ("input_ids", "segment_ids"):
        if name not in example:
            raise DataError(
                f"{where}: a pretraining record needs the feature {name!r}, "
                f"this one has {sorted(example)}"
            )
    length = len(example["input_ids"])
    present = [name for name in MASK_FEATURES if name in example]
    if not present:
        if "token_boundary" not in example:
            raise DataError(
                f"{where}: a record without masks needs 'token_boundary', "
                f"this one has {sorted(example)}"
            )
        lengths = {n: len(example[n]) for n in ("segment_ids", "token_boundary")}
        form, predictions = "dynamic", None
    else:
        missing = sorted(
            {*MASK_FEATURES, "input_mask", "next_sentence_labels"} - set(example)
        )
        if missing:
            raise DataError(f"{where}: a masked record lacks {missing}")
        predictions = len(example["masked_lm_ids"])
        lengths = {n: len(example[n]) for n in ("segment_ids", "input_mask")}
        form = "static"
        if {len(example[name]) for name in MASK_FEATURES} != {predictions}:
            raise DataError(f"{where}: the masked_lm_* features differ in length")
    wrong = {name: n for name, n in lengths.items() if n != length}
    if wrong:
        raise DataError(f"{where}: input_ids has {length} values, others {wrong}")
    return form, (length if form == "static" else None), predictions
