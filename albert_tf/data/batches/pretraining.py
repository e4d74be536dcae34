"""Reads batches for pretraining, each a pure function of (seed, step).

Example number g of the endless training stream belongs to epoch `g // N` and is record
`index_shuffle(g % N)` of that epoch's permutation; its masks are drawn from (seed,
epoch, record). Training therefore resumes at any step at once and exactly, with any
number of workers, without saving the state of an iterator.

Legend: `B` global batch, `b` rows of one pipeline, `T` sequence, `P` predictions,
`N` examples (or packed rows) of the data set.
"""

import dataclasses
import threading
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from albert_tf import features
from albert_tf.data.batches.graph_ops import python_op, shuffled
from albert_tf.data.batches.packing import PackPlan, make_plan, pack_batch
from albert_tf.data.batches.reader import ExampleReader
from albert_tf.data.masking import keyed_random
from albert_tf.data.masking.apply import mask_batch
from albert_tf.data.masking.config import MaskingConfig, VocabInfo, most_predictions
from albert_tf.data.masking.ops_graph import TENSORFLOW
from albert_tf.errors import count_of, require


def make_pretraining_dataset(
    pattern: str | Sequence[str],
    *,
    global_batch_size: int,
    start_step: int = 0,
    is_training: bool = True,
    num_input_pipelines: int = 1,
    input_pipeline_id: int = 0,
    **options,
) -> tf.data.Dataset:
    """Returns pretraining records as a data set of masked batches.

    Training is endless and shuffled: each epoch has a new order and new masks.
    Evaluation is one pass in the order of the files, and its last batch is filled with
    rows of weight 0. In shapes, `b` is `global_batch_size / num_input_pipelines`.

    Args:
        pattern: str or Sequence. Records of `create_pretraining_data`: a path, a glob,
            a comma-separated list of them or a sequence.
        global_batch_size: int. Rows per step, over all pipelines.
        start_step: int. The first step; a run from step 0 has the same batches.
        is_training: bool. Whether to shuffle endlessly instead of one pass.
        num_input_pipelines: int. Number of processes that share each batch.
        input_pipeline_id: int. Index of this one, from 0.
        **options: Arguments of `PretrainingData`: `tokenizer`, `max_seq_length` (`T`)
            and `seed`, which are required; `max_predictions_per_seq` (`P`), `masking`,
            `packing`, `sample_draws` and `type_vocab_size`.

    Returns:
        `tf.data.Dataset` of dicts: `token_ids`, `segment_ids`, `padding_mask` int32
        `[b, T]`, `mask_positions`, `mask_ids` int32 `[b, P]`, `mask_weights` float32
        `[b, P]`, and `sentence_order_labels` int32 `[b]` if the records have them.

    Raises:
        UsageError: If the arguments do not fit together.
        DataError: If the records are missing or do not fit the arguments.

    Example:
        >>> import albert_tf
        >>> tokenizer = albert_tf.load_tokenizer("demo_output/spiece.model")
        >>> batches = albert_tf.make_pretraining_dataset(
        ...     "demo_output/data/docs", tokenizer=tokenizer, max_seq_length=64,
        ...     global_batch_size=8, seed=1
        ... )
        >>> next(iter(batches))["token_ids"].shape
        TensorShape([8, 64])
    """
    return PretrainingData(pattern, **options).batches(
        global_batch_size,
        start_step=start_step,
        is_training=is_training,
        num_input_pipelines=num_input_pipelines,
        input_pipeline_id=input_pipeline_id,
    )


