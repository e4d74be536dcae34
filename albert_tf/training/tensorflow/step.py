"""The training step: the same numbers on one device, several, or several machines.

Each replica computes the gradients of its share of the batch, with losses divided by
the counts of the whole batch; the gradients are summed over the replicas, and only
then clipped and applied. Keras' own `fit` does otherwise under a strategy, and trains
to other weights (docs/decisions.md, "Distribution").
"""

from collections.abc import Callable

import keras
import tensorflow as tf

from albert_tf.layers.dropout import StepSeeds
from albert_tf.objectives.losses import MLM_EPSILON, pretraining_sums

SUM_NAMES = (
    "mlm_loss_sum",
    "mlm_hits",
    "mlm_weight",
    "sop_loss_sum",
    "sop_hits",
    "sop_weight",
    "tokens",
)


class PretrainStep:
    """Runs training and evaluation steps of a pretrainer under a strategy.

    Args:
        model: `AlbertPretrainer`, made in the strategy's scope.
        optimizer: From `create_optimizer`, made in the strategy's scope; is built here.
        strategy: `tf.distribute.Strategy`.
        seed: int. Of dropout.
        accumulation: int. Micro-batches that a replica's share is cut into. The
            result is that of one piece (but for rounding and dropout masks).
        jit_compile: bool. Whether XLA compiles the forward and backward pass. A TPU
            compiles in any case.
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        strategy: tf.distribute.Strategy,
        *,
        seed: int = 0,
        accumulation: int = 1,
        jit_compile: bool = False,
    ):
        self.model = model
        self.optimizer = optimizer
        self.strategy = strategy
        self.seed = seed
        self.accumulation = accumulation
        self.variables = model.trainable_variables
        with strategy.scope():
            optimizer.build(self.variables)
        # The step sums the gradients itself, see `_replica_step`.
        optimizer.sum_over_replicas = False
        self._gradients = self._micro_step
        if jit_compile:
            self._gradients = tf.function(
                self._micro_step, jit_compile=True, autograph=False
            )
        self._train = tf.function(self._train_steps)
        self._evaluate = tf.function(self._evaluate_step)

    def train(self, iterator, num_steps: int) -> dict[str, tf.Tensor]:
        """Takes `num_steps` batches; one call of a graph, however many.

        Args:
            iterator: Over a distributed dataset of pretraining batches.
            num_steps: int.

        Returns:
            `SUM_NAMES` added up over replicas and steps, and `grad_norm`, the global
            norm before clipping, of the last step; float32 scalars.
        """
        sums = self._train(iterator, tf.constant(num_steps, tf.int32))
        norm = tf.convert_to_tensor(self.optimizer.last_global_norm.value)
        return {**sums, "grad_norm": norm}

    def evaluate(self, batch) -> dict[str, tf.Tensor]:
        """`SUM_NAMES` of one distributed batch, without training."""
        return self._evaluate(batch)

    def _train_steps(self, iterator, num_steps):
        totals = {name: tf.zeros(()) for name in SUM_NAMES}
        for _ in tf.range(num_steps):
            per_replica = self.strategy.run(self._replica_step, (next(iterator),))
            sums = self._sum(per_replica)
            totals = {name: totals[name] + sums[name] for name in SUM_NAMES}
        return totals

    def _evaluate_step(self, batch):
        def replica_step(batch):
            sums = pretraining_sums(self.model(batch, training=False), batch)
            return {**sums, "tokens": _num_tokens(batch)}

        return self._sum(self.strategy.run(replica_step, (batch,)))

    def _sum(self, per_replica):
        reduce = self.strategy.reduce
        return {n: reduce("SUM", per_replica[n], axis=None) for n in SUM_NAMES}

    def _replica_step(self, batch):
        context = tf.distribute.get_replica_context()
        weights = tf.stack([tf.reduce_sum(batch["mask_weights"]), _sop_weight(batch)])
        if context.num_replicas_in_sync > 1:
            weights = context.all_reduce(tf.distribute.ReduceOp.SUM, weights)
        replica = tf.cast(context.replica_id_in_sync_group, tf.int32)
        # A replica's own masks, the first replica's being those of a single device.
        seed = tf.constant(self.seed, tf.int32) + replica * 7919
        step = tf.cast(self.optimizer.iterations.value, tf.int32)
        sums, gradients = self._accumulate(batch, weights, seed, step)
        if context.num_replicas_in_sync > 1:
            gradients = context.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        self.optimizer.apply(gradients, self.variables)
        return sums

    def _accumulate(self, batch, weights, seed, step):
        """Sums and gradients of a replica's share, cut into micro-batches."""
        if self.accumulation == 1:
            return self._gradients(batch, weights, seed, step)
        pieces = {k: _cut(v, self.accumulation) for k, v in batch.items()}
        sums = {name: tf.zeros(()) for name in SUM_NAMES}
        gradients = [tf.zeros(v.shape) for v in self.variables]
        # The loop keeps the graph's size and the memory independent of the count.
        for i in tf.range(self.accumulation):
            piece = {k: v[i] for k, v in pieces.items()}
            number = step * self.accumulation + i
            more, pushes = self._gradients(piece, weights, seed, number)
            sums = {name: sums[name] + more[name] for name in SUM_NAMES}
            gradients = [a + b for a, b in zip(gradients, pushes, strict=True)]
        return sums, gradients

    def _micro_step(self, batch, weights, seed, step):
        with tf.GradientTape() as tape:
            outputs = self.model(batch, training=True, seeds=StepSeeds(seed, step))
            sums = pretraining_sums(outputs, batch)
            loss = sums["mlm_loss_sum"] / (weights[0] + MLM_EPSILON)
            loss += sums["sop_loss_sum"] / tf.maximum(weights[1], 1.0)
        gradients = tape.gradient(loss, self.variables)
        sums["tokens"] = _num_tokens(batch)
        return sums, [
            tf.zeros(v.shape) if g is None else tf.convert_to_tensor(g)
            for g, v in zip(gradients, self.variables, strict=True)
        ]


