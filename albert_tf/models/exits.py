"""Runs a text classifier that stops early, separately for each row.

The remaining rows are gathered after every layer where some may leave, so that the
batch shrinks. Layers without rows are run, not skipped.

Legend: `B` batch, `b` remaining rows, `T` sequence, `D` hidden, `C` labels, `L` layers.
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from albert_tf import features
from albert_tf.errors import UsageError
from albert_tf.heads import problem_type_of
from albert_tf.layers.attention import Readers, attention_bias
from albert_tf.models.backbone import AlbertBackbone
from albert_tf.models.base import as_inputs
from albert_tf.models.classifiers import AlbertTextClassifier
from albert_tf.models.exit_rules import ENTROPY, LAYERS, ExitRule

# Maps inputs to the states `[B, T, D]` that the first block reads, to the bias of the
# attention scores, `[B, 1, 1, T]` or None, and to a function that applies a block: it
# maps index, states, bias and `first_only` to the new states, or only to the first
# tokens' states `[b, D]`.
Start = Callable[[dict[str, Any]], tuple[Any, Any, Callable[..., Any]]]


class ElasticClassifier:
    """Answers with as many layers as a rule, or each row's own number, demands.

    Args:
        model: `AlbertTextClassifier`. With exits.
        rule: `ExitRule`, str or None. Used where rows have no number of their own.
        start: callable or None. Another computation of the encoder; see `Start`.

    Call arguments:
        inputs: dict as for the model. Each row holds one text, so `places` are not
            needed.
        training: bool. Must be false.
        num_layers: int32 `[B]` or None. Layers for each row, from 1 to `L`; takes
            precedence over the rule.

    Returns:
        dict with `logits`, float32 `[B, C]`, and `num_layers`, int32 `[B]`: the number
        of layers that each row has passed.

    Raises:
        UsageError: If the model has no exits, or cannot follow the rule.
    """

    def __init__(
        self,
        model: keras.Model,
        rule: ExitRule | str | None = None,
        start: Start | None = None,
    ):
        if not isinstance(model, AlbertTextClassifier):
            raise UsageError(
                f"exit: only text classifiers have exits, received a "
                f"{type(model).__name__}"
            )
        self.num_layers = model.config.num_hidden_layers
        if not model.num_exits and self.num_layers > 1:
            raise UsageError(
                "exit: the model has no exits; train some with finetune --exits=joint "
                "or --exits=frozen"
            )
        self.model = model
        self.problem_type = problem_type_of(model)
        self.rule = None if rule is None else ExitRule.parse(rule)
        if self.rule is not None:
            self.rule.check(self.num_layers, self.problem_type)
        self._start = start or start_with_keras(model.backbone)

    def __call__(self, inputs, training=False, num_layers=None):
        inputs = as_inputs(inputs)
        if training or features.PACK_IDS in inputs:
            raise ValueError("inputs must be rows of one text each, not in training")
        by_rule = num_layers is None
        if by_rule and self.rule is None:
            raise ValueError("num_layers: needed without a rule")
        last, reads_before_last = self.num_layers, True
        if by_rule and self.rule.kind == LAYERS:
            last, reads_before_last = self.rule.value, False
        state = () if by_rule else (num_layers,)
        x, bias, apply = self._start(inputs)
        rows = ops.arange(ops.shape(x)[0], dtype="int32")
        left = []  # indices and logits of rows that have left, with their layer
        blocks = self.model.config.inner_group_num
        for layer in range(1, last + 1):
            for number in range((layer - 1) * blocks, layer * blocks):
                ends = number == last * blocks - 1
                x = apply(number, x, bias, ends)
            if layer == last:
                left.append((rows, self._logits(layer, x), layer))
            elif reads_before_last:
                logits = self._logits(layer, x[:, 0])
                leaves, state = self._decide(layer, logits, state, by_rule)
                if leaves is None:
                    continue
                out = ops.nonzero(leaves)[0]
                left.append((_rows(rows, out), _rows(logits, out), layer))
                stay = ops.nonzero(ops.logical_not(leaves))[0]
                x, rows = _rows(x, stay), _rows(rows, stay)
                bias = None if bias is None else _rows(bias, stay)
                state = tuple(_rows(value, stay) for value in state)
                if x.shape[0] == 0:  # unknown in a graph
                    break
        return _in_order(left)

    def _logits(self, layer, first):
        """Returns the logits `[b, C]` of a layer from the states of `[CLS]`."""
        model = self.model
        if layer < self.num_layers:
            return model.exits[layer - 1](first)
        return ops.cast(model.classifier(model.backbone.pooler(first)), "float32")

    def _decide(self, layer, logits, state, by_rule):
        """Returns the rows that leave, or None if none can, and the rows' new state."""
        if not by_rule:
            return ops.equal(state[0], layer), state
        if self.rule.kind == ENTROPY:
            return entropy_of(logits) < self.rule.value, state
        multi_label = self.problem_type == "multi_label_classification"
        # Keras's argmax looks at bits, which adds operations to an export.
        labels = logits > 0 if multi_label else ops.top_k(logits, 1)[1][:, 0]
        if not state:
            return None, (labels, ops.zeros_like(logits[:, 0], dtype="int32"))
        before, count = state
        same = ops.equal(labels, before)
        same = ops.all(same, axis=-1) if multi_label else same
        count = ops.where(same, count + 1, 0)
        # The first layer has no previous one to agree with.
        leaves = count >= self.rule.value if layer > self.rule.value else None
        return leaves, (labels, count)


def entropy_of(logits):
    """Returns the entropy of softmax probabilities in nats, `[...]` of `[..., C]`."""
    # log(p) would not be finite where p is 0.
    return -ops.sum(ops.softmax(logits) * ops.log_softmax(logits), axis=-1)


def start_with_keras(backbone: AlbertBackbone) -> Start:
    """Returns a `Start` that computes with the layers of a backbone."""

    def start(inputs):
        encoder = backbone.encoder
        x = encoder.project(backbone.embed(inputs))
        bias = attention_bias(backbone.mask_of(inputs))
        tensors = encoder.read()

        def apply(number, x, bias, first_only):
            readers = None
            if first_only:
                B, T = ops.shape(x)[0], ops.shape(x)[1]
                readers = Readers(ops.arange(B, dtype="int32") * T)
            x, _ = encoder.apply_block(number, x, tensors, bias, readers)
            return x[:, 0] if first_only else x

        return x, bias, apply

    return start


def _rows(x, numbers):
    return ops.take(x, numbers, axis=0)


def _in_order(left) -> dict[str, Any]:
    """Returns the logits and layers of all rows, in the order of the inputs."""
    rows = ops.concatenate([rows for rows, _, _ in left])
    logits = ops.concatenate([logits for _, logits, _ in left])
    layers = ops.concatenate([ops.zeros_like(rows) + layer for rows, _, layer in left])
    if len(left) > 1:
        order = ops.argsort(rows)
        logits, layers = _rows(logits, order), _rows(layers, order)
    return {"logits": logits, "num_layers": layers}
