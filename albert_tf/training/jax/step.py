"""The training step on JAX, with the same interface as the step on TensorFlow."""

import concurrent.futures
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import keras
import numpy as np
from jax import lax
from jax import numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from albert_tf import features
from albert_tf.errors import DataError, require
from albert_tf.layers.attention import padding_last
from albert_tf.training.base_step import BaseEvaluationStep, BaseTrainStep
from albert_tf.training.jax.devices import Devices, num_shares
from albert_tf.training.jax.update import AXIS, Update, count_tokens
from albert_tf.training.random_depth import RandomDepth

if TYPE_CHECKING:
    import tensorflow as tf

_EVERYWHERE, _BY_ROWS = PartitionSpec(), PartitionSpec(AXIS)


class EvaluationStep(BaseEvaluationStep):
    """Runs evaluation steps; see `training.tensorflow.step` for the arguments."""

    strategy: Devices

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        model, forward = self.model, self.forward
        self._weights = [*model.trainable_variables, *model.non_trainable_variables]
        self._weights += [*self.extra.values(), *getattr(forward, "frozen", ())]
        self._evaluate = self._compiled(self.strategy.mesh, self._sums, _EVERYWHERE)

    def evaluate(self, batch: Mapping[str, jax.Array]) -> jax.Array:
        """Returns `sum_names` of one batch from `distribute`, without training."""
        return self._evaluate(_placed(self._weights, self.strategy.mesh), batch)

    def _sums(self, batch):
        outputs = self.forward(batch, training=False)
        sums = self.objective.sums(outputs, batch) | count_tokens(batch)
        sums = jnp.stack([jnp.asarray(sums[n], jnp.float32) for n in self.sum_names])
        return lax.psum(sums, AXIS)

    def _compiled(self, mesh, function, out_specs) -> Callable:
        """Compiles a function of the weights and a batch, whose rows are divided."""

        def compute(weights, batch):
            pairs = list(zip(self._weights, weights, strict=True))
            with keras.StatelessScope(state_mapping=pairs), padding_last():
                return function(batch)

        return jax.jit(
            jax.shard_map(
                compute,
                mesh=mesh,
                in_specs=(_EVERYWHERE, _BY_ROWS),
                out_specs=out_specs,
                check_vma=False,
            )
        )


class TrainStep(BaseTrainStep, EvaluationStep):
    """Runs training and evaluation steps of a model.

    Args:
        model, objective, strategy: As for `EvaluationStep`.
        optimizer: From `create_optimizer`; built here.
        forward: callable or None. See `Update`.
        seed, accumulation, depth, shard_optimizer: See `Update`.
        random_depth: `training.random_depth.RandomDepth` or None. As on TensorFlow.
        jit_compile, fuse: bool. Without effect: XLA always compiles the whole step.
    """

    def __init__(
        self,
        model: keras.Model,
        objective: Any,
        optimizer: keras.optimizers.Optimizer,
        strategy: Devices,
        *,
        forward: Callable[..., Any] | None = None,
        jit_compile: bool = True,
        fuse: bool = False,
        random_depth: RandomDepth | None = None,
        **options: Any,
    ):
        del jit_compile, fuse
        super().__init__(model, objective, strategy, forward)
        options["forward"] = forward
        self._update = Update(model, objective, optimizer, strategy.mesh, **options)
        self._train = self._update.compiled()
        self._describe(self._update.variables, optimizer, random_depth)
        self._predict = self._compiled(
            strategy.local_mesh,
            lambda batch: self._answering(batch, training=False),
            _BY_ROWS,
        )

    def _set_depth(self, layers: int) -> None:
        self._update = self._update.at_depth(layers)
        self._train = self._update.compiled()

    def run(self, iterator, num_steps, totals=None) -> dict[str, Any]:
        """Trains with this step's program; the host waits for it once, at the end."""
        before = [totals[n] if totals else 0.0 for n in self.sum_names]
        groups, places = self._update.groups(), self._update.shardings()
        state = {
            name: _placed(variables, self.strategy.mesh, places[name])
            for name, variables in groups.items()
        }
        steps = []
        try:
            for _ in range(num_steps):
                state, results = self._train(state, next(iterator))
                steps.append(results)
        finally:
            # The step has reused the memory of the previous values.
            for name, variables in groups.items():
                for variable, value in zip(variables, state[name], strict=True):
                    variable.assign(value)
        read = {self._names[i] for i in self._update.read}
        self._warn_of_unread(set(self._names) - read)
        if self._ratio_names:
            steps[-1]["ratios"] = self.optimizer.last_trust_ratios.value
        steps = jax.device_get(steps)
        # In this order, however the steps are divided into calls.
        sums = sum((one["row"][1:] for one in steps), np.array(before, np.float32))
        names = ["loss_scale"] if self.optimizer.loss_scale else []
        columns = [np.array([one["row"][0] for one in steps])]
        columns += [np.array([one[name] for one in steps]) for name in ("norm", *names)]
        last = steps[-1]
        return self._results(sums, last["learning_rate"], columns, last.get("ratios"))

    def predict(self, batch: Mapping[str, np.ndarray]) -> Any:
        """Returns the current outputs of the model, or of its generator, for a batch.

        Every worker computes all outputs itself. The arrays are
        `[num_shares * b, ...]`, an equal share for each device of this process, in
        order.
        """
        mesh = self.strategy.local_mesh
        batch = jax.device_put(dict(batch), NamedSharding(mesh, _BY_ROWS))
        return jax.device_get(self._predict(_placed(self._weights, mesh), batch))

    @property
    def num_shares(self) -> int:
        """The number of devices of this process."""
        return num_shares(self.strategy)


