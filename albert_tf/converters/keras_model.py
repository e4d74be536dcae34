"""Builds Keras models from checkpoints, and checkpoints from Keras models."""

import collections
import re
from collections.abc import Callable, Sequence

import keras
import numpy as np
from absl import logging

from albert_tf.converters.checkpoint import Checkpoint, Tensor, named_head
from albert_tf.converters.growing import first_layers
from albert_tf.converters.table import OWN
from albert_tf.errors import UsageError, require
from albert_tf.heads import HEADS, PAIRS, Head, all_rows, find
from albert_tf.layers.configured import TruncatedNormal, without_initial_values
from albert_tf.models.base import ConfiguredModel, weight_names

# Without the pooler, which some heads do not use.
_IN_ENCODER = re.compile("backbone/(?!pooler/)")


def build_model(
    checkpoint: Checkpoint,
    head: str | None = "auto",
    num_labels: int | None = None,
    seed: int | None = None,
    *,
    report: Callable[[str], None] = logging.warning,
    keep_head: bool = True,
    layers: int | None = None,
    **kwargs,
) -> ConfiguredModel:
    """Builds a model and loads its weights, tensor by tensor.

    The log names weights that are in the files but not in the model: as information,
    since a classifier does not use the heads of pretraining; as a warning if nothing
    was to be left out, or weights of the encoder are. `report` receives one line that
    names the weights with initial values (`model.untrained_weights`), if there are any.
    With `keep_head=False`, weights of the checkpoint's head are among them.

    To build it with another config (other dropout rates), set `checkpoint.config`
    first. The other arguments are as for `from_pretrained`. Raises `DataError` if a
    weight of the encoder is missing or has another shape, or a tensor is unknown.
    """
    is_auto = head == "auto"
    checkpoint.check_unknown(with_heads=is_auto)
    head = checkpoint.head if is_auto else head
    row = find(head) if head in PAIRS else named_head(head)
    checkpoint = checkpoint.for_head(head)
    if layers is not None:
        checkpoint = _cut(checkpoint, layers, head)
    there = [*checkpoint.tensors, *checkpoint.unknown]
    checkpoint = checkpoint if keep_head else checkpoint.without_head()
    if row.has_classifier:
        kwargs["num_labels"] = _count_labels(checkpoint, row, num_labels)
    elif num_labels is not None:
        raise UsageError(f"num_labels: head {head!r} has no labels")
    if head is None or (head == checkpoint.head and not row.uses_pooler):
        # A pooler in the checkpoint is preserved, so that no weight is lost.
        kwargs.setdefault("add_pooler", checkpoint.has_pooler)
    if head == checkpoint.head:
        kwargs = {**checkpoint.head_options, **kwargs}
    _check_sizes(checkpoint)
    with without_initial_values():
        model = row.load_class()(checkpoint.config, seed=seed, **kwargs)
    untrained, unread = _assign(model, checkpoint, head, there)
    model.mark_untrained(untrained)
    if unread:
        is_loss = is_auto or any(map(_IN_ENCODER.match, unread))
        level = logging.WARNING if is_loss else logging.INFO
        kind = type(model).__name__
        text = "%s: has weights that %s does not use: %s"
        logging.log(level, text, checkpoint.path, kind, _by_part(unread))
    if untrained:
        names = ", ".join(untrained)
        report(f"{checkpoint.path}: left at initial values: {names}")
    same = head == checkpoint.head
    model.labels = tuple(checkpoint.labels) if same and checkpoint.labels else None
    model.problem_type = checkpoint.problem_type if same else None
    model.max_seq_length = checkpoint.max_seq_length if same else None
    model.task = checkpoint.task if same else None
    return model


def _cut(checkpoint: Checkpoint, layers: int, head: str | None) -> Checkpoint:
    """Returns the first layers; raises `UsageError` if the head reads every layer."""
    shorter = first_layers(checkpoint, layers)
    has_exits = head == checkpoint.head and checkpoint.head_options.get("num_exits")
    require(
        shorter is checkpoint or not has_exits,
        f"layers: {checkpoint.path} has an exit after every layer, which was trained "
        f"to answer there; use exit=layers:{layers}, received layers={layers}",
    )
    return shorter


def _by_part(names: Sequence[str]) -> str:
    """Returns the parts of a model that weights belong to, with counts."""
    parts = (re.split("[/.]", name.removeprefix("backbone/"))[0] for name in names)
    counts = collections.Counter(parts).items()
    return ", ".join(f"{part} ({count})" for part, count in counts)


def head_of(model: keras.Model | type) -> str | None:
    """Returns the name of the head of a model or its class, None for a backbone.

    Raises `UsageError` if the model is not one of this package's.
    """
    kind = model if isinstance(model, type) else type(model)
    rows = (*all_rows(), *PAIRS.values())
    classes = {row.load_class(): row.name for row in rows}
    if kind not in classes:
        names = ", ".join(known_class.__name__ for known_class in classes)
        raise UsageError(f"model must be one of {names}, received {kind.__name__}")
    return classes[kind]


