"""Batches for pretraining as a pure function of (seed, step).

Example number g of the endless training stream belongs to epoch `g // N` and is record
`index_shuffle(g % N)` of that epoch's permutation; its masks are drawn from (seed,
epoch, record). So training resumes at any step at once and exactly, with any number of
workers, without saving the state of an iterator.

Legend: `B` global batch, `b` rows of one pipeline, `T` sequence, `P` predictions,
`N` examples (or packed rows) of the data set.
"""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from albert_tf import features
from albert_tf.data import keyed_random
from albert_tf.data.batches.order import shuffled
from albert_tf.data.batches.packing import PackPlan, make_plan, pack_batch
from albert_tf.data.batches.reader import ExampleReader, data_errors
from albert_tf.data.masking.apply import mask_batch, unmask
from albert_tf.data.masking.config import MaskingConfig, VocabInfo
from albert_tf.data.masking.ops_graph import TENSORFLOW
from albert_tf.data.records.tfrecord import RecordSet
from albert_tf.errors import UsageError

__all__ = [
    "PretrainingData",
    "data_errors",
    "make_pretraining_dataset",
    "num_examples",
]

_SPANS = (features.MASK_NGRAMS, features.MASK_SPAN_STARTS, features.MASK_SPAN_ENDS)


def num_examples(pattern: str | Sequence[str]) -> int:
    """The number of records in the files of a pattern."""
    return len(RecordSet(pattern))


def make_pretraining_dataset(
    pattern: str | Sequence[str],
    *,
    tokenizer,
    global_batch_size: int,
    max_seq_length: int,
    max_predictions_per_seq: int,
    seed: int,
    start_step: int = 0,
    masking: MaskingConfig | None = None,
    remask: bool = False,
    with_spans: bool = False,
    is_training: bool = True,
    num_input_pipelines: int = 1,
    input_pipeline_id: int = 0,
    packing: bool = False,
    max_examples_per_row: int | None = None,
) -> tf.data.Dataset:
    """Reads records, ours or the original's, into batches.

    Training is endless and shuffled, each epoch in a new order and with new masks.
    Evaluation is one pass in the order of the files, masked as epoch 0; its last batch
    is filled up with rows of padding whose weights are 0, so that shapes are static
    and every worker takes as many steps; `sentence_order_weights` `[b]` tells them
    apart, and means over weights are exact.

    Errors in the content surface while iterating, wrapped by TensorFlow; iterate
    inside `with data_errors():` to get them as `DataError`.

    Args:
        pattern: a path, a glob, a comma-separated list of them or a sequence.
        tokenizer: an `AlbertTokenizer`, or `VocabInfo`.
        global_batch_size: B, rows a step over all pipelines.
        max_seq_length: T.
        max_predictions_per_seq: P, at most so many masked pieces an example.
        seed: of order and masks.
        start_step: the first step; the batches are those a run from 0 would see there.
        masking: what to mask, by default ALBERT's; its
            `max_predictions_per_seq` is replaced by the argument. Records of the
            original keep the masks they have, unless `remask`.
        remask: take the masks out of the original's records and draw new ones.
        with_spans: add `mask_ngrams`, `mask_span_starts`, `mask_span_ends`.
        is_training: see above.
        num_input_pipelines: n, how many processes share each global batch.
        input_pipeline_id: j; this one gets rows `[j*B/n, (j+1)*B/n)`.
        packing: several examples in one row (see the module `packing`); N then
            counts rows, and P becomes the largest sum of predictions in a row.
        max_examples_per_row: K, for packed rows; None as in `packing.make_plan`.

    Returns:
        Dicts with the keys of `features`: `token_ids`, `segment_ids`, `padding_mask`
        int32 `[b, T]`, `mask_positions`, `mask_ids` int32 `[b, P]`, `mask_weights`
        float32 `[b, P]`, and `sentence_order_labels` int32 `[b]` if the records have
        them; packed rows as described in `packing.pack_batch`.

    Raises:
        UsageError: The arguments do not fit together.
        DataError: The records do not fit to them.
    """
    data = PretrainingData(
        pattern,
        tokenizer=tokenizer,
        max_seq_length=max_seq_length,
        max_predictions_per_seq=max_predictions_per_seq,
        seed=seed,
        masking=masking,
        remask=remask,
        with_spans=with_spans,
        packing=packing,
        max_examples_per_row=max_examples_per_row,
    )
    return data.batches(
        global_batch_size,
        start_step=start_step,
        is_training=is_training,
        num_input_pipelines=num_input_pipelines,
        input_pipeline_id=input_pipeline_id,
    )


