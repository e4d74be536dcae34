"""Differentiates a loop in TensorFlow."""

from collections.abc import Callable, Sequence

import tensorflow as tf

# One iteration at a time: otherwise the gradients of weights, which no operation waits
# for, would keep the results of several iterations in memory.
_ONE = {"parallel_iterations": 1}


def repeat(
    body: Callable[..., tf.Tensor],
    x: tf.Tensor,
    count: int,
    weights: Sequence[tf.Tensor],
    recompute: bool,
) -> tf.Tensor:
    """Applies a function several times; see `layers.depth.repeat`."""
    shape = x.shape

    def apply(number, x, weights):
        y = body(number, x, weights)
        y.set_shape(shape)
        return y

    if recompute:
        return _recomputed(apply, x, count, weights)
    step = lambda number, x: (number + 1, apply(number, x, weights))  # noqa: E731
    return _loop(step, (tf.constant(0), x), count)[1]


def _loop(step, values, count):
    # XLA must know the number of iterations to differentiate them.
    return tf.while_loop(
        lambda number, *unused: number < count,
        step,
        values,
        maximum_iterations=count,
        **_ONE,
    )


def _recomputed(apply, x, count, weights):
    # `tf.recompute_grad` would add a number to every weight in every iteration, which
    # copies the weight, and would warn about integer inputs.
    @tf.custom_gradient
    def run(x, *weights):
        inputs = tf.TensorArray(x.dtype, count, element_shape=x.shape)
        number, last, inputs = _loop(
            lambda number, x, inputs: (
                number + 1,
                apply(number, x, weights),
                inputs.write(number, x),
            ),
            (tf.constant(0), x, inputs),
            count,
        )

        def step(number, upstream, sums):
            place = count - 1 - number
            x = inputs.read(place)
            x.set_shape(upstream.shape)
            # Tensors of this iteration, so that a tape can watch them.
            own = [tf.identity(w) for w in weights]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch([x, *own])
                y = apply(place, x, own)
            upstream, *more = tape.gradient(y, [x, *own], upstream)
            sums = [a + tf.cast(b, a.dtype) for a, b in zip(sums, more, strict=True)]
            return number + 1, upstream, sums

        def gradient(upstream):
            # Not in bfloat16, which would lose the last of many summands.
            zeros = [tf.zeros(w.shape, _dtype_of_sums(w)) for w in weights]
            upstream.set_shape(x.shape)
            values = (tf.constant(0), upstream, zeros)
            _, upstream, sums = _loop(step, values, count)
            return upstream, *(
                tf.cast(s, w.dtype) for s, w in zip(sums, weights, strict=True)
            )

        return last, gradient

    return run(x, *weights)


def _dtype_of_sums(weight):
    return weight.dtype if weight.dtype.size > 4 else tf.float32
