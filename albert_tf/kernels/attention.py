"""Calls the fused attention of JAX and PyTorch, which never stores the probabilities.

Legend: `B` batch, `T` sequence, `D` hidden, `N` heads, `H` head size.
"""


def attend_in_jax(q, k, v, bias, lengths, implementation: str):
    """Computes the attention of q, k and v `[B, T, N, H]` in one operation.

    Args:
        bias: `[B, 1, T, T]` of the dtype of `q`, or None.
        lengths: int32 `[B]` or None. The number of real tokens, above 0. The contexts
            of others mean nothing; cuDNN skips them.
        implementation: str. "cudnn" or "xla".
    """
    import jax

    return jax.nn.dot_product_attention(
        q,
        k,
        v,
        bias,
        query_seq_lengths=lengths if implementation == "cudnn" else None,
        key_value_seq_lengths=lengths,
        implementation=implementation,
    )


def attend_in_torch(q, k, v, bias):
    """Computes the attention in one operation; see `attend_in_jax`.

    Args:
        bias: `[B, 1, T, T]` or `[B, 1, 1, T]` of the dtype of `q`, or None.
    """
    from torch.nn import functional

    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return functional.scaled_dot_product_attention(q, k, v, bias).transpose(1, 2)


def reorder(x, order):
    """Moves the tokens of every row in JAX, with a gradient that moves them back.

    Args:
        x: `[B, T, D]`.
        order: int32 `[B, T]`. For every place, the token that moves to it; each once.
    """
    import jax

    def row(x, order):
        # Otherwise the gradient would add the numbers one at a time.
        return x.at[order].get(unique_indices=True, mode="promise_in_bounds")

    return jax.vmap(row)(x, order)
