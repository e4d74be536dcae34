"""One update of the weights on JAX, as a pure function to be compiled.

As on TensorFlow (`training.tensorflow.step`), each device computes the gradients of its
rows, with losses divided by the counts of the whole batch; they are summed over the
devices, and only then clipped and applied. It needs neither TensorFlow nor real
devices: a mesh may describe a machine that is not here.
"""

import contextlib
import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import keras
import numpy as np
from jax import lax
from jax import numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from albert_tf import features
from albert_tf.layers.attention import padding_last
from albert_tf.layers.depth import UNROLLED, depth_form, limit_layers
from albert_tf.layers.dropout import StepSeeds

AXIS = "batch"
_EVERYWHERE, _BY_ROWS = PartitionSpec(), PartitionSpec(AXIS)
State = dict[str, list[jax.Array]]


class Update:
    """A function from the state of a training and a batch to the next state.

    `compiled` makes it a program. With `shard_optimizer`, each device keeps a part of
    the optimizer's slots (ZeRO, arXiv:1910.02054, section 5.1), where an axis can be
    divided evenly. The other arguments are as for the step on TensorFlow.

    Args:
        mesh: `jax.sharding.Mesh` with the single axis `AXIS`.

    Attributes:
        sum_names: tuple of str. Names of the results' row after the loss.
        variables, frozen: lists of `keras.Variable`. The trained ones, and the others.
        read: list of int. The variables that the loss reads; set by the first call.
    """

    def __init__(
        self,
        model: keras.Model,
        objective: Any,
        optimizer: keras.optimizers.Optimizer,
        mesh: Mesh,
        *,
        seed: int = 0,
        accumulation: int = 1,
        forward: Callable[..., Any] | None = None,
        depth: str = UNROLLED,
        shard_optimizer: bool = False,
    ):
        self.objective = objective
        self.optimizer = optimizer
        self.mesh = mesh
        self.seed = seed
        self.accumulation = accumulation
        self.depth = depth
        self.layers: int | None = None  # all
        self.shard_optimizer = shard_optimizer
        self.sum_names = (*objective.sum_names, "tokens", "positions")
        extra = getattr(forward, "extra_weights", {}).values()
        self.variables = [*model.trainable_variables, *extra]
        others = getattr(forward, "frozen", ())
        self.frozen = [*model.non_trainable_variables, *others]
        if model.compute_dtype == "float16":
            optimizer.scale_losses()
        optimizer.build(self.variables)
        self._forward = forward or model
        self.read: list[int] = []
        self._shardings: dict[str, list[NamedSharding]] | None = None

    def groups(self) -> dict[str, list[keras.Variable]]:
        """Returns the variables whose values the state holds."""
        return {
            "weights": self.variables,
            "frozen": self.frozen,
            "optimizer": self.optimizer.variables,
        }

    def shardings(self) -> dict[str, list[NamedSharding]]:
        """Returns the sharding of each value of the state."""
        if self._shardings is not None:
            return self._shardings
        specs = {name: [_EVERYWHERE] * len(v) for name, v in self.groups().items()}
        if self.shard_optimizer:
            # Averages are not divided: the chief alone evaluates and keeps them.
            slots = {
                id(self.optimizer.slot(variable, name))
                for variable in self.variables
                for name in ("m", "v")
            }
            specs["optimizer"] = [
                _cut_evenly(v.shape, self.mesh.size) if id(v) in slots else _EVERYWHERE
                for v in self.optimizer.variables
            ]
        self._shardings = {
            k: [NamedSharding(self.mesh, s) for s in v] for k, v in specs.items()
        }
        return self._shardings

    def state_specs(self) -> dict[str, list[jax.ShapeDtypeStruct]]:
        """Returns shapes, types and places of the state, to compile without devices."""
        places = self.shardings()
        return {
            name: [
                jax.ShapeDtypeStruct(tuple(v.shape), jnp.dtype(v.dtype), sharding=place)
                for v, place in zip(variables, places[name], strict=True)
            ]
            for name, variables in self.groups().items()
        }

    def batch_specs(
        self, batch: Mapping[str, np.ndarray]
    ) -> dict[str, jax.ShapeDtypeStruct]:
        """Returns shapes, types and places of a batch, whose rows are divided."""
        place = NamedSharding(self.mesh, _BY_ROWS)
        return {
            name: jax.ShapeDtypeStruct(v.shape, v.dtype, sharding=place)
            for name, v in batch.items()
        }

    def at_depth(self, layers: int) -> "Update":
        """Returns the function of the same model that computes its first layers."""
        other = copy.copy(self)
        other.layers = layers
        return other

    def compiled(self) -> Any:
        """Returns the function under `jax.jit`, which reuses the state's memory."""
        state = self.shardings()
        place = lambda spec: NamedSharding(self.mesh, spec)  # noqa: E731
        return jax.jit(
            self,
            donate_argnums=0,
            in_shardings=(state, place(_BY_ROWS)),
            out_shardings=(state, place(_EVERYWHERE)),
        )

    def __call__(self, state: State, batch: Mapping[str, Any]) -> tuple[State, dict]:
        """Updates the weights with the rows of all devices.

        Args:
            state: dict of lists of arrays, in the order of `groups`.
            batch: dict of arrays. The rows of all devices.

        Returns:
            The next state and the results: `row` float32, the loss followed by
            `sum_names` over all devices; scalars `learning_rate` and `norm`, the global
            norm before clipping; and in float16 the `loss_scale` of this step.
        """
        weights, frozen = state["weights"], state["frozen"]
        optimizer = self.optimizer
        pairs = [*_pairs(self.variables, weights)]
        pairs += _pairs(optimizer.variables, state["optimizer"])
        with keras.StatelessScope(state_mapping=pairs):
            rate = jnp.asarray(optimizer.learning_rate, jnp.float32)
            step = jnp.asarray(optimizer.iterations.value, jnp.int32)
            scale = optimizer.loss_scale and optimizer.loss_scale.value.value
        row, gradients = jax.shard_map(
            self._of_a_device,
            mesh=self.mesh,
            in_specs=(_EVERYWHERE, _EVERYWHERE, _BY_ROWS, _EVERYWHERE, _EVERYWHERE),
            out_specs=_EVERYWHERE,
            check_vma=False,  # else gradients would be summed too early
        )(weights, frozen, batch, step, scale)
        with keras.StatelessScope(state_mapping=pairs) as scope:
            if not (optimizer.clip_norm or optimizer.loss_scale):
                # The optimizer only computes the norm if it needs it.
                squares = (jnp.sum(jnp.square(g)) for g in gradients)
                optimizer.last_global_norm.assign(jnp.sqrt(sum(squares)))
            optimizer.apply(gradients, [self.variables[i] for i in self.read])
            norm = optimizer.last_global_norm.value
        values = {
            name: [_value_of(scope, v) for v in variables]
            for name, variables in self.groups().items()
            if name != "frozen"
        }
        state = {**values, "frozen": frozen}
        results = {"row": row, "learning_rate": rate, "norm": norm}
        return state, results if scale is None else {**results, "loss_scale": scale}

    def _of_a_device(self, weights, frozen, batch, step, scale):
        """Returns one device's results and gradients, summed over the devices."""
        counts = lax.psum(self.objective.weights(batch), AXIS)
        # Every device draws its own masks; the first one draws like a single device.
        seed = self.seed + lax.axis_index(AXIS).astype(jnp.int32) * 7919
        if getattr(self.objective, "gathered", ()):
            total = self._compare(weights, frozen, batch, counts, seed, step, scale)
        elif self.accumulation == 1:
            total = self._micro_step(weights, frozen, batch, counts, seed, step, scale)
        else:
            parts = {name: _cut(v, self.accumulation) for name, v in batch.items()}
            numbers = step * self.accumulation + jnp.arange(self.accumulation)

            def add(sums, part_and_number):
                part, number = part_and_number
                more = self._micro_step(
                    weights, frozen, part, counts, seed, number, scale
                )
                return jax.tree.map(jnp.add, sums, more), None

            one = jax.tree.map(lambda v: v[0], parts)
            shapes = jax.eval_shape(
                self._micro_step, weights, frozen, one, counts, seed, step, scale
            )
            zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
            # A loop keeps program and memory independent of the number of parts.
            total, _ = lax.scan(add, zeros, (parts, numbers))
        return lax.psum(total, AXIS)

    def _micro_step(self, weights, frozen, part, counts, seed, step, scale):
        """Returns results of some rows, and gradients of variables the loss reads."""
        # With a scale, the gradients belong to the loss times the scale. A weight that
        # the loss does not read is not updated: weight decay alone would shrink it to
        # nothing.

        def compute(weights, part, counts, seed, step, scale):
            def loss_of(weights):
                pairs = _pairs([*self.variables, *self.frozen], [*weights, *frozen])
                with keras.StatelessScope(state_mapping=pairs), self._forms():
                    seeds = StepSeeds(seed, step)
                    outputs = self._forward(part, training=True, seeds=seeds)
                    sums = self.objective.sums(outputs, part)
                    loss = self.objective.loss(sums, counts)
                loss = loss.astype(jnp.float32)
                scaled = loss if scale is None else loss * scale
                return scaled, (loss, sums | count_tokens(part))

            (_, (loss, sums)), gradients = jax.value_and_grad(loss_of, has_aux=True)(
                weights
            )
            named = (jnp.asarray(sums[n], jnp.float32) for n in self.sum_names)
            return gradients, jnp.stack([loss, *named])

        arguments = weights, part, counts, seed, step, scale
        self.read = _computed(compute, arguments, len(weights))
        gradients, row = compute(*arguments)
        return row, [gradients[i] for i in self.read]

    def _compare(self, weights, frozen, batch, counts, seed, step, scale):
        """Returns one device's results and gradients, of a `gathered` objective."""
        # As on TensorFlow, micro-batches are computed twice, first without gradients.

        def forward(weights, part, number):
            pairs = _pairs([*self.variables, *self.frozen], [*weights, *frozen])
            with keras.StatelessScope(state_mapping=pairs), self._forms():
                seeds = StepSeeds(seed, number)
                outputs = self._forward(part, training=True, seeds=seeds)
            return jax.tree.map(lambda v: v.astype(jnp.float32), outputs)

        def pull_back(weights, part, number, pull):
            return jax.vjp(lambda w: forward(w, part, number), weights)[1](pull)[0]

        if self.accumulation == 1:
            vectors, pull_all = jax.vjp(lambda w: forward(w, batch, step), weights)
            row, pull = self._pull(vectors, batch, counts, scale)
            arguments = weights, batch, step, pull
            self.read = _computed(pull_back, arguments, len(weights))
            return row, [pull_all(pull)[0][i] for i in self.read]
        parts = {name: _cut(v, self.accumulation) for name, v in batch.items()}
        numbers = step * self.accumulation + jnp.arange(self.accumulation)
        vectors = lax.map(lambda one: forward(weights, *one), (parts, numbers))
        vectors = jax.tree.map(lambda v: v.reshape(-1, *v.shape[2:]), vectors)
        row, pull = self._pull(vectors, batch, counts, scale)
        pull = jax.tree.map(lambda v: _cut(v, self.accumulation), pull)
        inputs = parts, numbers, pull
        one = jax.tree.map(lambda v: v[0], inputs)
        self.read = _computed(pull_back, (weights, *one), len(weights))

        def add(sums, one):
            more = pull_back(weights, *one)
            return [a + more[i] for a, i in zip(sums, self.read, strict=True)], None

        zeros = [jnp.zeros_like(weights[i]) for i in self.read]
        return row, lax.scan(add, zeros, inputs)[0]

    @contextlib.contextmanager
    def _forms(self):
        with depth_form(self.depth), limit_layers(self.layers), padding_last():
            yield

    def _pull(self, vectors, batch, counts, scale):
        """Returns loss and sums, once over all devices, and the vectors' gradient."""
        shared = {n: batch[n] for n in self.objective.gathered if n in batch}
        everything, shared = lax.all_gather((vectors, shared), AXIS, tiled=True)

        def loss_of(vectors):
            sums = self.objective.sums(vectors, shared)
            loss = self.objective.loss(sums, counts)
            return loss if scale is None else loss * scale, (loss, sums)

        (_, (loss, sums)), pull = jax.value_and_grad(loss_of, has_aux=True)(everything)
        number = lax.axis_index(AXIS)
        # All devices compute the same sums: one of them says what they are.
        once = [jnp.where(number == 0, sums[n], 0.0) for n in self.objective.sum_names]
        loss = jnp.where(number == 0, loss, 0.0)
        row = jnp.stack([loss, *once, *count_tokens(batch).values()])
        own = lambda g, v: lax.dynamic_slice_in_dim(g, number * len(v), len(v))  # noqa: E731
        return row, jax.tree.map(own, pull, vectors)


