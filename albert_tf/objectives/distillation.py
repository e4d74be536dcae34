"""The losses of distillation: a student learns the outputs of a teacher.

In fine-tuning, the teacher's logits are part of the batch; in pretraining, the step
computes them, and cuts their gradient (`training.pretrain_teacher`). Hinton et al.
(arXiv:1503.02531) divide the logits of both models by a temperature and multiply the
loss by its square, so that the size of the gradients does not depend on it. All
computations are in float32.

Legend: `U` examples, `C` labels, `K` choices, `L` words, `B` rows, `T` tokens
"""

import dataclasses

from keras import ops

from albert_tf import features
from albert_tf.objectives import finetuning
from albert_tf.objectives.terms import Term


@dataclasses.dataclass(frozen=True)
class Taught(finetuning.FinetuningObjective):
    """A share `weight` of the teacher's loss, and the rest of the task's.

    The teacher's loss is the Kullback-Leibler divergence of the student's
    probabilities from the teacher's, for several labels per example the divergence of
    each of them, and for scores the squared error. It is averaged as the task's loss.

    Outputs: as `task` takes them. Batch: `labels` of the task, and `teacher_logits`
    float32: `[U, C]`, `[U, L, C]` for words, `[U, K]` for choices, `[B, T, 2]` for
    starts and ends. Metrics besides the task's: `label_loss` and `teacher_loss`.
    """

    task: finetuning.FinetuningObjective
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
        if isinstance(self.task, finetuning.Span):
            mask = batch[features.PADDING_MASK]
            starts, ends = (
                self._divergence_of(
                    finetuning.keep_unmasked(mask, teacher[..., i]),
                    finetuning.keep_unmasked(mask, ops.cast(outputs[name], "float32")),
                )
                for i, name in enumerate(("start_logits", "end_logits"))
            )
            return 0.5 * (starts + ends)
        student = ops.cast(outputs, "float32")
        if isinstance(self.task, finetuning.Regression):
            return ops.square(student - teacher)[:, 0]
        if isinstance(self.task, finetuning.MultiLabel):
            # A label applies or not: the softmax of its logit and 0 is the sigmoid.
            pairs = (ops.stack([x, ops.zeros_like(x)], -1) for x in (teacher, student))
            return self._divergence_of(*pairs)
        if isinstance(self.task, finetuning.Choice) and features.CHOICE_MASK in batch:
            mask = batch[features.CHOICE_MASK]
            teacher, student = (
                finetuning.keep_unmasked(mask, x) for x in (teacher, student)
            )
        divergence = self._divergence_of(teacher, student)
        if isinstance(self.task, finetuning.Tagging):
            divergence *= ops.cast(batch[features.LABELS] >= 0, "float32")
        return divergence

    def _divergence_of(self, teacher, student):
        return divergence(teacher, student, self.temperature)


@dataclasses.dataclass(frozen=True)
class Imitation(Term):
    """The divergence of a student's tokens from a teacher's, at the masked places.

    The teacher's logits are the output `teacher_logits`, in the shape of `logits`. A
    hit is a place where both models prefer the same token.
    """

    temperature: float = 1.0

    def sums(self, outputs, batch):
        names = (features.TEACHER_LOGITS, self.logits)
        teacher, student = (ops.cast(outputs[name], "float32") for name in names)
        hits = ops.equal(ops.argmax(teacher, -1), ops.argmax(student, -1))
        losses = divergence(teacher, student, self.temperature)
        return self.weighted(losses, hits, batch)

    def count(self, batch, counts):
        """Counts nothing: what the teacher prefers is known only with it."""


@dataclasses.dataclass(frozen=True)
class States(Term):
    """The squared error of a student's hidden states, averaged over pairs of layers.

    The output `logits` is a sequence of pairs of states, the student's and the
    teacher's, each `[..., D]`. There are no hits.
    """

    @property
    def scores(self) -> dict[str, str]:
        """None: an error has no rate."""
        return {}

    def sums(self, outputs, batch):
        pairs = (
            [ops.cast(x, "float32") for x in pair] for pair in outputs[self.logits]
        )
        errors = [ops.mean(ops.square(own - other), -1) for own, other in pairs]
        losses = sum(errors) / len(errors)
        return self.weighted(losses, ops.zeros_like(losses), batch)

    def count(self, batch, counts):
        """Counts nothing: states have no labels."""


def divergence(teacher, student, temperature: float):
    """Returns the divergence `[...]` of the probabilities of logits `[..., C]`."""
    teacher = ops.log_softmax(teacher / temperature, axis=-1)
    student = ops.log_softmax(student / temperature, axis=-1)
    return temperature**2 * ops.sum(ops.exp(teacher) * (teacher - student), axis=-1)
