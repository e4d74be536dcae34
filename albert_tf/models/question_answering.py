"""ALBERT with the original's SQuAD 2.0 head: ends that depend on starts.

Legend: `B` batch, `T` sequence, `D` hidden, `S` starts, `E` ends of each start.
"""

import keras
from keras import ops

from albert_tf import features
from albert_tf.config import AlbertConfig
from albert_tf.errors import require
from albert_tf.layers.gathering import gather_positions
from albert_tf.layers.heads import Answerability, AnswerEnd
from albert_tf.models.backbone import HeadModel
from albert_tf.models.base import as_inputs

_MASKED = -1e30  # as in the original's `create_v2_model`


@keras.saving.register_keras_serializable("albert_tf")
class AlbertBeamQuestionAnswering(HeadModel):
    """Finds the answer to a question in a text, or that it has no answer.

    The original's `create_v2_model` in `squad_utils.py`: the end of an answer is scored
    given its start, which is the correct one in training and one of the `S` best in
    inference, and a separate score says whether there is an answer. The head
    computes in float32 under every dtype policy.

    Args:
        config: `AlbertConfig`. `classifier_dropout_prob` is the dropout of the score
            of answerability.
        start_n_top: int. `S`, the number of starts in inference.
        end_n_top: int. `E`, the number of ends of each start.
        add_pooler: bool. Whether the backbone keeps a pooler, which is not used here.
        seed: int or None. Seed of the initial values and of dropout.

    Call arguments:
        inputs: dict as for `AlbertBackbone`, without packed rows, and:

            - `p_mask`: int `[B, T]`, 1 = cannot be part of an answer. Without it,
              `segment_ids` are required, and rows must be
              `[CLS] question [SEP] text [SEP]`: then the answer lies in segment 1,
              without padding and the last `[SEP]`, or is `[CLS]` (no answer).
            - `start_positions`: int `[B]`. The correct starts; required in training.
        training, seeds: As for `AlbertBackbone`.

    Returns:
        dict. With `start_positions`, in training or not, the tensors for the loss:
        `start_logits` and `end_logits`, float32 `[B, T]`, -1e30 where `p_mask` is 1
        (their log-softmax are the original's log-probabilities), and `cls_logits`,
        float32 `[B]`, high for unanswerable.

        Without them, the best answers: `start_log_probs` float32 and `start_index`
        int32 `[B, S]`, best first; `end_log_probs` and `end_index` `[B, S * E]`, where
        end `j` of start `i` has the index `i * E + j`; and `cls_logits`. A row with
        fewer than `S` or `E` tokens that can be part of an answer is padded with
        others, whose log-probability is -1e30.

    Example:
        >>> import albert_tf, numpy as np
        >>> model = albert_tf.AlbertBeamQuestionAnswering(albert_tf.AlbertConfig())
        >>> # [CLS] question [SEP] text [SEP]
        >>> inputs = {"token_ids": np.array([[2, 13, 3, 45, 46, 3]])}
        >>> inputs["segment_ids"] = np.array([[0, 0, 0, 1, 1, 1]])
        >>> best = model(inputs)
        >>> best["start_index"].shape, best["end_index"].shape
        (TensorShape([1, 5]), TensorShape([1, 25]))
    """

    arguments = ("start_n_top", "end_n_top")

    def __init__(
        self,
        config: AlbertConfig,
        *,
        start_n_top: int = 5,
        end_n_top: int = 5,
        **kwargs,
    ):
        for name, value in (("start_n_top", start_n_top), ("end_n_top", end_n_top)):
            fits = type(value) is int and value >= 1
            need = f"{name} must be a positive integer"
            require(fits, need, value, error=ValueError)
        self.start_n_top = start_n_top
        self.end_n_top = end_n_top
        super().__init__(config, **kwargs)

    def add_layers(self):
        self.start_head = self.add_dense(1, "start_head", 7, dtype="float32")
        self.end_head = AnswerEnd(
            self.config, self.seed_of(8), dtype="float32", name="end_head"
        )
        self.answer_head = Answerability(
            self.config, self.seed_of(9), dtype="float32", name="answer_head"
        )

    def build_layers(self):
        # From the shapes of their inputs, `summary()` derives the outputs' shapes.
        tokens = (None, None, self.config.hidden_size)
        rows = tokens[1:]
        self.start_head.build(tokens)
        self.end_head.build(tokens, tokens)
        self.answer_head.build(rows, rows)

    def call(self, inputs, training=False, seeds=None):
        inputs = as_inputs(inputs)
        gold = inputs.get(features.START_POSITIONS)
        if training and gold is None:
            raise ValueError(
                f"inputs must have {features.START_POSITIONS!r} in training, received "
                f"{sorted(inputs)}"
            )
        if features.PACK_IDS in inputs:
            raise ValueError("AlbertBeamQuestionAnswering takes no packed rows")
        p_mask = self._p_mask(inputs)
        x = self.backbone(inputs, training=training, seeds=seeds)["sequence_output"]
        x = ops.cast(x, "float32")
        start_logits = _mask(ops.squeeze(self.start_head(x), -1), p_mask)
        probabilities = ops.expand_dims(ops.softmax(start_logits), 1)
        mean = ops.squeeze(ops.matmul(probabilities, x), 1)
        cls_logits = self.answer_head(mean, x[:, 0], training=training, seeds=seeds)
        if gold is not None:
            start = gather_positions(x, ops.reshape(gold, (-1, 1)))
            end_logits = ops.squeeze(self.end_head(x, start), 1)
            return {
                "start_logits": start_logits,
                "end_logits": _mask(end_logits, p_mask),
                "cls_logits": cls_logits,
            }
        return {**self._beam(x, start_logits, p_mask), "cls_logits": cls_logits}

    def _beam(self, x, start_logits, p_mask):
        S, E = self.start_n_top, self.end_n_top
        start_log_probs, start_index = _best(ops.log_softmax(start_logits), S)
        starts = gather_positions(x, start_index)
        end_logits = _mask(self.end_head(x, starts), ops.expand_dims(p_mask, 1))
        end_log_probs, end_index = _best(ops.log_softmax(end_logits), E)
        return {
            "start_log_probs": start_log_probs,
            "start_index": start_index,
            "end_log_probs": ops.reshape(end_log_probs, (-1, S * E)),
            "end_index": ops.reshape(end_index, (-1, S * E)),
        }

    def _p_mask(self, inputs):
        """Returns 1 where no answer can be, float32 `[B, T]`."""
        if features.P_MASK in inputs:
            return ops.cast(inputs[features.P_MASK], "float32")
        if features.SEGMENT_IDS not in inputs:
            raise ValueError(
                f"inputs must have {features.P_MASK!r}, or {features.SEGMENT_IDS!r} to "
                f"derive it from, received {sorted(inputs)}"
            )
        text = ops.cast(ops.equal(inputs[features.SEGMENT_IDS], 1), "int32")
        mask = self.backbone.mask_of(inputs)
        if mask is not None:
            text *= ops.cast(mask, "int32")
        # Counted from the right, the last [SEP] is the first token of the text.
        from_right = ops.flip(ops.cumsum(ops.flip(text, axis=1), axis=1), axis=1)
        allowed = ops.logical_and(ops.equal(text, 1), from_right > 1)
        first = ops.equal(ops.arange(ops.shape(text)[1]), 0)
        return 1.0 - ops.cast(ops.logical_or(allowed, first), "float32")


def _mask(logits, p_mask):
    return logits * (1.0 - p_mask) + _MASKED * p_mask


def _best(log_probs, count: int):
    """Returns the `count` best of `[..., T]` and their int32 indices, best first."""
    # `top_k` of more places than tokens is an error, so a short row is padded.
    pads = [(0, 0)] * (len(log_probs.shape) - 1) + [(0, count)]
    padded = ops.pad(log_probs, pads, constant_values=_MASKED)
    values, index = ops.top_k(padded, count)
    last = ops.shape(log_probs)[-1] - 1
    return values, ops.minimum(ops.cast(index, "int32"), last)
