"""The training step: equal weights with one device, several, or several machines.

Each replica computes the gradients of its share of the batch, with losses divided by
the counts of the whole batch. The gradients are summed over the replicas, and only then
clipped and applied. Under a strategy, Keras' own `fit` clips before it sums, and
reaches other weights (docs/decisions.md, "Distribution"). A weight that the loss does
not read is not updated: weight decay alone would shrink it to nothing.

Where an objective compares all vectors of the batch, each replica computes its own
vectors, then the loss of all of them, and leads its share of the vectors' gradient back
through the model. Micro-batches are computed twice for this, first without gradients
(GradCache, arXiv:2101.06983), so that the memory does not depend on the batch size.
"""

import contextlib
import functools
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from albert_tf import features
from albert_tf.layers.context import fused_elementwise
from albert_tf.layers.depth import UNROLLED, depth_form, limit_layers
from albert_tf.layers.dropout import StepSeeds
from albert_tf.training.base_step import BaseEvaluationStep, BaseTrainStep
from albert_tf.training.random_depth import RandomDepth
from albert_tf.training.tensorflow.strategy import is_tpu, num_shares, value_of

# AutoGraph takes seconds to convert what has no loop over tensors.
_as_it_is = tf.autograph.experimental.do_not_convert


class EvaluationStep(BaseEvaluationStep):
    """Runs evaluation steps under a strategy; see `TrainStep` for the arguments."""

    strategy: tf.distribute.Strategy

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        # TensorFlow counts the traces of a method over all objects, and warns about
        # them from the third run of a process on; it does not for a `partial`.
        evaluate = functools.partial(self._evaluate_step)
        self._evaluate = tf.function(evaluate, autograph=False)

    def evaluate(self, batch) -> tf.Tensor:
        """Returns `sum_names` of one distributed batch, without training."""
        return self._evaluate(batch)

    def _evaluate_step(self, batch):
        def replica_step(batch):
            sums = self.objective.sums(self.forward(batch, training=False), batch)
            return self._stack(sums | _counts(batch))

        return self._sum(self.strategy.run(replica_step, (batch,)))

    def _sum(self, per_replica):
        # A single vector lets the replicas exchange sums only once.
        return self.strategy.reduce("SUM", per_replica, axis=None)

    def _stack(self, sums):
        return tf.stack([tf.cast(sums[name], tf.float32) for name in self.sum_names])