def distribute(
    strategy: tf.distribute.Strategy,
    make_dataset: Callable[[int, int], tf.data.Dataset],
) -> tf.distribute.DistributedDataset:
    """Hands every replica its rows of each global batch.

    Args:
        strategy: `tf.distribute.Strategy`.
        make_dataset: Function of `(num_input_pipelines, input_pipeline_id)`, the
            batches of one input pipeline (one per machine), whose rows are that
            pipeline's share of the global batch.
    """

    def dataset_fn(context):
        dataset = make_dataset(context.num_input_pipelines, context.input_pipeline_id)
        replicas = context.num_replicas_in_sync // context.num_input_pipelines
        if replicas > 1:
            split = lambda batch: {k: _cut(v, replicas) for k, v in batch.items()}  # noqa: E731
            dataset = dataset.map(split).unbatch()
        return dataset.prefetch(tf.data.AUTOTUNE)

    options = tf.distribute.InputOptions(experimental_fetch_to_device=None)
    return strategy.distribute_datasets_from_function(dataset_fn, options)


def _num_tokens(batch):
    return tf.reduce_sum(tf.cast(batch["padding_mask"], tf.float32))


def _sop_weight(batch):
    if "sentence_order_labels" not in batch:
        return tf.zeros(())
    if "sentence_order_weights" in batch:
        return tf.reduce_sum(tf.cast(batch["sentence_order_weights"], tf.float32))
    return tf.cast(tf.size(batch["sentence_order_labels"]), tf.float32)


def _cut(tensor, pieces):
    """`[B, ...]` to `[pieces, B / pieces, ...]`."""
    rows = tensor.shape[0]
    return tf.reshape(tensor, [pieces, rows // pieces, *tensor.shape[1:]])
