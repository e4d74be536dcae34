"""Trains the first layers of a model to answer like all of them.

A step computes all layers, and from the same inputs a smaller number of them, drawn for
the step. Both passes learn the objective, and the last states of the short one approach
the full one's, which get no gradient from it (LoopFormer, arXiv:2602.11451, whose code
weighs both parts of the short pass by 0.1).

Legend: `B` batch, `T` sequence, `D` hidden.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from keras import ops

from albert_tf import features
from albert_tf.layers import depth
from albert_tf.objectives.pretraining import Objective

_SHORT, _DISTANCE, _TOKENS = "short_", "distance_sum", "distance_weight"


class Passes(NamedTuple):
    """The outputs of a step's two passes, and their last states `[B, T, D]`."""

    full: Any
    short: Any
    states: list


def both_passes(model: Callable, batch, training=False, seeds=None) -> Any:
    """Returns the `Passes` of a batch, or the outputs alone if all layers are drawn.

    The short pass has the number of layers of `depth.limit_layers`. Both passes drop
    the same in the layers that they share.
    """
    run = {"training": training}
    if not depth.is_limited(model.config):
        return model(batch, seeds=seeds, **run)
    states: list = []
    with depth.keep_states(states):
        short = model(batch, seeds=seeds.again(), **run)
        with depth.limit_layers(None):
            full = model(batch, seeds=seeds, **run)
    return Passes(full, short, states)


@dataclasses.dataclass(frozen=True)
class WithShortPass(Objective):
    """The objective of a full pass, and of a short one with a weight.

    The loss is `full + weight * (short + distance)`. The distance is the mean squared
    difference of the states of all real tokens. Outputs: `Passes`, or of one pass.
    Metrics besides the objective's, of steps with two passes: `short_loss` and
    `depth_distance`.
    """

    weight: float = 0.1

    @property
    def sum_names(self) -> tuple[str, ...]:
        """Names of the results of `sums`."""
        names = super().sum_names
        return (*names, *(_SHORT + name for name in names), _DISTANCE, _TOKENS)

    def sums(self, outputs: Any, batch: Mapping[str, Any]) -> dict:
        """Returns the sums of both passes, zeros for a short pass that is missing."""
        if not isinstance(outputs, Passes):
            zeros = {name: ops.zeros((), "float32") for name in self.sum_names}
            return zeros | super().sums(outputs, batch)
        short = super().sums(outputs.short, batch)
        near, far = (ops.cast(x, "float32") for x in outputs.states)
        distances = ops.mean(ops.square(near - ops.stop_gradient(far)), axis=-1)
        mask = ops.cast(batch[features.PADDING_MASK], "float32")
        return {
            **super().sums(outputs.full, batch),
            **{_SHORT + name: value for name, value in short.items()},
            _DISTANCE: ops.sum(distances * mask),
            _TOKENS: ops.sum(mask),
        }

    def weights(self, batch: Mapping[str, Any]):
        """Returns the weights of the terms, followed by the number of tokens."""
        mask = ops.cast(batch[features.PADDING_MASK], "float32")
        return ops.concatenate([super().weights(batch), ops.sum(mask)[None]])

    def loss(self, sums: Mapping[str, Any], weights):
        """Returns the loss to differentiate; see `Objective.loss`."""
        short = super().loss(_short(sums), weights)
        distance = sums[_DISTANCE] / ops.maximum(weights[-1], 1.0)
        return super().loss(sums, weights) + self.weight * (short + distance)

    def metrics(self, sums: Mapping[str, Any]) -> dict[str, float]:
        """Returns the metrics of the full passes, and the means of the short ones."""
        values, tokens = super().metrics(sums), float(sums[_TOKENS])
        if tokens:
            values["short_loss"] = float(super().means(_short(sums))["loss"])
            values["depth_distance"] = float(sums[_DISTANCE]) / tokens
        return values


def _short(sums: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the sums of the short pass under their usual names."""
    return {
        name.removeprefix(_SHORT): value
        for name, value in sums.items()
        if name.startswith(_SHORT)
    }


def with_short_pass(objective: Objective, weight: float) -> Objective:
    """Returns the objective of a run, which has one pass if the weight is 0."""
    return WithShortPass(**vars(objective), weight=weight) if weight else objective