class TrainStep(BaseTrainStep, EvaluationStep):
    """Runs training and evaluation steps of a model under a strategy.

    Args:
        model: Keras model, made in the strategy's scope. Called with a batch.
        objective: The loss to minimize, such as `objectives.pretraining.Objective`: its
            `sums`, named `sum_names`, and its `weights` add up over the parts of a
            batch, and its `loss` of a part adds up over all of them. If it has
            `gathered`, names of features, it computes `sums` and `loss` from the
            outputs and these features of the whole batch.
        optimizer: From `create_optimizer`, made in the strategy's scope; built here.
        seed: int. Seed of dropout.
        accumulation: int. Number of micro-batches that a replica's share is cut into.
            The result is the same up to rounding and dropout masks.
        jit_compile: bool. Whether XLA compiles the forward and backward pass. A TPU
            compiles in any case.
        fuse: bool. Whether XLA compiles the parts that layers mark as `fusible`, the
            activation and its gradient (`layers.gradients`). Without effect where XLA
            compiles the whole step, and on a machine with devices other than CPUs.
        forward: callable or None. Computes the outputs to train on, with the arguments
            of the model; None for the model itself. Its `extra_weights`, variables by
            name, are trained as well, if it has any; its `frozen` ones are only read.
        depth: str. Form of the encoders while they are trained (`layers.depth`).
        random_depth: `RandomDepth` or None. Draws the number of layers of every step;
            None for all layers.
    """

    def __init__(
        self,
        model: keras.Model,
        objective: Any,
        optimizer: keras.optimizers.Optimizer,
        strategy: tf.distribute.Strategy,
        *,
        seed: int = 0,
        accumulation: int = 1,
        jit_compile: bool = False,
        fuse: bool = False,
        forward: Callable[..., Any] | None = None,
        depth: str = UNROLLED,
        random_depth: RandomDepth | None = None,
    ):
        super().__init__(model, objective, strategy, forward)
        self.seed = seed
        self.accumulation = accumulation
        self.depth = depth
        variables = [*model.trainable_variables, *self.extra.values()]
        with strategy.scope():
            if model.compute_dtype == "float16":
                optimizer.scale_losses()
            optimizer.build(variables)
        self._describe(variables, optimizer, random_depth)
        self._loss_scale = optimizer.loss_scale
        # The step itself sums the gradients, see `_replica_step`.
        optimizer.sum_over_replicas = False
        self._gathered = getattr(objective, "gathered", ())
        self._structure = None  # of the outputs that vectors are stacked from
        self._compile_chain = None
        # A TPU compiles everything by itself.
        on_tpu = is_tpu(strategy)
        if fuse and not on_tpu and not jit_compile and _only_cpus():
            self._compile_chain = _compile_chain
        self._jit_compile = jit_compile and not on_tpu
        self._layers: int | None = None
        self._compile()
        predict = functools.partial(self._predict_step)
        self._predict = tf.function(predict, autograph=False, reduce_retracing=True)

    def _compile(self) -> None:
        compiled = functools.partial(tf.function, jit_compile=True, autograph=False)
        compiled = compiled if self._jit_compile else _as_it_is
        gradients = self._pull_step if self._gathered else self._micro_step
        self._gradients = compiled(gradients)
        self._vectors = compiled(self._vectors_step)
        self._train = tf.function(functools.partial(self._train_steps))

    def _set_depth(self, layers: int) -> None:
        self._layers = layers
        self._compile()

    def run(self, iterator, num_steps, totals=None) -> dict[str, Any]:
        """Trains in a single call of a graph, with this step's number of layers."""
        before = [totals[n] if totals else 0.0 for n in self.sum_names]
        sums, measured, rate = self._train(
            iterator, tf.constant(num_steps, tf.int32), tf.constant(before, tf.float32)
        )
        ratios = self._ratio_names and value_of(self.optimizer.last_trust_ratios)
        return self._results(sums.numpy(), rate.numpy(), measured.numpy().T, ratios)

    def predict(self, batch: Mapping[str, np.ndarray]) -> Any:
        """Returns the current outputs of the model, or of its generator, for a batch.

        Every worker computes all outputs itself. The arrays are
        `[num_shares * b, ...]`, an equal share for each device of this process, in
        order.
        """
        parts = {k: _cut(tf.constant(v), self.num_shares) for k, v in batch.items()}
        rows = ({k: v[i] for k, v in parts.items()} for i in range(self.num_shares))
        distribute = self.strategy.experimental_distribute_values_from_function
        shares = distribute(lambda context: next(rows))
        results = self.strategy.experimental_local_results(self._predict(shares))
        return tf.nest.map_structure(
            lambda *values: np.concatenate([v.numpy() for v in values]), *results
        )

    @property
    def num_shares(self) -> int:
        """The number of devices of this process."""
        return num_shares(self.strategy)

    def _predict_step(self, batch):
        forward = lambda batch: self._answering(batch, training=False)  # noqa: E731
        return self.strategy.run(forward, (batch,))

    def _train_steps(self, iterator, num_steps, totals):
        rate, scale, update = tf.zeros(()), self._loss_scale, self._replica_step
        if self.accumulation == 1:  # no loop in it
            update = _as_it_is(update)
        shape = (3 if scale else 2,)
        measured = tf.TensorArray(tf.float32, num_steps, element_shape=shape)
        for i in tf.range(num_steps):
            # Read the rate before the update, which advances the schedule.
            rate = tf.cast(self.optimizer.learning_rate, tf.float32)
            used = [tf.identity(scale.value.value)] if scale else []
            row = self._sum(self.strategy.run(update, (next(iterator),)))
            totals += row[1:]
            norm = tf.convert_to_tensor(self.optimizer.last_global_norm.value)
            measured = measured.write(i, tf.stack([row[0], norm, *used]))
        return totals, measured.stack(), rate

    def _replica_step(self, batch):
        """Updates the weights; returns this replica's loss, followed by its sums."""
        context = tf.distribute.get_replica_context()
        weights = self.objective.weights(batch)
        if context.num_replicas_in_sync > 1:
            weights = context.all_reduce(tf.distribute.ReduceOp.SUM, weights)
        replica = tf.cast(context.replica_id_in_sync_group, tf.int32)
        # Every replica draws its own masks; the first one draws like a single device.
        seed = tf.constant(self.seed, tf.int32) + replica * 7919
        step = tf.cast(self.optimizer.iterations.value, tf.int32)
        scale = self._loss_scale and tf.identity(self._loss_scale.value.value)
        arguments = batch, weights, seed, step, scale
        if self._gathered:
            with self._forms():
                row, gradients = self._compare(*arguments)
        else:
            row, gradients = self._accumulate(*arguments)
        gradients, variables = self._without_unread(gradients)
        if context.num_replicas_in_sync > 1:
            gradients = context.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        if not (self.optimizer.clip_norm or self._loss_scale):
            # The optimizer only computes the norm if it needs it.
            self.optimizer.last_global_norm.assign(tf.linalg.global_norm(gradients))
        _as_it_is(self.optimizer.apply)(gradients, variables)
        return row

    @_as_it_is
    def _without_unread(self, gradients):
        """Returns gradients and variables, without variables that have no gradient."""
        pairs = list(zip(gradients, self.variables, self._names, strict=True))
        self._warn_of_unread(name for gradient, _, name in pairs if gradient is None)
        read = [(gradient, v) for gradient, v, _ in pairs if gradient is not None]
        return [gradient for gradient, _ in read], [v for _, v in read]

    @contextlib.contextmanager
    def _forms(self):
        """Chooses how layers compute."""
        fused = fused_elementwise(self._compile_chain)
        with fused, depth_form(self.depth), limit_layers(self._layers):
            yield

    def _accumulate(self, batch, weights, seed, step, scale):
        """Returns loss and sums of a replica's share, and its gradients or None."""
        if self.accumulation == 1:
            return self._gradients(batch, weights, seed, step, scale)
        parts = {k: _cut(v, self.accumulation) for k, v in batch.items()}
        row = tf.zeros(1 + len(self.sum_names))
        gradients = [tf.zeros(v.shape) for v in self.variables]
        unread = set()
        # A loop keeps the graph's size and the memory independent of the count.
        for i in tf.range(self.accumulation):
            part = {k: v[i] for k, v in parts.items()}
            number = step * self.accumulation + i
            more, pushes = self._gradients(part, weights, seed, number, scale)
            row += more
            unread.update(n for n, push in enumerate(pushes) if push is None)
            gradients = [
                a if b is None else a + b
                for a, b in zip(gradients, pushes, strict=True)
            ]
        return row, [None if n in unread else g for n, g in enumerate(gradients)]

    def _micro_step(self, batch, weights, seed, step, scale=None):
        # Entered here, because every replica traces in its own thread.
        with self._forms():
            with tf.GradientTape() as tape:
                seeds = StepSeeds(seed, step)
                outputs = self.forward(batch, training=True, seeds=seeds)
                sums = self.objective.sums(outputs, batch)
                loss = self.objective.loss(sums, weights)
            # With a scale, gradients of the loss times the scale.
            gradients = tape.gradient(loss, self.variables, output_gradients=scale)
        sums = self._stack(sums | _counts(batch))
        row = tf.concat([tf.cast(loss, tf.float32)[None], sums], 0)
        return row, _dense(gradients)

    def _compare(self, batch, weights, seed, step, scale):
        """Does the same as `_accumulate` for an objective that is `gathered`."""
        if self.accumulation == 1:
            with tf.GradientTape() as tape:
                vectors = self._vectors(batch, seed, step)
            row, pull = self._pull(vectors, batch, weights, scale)
            return row, _dense(tape.gradient(vectors, self.variables, pull))
        parts = {k: _cut(v, self.accumulation) for k, v in batch.items()}
        numbers = step * self.accumulation + tf.range(self.accumulation)
        vectors = tf.map_fn(
            lambda part: self._vectors(part[0], seed, part[1]),
            (parts, numbers),
            fn_output_signature=tf.float32,
            parallel_iterations=1,  # or several would be in memory at once
        )
        vectors = tf.concat(tf.unstack(vectors, self.accumulation), 0)
        row, pull = self._pull(vectors, batch, weights, scale)
        batch = {**batch, _PULL: pull}
        return row, self._accumulate(batch, weights, seed, step, scale)[1]

    def _pull(self, vectors, batch, weights, scale):
        """Returns loss and sums, once over all replicas, and the vectors' gradient."""
        context = tf.distribute.get_replica_context()
        number, everything = tf.constant(0), vectors
        shared = {name: batch[name] for name in self._gathered if name in batch}
        if context.num_replicas_in_sync > 1:
            number = tf.cast(context.replica_id_in_sync_group, tf.int32)
            own = (vectors, shared)
            everything, shared = tf.nest.map_structure(
                # Gathering forgets the shape, of which only `U` may differ.
                lambda all, own: tf.ensure_shape(all, [None, *own.shape[1:]]),
                context.all_gather(own, axis=0),
                own,
            )
        with tf.GradientTape() as tape:
            tape.watch(everything)
            outputs = tf.unstack(everything, axis=1)
            outputs = tf.nest.pack_sequence_as(self._structure, outputs)
            sums = self.objective.sums(outputs, shared)
            loss = self.objective.loss(sums, weights)
        pull = tape.gradient(loss, everything, output_gradients=scale)
        count = tf.shape(vectors)[0]
        # All replicas compute the same sums: one of them says what they are.
        once = {n: tf.where(number == 0, v, 0.0) for n, v in sums.items()}
        sums = self._stack(once | _counts(batch))
        loss = tf.where(number == 0, tf.cast(loss, tf.float32), 0.0)
        row = tf.concat([loss[None], sums], 0)
        return row, pull[number * count : (number + 1) * count]

    def _vectors_step(self, batch, seed, step):
        """Returns the outputs, `n` tensors `[U, K, E]`, as float32 `[U, n, K, E]`."""
        outputs = self.forward(batch, training=True, seeds=StepSeeds(seed, step))
        self._structure = tf.nest.map_structure(lambda _: 0, outputs)
        vectors = [tf.cast(v, tf.float32) for v in tf.nest.flatten(outputs)]
        return tf.stack(vectors, axis=1)

    def _pull_step(self, batch, weights, seed, step, scale=None):
        """Returns the gradients that a part's vectors, of known gradient, lead to."""
        batch = dict(batch)
        pull = batch.pop(_PULL)
        with tf.GradientTape() as tape:
            vectors = self._vectors_step(batch, seed, step)
        gradients = tape.gradient(vectors, self.variables, output_gradients=pull)
        return tf.zeros(1 + len(self.sum_names)), _dense(gradients)


