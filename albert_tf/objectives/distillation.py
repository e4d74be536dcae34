"""The objective of distillation: a student learns the outputs of a teacher.

The teacher's logits are part of the batch, so they have no gradient. Hinton et al.
(arXiv:1503.02531) divide the logits of both models by a temperature and multiply the
loss by its square, so that the size of the gradients does not depend on it. All
computations are in float32.

Legend: `U` examples, `C` labels, `K` choices, `L` words, `B` rows, `T` tokens
"""

import dataclasses

from keras import ops

from albert_tf import features
from albert_tf.objectives.finetuning import (
    Choice,
    FinetuningObjective,
    MultiLabel,
    Regression,
    Span,
    Tagging,
    keep_unmasked,
)


@dataclasses.dataclass(frozen=True)
class Taught(FinetuningObjective):
    """A share `weight` of the teacher's loss, and the rest of the task's.

    The teacher's loss is the Kullback-Leibler divergence of the student's
    probabilities from the teacher's, for several labels per example the divergence of
    each of them, and for scores the squared error. It is averaged as the task's loss.

    Outputs: as `task` takes them. Batch: `labels` of the task, and `teacher_logits`
    float32: `[U, C]`, `[U, L, C]` for words, `[U, K]` for choices, `[B, T, 2]` for
    starts and ends. Metrics besides the task's: `label_loss` and `teacher_loss`.
    """

    task: FinetuningObjective
    weight: float = 1.0
    temperature: float = 1.0

    @property
    def measures(self) -> tuple[str, ...]:
        """Names of the means; the first is the loss that is differentiated."""
        return (*self.task.measures, "label_loss", "teacher_loss")

    def weights(self, batch):
        return self.task.weights(batch)

    def values(self, outputs, batch):
        values = self.task.values(outputs, batch)
        label_loss, teacher_loss = values["loss"], self._divergence(outputs, batch)
        loss = (1 - self.weight) * label_loss + self.weight * teacher_loss
        losses = {"label_loss": label_loss, "teacher_loss": teacher_loss}
        return {**values, **losses, "loss": loss}

    def _divergence(self, outputs, batch):
        """Returns the teacher's loss, in the shape of the task's."""
        teacher = ops.cast(batch[features.TEACHER_LOGITS], "float32")
        if isinstance(self.task, Span):
            mask = batch[features.PADDING_MASK]
            starts, ends = (
                self._softmax(
                    keep_unmasked(mask, teacher[..., i]),
                    keep_unmasked(mask, ops.cast(outputs[name], "float32")),
                )
                for i, name in enumerate(("start_logits", "end_logits"))
            )
            return 0.5 * (starts + ends)
        student = ops.cast(outputs, "float32")
        if isinstance(self.task, Regression):
            return ops.square(student - teacher)[:, 0]
        if isinstance(self.task, MultiLabel):
            # A label applies or not: the softmax of its logit and 0 is the sigmoid.
            pairs = (ops.stack([x, ops.zeros_like(x)], -1) for x in (teacher, student))
            return self._softmax(*pairs)
        if isinstance(self.task, Choice) and features.CHOICE_MASK in batch:
            mask = batch[features.CHOICE_MASK]
            teacher, student = (keep_unmasked(mask, x) for x in (teacher, student))
        divergence = self._softmax(teacher, student)
        if isinstance(self.task, Tagging):
            divergence *= ops.cast(batch[features.LABELS] >= 0, "float32")
        return divergence

    def _softmax(self, teacher, student):
        """Returns the divergence `[...]` of logits `[..., C]`."""
        teacher = ops.log_softmax(teacher / self.temperature, axis=-1)
        student = ops.log_softmax(student / self.temperature, axis=-1)
        divergence = ops.sum(ops.exp(teacher) * (teacher - student), axis=-1)
        return self.temperature**2 * divergence
