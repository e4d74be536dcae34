"""Applies layers that read the same weights in a loop, instead of one after another.

Legend: `B` batch, `T` sequence, `D` hidden.
"""

import contextlib
import contextvars
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from albert_tf.config import AlbertConfig
from albert_tf.errors import require
from albert_tf.layers.context import within

UNROLLED, LOOP, LOOP_REMAT = "unrolled", "loop", "loop_remat"
_FORM = contextvars.ContextVar("albert_tf_depth", default=UNROLLED)
_LIMIT = contextvars.ContextVar("albert_tf_layers", default=None)
_STATES = contextvars.ContextVar("albert_tf_states", default=None)


def depth_form(form: str) -> contextlib.AbstractContextManager[None]:
    """Chooses the form of the encoders that are called inside.

    Every form computes the same function. The choice is local to a thread: enter it in
    the thread that calls the layers.

    Args:
        form: str. `UNROLLED`: a graph holds every layer. `LOOP`: it holds repeated
            layers once. `LOOP_REMAT`: the backward pass also recomputes them, one after
            another, from their inputs, so that only these are kept.
    """
    return within(_FORM, form)


def current_form() -> str:
    """Returns the form chosen by `depth_form`."""
    return _FORM.get()


def limit_layers(layers: int | None) -> contextlib.AbstractContextManager[None]:
    """Has the encoders that are called inside compute their first layers alone.

    `layers` is their number; None for all. The choice is local to a thread.
    """
    return within(_LIMIT, layers)


def num_blocks(config: AlbertConfig) -> int:
    """Returns the number of rows of `config.layer_table()` that are computed."""
    limit, most = _LIMIT.get(), config.num_hidden_layers
    return config.inner_group_num * min(most if limit is None else limit, most)


def is_limited(config: AlbertConfig) -> bool:
    """Returns whether some layers of an encoder are not computed."""
    return num_blocks(config) < len(config.layer_table())


def keep_states(states: list) -> contextlib.AbstractContextManager[None]:
    """Adds the last states of every backbone that is called inside to a list."""
    return within(_STATES, states)


def note_states(x) -> None:
    """Adds states to the list of `keep_states`, if there is one."""
    if (states := _STATES.get()) is not None:
        states.append(x)


class Stretch(NamedTuple):
    """Rows of a table that repeat: `count` times the `period` rows from `first` on."""

    first: int
    period: int
    count: int


def stretches(table: Sequence[Any]) -> list[Stretch]:
    """Cuts a table of comparable rows, such as layers, into the longest stretches.

    They contain all rows in order; a row that does not repeat is alone.
    """
    parts: list[Stretch] = []
    first = 0
    while first < len(table):
        best = Stretch(first, 1, 1)
        for period in range(1, (len(table) - first) // 2 + 1):
            one = Stretch(first, period, _count(table, first, period))
            if one.count > 1 and one.period * one.count > best.period * best.count:
                best = one
        parts.append(best)
        first += best.period * best.count
    return parts


def _count(table, first, period) -> int:
    """Returns the number of consecutive repetitions of the rows from `first` on."""
    count, rows = 1, table[first : first + period]
    while table[first + count * period :][:period] == rows:
        count += 1
    return count


def check_depth(form: str, config: AlbertConfig) -> None:
    """Raises `UsageError` if a model has no layers that a loop could repeat."""
    repeats = any(one.count > 1 for one in stretches(config.layer_table()))
    norms = "" if config.share_layer_norm else ", share_layer_norm=False"
    require(
        form == UNROLLED or repeats,
        f"--depth={form}: needs layers that read the same weights again, which a "
        f"model with sharing={config.sharing!r}, "
        f"num_hidden_layers={config.num_hidden_layers} and "
        f"num_hidden_groups={config.num_hidden_groups}{norms} does not have",
    )


def repeat(
    body: Callable[..., Any], x, count: int, weights: Sequence[Any], recompute: bool
):
    """Applies a function several times, in a loop that has a gradient.

    The function maps the index of the iteration, an int32 scalar, `x` `[B, T, D]` and
    the weights, which are differentiated like `x`, to the next `x`. It reads no
    variables. With `recompute`, the backward pass computes it again.
    """
    if keras.backend.backend() == "tensorflow":
        from albert_tf.kernels import depth

        return depth.repeat(body, x, count, weights, recompute)
    # The loop sums gradients in the dtype of the weight outside of it, and bfloat16
    # would lose the last of many summands.
    wide = [ops.cast(w, keras.backend.result_type(w.dtype, "float32")) for w in weights]

    def step(number, x):
        own = [ops.cast(w, like.dtype) for w, like in zip(wide, weights, strict=True)]
        return body(number, x, own)

    return ops.fori_loop(0, count, keras.remat(step) if recompute else step, x)
