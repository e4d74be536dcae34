"""Rows for training: random ones, and real ones from a portable file.

A machine that only measures has neither text nor TensorFlow, which reads records.

Legend: `B` rows, `T` sequence, `P` predictions.
"""

import os
import tempfile
from collections.abc import Mapping

import numpy as np

from albert_tf import features
from albert_tf.config import AlbertConfig
from albert_tf.errors import UsageError, require
from albert_tf.storage import files

# The same text, with several examples per row, and with one.
PACKED, PADDED = "packed", "padded"
_SEED = 12345
Batch = dict[str, np.ndarray]


def random_batch(config: AlbertConfig, rows: int, length: int) -> Batch:
    """Returns a pretraining batch of full rows of random tokens.

    Args:
        config: `AlbertConfig`. Source of the vocabulary.
        rows: int. `B`.
        length: int. `T`; `P` is a sixth of it, rounded down.
    """
    rng = np.random.default_rng(_SEED)
    predictions = max(1, length // 6)
    ids = rng.integers(5, config.vocab_size, (rows, length), dtype=np.int32)
    places = [rng.permutation(length)[:predictions] for _ in range(rows)]
    segments = np.arange(length, dtype=np.int32) >= length // 2
    return {
        features.TOKEN_IDS: ids,
        features.SEGMENT_IDS: np.tile(segments.astype(np.int32), (rows, 1)),
        features.PADDING_MASK: np.ones((rows, length), np.int32),
        features.MASK_POSITIONS: np.sort(places).astype(np.int32),
        features.MASK_IDS: rng.integers(
            5, config.vocab_size, (rows, predictions), dtype=np.int32
        ),
        features.MASK_WEIGHTS: np.ones((rows, predictions), np.float32),
        features.SAMPLE_DRAWS: rng.random((rows, predictions), np.float32),
        features.SENTENCE_ORDER_LABELS: rng.integers(0, 2, rows, dtype=np.int32),
        features.SENTENCE_ORDER_WEIGHTS: np.ones(rows, np.float32),
    }


def scored_everywhere(batch: Mapping[str, np.ndarray]) -> Batch:
    """Returns a batch whose vocabulary is scored at every token, as in transformers.

    `P` becomes `T`; the loss is computed for the same tokens.

    Args:
        batch: dict. Its unused predictions have the weight 0.
    """
    shape = batch[features.TOKEN_IDS].shape
    places = batch[features.MASK_POSITIONS]
    ids, weights = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
    row, column = np.nonzero(batch[features.MASK_WEIGHTS])
    at = row, places[row, column]
    ids[at] = batch[features.MASK_IDS][row, column]
    weights[at] = batch[features.MASK_WEIGHTS][row, column]
    every = np.tile(np.arange(shape[1], dtype=np.int32), (shape[0], 1))
    found = {
        features.MASK_POSITIONS: every,
        features.MASK_IDS: ids,
        features.MASK_WEIGHTS: weights,
    }
    return {k: v for k, v in batch.items() if k != features.SAMPLE_DRAWS} | found


def with_text(batch: Mapping[str, np.ndarray], real: Mapping[str, np.ndarray]) -> Batch:
    """Returns a batch with the tokens of real rows of the same shape.

    Frequent words meet in the gradient of the embeddings, unlike random ones. Raises
    `UsageError` for rows of another length.
    """
    ids = real[features.TOKEN_IDS]
    length = batch[features.TOKEN_IDS].shape[1]
    rule = f"--batches_file: must have rows of {length} tokens"
    require(ids.shape[1] == length, rule, ids.shape[1])
    hidden = np.take_along_axis(ids, batch[features.MASK_POSITIONS], 1)
    return {**batch, features.TOKEN_IDS: ids, features.MASK_IDS: hidden}


def write_rows(
    path: str, inputs: str, tokenizer_file: str, rows: int, length: int
) -> dict[str, str]:
    """Writes real rows to a file, packed and not; returns a summary of each.

    Args:
        path: str. An `.npz` file.
        inputs: str. Text, as for `create_pretraining_data`.
        tokenizer_file: str. Its tokenizer.
        rows: int. `B`.
        length: int. `T`.

    Raises:
        UsageError: If the text has too few rows.
    """
    from albert_tf.data.batches.pretraining import PretrainingData
    from albert_tf.data.corpus.corpus import Corpus
    from albert_tf.data.prepare.blocks import RecordConfig
    from albert_tf.data.prepare.create import create_pretraining_data
    from albert_tf.data.prepare.pairs import PairConfig
    from albert_tf.text.load import load_tokenizer

    tokenizer, found, summaries = load_tokenizer(tokenizer_file), {}, {}
    config = RecordConfig(PairConfig(max_seq_length=length))
    with tempfile.TemporaryDirectory() as folder:
        stem = os.path.join(folder, "data")
        create_pretraining_data(Corpus(inputs), stem, tokenizer, config, progress=False)
        for name in (PACKED, PADDED):
            data = PretrainingData(
                stem,
                tokenizer=tokenizer,
                max_seq_length=length,
                seed=_SEED,
                packing=name == PACKED,
            )
            rule = f"--input_file: must have {rows} rows of {length} tokens, {name}"
            require(data.num_rows >= rows, rule, data.num_rows)
            batch = next(data.batches(rows).as_numpy_iterator())
            found |= {f"{name}/{key}": value for key, value in batch.items()}
            summaries[name] = data.summary
    with tempfile.TemporaryDirectory() as folder:
        local = os.path.join(folder, "rows.npz")
        np.savez_compressed(local, **found)
        files.write_bytes(path, files.read_bytes(local), True)
    return summaries


def read_rows(path: str, name: str, rows: int) -> Batch:
    """Returns the first rows of a file of `write_rows`.

    Args:
        path: str. The file.
        name: str. `PACKED` or `PADDED`.
        rows: int. `B`.

    Raises:
        UsageError: If the file does not contain them.
    """
    try:
        with np.load(path) as stored:
            keys = [key for key in stored if key.startswith(f"{name}/")]
            batch = {key.partition("/")[2]: stored[key] for key in keys}
    except (OSError, ValueError) as e:
        raise UsageError(f"--batches_file: cannot read {path}: {e}") from None
    there = len(batch.get(features.TOKEN_IDS, ()))
    require(there >= rows, f"--batches_file: {path} must have {rows} rows", there)
    return {key: value[:rows] for key, value in batch.items()}
