"""Reads any records of a data set as one padded, checked batch, inside tf.data.

Legend: `n` examples to read, `T` sequence, `P` predictions, `V` vocabulary.
"""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from albert_tf import features
from albert_tf.data.batches.graph_ops import python_op
from albert_tf.data.masking.config import VocabInfo
from albert_tf.data.records import card
from albert_tf.data.records.tfrecord import RecordSet
from albert_tf.errors import DataError, count_of, require
from albert_tf.storage import files, protobuf

_LABELS = features.SENTENCE_ORDER_LABELS
_MASKS = (features.MASK_POSITIONS, features.MASK_IDS, features.MASK_WEIGHTS)
_DYNAMIC = (features.TOKEN_IDS, features.SEGMENT_IDS, features.TOKEN_BOUNDARY)
_STATIC = (*_DYNAMIC[:2], features.PADDING_MASK, *_MASKS)
_NUM_SAMPLED = 16


@contextlib.contextmanager
def data_errors() -> Iterator[None]:
    """Re-raises errors from iterating a data set as `DataError`.

    TensorFlow wraps an error that is raised inside a data set, and adds a traceback to
    its text.
    """
    try:
        yield
    except UnicodeDecodeError:  # TensorFlow quotes the bytes it cannot parse
        raise DataError("a record is not a tf.train.Example message") from None
    except (tf.errors.InvalidArgumentError, tf.errors.UnknownError) as error:
        ours = re.search(r"(?:DataError|UsageError): ([^\n]+)", error.message)
        if ours:
            raise DataError(ours.group(1)) from None
        if "parse" in error.message and "xample" in error.message:
            raise DataError("a record is not a tf.train.Example message") from None
        raise


