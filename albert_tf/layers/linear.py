"""Implements `x W + b` with a gradient that suits weights applied many times.

Legend: `B` batch, `T` sequence, `I` inputs, `O` outputs.
"""

from keras import ops


@ops.custom_gradient
def _linear(x, kernel, bias):
    # [M, I], [I, O], [O]
    def gradient(*arguments, upstream=None):
        # PyTorch passes the upstream gradient by name, other backends do not.
        if upstream is None:
            (upstream,) = arguments
        # The weights of a shared block are transposed once for all its applications,
        # because the compiler merges equal operations. Left to itself, TensorFlow
        # transposes inside each product, which makes it 1.5 times slower on a CPU; it
        # would also fold `ops.transpose` back into the product.
        transposed = ops.einsum("io->oi", kernel)
        return (
            ops.matmul(upstream, transposed),
            ops.matmul(ops.transpose(x), upstream),
            ops.sum(upstream, axis=0),
        )

    return ops.matmul(x, kernel) + bias, gradient


def linear(x, kernel, bias):
    """Computes `x W + b`.

    Args:
        x: `[B, T, I]`.
        kernel: `[I, O]`, of the dtype of `x`.
        bias: `[O]`, of the dtype of `x`.

    Returns:
        `[B, T, O]`.
    """
    B, T = ops.shape(x)[0], ops.shape(x)[1]
    inputs, outputs = kernel.shape
    flat = _linear(ops.reshape(x, (-1, inputs)), kernel, bias)
    return ops.reshape(flat, (B, T, outputs))
