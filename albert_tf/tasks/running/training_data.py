"""Makes the training data set of a fine-tuning task.

Legend: `U` units of a batch, `B` rows, `T` sequence.
"""

import numpy as np
import tensorflow as tf

from albert_tf import features
from albert_tf.data.batches.order import shuffled
from albert_tf.data.batches.python_op import python_op
from albert_tf.heads import HEADS, TAGS
from albert_tf.tasks.definitions.family import EncodedExamples
from albert_tf.tasks.running.batches import BatchShape, batch_maker, check

# Their sizes differ from batch to batch unless the length is fixed.
_ROWS = frozenset(
    {
        features.TOKEN_IDS,
        features.SEGMENT_IDS,
        features.PADDING_MASK,
        features.PACK_IDS,
        features.POSITION_IDS,
        features.P_MASK,
    }
)


def make_training_dataset(
    encoded: EncodedExamples,
    shape: BatchShape,
    *,
    batch_size: int,
    seed: int,
    start_step: int = 0,
    num_pipelines: int = 1,
    pipeline: int = 0,
) -> tf.data.Dataset:
    """Returns an endless data set of training batches.

    Every epoch is a permutation that depends only on the seed and the epoch. A batch
    may hold the end of one epoch and the start of the next, so all batches are full.

    Args:
        encoded: `EncodedExamples` with targets.
        shape: `BatchShape`. `parts` counts the shares of this pipeline alone.
        batch_size: int. `U` of the whole batch.
        seed: int. Seed of the permutations.
        start_step: int. Number of batches to skip.
        num_pipelines: int. Number of input pipelines that share each batch.
        pipeline: int. Index of this one.

    Returns:
        Data set of dicts of tensors by the names of `features`: `token_ids`,
        `segment_ids`, `padding_mask` int32 `[B, T]`, the targets, `places` (in the
        rows of a share) except for question answering, which has `p_mask`, and for
        packed rows `pack_ids` and `position_ids`.

    Raises:
        UsageError: If the batch cannot be divided, or a row is too long.
    """
    check(encoded, shape, batch_size, num_pipelines)
    make = batch_maker(encoded, shape)
    example = make(np.zeros(batch_size // num_pipelines, np.int64))
    names = list(example)
    count, share = len(encoded), batch_size // num_pipelines
    stop = np.iinfo(np.int64).max
    numbers = tf.data.Dataset.range(start_step * batch_size, stop)
    numbers = numbers.batch(batch_size, drop_remainder=True)

    def batch(rows):
        rows = shuffled(rows, count, seed)[0]
        rows = rows[pipeline * share : (pipeline + 1) * share]
        kinds = [value.dtype for value in example.values()]
        values = python_op(lambda n: list(make(n).values()), [rows], kinds)
        for name, value in zip(names, values, strict=True):
            value.set_shape(_static_shape(example[name], name, shape))
        return dict(zip(names, values, strict=True))

    options = tf.data.Options()
    options.deterministic = True
    dataset = numbers.map(batch, num_parallel_calls=2, deterministic=True)
    return dataset.prefetch(2).with_options(options)


def _static_shape(value: np.ndarray, name: str, shape: BatchShape) -> list[int | None]:
    if shape.fixed_length:
        return list(value.shape)
    if name in _ROWS:
        return [None, None]
    is_words = HEADS[shape.head].answers == TAGS and value.ndim == 2
    return [len(value), None] if is_words else list(value.shape)
