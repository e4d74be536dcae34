"""The state of a run, once all of it is known."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from albert_tf.text.tokenizer import Tokenizer
from albert_tf.training.engine import Strategy, TrainStep, helper_name
from albert_tf.training.run_folder import RunFolder
from albert_tf.training.weights import WeightAverages

# Draws the pictures of the run in a folder, as `reports.run_page.draw_run`.
Draw = Callable[..., Mapping[str, bytes]]


def no_pictures(path: str, *args: Any, **known: Any) -> Mapping[str, bytes]:
    """A `Draw` that draws nothing."""
    return {}


@dataclasses.dataclass(frozen=True, eq=False)
class RunContext:
    """Everything that a run needs, from its first step to its outputs.

    Attributes:
        settings: `TrainingSettings`. Every value is known.
        folder: `RunFolder`. Compared with the settings and the content.
        data: `RunExamples` or `RunBatches`. The examples, checked.
        step: `TrainStep`. Has model, objective and optimizer.
        averages: `WeightAverages`. Empty if the optimizer keeps none.
        draw: callable. Draws curves and page of the run.
        selection: `callbacks.KeepBest` or None. Decides which weights are kept.
    """

    settings: Any
    folder: RunFolder
    tokenizer: Tokenizer
    data: Any
    step: TrainStep
    averages: WeightAverages
    draw: Draw
    selection: Any = None

    @property
    def strategy(self) -> Strategy:
        """The devices of the run."""
        return self.step.strategy

    @property
    def helper(self) -> str:
        """Name of a worker that is not the chief; empty in the chief."""
        return helper_name(self.strategy)
