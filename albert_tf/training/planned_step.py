"""The step of a pretraining on JAX without data and weights, as `planning` compiles it.

Only programs that plan import this module: it requires JAX.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from albert_tf import features
from albert_tf.config import AlbertConfig
from albert_tf.heads import find
from albert_tf.layers.depth import check_depth
from albert_tf.objectives.pretraining import OBJECTIVES, Objective
from albert_tf.optimizers.create import create_optimizer
from albert_tf.training.jax.update import AXIS, Update
from albert_tf.training.pretrain_settings import PretrainSettings

_FLOATS = (features.MASK_WEIGHTS, features.SENTENCE_ORDER_WEIGHTS)
_FLOATS += (features.SAMPLE_DRAWS,)


def make_update(
    settings: PretrainSettings,
    fields: Mapping[str, Any],
    devices: Sequence[jax.Device],
    depth: str,
    parts: int,
) -> tuple[Update, dict[str, jax.ShapeDtypeStruct]]:
    """Returns the step of a model with the fields of a config, and its batch's shapes.

    Each device's rows are cut into `parts` micro-batches. Raises `UsageError` if the
    model has no such form of the encoders.
    """
    config, mesh = AlbertConfig.from_dict(fields), jax.sharding.Mesh(devices, (AXIS,))
    check_depth(depth, config)
    objective = OBJECTIVES[settings.objective]
    row = find(objective.head)
    options = {n: getattr(settings, n) for n in row.options if hasattr(settings, n)}
    model = row.load_class()(config, seed=0, dtype=settings.dtype, **options)
    optimizer = create_optimizer(settings.optimizer, **settings.optimizer_arguments)
    forms = {"depth": depth, "shard_optimizer": settings.shard_optimizer}
    update = Update(model, objective, optimizer, mesh, accumulation=parts, **forms)
    return update, update.batch_specs(_shapes(settings, objective))


def _shapes(settings, objective: Objective) -> dict[str, jax.ShapeDtypeStruct]:
    """Returns shapes and types of a batch whose rows hold one example each."""
    B, T = settings.train_batch_size, settings.max_seq_length
    P = settings.num_predictions
    masks = (features.MASK_POSITIONS, features.MASK_IDS, features.MASK_WEIGHTS)
    masks += (features.SAMPLE_DRAWS,) if objective.sample_draws else ()
    labels = (features.SENTENCE_ORDER_LABELS, features.SENTENCE_ORDER_WEIGHTS)
    shapes = {**dict.fromkeys(features.ROWS, (B, T)), **dict.fromkeys(masks, (B, P))}
    if any(term.optional for term in objective.terms):
        shapes |= dict.fromkeys(labels, (B,))
    return {
        name: jax.ShapeDtypeStruct(shape, np.float32 if name in _FLOATS else np.int32)
        for name, shape in shapes.items()
    }
