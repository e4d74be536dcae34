"""Settings of `albert-tf fold`, which `--help` reads without importing converters."""

import dataclasses

from albert_tf.settings import check_fields, setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class FoldSettings:
    """The weights that layers share after folding, and the ones they have alone.

    Attributes:
        sharing: Weights that layers share: all, attention or ffn.
        num_hidden_groups: Groups of layers that share weights, a divisor of the number
            of layers.
        shared_layer: Layer of each group, from 1, whose weights are shared. Default:
            the mean of all.
        share_layer_norm: Share layer norms, too, which otherwise stay exact.
        depth_rank: Rank of the matrices of its own that each layer gets, next to its
            kernels; 0: none. The width of the model gives an exact copy.
        depth_matrices: With --depth_rank, the kernels that get them: some of query,
            key, value, attention_output, ffn_intermediate and ffn_output. Default: all
            that are shared.
        embedding_size: Size of the vectors of tokens, at most the input's. Default: the
            input's.
    """

    group = "model"

    sharing: str = setting("all", choices=("all", "attention", "ffn"))
    num_hidden_groups: int = setting(1, minimum=1)
    shared_layer: int | None = setting(None, minimum=1)
    share_layer_norm: bool = False
    depth_rank: int = setting(0, minimum=0)
    depth_matrices: tuple[str, ...] = ()
    embedding_size: int | None = setting(None, minimum=2)

    def __post_init__(self):
        check_fields(self)