def from_model(model: keras.Model, tokenizer=None, labels=None) -> Checkpoint:
    """Returns a `Checkpoint` that reads the variables of a model in memory.

    Labels are by default the model's. Raises `UsageError` if their number or the
    vocabulary does not match.
    """
    head = head_of(model)
    prefix = "backbone/" if head is None else ""
    tensors = {
        prefix + name: Tensor(name, tuple(v.shape), lambda v=v: _value(v))
        for name, v in weight_names(model).items()
    }
    labels = labels if labels is not None else getattr(model, "labels", None)
    if labels is not None:
        labels, count = list(map(str, labels)), getattr(model, "num_labels", "no")
        message = f"labels: {len(labels)} names for a model with {count} labels"
        require(len(labels) == count and not find(head).fixed_labels, message)
    if tokenizer is not None:
        size, rows = tokenizer.vocab_size, model.config.vocab_size
        message = f"tokenizer: {size} pieces, but the model's vocab_size is {rows}"
        require(size <= rows, message)
    length = getattr(model, "max_seq_length", None)
    preprocessor = getattr(model, "preprocessor", None)
    # A bare encoder may have the preprocessor of a classifier with short rows.
    if (
        head is not None
        and preprocessor is not None
        and preprocessor.max_seq_length
        != (length or model.config.max_position_embeddings)
    ):
        length = preprocessor.max_seq_length  # the user's choice
    return Checkpoint(
        format="model",
        path=model.name,
        config=model.config,
        tensors=tensors,
        head=head,
        labels=labels,
        problem_type=getattr(model, "problem_type", None),
        max_seq_length=length,
        task=getattr(model, "task", None),
        head_options={
            name: value
            for name in find(head).options
            # The switches of a head are stored in any case.
            if (value := getattr(model, name)) or (value is False and head in HEADS)
        },
        tokenizer=None if tokenizer is None else lambda: tokenizer,
        untrained=[prefix + name for name in model.untrained_weights],
    )


def _count_labels(checkpoint: Checkpoint, head: Head, asked: int | None) -> int:
    stored = head.fixed_labels
    if checkpoint.has_classifier_of(head.name):
        stored = checkpoint.num_labels
    fits = asked is None or stored in (None, asked)
    expected = f"num_labels: the {head.name} of {checkpoint.path} has {stored}"
    require(fits, expected, asked)
    return stored or asked or 2


def _check_sizes(checkpoint: Checkpoint) -> None:
    """Checks the sizes in the config against the files before allocating memory."""
    c = checkpoint.config
    E, D = c.embedding_size, c.hidden_size
    sizes = {
        "embeddings/word_embeddings": (c.vocab_size, E),
        "embeddings/position_embeddings": (c.num_positions, E),
        "embeddings/token_type_embeddings": (c.type_vocab_size, E),
        "encoder/attention_0/query/kernel": (D, D),
        "encoder/ffn_0/intermediate/kernel": (D, c.intermediate_size),
    }
    for name, shape in sizes.items():
        checkpoint.need(f"backbone/{name}", shape)


def _assign(
    model, checkpoint: Checkpoint, head: str | None, there: list[str]
) -> tuple[list[str], list[str]]:
    """Assigns values; returns missing weights, and the names in `there` not read."""
    # Weights of single layers are not missing if no layer has them: they start as
    # nothing.
    prefix = "backbone/" if head is None else ""
    missing, unread = [], dict.fromkeys(there)
    kinds = {_own_kind(name) for name in checkpoint.tensors}
    for number, (name, variable) in enumerate(weight_names(model).items()):
        full = prefix + name
        tensor = checkpoint.tensors.get(full)
        # A token classifier is not a text classifier, though both are a dense layer.
        if full.startswith("classifier/") and not checkpoint.has_classifier_of(head):
            tensor = None
        if tensor is not None and full in checkpoint.untrained:
            missing.append(name)
        if tensor is None and (kind := _own_kind(full)) and kind not in kinds:
            variable.assign(_initial_value(model, full, variable.shape, number))
            continue
        if tensor is None:
            if full.startswith("backbone/") and "/pooler/" not in full:
                checkpoint.need(full)
            variable.assign(_initial_value(model, full, variable.shape, len(missing)))
            missing.append(name)
            continue
        variable.assign(checkpoint.need(full, variable.shape).read())
        del unread[full]
    return missing, [*unread]


def _own_kind(name: str) -> str | None:
    """Returns the matrix or vector that a weight of a single layer is of, or None."""
    kind = name.rpartition("/")[2]
    return re.sub("_(a|b|bias)$", "", kind) if OWN in name else None


def _initial_value(model: ConfiguredModel, name: str, shape, number: int):
    """Returns the initial value of a weight that is not in the files."""
    kind = name.rpartition("/")[2]
    if kind == "gamma":
        return keras.ops.ones(shape)
    if len(shape) < 2 or (_own_kind(name) and kind.endswith("_b")):
        return keras.ops.zeros(shape)
    seed = None if model.seed is None else model.seed + number
    if name.endswith("discriminator/prediction/kernel"):
        return keras.initializers.GlorotUniform(seed)(shape)
    return TruncatedNormal(stddev=model.config.initializer_range, seed=seed)(shape)


def _value(variable) -> np.ndarray:
    return keras.ops.convert_to_numpy(variable.value).astype(np.float32, copy=False)