def count_tokens(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the number of tokens, and of positions, padding included."""
    mask = batch[features.PADDING_MASK]
    return {"tokens": jnp.sum(mask, dtype=jnp.float32), "positions": float(mask.size)}


def _computed(function, arguments, count) -> list[int]:
    """Returns the indices of the first outputs that depend on an argument."""
    # Where TensorFlow has no gradient, JAX has one of constant zeros.
    specs = jax.tree.map(lambda v: jax.ShapeDtypeStruct(v.shape, v.dtype), arguments)
    jaxpr = jax.make_jaxpr(function)(*specs).jaxpr
    dependent = set(jaxpr.invars)
    for equation in jaxpr.eqns:
        # Literals, which have a value, cannot be elements of a set.
        if any(v in dependent for v in equation.invars if not hasattr(v, "val")):
            dependent.update(equation.outvars)
    first = enumerate(jaxpr.outvars[:count])
    return [i for i, v in first if not hasattr(v, "val") and v in dependent]


def _pairs(variables: Sequence[keras.Variable], values: Sequence[Any]) -> list[tuple]:
    return list(zip(variables, values, strict=True))


def _value_of(scope: keras.StatelessScope, variable: keras.Variable):
    value = scope.get_current_value(variable)
    return variable.value if value is None else value


def _cut(array, parts):
    """Reshapes `[B, ...]` to `[parts, B / parts, ...]`."""
    return jnp.reshape(array, (parts, array.shape[0] // parts, *array.shape[1:]))


def _cut_evenly(shape: Sequence[int], parts: int) -> PartitionSpec:
    """Returns the first axis that can be divided, if the array is large enough."""
    if math.prod(shape) < _SMALL:
        return _EVERYWHERE
    for axis, size in enumerate(shape):
        if size % parts == 0:
            return PartitionSpec(*(None,) * axis, AXIS)
    return _EVERYWHERE


# A slot with fewer elements is not worth dividing.
_SMALL = 2**14
