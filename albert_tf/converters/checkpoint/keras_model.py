"""From a `Checkpoint` to a Keras model and back."""

import keras
import numpy as np
from absl import logging

from albert_tf.converters.checkpoint.checkpoint import Checkpoint, Tensor
from albert_tf.errors import DataError, UsageError
from albert_tf.heads import CLASSIFIER_HEADS, FIXED_LABELS, HEADS, POOLER_HEADS
from albert_tf.layers.initializers import TruncatedNormal, without_initial_values
from albert_tf.models.backbone import AlbertBackbone
from albert_tf.models.base import ConfiguredModel, weight_names
from albert_tf.models.classifiers import (
    AlbertMultipleChoice,
    AlbertQuestionAnswering,
    AlbertTextClassifier,
    AlbertTokenClassifier,
)
from albert_tf.models.masked_lm import AlbertMaskedLM
from albert_tf.models.pretrainer import AlbertPretrainer

CLASSES = {
    None: AlbertBackbone,
    "pretraining": AlbertPretrainer,
    "masked_lm": AlbertMaskedLM,
    "text_classifier": AlbertTextClassifier,
    "token_classifier": AlbertTokenClassifier,
    "question_answering": AlbertQuestionAnswering,
    "multiple_choice": AlbertMultipleChoice,
}


def build_model(
    checkpoint: Checkpoint,
    head: str | None = "auto",
    num_labels: int | None = None,
    seed: int | None = None,
    **kwargs,
) -> ConfiguredModel:
    """Makes a model and loads its weights, tensor by tensor.

    Args:
        checkpoint: What to load.
        head: One of `config.HEADS`, None for the backbone alone, or `"auto"` for what
            the checkpoint holds.
        num_labels: Of a new classifier; default: the checkpoint's, or 2.
        seed: Of weights that the checkpoint lacks.
        **kwargs: For the model, such as `dtype`.

    Returns:
        The model. `model.untrained_weights` lists what was not in the checkpoint,
        `model.labels` and `model.problem_type` are the checkpoint's.

    Raises:
        UsageError: If `head` or `num_labels` is impossible.
        DataError: If a weight of the encoder is missing or has another shape.
    """
    head = checkpoint.head if head == "auto" else head
    if head not in CLASSES:
        raise UsageError(
            f"head must be one of {', '.join(HEADS)}, None or auto, received {head!r}"
        )
    if head in CLASSIFIER_HEADS:
        kwargs["num_labels"] = _count_labels(checkpoint, head, num_labels)
    elif num_labels is not None:
        raise UsageError(f"num_labels: head {head!r} has no labels")
    if head is None or (head == checkpoint.head and head not in POOLER_HEADS):
        # As many weights as the checkpoint has, so that none is lost on the way.
        kwargs.setdefault("add_pooler", checkpoint.has_pooler)
    _check_sizes(checkpoint)
    with without_initial_values():
        model = CLASSES[head](checkpoint.config, seed=seed, **kwargs)
    untrained = _assign(model, checkpoint, head)
    model.mark_untrained(untrained)
    if untrained:
        logging.warning(
            "%s: not in the checkpoint and left at initial values: %s",
            checkpoint.path,
            ", ".join(untrained),
        )
    same = head == checkpoint.head
    model.labels = tuple(checkpoint.labels) if same and checkpoint.labels else None
    model.problem_type = checkpoint.problem_type if same else None
    model.max_seq_length = checkpoint.max_seq_length if same else None
    return model


def head_of(model: keras.Model) -> str | None:
    """The name of a model's head, None for a backbone.

    Raises:
        UsageError: If the model is none of this package's.
    """
    for head, kind in CLASSES.items():
        if type(model) is kind:
            return head
    raise UsageError(
        f"model must be one of {', '.join(c.__name__ for c in CLASSES.values())}, "
        f"received {type(model).__name__}"
    )