class _Batches:
    """A dataset's batches as arrays on the devices; a thread moves the next one."""

    def __init__(self, dataset: "tf.data.Dataset", devices: Devices):
        self._dataset = dataset
        self._rows = NamedSharding(devices.mesh, _BY_ROWS)
        self._is_alone = devices.mesh.size == devices.local_mesh.size

    def __iter__(self) -> Iterator[dict[str, jax.Array]]:
        batches = map(self._on_devices, self._dataset.as_numpy_iterator())
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            coming = thread.submit(next, batches, None)
            while (batch := coming.result()) is not None:
                coming = thread.submit(next, batches, None)
                yield batch

    def _on_devices(self, batch: dict[str, np.ndarray]) -> dict[str, jax.Array]:
        mask = batch[features.PADDING_MASK]
        # As `padding_last` states: a kernel would leave out tokens after a gap.
        fits = (mask[..., 1:] <= mask[..., :-1]).all()
        need = f"{features.PADDING_MASK} must be 1 for the first tokens of a row, "
        require(fits, f"{need}and 0 for the others", error=DataError)
        if self._is_alone:
            return jax.device_put(batch, self._rows)
        join = functools.partial(jax.make_array_from_process_local_data, self._rows)
        return jax.tree.map(join, batch)


def distribute(
    strategy: Devices, make_dataset: Callable[[int, int], "tf.data.Dataset"]
) -> _Batches:
    """Returns the batches on the devices, from one input pipeline per process."""
    processes = strategy.mesh.size // strategy.local_mesh.size
    number = jax.process_index() if processes > 1 else 0
    dataset = make_dataset(processes, number)
    return _Batches(dataset.prefetch(2), strategy)


def _placed(
    variables: Sequence[keras.Variable],
    mesh: jax.sharding.Mesh,
    places: Sequence[NamedSharding] | None = None,
) -> list[jax.Array]:
    """Moves the values of variables to their places (default: all devices)."""
    # One after another, so that no device holds all of them twice.
    places = places or [NamedSharding(mesh, _EVERYWHERE)] * len(variables)
    return [_put(v, place) for v, place in zip(variables, places, strict=True)]


def _put(variable, place):
    value = variable.value
    # Not `is_equivalent_to`: JAX compiles again for equivalent but unequal shardings.
    if value.sharding == place:
        return value
    if not value.is_fully_addressable:
        # The value lies on devices of all processes; this one's share needs no copy.
        parts = [shard.data for shard in value.addressable_shards]
        return jax.make_array_from_single_device_arrays(value.shape, place, parts)
    # The value is the same in all processes: it comes from the same seed or files.
    array = np.asarray(value)
    value = jax.make_array_from_callback(array.shape, place, lambda part: array[part])
    variable.assign(value)
    return value
