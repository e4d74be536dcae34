"""Reads any records of a data set as one padded, checked batch, inside tf.data.

Legend: `n` examples to read, `T` sequence, `P` predictions, `V` vocabulary.
"""

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf import features
from albert_tf.data.batches.graph_ops import python_op
from albert_tf.data.masking.config import VocabInfo
from albert_tf.data.records import card
from albert_tf.data.records.tfrecord import RecordSet
from albert_tf.errors import DataError, require
from albert_tf.storage import files, protobuf
from albert_tf.wording import count_of

_TOKENS = (features.TOKEN_IDS, features.SEGMENT_IDS, features.TOKEN_BOUNDARY)
_MASKS = (features.MASK_POSITIONS, features.MASK_IDS, features.MASK_WEIGHTS)
_NUM_SAMPLED = 16


class _Check(NamedTuple):
    """A rule for each of n examples.

    Attributes:
        fits: bool `[n]`. Whether an example follows the rule.
        values: int `[n]`. What the error names as received.
        rule: str. The rule.
    """

    fits: tf.Tensor
    values: tf.Tensor
    rule: str


@contextlib.contextmanager
def data_errors() -> Iterator[None]:
    """Turns errors raised while a data set is iterated back into `DataError`.

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

    Args:
        pattern: str or Sequence. The files, as for `RecordSet`.
        vocab: `VocabInfo`. Vocabulary of the tokenizer the records were made with.
        max_seq_length: int. T. Longer examples are rejected; static examples must have
            exactly this length.
        max_predictions_per_seq: int or None. P, which static records must have; None
            for that of the records.

    Attributes:
        records: the `RecordSet`.
        is_static: bool, whether the records hold masks, as the original's.
        has_labels: bool, whether they hold `next_sentence_labels`.

    Raises:
        DataError: If the files do not match these arguments.
    """

    def __init__(
        self,
        pattern: str | Sequence[str],
        vocab: VocabInfo,
        max_seq_length: int,
        max_predictions_per_seq: int | None,
    ):
        self.records = RecordSet(pattern)
        self.vocab = vocab
        self.max_seq_length = max_seq_length
        form = self.records.describe()
        first = self.records.example(0)
        self.is_static = form["form"] == "static"
        self.has_labels = features.record_name(features.SENTENCE_ORDER_LABELS) in first
        if self.is_static:
            pairs = {"max_seq_length": (form["sequence_length"], max_seq_length)}
            if max_predictions_per_seq is not None:
                pairs["max_predictions_per_seq"] = (
                    form["num_predictions"],
                    max_predictions_per_seq,
                )
            for name, (stored, given) in pairs.items():
                rule = f"{self.records.paths[0]}: was written with {name}={stored}"
                rule += ", which cannot be changed"
                require(stored == given, rule, given, error=DataError)
        self._num_predictions = form["num_predictions"]
        self._check_cards()
        sample = np.linspace(0, len(self.records) - 1, _NUM_SAMPLED).astype(np.int64)
        with tf.init_scope(), data_errors():
            self.read(tf.constant(np.unique(sample)))

    def __len__(self) -> int:
        return len(self.records)

    def read(self, indices: tf.Tensor, pad_to_longest: bool = False) -> dict:
        """Reads examples by their number, in a graph.

        Args:
            indices: int64 `[n]`. Indices of the examples.
            pad_to_longest: bool. Whether T is the longest of these n examples.

        Returns:
            `token_ids`, `segment_ids`, `token_boundary`, `padding_mask` int32
            `[n, T]`; `sentence_order_labels` int32 `[n]` if the records have them; for
            static records `mask_positions`, `mask_ids` int32 `[n, P]` and
            `mask_weights` float32 `[n, P]`.
        """
        parsed = self._parse(indices)
        width = None if pad_to_longest else self.max_seq_length
        checks = self._check_lengths(parsed)
        batch = {}
        for name in _TOKENS:
            if name in parsed:
                padding = self.vocab.pad_id if name == features.TOKEN_IDS else 0
                batch[name] = _dense(parsed[name], width, padding)
        if self.is_static:
            batch[features.PADDING_MASK] = _dense(parsed[features.PADDING_MASK], width)
            for name in _MASKS:
                batch[name] = _dense(parsed[name], self._num_predictions)
        else:
            lengths = parsed[features.TOKEN_IDS].row_lengths()
            columns = tf.shape(batch[features.TOKEN_IDS])[1] if width is None else width
            batch[features.PADDING_MASK] = tf.sequence_mask(lengths, columns, tf.int32)
        if self.has_labels:
            labels = parsed[features.SENTENCE_ORDER_LABELS]
            batch[features.SENTENCE_ORDER_LABELS] = _dense(labels, 1)[:, 0]
        checks += self._check_values(batch)
        tokens = batch[features.TOKEN_IDS]
        batch[features.TOKEN_IDS] = self._checked(tokens, indices, checks)
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
        wrong = np.flatnonzero((lengths < 1) | (lengths > self.max_seq_length))
        if len(wrong):
            self._fail(self._too_long(), wrong[0], lengths[wrong[0]])
        return lengths

    def _serialized(self, indices):
        def read(numbers):
            payloads = self.records.read(numbers)
            for number, payload in zip(numbers, payloads, strict=True):
                if not _is_framed(payload):
                    self._fail("must be a tf.train.Example", number, payload[:16])
            return np.array(payloads, dtype=object)

        serialized = python_op(read, [indices], tf.string)
        return tf.ensure_shape(serialized, indices.shape)

    def _parse(self, indices) -> dict[str, tf.RaggedTensor]:
        names = list(_TOKENS)
        if self.is_static:
            names += [features.PADDING_MASK, *_MASKS]
            names.remove(features.TOKEN_BOUNDARY)
        if self.has_labels:
            names.append(features.SENTENCE_ORDER_LABELS)
        spec = {
            features.record_name(name): tf.io.RaggedFeature(
                tf.float32 if name == features.MASK_WEIGHTS else tf.int64
            )
            for name in names
        }
        parsed = tf.io.parse_example(self._serialized(indices), spec)
        return {name: parsed[features.record_name(name)] for name in names}

    def _check_lengths(self, parsed) -> list[_Check]:
        lengths = parsed[features.TOKEN_IDS].row_lengths()
        if self.is_static:
            rule = f"{features.INPUT_IDS} must have {self.max_seq_length} values"
            checks = [_Check(lengths == self.max_seq_length, lengths, rule)]
        else:
            fits = (lengths >= 1) & (lengths <= self.max_seq_length)
            checks = [_Check(fits, lengths, self._too_long())]
        for name, values in parsed.items():
            counts = values.row_lengths()
            expected, rule = lengths, f"as many values as {features.INPUT_IDS}"
            if name in _MASKS:
                number = self._num_predictions
                expected = tf.fill(tf.shape(counts), tf.cast(number, counts.dtype))
                rule = count_of(number, "value")
            elif name == features.SENTENCE_ORDER_LABELS:
                expected, rule = tf.ones_like(counts), "1 value"
            rule = f"{features.record_name(name)} must have {rule}"
            checks.append(_Check(counts == expected, counts, rule))
        return checks

    def _too_long(self) -> str:
        return (
            f"an example must have 1 to max_seq_length={self.max_seq_length} tokens "
            "(set --max_seq_length as for create_pretraining_data)"
        )

    def _check_values(self, batch) -> list[_Check]:
        limits = {
            features.TOKEN_IDS: self.vocab.vocab_size,
            features.MASK_IDS: self.vocab.vocab_size,
            features.MASK_POSITIONS: self.max_seq_length,
            features.SENTENCE_ORDER_LABELS: 2,
        }
        checks = []
        for name, limit in limits.items():
            if name in batch:
                values = batch[name]
                if values.shape.rank > 1:
                    low, high = tf.reduce_min(values, 1), tf.reduce_max(values, 1)
                else:
                    low = high = values
                fits = (low >= 0) & (high < limit)
                rule = f"{features.record_name(name)} must be in [0, {limit})"
                checks.append(_Check(fits, tf.where(low < 0, low, high), rule))
        return checks

    def _checked(self, tensor, indices, checks: list[_Check]):
        """Returns a tensor unchanged, or fails at the first check that does not fit.

        The tensor passes through the checks, because nothing else makes TensorFlow
        compute operations without state.
        """
        fits = tf.stack([check.fits for check in checks])
        values = tf.stack([tf.cast(check.values, tf.int64) for check in checks])
        # TensorFlow keeps the function for ever, and a tensor would keep its graph.
        rules = [check.rule for check in checks]

        def fail(tensor, indices, fits, values):
            k, row = np.argwhere(~fits)[0]
            self._fail(rules[k], indices[row], values[k, row])

        def report():
            inputs = [tensor, indices, fits, values]
            failed = python_op(fail, inputs, tensor.dtype)
            return tf.ensure_shape(failed, tensor.shape)

        return tf.cond(tf.reduce_all(fits), lambda: tensor, report)

    def _fail(self, rule: str, index: int, value: int):
        path, number = self.records.locate(int(index))
        raise DataError(f"{path}: record {number}: {rule}, received {value}")

    def _check_cards(self) -> None:
        """Compares the files with their data cards."""
        counts = self.records.counts()
        for folder in sorted({os.path.dirname(path) for path in counts}):
            path = os.path.join(folder, card.CARD_NAME)
            tokenizer, shards = _read_card(path)
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
    """Returns whether this can be an Example: one field 1 that spans all bytes.

    TensorFlow's parser does not report which record it failed at.
    """
    try:
        return (
            payload[:1] == protobuf.tag(1) and len(list(protobuf.fields(payload))) == 1
        )
    except (IndexError, ValueError):
        return False


def _read_card(path: str) -> tuple[str | None, dict[str, int]]:
    """Returns the tokenizer's sha256 and the records per shard of a card, if any."""
    if not files.exists(path):
        return None, {}
    content = files.read_json(path)
    try:
        return content["tokenizer"]["sha256"], card.shard_sizes(content)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: must be a data card with tokenizer.sha256") from error


def _dense(values: tf.RaggedTensor, width: int | None, padding: int = 0) -> tf.Tensor:
    """Returns `[n, width]`, int32 for integers; too large ones stay out of range."""
    if values.dtype == tf.int64:
        low, high = tf.int32.min, tf.int32.max
        values = values.with_flat_values(
            tf.cast(tf.clip_by_value(values.flat_values, low, high), tf.int32)
        )
    return values.to_tensor(default_value=padding, shape=[None, width])