class PretrainingData:
    """Records, ours or the original's, as batches; rows are packed by one plan.

    Iterate inside `with reader.data_errors():` to get errors in the content as
    `DataError`. Raises `UsageError` if the arguments do not fit together, and
    `DataError` if the records do not fit them.

    Args:
        max_seq_length: int. T.
        max_predictions_per_seq: int or None. P, the maximum number of masked tokens per
            example, which must equal P of records with masks. By default, P of such
            records, or the most that `masking` without a maximum masks of T tokens.
        masking: `MaskingConfig`. ALBERT's by default. Its `max_predictions_per_seq` is
            replaced by the argument. Records of the original keep their masks.
        packing: bool. Whether to put several examples into one row (see the module
            `packing`). N then counts rows, and P becomes the largest sum of
            predictions in a row.
        sample_draws: bool. Whether batches have numbers from which a model draws
            replacements of the masked tokens.
        type_vocab_size: int or None. Segments are checked against it unless None.

    Attributes:
        num_rows: int. Rows of one pass over the records.
        summary: str. The number of rows, and how full they are if packed.
        keeps_masks: bool. Whether the records already contain masks, so that `masking`
            has no effect.
        warning: str. States that less is masked than `masking` asks for, or "".
    """

    def __init__(
        self,
        pattern: str | Sequence[str],
        *,
        tokenizer,
        max_seq_length: int,
        seed: int,
        max_predictions_per_seq: int | None = None,
        masking: MaskingConfig | None = None,
        packing: bool = False,
        sample_draws: bool = False,
        type_vocab_size: int | None = None,
    ):
        config = masking or MaskingConfig()
        most = max_predictions_per_seq
        if most is None:
            most = most_predictions(max_seq_length, config.masked_lm_prob)
        config = dataclasses.replace(config, max_predictions_per_seq=most)
        reader = ExampleReader(
            pattern,
            VocabInfo.from_tokenizer(tokenizer),
            max_seq_length,
            max_predictions_per_seq,
            type_vocab_size,
        )
        self.keeps_masks = reader.is_static
        self.warning = "" if reader.is_static else config.shortfall(max_seq_length)
        require(
            not (self.keeps_masks and packing),
            f"{reader.records.paths[0]}: already contains masks; packing needs records "
            "made with --masking=dynamic",
        )
        self.records = reader.records
        self._reader = reader
        self._config = config
        self._seed = seed
        self._sample_draws = sample_draws
        self._plan: PackPlan | None = None
        self._assignments: dict[int, np.ndarray] = {}
        self._lock = threading.Lock()
        self.num_rows = len(reader)
        self.summary = count_of(len(reader), "example")
        if packing:
            plan = make_plan(reader.lengths(), config, max_seq_length)
            self._plan, self.num_rows = plan, plan.num_rows
            self.summary = (
                f"packed: {self.summary} in {count_of(plan.num_rows, 'row')}, "
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
        """Returns a data set of batches of `B` rows; see `make_pretraining_dataset`.

        Evaluation is masked as epoch 0. Its last batch is filled with rows of padding
        whose weights are 0 (`sentence_order_weights` `[b]` marks them), so that shapes
        are static, every worker takes the same number of steps, and means over weights
        are exact. Pipeline `j` of `n` gets rows `[j*B/n, (j+1)*B/n)`. If asked for,
        there are `sample_draws` in [0, 1); packed rows are as described in
        `packing.pack_batch`.
        """
        size, seed, pipelines = self.num_rows, self._seed, num_input_pipelines
        require(
            pipelines >= 1 and global_batch_size >= 1 > global_batch_size % pipelines,
            f"global_batch_size must be a positive multiple of {num_input_pipelines=}",
            global_batch_size,
        )
        expected = f"input_pipeline_id must be in [0, {pipelines})"
        require(0 <= input_pipeline_id < pipelines, expected, input_pipeline_id)
        require(start_step >= 0, "start_step must not be negative", start_step)
        num_rows = global_batch_size // pipelines

        @tf.autograph.experimental.do_not_convert  # nothing to convert, only slow
        def make_batch(step):
            rows = tf.range(num_rows, dtype=tf.int64) + input_pipeline_id * num_rows
            rows += step * global_batch_size
            if is_training:
                return self._rows(*shuffled(rows, size, seed))
            inside = rows < size
            rows, epochs = tf.where(inside, rows, 0), tf.zeros_like(rows)
            if self._plan:  # it has the longest examples first
                rows, epochs = shuffled(rows, size, seed)
            pad_id = self._reader.vocab.pad_id
            return _blank_rows(self._rows(rows, epochs), inside, pad_id)

        steps = tf.data.Dataset.counter(start_step)
        if not is_training:
            num_steps = -(-size // global_batch_size)
            steps = tf.data.Dataset.range(start_step, max(start_step, num_steps))
        options = tf.data.Options()
        options.deterministic = True
        off = tf.data.experimental.AutoShardPolicy.OFF  # batches are already sliced
        options.experimental_distribute.auto_shard_policy = off
        dataset = steps.map(make_batch, num_parallel_calls=tf.data.AUTOTUNE)
        return dataset.prefetch(tf.data.AUTOTUNE).with_options(options)

    def _rows(self, rows, epochs) -> dict:
        """Returns rows `rows` int64 `[n]`, filled and masked as in `epochs`."""
        if not self._plan:
            return self._examples(rows, epochs)

        def find(rows, epochs):
            assignments = [self._assignment(epoch) for epoch in epochs.tolist()]
            members, counts = self._plan.members(rows, assignments)
            return members, np.repeat(epochs, counts), counts

        outputs = python_op(find, [rows, epochs], [tf.int64] * 3)
        members, epochs = (tf.ensure_shape(one, [None]) for one in outputs[:2])
        counts = tf.ensure_shape(outputs[2], rows.shape)
        batch = self._examples(members, epochs, pad_to_longest=True)
        return pack_batch(batch, counts, self._plan, self._reader.vocab.pad_id)

    def _examples(self, numbers, epochs, pad_to_longest: bool = False) -> dict:
        """Returns records `numbers` int64 `[n]`, masked as in `epochs` int64 `[n]`."""
        batch = self._reader.read(numbers, pad_to_longest)
        keys = keyed_random.row_keys(self._seed, epochs, numbers, TENSORFLOW)
        if not self.keeps_masks:
            vocab = self._reader.vocab
            batch |= mask_batch(batch, keys, self._config, vocab, TENSORFLOW)
        if self._sample_draws:
            places, purpose = batch[features.MASK_POSITIONS], keyed_random.SAMPLE
            drawn = keyed_random.draws(keys, purpose, places, TENSORFLOW)
            batch[features.SAMPLE_DRAWS] = keyed_random.fractions(drawn, TENSORFLOW)
        unread = (features.TOKEN_BOUNDARY, features.MASK_NGRAMS)
        return {name: values for name, values in batch.items() if name not in unread}

    def _assignment(self, epoch: int) -> np.ndarray:
        """Returns the examples of an epoch's rows, computed once for all threads."""
        with self._lock:
            if epoch not in self._assignments:
                # A batch has rows of two epochs at the turn from one to the next.
                for old in sorted(self._assignments)[:-1]:
                    del self._assignments[old]
                self._assignments[epoch] = self._plan.assignment(self._seed, epoch)
            return self._assignments[epoch]


def _blank_rows(batch: dict, inside, pad_id: int) -> dict:
    """Replaces the rows beyond the end of the data by padding."""
    labels = batch.get(features.SENTENCE_ORDER_LABELS)
    weights = features.SENTENCE_ORDER_WEIGHTS
    if labels is not None and weights not in batch:
        batch[weights] = tf.ones_like(labels, tf.float32)
    for name, values in batch.items():
        here = inside if values.shape.rank == 1 else inside[:, None]
        blank = tf.constant(pad_id if name == features.TOKEN_IDS else 0, values.dtype)
        batch[name] = tf.where(here, values, blank)
    return batch