# Key of the gradient of a batch's vectors.
_PULL = "pull"


def distribute(
    strategy: tf.distribute.Strategy,
    make_dataset: Callable[[int, int], tf.data.Dataset],
) -> tf.distribute.DistributedDataset:
    """Returns a distributed dataset that gives every replica its rows of each batch.

    From `(num_input_pipelines, input_pipeline_id)`, `make_dataset` makes the batches of
    a machine's pipeline, whose rows are its share of the global batch.
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


@functools.cache
def _compile_chain(function):
    return tf.function(function, jit_compile=True, autograph=False)


def _dense(gradients):
    return [None if g is None else tf.convert_to_tensor(g) for g in gradients]


def _only_cpus():
    return all(one.device_type == "CPU" for one in tf.config.list_logical_devices())


def _counts(batch):
    """Returns the number of tokens, and of positions, padding included."""
    mask = batch[features.PADDING_MASK]
    return {
        "tokens": tf.reduce_sum(tf.cast(mask, tf.float32)),
        "positions": tf.cast(tf.size(mask), tf.float32),
    }


def _cut(tensor, parts):
    """Reshapes `[B, ...]` to `[parts, B / parts, ...]`."""
    rows = tensor.shape[0]
    # The packed rows of examples differ in number and length from batch to batch.
    per_part = -1 if rows is None else rows // parts
    shape = tf.shape(tensor)
    inner = [shape[i] if n is None else n for i, n in enumerate(tensor.shape) if i]
    return tf.reshape(tensor, [parts, per_part, *inner])
