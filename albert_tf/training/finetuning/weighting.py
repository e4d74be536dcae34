"""Weights of classes in the loss, and of layers in the learning rate."""

import numpy as np

from albert_tf import features
from albert_tf.config import AlbertConfig
from albert_tf.errors import UsageError
from albert_tf.tasks.task import SINGLE_LABEL, EncodedExamples, Task
from albert_tf.training.finetuning.settings import FinetuneSettings

BALANCED = "balanced"


def class_weights(
    settings: FinetuneSettings, task: Task, train: EncodedExamples
) -> tuple[float, ...]:
    """Returns the weight of each class, in the order of the task's labels.

    Args:
        settings: `FinetuneSettings`. `class_weights` holds `label=weight`, where a
            label without a weight has 1; or `balanced`, for weights inversely
            proportional to how frequent the classes are, with mean 1 over the examples
            (scikit-learn's definition).
        task: `Task`.
        train: `EncodedExamples`. With targets.

    Returns:
        tuple of float, or an empty tuple for equal weights.

    Raises:
        UsageError: If the task has no classes, or a label or weight is invalid.
    """
    given = settings.class_weights
    if not given:
        return ()
    if task.problem_type != SINGLE_LABEL and task.head != "token_classifier":
        raise UsageError(
            "class_weights: only for tasks with one class per text or word, received "
            f"the task {task.name}"
        )
    if list(given) == [BALANCED]:
        labels = train.targets[features.LABELS]
        counts = np.bincount(labels[labels >= 0], minlength=len(task.labels))
        if not counts.all():
            missing = task.labels[int(np.argmin(counts))]
            raise UsageError(
                f"class_weights=balanced: no training example has the label {missing!r}"
            )
        return tuple((counts.sum() / (len(counts) * counts)).tolist())
    weights = dict.fromkeys(task.labels, 1.0)
    for item in given:
        name, _, text = item.rpartition("=")
        if name not in weights:
            raise UsageError(
                f"class_weights: expected label=weight with a label among "
                f"{', '.join(task.labels)}, or balanced, received {item!r}"
            )
        weights[name] = _weight(item, text)
    return tuple(weights.values())


def learning_rate_multipliers(
    decay: float | None, config: AlbertConfig
) -> dict[str, float]:
    """Returns the factors of the layers' learning rates, for the optimizer.

    The rate of layer `l` of `L`, counted from 0, is multiplied by `decay^(L - 1 - l)`,
    that of the embeddings and their projection by `decay^L`. Pooler and head have the
    full rate.

    Args:
        decay: float in (0, 1], or None for one rate.
        config: `AlbertConfig`. Config of the model.

    Returns:
        dict by the regular expression of the variables' paths; empty without decay.

    Raises:
        UsageError: If layers cannot have learning rates of their own, or the decay is
            out of its range.
    """
    if decay is None:
        return {}
    columns = list(zip(*config.layer_table(), strict=True))
    if any(len(set(column)) < len(column) for column in columns):
        raise UsageError(
            "layerwise_decay: the layers of this model share their weights "
            f"(sharing={config.sharing}), so that there is only one learning rate "
            "for all of them"
        )
    if not 0 < decay <= 1:
        raise UsageError(f"layerwise_decay must be in (0, 1], received {decay}")
    layers, inner = config.num_hidden_layers, config.inner_group_num
    parts = "attention|attention_layer_norm|ffn|ffn_layer_norm"
    multipliers = {
        # Parts that are not shared are numbered by application of the block.
        rf"(^|/)encoder/({parts})_{layer * inner + i}/": decay ** (layers - 1 - layer)
        for layer in range(layers)
        for i in range(inner)
    }
    multipliers["(^|/)(embeddings|encoder/embedding_projection)/"] = decay**layers
    return multipliers


def _weight(item: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise UsageError(
            f"class_weights: expected a number of at least 0 after '=', received "
            f"{item!r}"
        )
    return value
