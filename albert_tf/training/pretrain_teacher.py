"""The teacher of a pretraining run, which reads each batch together with the student.

Masks change from epoch to epoch, so the outputs of a teacher are computed in the step:
without dropout, and without a gradient. Its weights belong neither to the run's model
nor to its optimizer or its checkpoints.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
from keras import ops

from albert_tf import features
from albert_tf.config import AlbertConfig
from albert_tf.converters.checkpoint import Checkpoint
from albert_tf.converters.detect import open_checkpoint
from albert_tf.converters.tokenizers import choose_tokenizer, same_tokens
from albert_tf.errors import require
from albert_tf.inference.fill_mask import FillMask
from albert_tf.inference.predictor import build_trained, choose_head
from albert_tf.layers.depth import UNROLLED, depth_form, limit_layers
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.training.pretrain_inputs import check_segments
from albert_tf.training.pretrain_settings import PretrainSettings


class Distillation:
    """Computes the outputs of a student and of its teacher for the same batch.

    It is called like the student, and returns its outputs as a dict with, in addition,
    `teacher_logits` and, with layers, `states`: for each pair of layers the student's
    hidden states, brought to the teacher's width, and the teacher's.

    Args:
        layers: Pairs of layers, the student's and the teacher's, counted from 1.
        seed: Seed of the projections between states of different widths.

    Attributes:
        extra_weights: Variables by name that are trained together with the student's.
        frozen: Variables of the teacher.
    """

    def __init__(
        self,
        student: keras.Model,
        teacher: keras.Model,
        layers: Sequence[tuple[int, int]] = (),
        seed: int = 0,
    ):
        teacher.trainable = False
        self.student, self.teacher, self._layers = student, teacher, layers
        widths = [model.config.hidden_size for model in (student, teacher)]
        self._projections = [None] * len(layers)
        for i, pair in enumerate(layers if len({*widths}) > 1 else ()):
            name = "projection_{}_{}".format(*pair)
            self._projections[i] = keras.layers.Dense(
                widths[1],
                use_bias=False,
                name=name,
                dtype=student.dtype_policy,
                kernel_initializer=keras.initializers.GlorotUniform(seed + i),
            )
            self._projections[i].build((None, None, widths[0]))
        used = filter(None, self._projections)
        self.extra_weights = {f"{layer.name}/kernel": layer.kernel for layer in used}
        self.frozen = teacher.variables

    def __call__(
        self, batch: Mapping[str, Any], training: bool = False, seeds: Any = None
    ) -> dict[str, Any]:
        options = {"output_hidden_states": True} if self._layers else {}
        outputs = _named(self.student(batch, training=training, seeds=seeds, **options))
        # Without a gradient, a loop saves no memory. The student alone is cut short.
        with depth_form(UNROLLED), limit_layers(None):
            taught = _named(self.teacher(batch, **options))
        logits = ops.stop_gradient(taught["mlm_logits"])
        outputs = {**outputs, features.TEACHER_LOGITS: logits}
        if self._layers:
            pairs = zip(self._layers, self._projections, strict=True)
            outputs["states"] = [
                (
                    _after(self.student, outputs, own, projection),
                    ops.stop_gradient(_after(self.teacher, taught, other)),
                )
                for (own, other), projection in pairs
            ]
        return outputs


def _after(model, outputs, layer, projection=None):
    """Returns the states `[B, T, D]` after a layer of a model."""
    states = outputs["hidden_states"][layer * model.config.inner_group_num]
    return states if projection is None else projection(states)


def _named(outputs: Any) -> Mapping[str, Any]:
    return outputs if isinstance(outputs, Mapping) else {"mlm_logits": outputs}


@contextlib.contextmanager
def open_teacher(path: str) -> Iterator[Checkpoint | None]:
    """Opens a masked LM inside a `with` statement; None if there is no path."""
    if not path:
        yield None
        return
    with open_checkpoint(path) as opened:
        checkpoint = opened.for_head(*FillMask.heads)
        choose_head(checkpoint, FillMask.heads)
        yield checkpoint


def check_teacher(
    settings: PretrainSettings,
    teacher: Checkpoint,
    config: AlbertConfig,
    tokenizer: Tokenizer,
) -> None:
    """Raises `UsageError` if a teacher cannot read the batches, or teach the model."""
    path, its = settings.teacher, teacher.config
    own = choose_tokenizer(teacher)
    need = (
        f"--teacher={path}: must have the run's vocabulary, because logits belong to "
    )
    need += f"its {tokenizer.vocab_size:,} tokens, received another of"
    require(same_tokens(own, tokenizer), f"{need} {own.vocab_size:,} tokens")
    need = f"--teacher={path}: must have vocab_size={config.vocab_size}, as the model"
    require(its.vocab_size == config.vocab_size, need, its.vocab_size)
    longest, length = its.max_position_embeddings, settings.max_seq_length
    need = f"--max_seq_length must be at most {longest}, the longest row of "
    require(length <= longest, f"{need}--teacher={path}", length)
    check_segments(settings, its, "a teacher")
    counts = config.num_hidden_layers, its.num_hidden_layers
    for pair in settings.layer_pairs:
        fits = all(1 <= n <= most for n, most in zip(pair, counts, strict=True))
        need = "--teacher_layers: the student has the layers 1 to {}, the teacher 1 to "
        require(fits, f"{need}{{}}".format(*counts), "{}:{}".format(*pair))


def make_distillation(
    settings: PretrainSettings, teacher: Checkpoint, student: keras.Model
) -> Distillation:
    """Builds the teacher; raises `UsageError` if its masked LM has not been trained."""
    model = build_trained(teacher, FillMask.heads[0], dtype=settings.dtype)
    return Distillation(student, model, settings.layer_pairs, settings.seed)
