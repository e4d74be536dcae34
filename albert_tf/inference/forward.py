"""Compiles models for rows: fused operations, and one graph for batches of any size.

`evaluate`, `predict`, `embed` and the Python classes all run a model this way, with the
same padding, so that their results agree.
"""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from albert_tf import features
from albert_tf.heads import HEADS, LABELS
from albert_tf.tasks.outputs import Forward, input_ranks

if TYPE_CHECKING:
    import keras

# Lengths of rows are rounded up to a multiple of this. Rows are sorted by length, so
# that a multiple of 16, as in training, would add a third of the tokens for sentences.
_LENGTH_STEP = 4
# The steps on JAX, which compiles a program for every shape.
_JAX_LENGTH_STEP, _JAX_ROW_STEP = 64, 8
# Maximum number of tokens of a call, including padding.
MAX_BATCH_TOKENS = 4096
ROWS = features.ROWS


def steps() -> dict[str, int]:
    """Returns `step` and `row_step` of `outputs.sorted_batches`, on this backend."""
    import keras

    if keras.backend.backend() == "jax":
        return {"step": _JAX_LENGTH_STEP, "row_step": _JAX_ROW_STEP}
    return {"step": _LENGTH_STEP, "row_step": 1}


def use_one_thread_per_call(num_calls: int) -> None:
    """Configures TensorFlow for concurrent calls, unless it has started.

    To be called before a model is loaded. Several threads then call the model, each
    with its own batch. This wastes less than dividing a batch among threads, and the
    result of a call does not depend on their number.
    """
    import keras

    if keras.backend.backend() != "tensorflow":
        return
    import tensorflow as tf

    try:
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(num_calls)
        for device in tf.config.list_physical_devices("GPU"):
            # Several processes may share the GPU.
            tf.config.experimental.set_memory_growth(device, True)
    except RuntimeError:
        pass  # the program that called this has used TensorFlow before


def compile_head(model: "keras.Model", head: str, exit: Any = None) -> Forward:
    """Returns the function of batches that a `Predictor` calls.

    `exit` is the rule by which a text classifier stops early, if any. Raises
    `UsageError` if the model cannot follow the rule.
    """
    import keras

    from albert_tf.models.exits import ElasticClassifier

    if keras.backend.backend() != "tensorflow":
        return as_forward(
            model if exit is None else ElasticClassifier(model, exit), head
        )
    ranks = input_ranks(head)
    if HEADS[head].answers == LABELS:
        del ranks[features.PLACES]  # each row has one text, at its start
    if exit is not None:
        from albert_tf.models.tensorflow import fast_forward

        forward = fast_forward.choose(model, "float32", is_live=True)
        elastic = fast_forward.choose_elastic(model, forward, exit)
        return _compiled(model, lambda batch: elastic(batch), ranks)

    def compute(batch):
        return model(choices_in_rows(batch, head), training=False)

    return compile_encoder(model, compute, ranks)


def as_forward(model: "keras.Model", head: str) -> Forward:
    """Returns a function from a batch of arrays to the outputs, as arrays.

    The model is a keras.Model, or a callable like one, that takes the inputs of
    `outputs.input_ranks`.
    """
    ranks = input_ranks(head)
    return _compiled(model, lambda batch: model(batch, training=False), ranks)


def choices_in_rows(batch: Mapping[str, Any], head: str) -> Mapping[str, Any]:
    """Returns a batch in the form for models, whose rows have all choices.

    In this package's batches, each choice has its own row.
    """
    if HEADS[head].input_rank != 3:
        return batch
    return {name: batch[name][:, None] for name in ROWS}


def compile_encoder(
    model: "keras.Model",
    compute: Callable[[Mapping], Any],
    ranks: Mapping[str, int] | Iterable[str],
) -> Forward:
    """Compiles a function from int32 tensors to tensors, with the fastest encoder.

    Eager execution keeps every layer's hidden states and attention maps until the call
    returns. A graph frees a tensor after its last use and skips unused outputs. `ranks`
    are the tensors' by name, or the names of matrices. The result is from arrays to
    arrays.
    """
    import keras

    if not isinstance(ranks, Mapping):
        ranks = dict.fromkeys(ranks, 2)
    if keras.backend.backend() != "tensorflow":
        return _compiled(model, compute, ranks)
    from albert_tf.models.tensorflow import fast_forward

    forward = fast_forward.choose(model, "float32", is_live=True)

    def traced(batch):
        with fast_forward.replacing(model, forward):
            return compute(batch)

    return _compiled(model, traced, ranks)


def _compiled(
    model: Callable, compute: Callable[[Mapping], Any], ranks: Mapping[str, int]
) -> Forward:
    import keras

    # Rows leave an `ElasticClassifier` when they are sure, so that shapes are not
    # known to a compiler.
    if keras.backend.backend() == "jax" and isinstance(model, keras.Model):
        return _compiled_by_jax(model, compute, ranks)
    if keras.backend.backend() != "tensorflow":
        return _as_arrays(compute, ranks)
    import tensorflow as tf

    spec = {n: tf.TensorSpec([None] * rank, tf.int32) for n, rank in ranks.items()}
    # Without the partial, TensorFlow would take the functions of several models, which
    # share their code, for one that is retraced again and again, and warn.
    function = tf.function(functools.partial(compute), input_signature=[spec])
    return _as_arrays(_alone_at_first(function), ranks)


def _compiled_by_jax(
    model: "keras.Model", compute: Callable[[Mapping], Any], names: Iterable[str]
) -> Forward:
    import jax
    import keras

    variables = model.variables

    @jax.jit
    def program(weights, batch):
        pairs = list(zip(variables, weights, strict=True))
        with keras.StatelessScope(state_mapping=pairs):
            return compute(batch)

    # The current weights are passed: a live model may be trained further.
    run = _as_arrays(lambda batch: program([v.value for v in variables], batch), names)

    def with_full_rows(batch: Mapping[str, np.ndarray]) -> Any:
        count = len(batch[features.TOKEN_IDS])
        step = min(_JAX_ROW_STEP, 1 << (count - 1).bit_length())
        rows = np.minimum(np.arange(-(-count // step) * step), count - 1)
        outputs = run({name: np.asarray(batch[name])[rows] for name in names})
        return jax.tree.map(lambda value: value[:count], outputs)

    return with_full_rows


def _alone_at_first(function: Callable) -> Callable:
    """Returns a graph's function whose first call excludes calls of other threads."""
    # TensorFlow optimizes a graph in its first call, and again in every other call that
    # begins before the first one ends.
    lock, is_ready = threading.Lock(), threading.Event()

    def call(*args, **kwargs):
        with contextlib.nullcontext() if is_ready.is_set() else lock:
            outputs = function(*args, **kwargs)
            is_ready.set()
            return outputs

    return call


def _as_arrays(compute: Callable[[Mapping], Any], names: Iterable[str]) -> Forward:
    import keras

    def run(batch: Mapping[str, np.ndarray]) -> Any:
        tensors = {n: keras.ops.convert_to_tensor(batch[n], "int32") for n in names}
        return keras.tree.map_structure(keras.ops.convert_to_numpy, compute(tensors))

    return run
