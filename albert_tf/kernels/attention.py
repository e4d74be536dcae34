"""Calls the fused attention of JAX and PyTorch, which never stores the probabilities.

Legend: `B` batch, `T` sequence, `D` hidden, `N` heads, `H` head size.
"""

import math


def attend_in_jax(q, k, v, bias, lengths, implementation: str):
    """Computes the attention of q, k and v `[B, T, N, H]` by "cudnn" or "xla".

    Args:
        bias: `[B, 1, T, T]` of the dtype of `q`, or None.
        lengths: int32 `[B]` or None. The number of real tokens, above 0. The contexts
            of others mean nothing; cuDNN skips them.
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


def attend_on_tpu(q, k, v, segments):
    """Computes the attention in one operation; see `attend_in_jax`.

    Tokens attend to the keys whose id, in the second of two `segments` int32 `[B, T]`,
    is theirs in the first one.
    """
    import jax
    from jax.experimental.pallas.ops.tpu import splash_attention as splash

    N, T, H = q.shape[2], q.shape[1], q.shape[3]
    block = T if T <= 512 else math.gcd(T, 512)
    sizes = dict.fromkeys(("block_q", "block_kv", "block_q_dkv", "block_kv_dkv"), block)
    kernel = splash.make_splash_mha(
        splash.MultiHeadMask([splash.FullMask((T, T))] * N),
        head_shards=1,
        q_seq_shards=1,
        block_sizes=splash.BlockSizes(**sizes, use_fused_bwd_kernel=True),
    )
    q, k, v = (x.swapaxes(1, 2) for x in (q / math.sqrt(H), k, v))
    segments = segments and splash.SegmentIds(*segments)
    return jax.vmap(kernel)(q, k, v, segments).swapaxes(1, 2)


def attend_in_torch(q, k, v, bias):
    """Computes the attention with a bias `[B, 1, T, T]`, `[B, 1, 1, T]` or None."""
    from torch.nn import functional

    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return functional.scaled_dot_product_attention(q, k, v, bias).transpose(1, 2)


def reorder(x, order):
    """Moves the tokens of every row in JAX, with a gradient that moves them back.

    For every place, `order`, int32 `[B, T]`, has the token that moves to it; each once.
    """
    import jax

    def row(x, order):
        # Otherwise the gradient would add the numbers one at a time.
        return x.at[order].get(unique_indices=True, mode="promise_in_bounds")

    return jax.vmap(row)(x, order)