class PretrainingData:
    """Records opened and, for packed rows, planned once; batches as often as needed.

    Args:
        pattern, tokenizer, max_seq_length, max_predictions_per_seq, seed, masking,
        remask, with_spans, packing, max_examples_per_row: as for
            `make_pretraining_dataset`.

    Attributes:
        summary: str, how many rows there are, and how full they are if packed.

    Raises:
        UsageError: The arguments do not fit together.
        DataError: The records do not fit to them.
    """

    def __init__(
        self,
        pattern: str | Sequence[str],
        *,
        tokenizer,
        max_seq_length: int,
        max_predictions_per_seq: int,
        seed: int,
        masking: MaskingConfig | None = None,
        remask: bool = False,
        with_spans: bool = False,
        packing: bool = False,
        max_examples_per_row: int | None = None,
    ):
        config = dataclasses.replace(
            masking or MaskingConfig(), max_predictions_per_seq=max_predictions_per_seq
        )
        reader = ExampleReader(
            pattern,
            VocabInfo.from_tokenizer(tokenizer),
            max_seq_length,
            None if remask else max_predictions_per_seq,
        )
        if reader.is_static and not remask and (with_spans or packing):
            raise UsageError(
                f"{reader.records.paths[0]}: holds masks already; with_spans and "
                "packing need records made with --masking=dynamic, or remask"
            )
        self._pad_id = reader.vocab.pad_id
        self._seed = seed
        self._packing = packing
        self._source = _Examples(reader, config, seed, with_spans)
        self.summary = f"{len(reader):,} examples"
        if packing:
            self._source = _PackedRows(self._source, max_examples_per_row)
            plan = self._source.plan
            self.summary = (
                f"packed: {len(reader):,} examples in {plan.num_rows:,} rows, "
                f"{plan.useful_token_rate:.1%} useful tokens"
            )

    def batches(
        self,
        global_batch_size: int,
        *,
        start_step: int = 0,
        is_training: bool = True,
        num_input_pipelines: int = 1,
        input_pipeline_id: int = 0,
    ) -> tf.data.Dataset:
        """The data set; see `make_pretraining_dataset`."""
        _check_arguments(
            global_batch_size, num_input_pipelines, input_pipeline_id, start_step
        )
        source, seed = self._source, self._seed
        num_rows = global_batch_size // num_input_pipelines

        @tf.autograph.experimental.do_not_convert  # nothing to convert, only slow
        def make_batch(step):
            rows = tf.range(num_rows, dtype=tf.int64) + input_pipeline_id * num_rows
            rows += step * global_batch_size
            if is_training:
                return source.batch(*shuffled(rows, len(source), seed))
            inside = rows < len(source)
            rows, epochs = tf.where(inside, rows, 0), tf.zeros_like(rows)
            if self._packing:  # the plan has the longest examples first
                rows, epochs = shuffled(rows, len(source), seed)
            return _blank_rows(source.batch(rows, epochs), inside, self._pad_id)

        steps = tf.data.Dataset.counter(start_step)
        if not is_training:
            num_steps = -(-len(source) // global_batch_size)
            steps = tf.data.Dataset.range(start_step, max(start_step, num_steps))
        options = tf.data.Options()
        options.deterministic = True
        off = tf.data.experimental.AutoShardPolicy.OFF  # the batches are sliced already
        options.experimental_distribute.auto_shard_policy = off
        dataset = steps.map(make_batch, num_parallel_calls=tf.data.AUTOTUNE)
        return dataset.prefetch(tf.data.AUTOTUNE).with_options(options)


class _Examples:
    """One example a row."""

    def __init__(self, reader: ExampleReader, config, seed: int, with_spans: bool):
        self.reader = reader
        self.config = config
        self.seed = seed
        self.with_spans = with_spans

    def __len__(self) -> int:
        return len(self.reader)

    def batch(self, numbers, epochs, pad_to_longest: bool = False) -> dict:
        """Records `numbers` int64 `[n]`, masked as in `epochs` int64 `[n]`."""
        batch = self.reader.read(numbers, pad_to_longest)
        if self.reader.remask:
            stored = (features.MASK_POSITIONS, features.MASK_IDS, features.MASK_WEIGHTS)
            tokens = batch[features.TOKEN_IDS]
            stored = [batch.pop(name) for name in stored]
            batch[features.TOKEN_IDS] = unmask(tokens, *stored, TENSORFLOW)
        if features.MASK_POSITIONS not in batch:
            keys = keyed_random.row_keys(self.seed, epochs, numbers, TENSORFLOW)
            vocab = self.reader.vocab
            batch |= mask_batch(batch, keys, self.config, vocab, TENSORFLOW)
            if not self.with_spans:
                for name in _SPANS:
                    del batch[name]
        batch.pop(features.TOKEN_BOUNDARY, None)
        return batch


class _PackedRows:
    """Several examples a row, as a plan has them."""

    def __init__(self, examples: _Examples, max_examples_per_row: int | None):
        reader = examples.reader
        self.examples = examples
        self.plan: PackPlan = make_plan(
            reader.lengths(),
            examples.config,
            reader.max_seq_length,
            max_examples_per_row,
        )
        # A batch has rows of two epochs at the turn from one to the next.
        self._assignment = functools.lru_cache(2)(
            functools.partial(self.plan.assignment, examples.seed)
        )

    def __len__(self) -> int:
        return self.plan.num_rows

    def batch(self, rows, epochs) -> dict:
        """Rows `rows` int64 `[n]` of the plan, filled and masked as in `epochs`."""

        def find(rows, epochs):
            assignments = [self._assignment(epoch) for epoch in epochs.tolist()]
            members, counts = self.plan.members(rows, assignments)
            return members, np.repeat(epochs, counts), counts

        found = tf.numpy_function(find, [rows, epochs], [tf.int64] * 3)
        members, epochs = (tf.ensure_shape(one, [None]) for one in found[:2])
        counts = tf.ensure_shape(found[2], rows.shape)
        batch = self.examples.batch(members, epochs, pad_to_longest=True)
        return pack_batch(batch, counts, self.plan, self.examples.reader.vocab.pad_id)


def _blank_rows(batch: dict, inside, pad_id: int) -> dict:
    """Empties the rows beyond the end of the data."""
    labels = batch.get(features.SENTENCE_ORDER_LABELS)
    weights = features.SENTENCE_ORDER_WEIGHTS
    if labels is not None and weights not in batch:
        batch[weights] = tf.ones_like(labels, tf.float32)
    for name, values in batch.items():
        here = inside if values.shape.rank == 1 else inside[:, None]
        blank = tf.constant(pad_id if name == features.TOKEN_IDS else 0, values.dtype)
        batch[name] = tf.where(here, values, blank)
    return batch


def _check_arguments(batch_size: int, pipelines: int, pipeline: int, step: int) -> None:
    if batch_size < 1 or pipelines < 1 or batch_size % pipelines:
        raise UsageError(
            "global_batch_size must be a positive multiple of num_input_pipelines="
            f"{pipelines}, got {batch_size}"
        )
    if not 0 <= pipeline < pipelines:
        raise UsageError(
            f"input_pipeline_id must be in [0, {pipelines}), got {pipeline}"
        )
    if step < 0:
        raise UsageError(f"start_step must not be negative, got {step}")
