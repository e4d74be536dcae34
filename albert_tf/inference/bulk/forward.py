"""Compiles models for many rows: fused operations, one thread per call.

Several threads call the model at the same time, each with a batch of its own. This
wastes less than dividing a batch among threads, and what a call computes does not
depend on how many there are.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from albert_tf import features
from albert_tf.inference import base
from albert_tf.tasks.outputs import Forward

if TYPE_CHECKING:
    import keras

# Lengths of rows are rounded up to a multiple of this.
LENGTH_STEP = 4
ROWS = (features.TOKEN_IDS, features.SEGMENT_IDS, features.PADDING_MASK)


def use_one_thread_per_call(num_calls: int) -> None:
    """Configures TensorFlow, unless it has started; to be called before a model loads.

    Args:
        num_calls: int. Calls at the same time.
    """
    import keras

    if keras.backend.backend() != "tensorflow":
        return
    import tensorflow as tf

    try:
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(num_calls)
        for device in tf.config.list_physical_devices("GPU"):
            # Several processes may share it.
            tf.config.experimental.set_memory_growth(device, True)
    except RuntimeError:
        pass  # the program that called this has used TensorFlow before


def text_forward(model: "keras.Model", exit: str | None = None) -> Forward:
    """Returns the function of batches that a `Predictor` of texts calls.

    Args:
        model: `AlbertTextClassifier`.
        exit: str or None. Rule by which it stops early; see `ExitRule`.

    Raises:
        UsageError: If the model cannot follow the rule.
    """
    import keras

    if keras.backend.backend() != "tensorflow":
        from albert_tf.models.exits import ElasticClassifier
        from albert_tf.tasks.outputs import as_forward

        runner = model if exit is None else ElasticClassifier(model, exit)
        return as_forward(runner, "text_classifier")
    if exit is None:
        return fused(model, lambda batch: model(batch, training=False), ROWS)
    from albert_tf.models.tensorflow import elastic_forward, fast_forward

    forward = fast_forward.choose(model, "float32")
    elastic = elastic_forward.choose(model, forward, exit)
    return _compiled(lambda batch: elastic(batch)["logits"], ROWS)


def fused(
    model: "keras.Model",
    compute: Callable[[Mapping], Any],
    names: Iterable[str],
) -> Callable[[Mapping[str, np.ndarray]], np.ndarray]:
    """Compiles a function that calls a model, with the fastest encoder there is.

    Args:
        model: keras.Model. `AlbertBackbone`, or a model that has one.
        compute: callable. From a dict of int32 tensors of rank 2 to a tensor.
        names: iterable of str. Keys of the dict.

    Returns:
        callable. The same function, from a dict of arrays to an array.
    """
    import keras

    if keras.backend.backend() != "tensorflow":
        return base.as_graph(compute, names)
    from albert_tf.models.tensorflow import fast_forward

    forward = fast_forward.choose(model, "float32")
    with fast_forward.replacing(model, forward):
        run = _compiled(compute, names)
    # The graph does not keep its variables alive.
    run.forward = forward
    return run


def _compiled(
    compute: Callable[[Mapping], Any], names: Iterable[str]
) -> Callable[[Mapping[str, np.ndarray]], np.ndarray]:
    """Compiles a function for batches of any size; see `fused`."""
    import tensorflow as tf

    names = tuple(names)
    spec = {name: tf.TensorSpec([None, None], tf.int32, name) for name in names}
    traced = tf.function(compute, input_signature=[spec]).get_concrete_function()

    def run(batch: Mapping[str, np.ndarray]) -> np.ndarray:
        inputs = {name: tf.constant(batch[name], tf.int32) for name in names}
        return traced(inputs).numpy()

    # The graph does not keep the variables of what it computes alive.
    run.compute = compute
    return run
