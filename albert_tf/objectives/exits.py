"""Trains classifiers on every layer: with the model, or on a model that stays.

Legend: `U` examples, `C` labels, `L` layers.
"""

import dataclasses

from albert_tf.objectives.exit_modes import FROZEN, JOINT, NONE
from albert_tf.objectives.finetuning_base import FinetuningObjective


@dataclasses.dataclass(frozen=True)
class WithExits(FinetuningObjective):
    """The losses of all layers' classifiers in place of the last one's.

    "joint" is the mean of the `L` losses, weighted by the index of the layer (PABEE,
    arXiv:2006.04152, section 3.2). "frozen" is the mean of the losses of the exits
    alone (the second stage of DeeBERT, arXiv:2004.12993, section 3.2): the rest of the
    model does not depend on it.

    Outputs: `logits`, as `task` takes them, and `exit_logits`, a tuple of such logits.
    Metrics besides `loss` and the task's: `final_loss`, that of the last layer, and
    `exit_1_loss` and so on.

    Args:
        task: `FinetuningObjective`. Of a text classifier without exits.
        num_exits: int. `L - 1`.
        mode: str. "joint" or "frozen".
    """

    task: FinetuningObjective
    num_exits: int
    mode: str = JOINT

    @property
    def measures(self) -> tuple[str, ...]:
        """Names of the means, the loss that is differentiated first."""
        exits = [f"exit_{layer}_loss" for layer in range(1, self.num_exits + 1)]
        return (*self.task.measures, "final_loss", *exits)

    @property
    def shown(self) -> dict[str, str]:
        """Metrics that a progress bar shows, with short names."""
        return self.task.shown

    def weights(self, batch):
        return self.task.weights(batch)

    def values(self, outputs, batch):
        values = self.task.values(outputs["logits"], batch)
        losses = {
            f"exit_{layer}_loss": self.task.values(logits, batch)["loss"]
            for layer, logits in enumerate(outputs["exit_logits"], start=1)
        }
        final = values["loss"]
        parts = list(losses.values())
        if self.mode == FROZEN:
            loss = sum(parts) / len(parts)
        else:
            weighted = enumerate([*parts, final], start=1)
            total = sum(range(1, len(parts) + 2))
            loss = sum(layer * part for layer, part in weighted) / total
        return {**values, **losses, "loss": loss, "final_loss": final}


def with_exits(
    task: FinetuningObjective, num_exits: int, mode: str
) -> FinetuningObjective:
    """Returns the objective of a run: that of its task if no exits are trained."""
    return task if mode == NONE else WithExits(task, num_exits, mode)
