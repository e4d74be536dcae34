"""ALBERT's pretraining loss as functions of one batch, for loops of one's own."""

from albert_tf.objectives.albert import ALBERT
from albert_tf.objectives.objective import cross_entropy

__all__ = ["cross_entropy", "pretraining_loss"]


def pretraining_loss(outputs: dict, batch: dict) -> dict:
    """Returns losses and accuracies of one batch.

    Args:
        outputs: dict. Outputs of `AlbertPretrainer`.
        batch: dict. Pretraining batch.

    Returns:
        dict of float32 scalars: `loss`, `mlm_loss`, `sop_loss`, `mlm_accuracy`,
        `sop_accuracy`.
    """
    return ALBERT.means(ALBERT.sums(outputs, batch))
