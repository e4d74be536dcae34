"""The parts of the steps that do not depend on the engine."""

import copy
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import keras
from absl import logging

from albert_tf.models.base import weight_names
from albert_tf.training.random_depth import RandomDepth


class BaseEvaluationStep:
    """The members of every `EvaluationStep`; see `tensorflow.step.TrainStep`."""

    def __init__(
        self,
        model: keras.Model,
        objective: Any,
        strategy: Any,
        forward: Callable[..., Any] | None = None,
    ):
        self.model = model
        self.forward = forward or model
        self.extra = getattr(forward, "extra_weights", {})
        self.objective = objective
        self.strategy = strategy
        self.sum_names = (*objective.sum_names, "tokens", "positions")


class BaseTrainStep:
    """Names the weights of every `TrainStep`, and trains at the depth that is drawn.

    An engine defines `run`, which trains with all layers, and `_set_depth`.
    """

    def _describe(
        self,
        variables: Sequence[keras.Variable],
        optimizer: keras.optimizers.Optimizer,
        random_depth: RandomDepth | None,
    ) -> None:
        self.variables = variables
        self.optimizer = optimizer
        self.random_depth = random_depth
        # With two nets trained together, the generator fills in masks.
        self._answering = getattr(self.model, "generator", self.model)
        names = {id(v): n for n, v in (weight_names(self.model) | self.extra).items()}
        self._names = [names[id(v)] for v in variables]
        ratios = getattr(optimizer, "adapted_variables", ())  # LAMB's
        self._ratio_names = tuple(names[id(v)] for v in ratios)
        self._has_warned = False
        self._at_depth: dict[int, Any] = {}

    def at_depth(self, layers: int) -> Any:
        """Returns the step on the same model with a program for its first layers."""
        if layers not in self._at_depth:
            step = copy.copy(self)
            # What only later layers read is trained in other steps.
            step._has_warned = layers < self.model.config.num_hidden_layers
            step._set_depth(layers)
            self._at_depth[layers] = step
        return self._at_depth[layers]

    def train(
        self,
        iterator: Any,
        num_steps: int,
        totals: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Trains on the next `num_steps` batches of an iterator of `distribute`.

        Continues the sums in `totals`, results of earlier calls, so that they are
        bit-identical however the steps are divided into calls.

        Returns:
            dict of NumPy values: float32 scalars `sum_names`, added up over replicas
            and steps; the `learning_rate` of the last step; float32 `[num_steps]`
            vectors `losses` and `grad_norms`, global norms before clipping; with LAMB,
            the dict `trust_ratios` of floats of the last step, by weight; in float16
            `loss_scales`, float32 `[num_steps]`, the factors of the losses (a step with
            a norm that is not finite was skipped), the float `loss_scale` of the next
            step, and the int `skipped_steps` so far.
        """
        run = self.run
        if self.random_depth:
            run = functools.partial(self.random_depth.train, self)
        return run(iterator, num_steps, totals)

    def _results(self, sums, rate, columns, ratios) -> dict[str, Any]:
        """Returns the results of `train`, from a column of each step's values."""
        losses, norms, *scales = columns
        results = dict(zip(self.sum_names, sums, strict=True))
        results |= {"learning_rate": rate, "losses": losses, "grad_norms": norms}
        if self._ratio_names:
            pairs = zip(self._ratio_names, ratios.tolist(), strict=True)
            results["trust_ratios"] = dict(pairs)
        if scale := self.optimizer.loss_scale:
            results |= {"loss_scales": scales[0], **scale.describe()}
        return results

    def _warn_of_unread(self, unread: Iterable[str]) -> None:
        """Names weights that the loss does not read, once."""
        names = sorted(set(unread) & set(self.model.untrained_weights))
        if names and not self._has_warned:
            self._has_warned = True
            logging.warning(
                "the loss does not read %s: they keep their initial values",
                ", ".join(names),
            )
