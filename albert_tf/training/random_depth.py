"""Trains every step with a number of layers that is drawn for it, on either engine.

The number is a function of the seed and the step, so that replicas, micro-batches and a
run that continues after a kill draw the same ones. Each number has a program of its
own, which computes no other layers, compiled when it is first drawn: a loop of unknown
length could not be differentiated on JAX, and one program with a branch for each number
would be as large as all of them together.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from albert_tf.data.masking.keyed_random import LAYERS, KeyedRandom

# Results with a value for each step.
_BY_STEP = ("losses", "grad_norms", "loss_scales")


@dataclasses.dataclass(frozen=True)
class RandomDepth:
    """Draws numbers of layers, both ends included, with equal probability."""

    seed: int
    low: int
    high: int

    def of_step(self, step: int) -> int:
        """Returns the number of layers of a step, which count from 0."""
        return KeyedRandom(self.seed, LAYERS, step).integer(self.low, self.high)

    def train(
        self,
        step: Any,
        iterator: Any,
        num_steps: int,
        totals: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Runs steps; see `TrainStep.train`."""
        first = int(np.asarray(step.optimizer.iterations.numpy()))
        parts = []
        for layers, count in self._stretches(first, num_steps):
            totals = step.at_depth(layers).run(iterator, count, totals)
            parts.append(totals)
        names = [name for name in _BY_STEP if name in parts[0]]
        joined = {n: np.concatenate([part[n] for part in parts]) for n in names}
        return parts[-1] | joined

    def _stretches(self, first: int, count: int) -> Iterator[tuple[int, int]]:
        """Yields numbers of layers, and of consecutive steps that have them."""
        drawn = map(self.of_step, range(first, first + count))
        for layers, steps in itertools.groupby(drawn):
            yield layers, len(list(steps))