def from_model(model: keras.Model, tokenizer=None, labels=None) -> Checkpoint:
    """The `Checkpoint` of a model in memory; it reads the model's variables.

    Args:
        model: A backbone or task model.
        tokenizer: `AlbertTokenizer` to write with it, or None.
        labels: Names of the classes; default: those the model was loaded with.

    Raises:
        UsageError: If the number of labels or the vocabulary does not fit.
    """
    head = head_of(model)
    prefix = "backbone/" if head is None else ""
    tensors = {
        prefix + name: Tensor(name, tuple(v.shape), lambda v=v: _value(v))
        for name, v in weight_names(model).items()
    }
    labels = labels if labels is not None else getattr(model, "labels", None)
    if labels is not None:
        labels = [str(label) for label in labels]
        if head in FIXED_LABELS or len(labels) != getattr(model, "num_labels", 0):
            raise UsageError(
                f"labels: {len(labels)} names for a model with "
                f"{getattr(model, 'num_labels', 'no')} labels"
            )
    if tokenizer is not None and tokenizer.vocab_size > model.config.vocab_size:
        raise UsageError(
            f"tokenizer: {tokenizer.vocab_size} pieces, but the model's vocab_size is "
            f"{model.config.vocab_size}"
        )
    untrained = [prefix + name for name in model.untrained_weights]
    if untrained:
        logging.warning(
            "%s: never loaded or trained: %s", model.name, ", ".join(untrained)
        )
    return Checkpoint(
        format="model",
        path=model.name,
        config=model.config,
        tensors=tensors,
        head=head,
        labels=labels,
        problem_type=getattr(model, "problem_type", None),
        max_seq_length=getattr(model, "max_seq_length", None),
        tokenizer=None if tokenizer is None else lambda: tokenizer,
        untrained=untrained,
    )


def _count_labels(checkpoint: Checkpoint, head: str, asked: int | None) -> int:
    fixed = FIXED_LABELS.get(head)
    stored = checkpoint.num_labels if checkpoint.has_classifier_of(head) else fixed
    if asked is not None and stored is not None and asked != stored:
        raise UsageError(
            f"num_labels: the {head} of {checkpoint.path} has {stored}, "
            f"received {asked}"
        )
    return stored or asked or 2


def _check_sizes(checkpoint: Checkpoint) -> None:
    """Compares the sizes in the config with the files before memory is taken."""
    c = checkpoint.config
    sizes = {
        "embeddings/word_embeddings": (c.vocab_size, c.embedding_size),
        "embeddings/position_embeddings": (c.max_position_embeddings, c.embedding_size),
        "embeddings/token_type_embeddings": (c.type_vocab_size, c.embedding_size),
        "encoder/attention_0/query/kernel": (c.hidden_size, c.hidden_size),
        "encoder/ffn_0/intermediate/kernel": (c.hidden_size, c.intermediate_size),
    }
    for name, shape in sizes.items():
        tensor = checkpoint.tensors.get(f"backbone/{name}")
        if tensor is None:
            raise DataError(
                f"{checkpoint.path}: no tensor for {name} ({checkpoint.format} format)"
            )
        _check_shape(checkpoint, tensor, shape)


def _check_shape(checkpoint: Checkpoint, tensor: Tensor, shape) -> None:
    if tuple(tensor.shape) != tuple(shape):
        raise DataError(
            f"{checkpoint.path}: {tensor.name} must have shape {tuple(shape)} by the "
            f"config, received {tuple(tensor.shape)}"
        )


def _assign(model, checkpoint: Checkpoint, head: str | None) -> list[str]:
    """Copies the values; returns the names of weights that are not there."""
    prefix = "backbone/" if head is None else ""
    missing = []
    for name, variable in weight_names(model).items():
        full = prefix + name
        tensor = checkpoint.tensors.get(full)
        # A classifier of tokens is none of texts, though both are a dense layer.
        if full.startswith("classifier/") and not checkpoint.has_classifier_of(head):
            tensor = None
        if tensor is not None and full in checkpoint.untrained:
            missing.append(name)
        if tensor is None:
            variable.assign(_initial_value(model, name, variable.shape, len(missing)))
            if full.startswith("backbone/") and "/pooler/" not in full:
                raise DataError(
                    f"{checkpoint.path}: no tensor for {name} "
                    f"({checkpoint.format} format)"
                )
            missing.append(name)
            continue
        _check_shape(checkpoint, tensor, variable.shape)
        variable.assign(tensor.read())
    return missing


def _initial_value(model: ConfiguredModel, name: str, shape, number: int):
    """What a weight that is not in the files starts from."""
    kind = name.rpartition("/")[2]
    if kind == "gamma":
        return keras.ops.ones(shape)
    if kind != "kernel":
        return keras.ops.zeros(shape)
    seed = None if model.seed is None else model.seed + number
    return TruncatedNormal(stddev=model.config.initializer_range, seed=seed)(shape)


def _value(variable) -> np.ndarray:
    return keras.ops.convert_to_numpy(variable.value).astype(np.float32, copy=False)
