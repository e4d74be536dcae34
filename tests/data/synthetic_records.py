"""Examples with the structure of real ones, made from a seed, and files of them."""

import pathlib

import numpy as np
import tensorflow as tf

from albert_tf.data.batches.pretraining import make_pretraining_dataset
from albert_tf.data.batches.reader import data_errors
from albert_tf.data.masking import keyed_random
from albert_tf.data.masking.apply import mask_batch
from albert_tf.data.masking.config import MaskingConfig, VocabInfo
from albert_tf.data.masking.ops import NUMPY
from albert_tf.data.records import tfrecord

LENGTH = 61
VOCAB = VocabInfo(
    vocab_size=131, pad_id=0, cls_id=2, sep_id=3, mask_id=4, special_ids=(0, 1, 2, 3, 4)
)


def make_example(
    rng: np.random.Generator, length: int, word_starts: float = 0.7
) -> dict[str, np.ndarray]:
    """[CLS] A [SEP] B [SEP] of `length` >= 5 pieces, or of one segment if shorter."""
    ids = rng.integers(5, VOCAB.vocab_size, length)
    boundary = (rng.random(length) < word_starts).astype(np.int64)
    segments = np.zeros(length, np.int64)
    ends = [length - 1]
    if length >= 5:
        middle = int(rng.integers(2, length - 2))
        segments[middle + 1 :] = 1
        ends.append(middle)
    ids[0], ids[ends] = VOCAB.cls_id, VOCAB.sep_id
    boundary[[0, *ends]] = 1
    return {
        "input_ids": ids,
        "segment_ids": segments,
        "token_boundary": boundary,
        "next_sentence_labels": rng.integers(0, 2, 1),
    }


def make_batch(rows: list[dict[str, np.ndarray]], width: int) -> dict[str, np.ndarray]:
    """Examples padded to `width`, as `masking.apply.mask_batch` takes them."""

    def pad(values):
        return np.pad(values, (0, width - len(values))).astype(np.int32)

    return {
        "token_ids": np.stack([pad(row["input_ids"]) for row in rows]),
        "token_boundary": np.stack([pad(row["token_boundary"]) for row in rows]),
        "padding_mask": np.stack([pad(np.ones_like(row["input_ids"])) for row in rows]),
    }


def mask_example(
    example: dict[str, np.ndarray], config: MaskingConfig, key: tuple[int, int, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Masks one example without padding, in NumPy.

    Args:
        example: dict. `input_ids` and `token_boundary`.
        config: `MaskingConfig`. How to mask.
        key: tuple. Seed, epoch and number of the example.

    Returns:
        Masked ids int32 `[T]`; the masked positions and the original ids there, int32
        `[n]`. Equal to the row of this key in any batch.
    """
    batch = make_batch([example], len(example["input_ids"]))
    seed, epoch, number = key
    keys = keyed_random.row_keys(seed, np.array([epoch]), np.array([number]), NUMPY)
    masked = {k: v[0] for k, v in mask_batch(batch, keys, config, VOCAB).items()}
    count = int(masked["mask_weights"].sum())
    return (
        masked["token_ids"],
        masked["mask_positions"][:count],
        masked["mask_ids"][:count],
    )


def parse(payload: bytes) -> dict[str, np.ndarray]:
    """The features of a serialized example, as arrays."""
    features = tf.train.Example.FromString(payload).features.feature
    return {
        name: np.array(values.int64_list.value or values.float_list.value)
        for name, values in features.items()
    }


def make(pattern: str, **changes) -> tf.data.Dataset:
    """A data set of batches, with other arguments where they are given."""
    arguments = {
        "tokenizer": VOCAB,
        "global_batch_size": 4,
        "max_seq_length": LENGTH,
        "max_predictions_per_seq": 4,
        "seed": 23,
    }
    return make_pretraining_dataset(pattern, **(arguments | changes))


def take(dataset: tf.data.Dataset, count: int = 100) -> list[dict[str, np.ndarray]]:
    """The first batches."""
    with data_errors():
        return list(dataset.take(count).as_numpy_iterator())


def write(folder: pathlib.Path, rows: list[dict], num_shards: int = 3) -> str:
    """Writes dynamic records; returns the pattern of the shards."""
    for shard, part in enumerate(np.array_split(np.arange(len(rows)), num_shards)):
        names = list(rows[0])
        columns = {}
        for name in names:
            values = [rows[i][name] for i in part]
            lengths = np.array([len(one) for one in values])
            columns[name] = (np.concatenate(values), lengths)
        path = tfrecord.shard_name(str(folder / "set"), shard, num_shards)
        tfrecord.write_shard(path, tfrecord.serialize_batch(columns))
    return str(folder / "set-*-of-*.tfrecord")