class ExampleReader:
    """Reads and checks pretraining records, ours or the original's.

    Raises `DataError` if the files do not match these arguments.

    Args:
        max_seq_length: int. Longer examples are rejected; static examples must have
            exactly this length.
        max_predictions_per_seq: int or None. P of static records, by default as found.
        type_vocab_size: int or None. Number of segments, if they are checked.

    Attributes:
        is_static: bool. Whether the records hold masks and have a fixed length, as the
            original's do.
    """

    def __init__(
        self,
        pattern: str | Sequence[str],
        vocab: VocabInfo,
        max_seq_length: int,
        max_predictions_per_seq: int | None,
        type_vocab_size: int | None = None,
    ):
        self.records = RecordSet(pattern)
        self._num_segments = type_vocab_size
        self.vocab = vocab
        self.max_seq_length = max_seq_length
        first = self._first_example()
        self.is_static = any(features.record_name(name) in first for name in _MASKS)
        self._names = _STATIC if self.is_static else _DYNAMIC
        if self.is_static or features.record_name(_LABELS) in first:
            self._names += (_LABELS,)
        where = self.records.paths[0]
        kind = "masked record" if self.is_static else "record without masks"
        for name in map(features.record_name, self._names):
            known = ", ".join(sorted(first)) or "none"
            need = f"{where}: a {kind} needs the feature {name!r}, this one has {known}"
            require(name in first, need, error=DataError)
        self._num_predictions = 0
        if self.is_static:
            length = len(first[features.INPUT_IDS].int64_list.value)
            most = len(first[features.MASKED_LM_POSITIONS].int64_list.value)
            self._num_predictions = most
            if max_predictions_per_seq is None:
                max_predictions_per_seq = most
            for name, stored, wanted in (
                ("max_seq_length", length, max_seq_length),
                ("max_predictions_per_seq", most, max_predictions_per_seq),
            ):
                need = f"{where}: was written with {name}={stored}, which cannot be "
                require(stored == wanted, f"{need}changed", wanted, error=DataError)
        self._check_cards()
        sample = np.linspace(0, len(self.records) - 1, _NUM_SAMPLED).astype(np.int64)
        with tf.init_scope(), data_errors():
            self.read(tf.constant(np.unique(sample)))

    def __len__(self) -> int:
        return len(self.records)

    def read(self, indices: tf.Tensor, pad_to_longest: bool = False) -> dict:
        """Reads examples `[n]` in a graph; T may be the longest of them.

        Returns `token_ids`, `segment_ids`, `token_boundary`, `padding_mask` int32 `[n,
        T]`; `sentence_order_labels` int32 `[n]` if the records have them; for static
        records `mask_positions`, `mask_ids` int32 `[n, P]` and `mask_weights` float32
        `[n, P]`.
        """
        spec = {
            features.record_name(name): tf.io.RaggedFeature(
                tf.float32 if name == features.MASK_WEIGHTS else tf.int64
            )
            for name in self._names
        }
        parsed = tf.io.parse_example(self._serialized(indices), spec)
        width = None if pad_to_longest else self.max_seq_length
        widths = dict.fromkeys(_MASKS, self._num_predictions) | {_LABELS: 1}
        batch, counts = {}, []
        for name in self._names:
            values = parsed[features.record_name(name)]
            counts.append(values.row_lengths())
            padding = self.vocab.pad_id if name == features.TOKEN_IDS else 0
            batch[name] = _dense(values, widths.get(name, width), padding)
        tokens = batch[features.TOKEN_IDS]
        if not self.is_static:
            columns = tf.shape(tokens)[1] if pad_to_longest else width
            mask = tf.sequence_mask(counts[0], columns, tf.int32)
            batch[features.PADDING_MASK] = mask
        # The tokens pass through the check, because nothing else makes TensorFlow
        # compute an operation without state.
        limited = [batch[name] for name in self._limits()]
        checked = python_op(
            self._check, [indices, tf.stack(counts), *limited], tokens.dtype
        )
        batch[features.TOKEN_IDS] = tf.ensure_shape(checked, tokens.shape)
        if _LABELS in batch:
            batch[_LABELS] = batch[_LABELS][:, 0]
        return batch

    def lengths(self) -> np.ndarray:
        """Returns the lengths of all examples, int32 `[len(self)]`, read once."""
        spec = {features.INPUT_IDS: tf.io.RaggedFeature(tf.int64)}

        @tf.autograph.experimental.do_not_convert
        def count(indices):
            parsed = tf.io.parse_example(self._serialized(indices), spec)
            return tf.cast(parsed[features.INPUT_IDS].row_lengths(), tf.int32)

        dataset = tf.data.Dataset.range(len(self)).batch(1024)
        dataset = dataset.map(count, num_parallel_calls=tf.data.AUTOTUNE)
        with data_errors():
            lengths = np.concatenate(list(dataset.as_numpy_iterator()))
        self._check_lengths(np.arange(len(self)), lengths)
        return lengths

    def _first_example(self) -> Mapping[str, tf.train.Feature]:
        payload = self.records[0]
        try:
            return tf.train.Example.FromString(payload).features.feature
        except Exception:  # protobuf's own error; protobuf is not a requirement
            self._fail("must be a tf.train.Example", 0, payload[:16])

    def _serialized(self, indices):
        def read(numbers):
            payloads = self.records.read(numbers)
            for number, payload in zip(numbers, payloads, strict=True):
                if not _is_framed(payload):
                    self._fail("must be a tf.train.Example", number, payload[:16])
            return np.array(payloads, dtype=object)

        serialized = python_op(read, [indices], tf.string)
        return tf.ensure_shape(serialized, indices.shape)

    def _limits(self) -> dict[str, int]:
        """Returns exclusive upper bounds of features' values, token ids first."""
        limits = {
            features.TOKEN_IDS: self.vocab.vocab_size,
            features.SEGMENT_IDS: self._num_segments,
            features.MASK_IDS: self.vocab.vocab_size,
            features.MASK_POSITIONS: self.max_seq_length,
            _LABELS: 2,
        }
        return {k: n for k, n in limits.items() if k in self._names and n}

    def _check(self, indices, counts, tokens, *others) -> np.ndarray:
        """Returns the tokens, or raises `DataError` for the first bad example."""
        self._check_lengths(indices, counts[0])
        for name, sizes in zip(self._names, counts, strict=True):
            expected, words = counts[0], f"as many values as {features.INPUT_IDS}"
            if name in _MASKS:
                expected = self._num_predictions
                words = count_of(expected, "value")
            elif name == _LABELS:
                expected, words = 1, "1 value"
            need = f"{features.record_name(name)} must have {words}"
            self._check_each(sizes == expected, need, indices, sizes)
        limits = self._limits().items()
        for (name, limit), values in zip(limits, (tokens, *others), strict=True):
            low, high = values.min(axis=1, initial=0), values.max(axis=1, initial=0)
            need = f"{features.record_name(name)} must be in [0, {limit})"
            if name == features.SEGMENT_IDS:  # where a model has no embedding for them
                need += ", the type_vocab_size of the model or its teacher"
            fits = (low >= 0) & (high < limit)
            self._check_each(fits, need, indices, np.where(low < 0, low, high))
        return tokens

    def _check_lengths(self, indices, lengths) -> None:
        least = self.max_seq_length if self.is_static else 1
        need = f"{features.INPUT_IDS} must have {least} values"
        if not self.is_static:
            need = f"an example must have 1 to max_seq_length={self.max_seq_length} "
            need += "tokens (set --max_seq_length as for create_pretraining_data)"
        fits = (lengths >= least) & (lengths <= self.max_seq_length)
        self._check_each(fits, need, indices, lengths)

    def _check_each(self, fits, need: str, indices, values) -> None:
        if not np.all(fits):
            first = int(np.argmin(fits))
            self._fail(need, indices[first], values[first])

    def _fail(self, need: str, index: int, value: int):
        path, number = self.records.locate(int(index))
        raise DataError(f"{path}: record {number}: {need}, received {value}")

    def _check_cards(self) -> None:
        """Raises `DataError` if the files do not agree with their data cards."""
        counts = self.records.counts()
        for folder in sorted({os.path.dirname(path) for path in counts}):
            path = os.path.join(folder, card.CARD_NAME)
            if not files.exists(path):
                continue
            content = files.read_json(path)
            try:
                tokenizer = content["tokenizer"]["sha256"]
                shards = card.shard_sizes(content)
            except (ValueError, KeyError, TypeError, AttributeError):
                message = f"{path}: must be a data card with tokenizer.sha256"
                raise DataError(message) from None
            if tokenizer and self.vocab.sha256 and tokenizer != self.vocab.sha256:
                raise DataError(
                    f"{path}: the records were made with the tokenizer of sha256 "
                    f"{str(tokenizer)[:12]}, received {self.vocab.sha256[:12]}; give "
                    "the file they were made with"
                )
            for name, expected in shards.items():
                number = counts.get(os.path.join(folder, name), expected)
                if number != expected:
                    raise DataError(
                        f"{os.path.join(folder, name)}: contains {number} records, "
                        f"but {path} lists {expected}: the file or its index is damaged"
                    )


def _is_framed(payload: bytes) -> bool:
    """Returns whether the bytes can be an Example: a single field 1 that spans them."""
    # TensorFlow's parser does not report the record that it failed at.
    try:
        return (
            payload[:1] == protobuf.tag(1) and len(list(protobuf.fields(payload))) == 1
        )
    except (IndexError, ValueError):
        return False


def _dense(values: tf.RaggedTensor, width: int | None, padding: int = 0) -> tf.Tensor:
    """Returns `[n, width]`, int32 for integers, clipped to its range."""
    if values.dtype == tf.int64:
        low, high = tf.int32.min, tf.int32.max
        values = values.with_flat_values(
            tf.cast(tf.clip_by_value(values.flat_values, low, high), tf.int32)
        )
    return values.to_tensor(default_value=padding, shape=[None, width])
