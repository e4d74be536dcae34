"""Learning rates of layers, as factors by patterns of the weights' paths."""

from albert_tf.config import AlbertConfig
from albert_tf.errors import require


def learning_rate_multipliers(
    decay: float | None, config: AlbertConfig, rule: str = "standard"
) -> dict[str, float]:
    """Returns the factors of the layers' learning rates, by patterns of paths.

    The rate of layer `l` of `L`, counted from 0, is multiplied by `decay^(L - 1 - l)`,
    and the rate of the embeddings and their projection by `decay^L`, with a decay in
    (0, 1] or None. Pooler and head have the full rate. With the rule `"original"` the
    exponents are `L + 1 - l` and `L + 2`, as in google-research/electra, which counts a
    pooler that its model does not have (issue 51); with `"corrected"` they are `L - l`
    and `L + 1`, which count only the head.

    Raises `UsageError` if layers cannot have learning rates of their own.
    """
    if decay is None:
        return {}
    columns = list(zip(*config.layer_table(), strict=True))
    require(
        all(len(set(column)) == len(column) for column in columns),
        "layerwise_decay: the layers of this model share their weights (sharing="
        f"{config.sharing}), so that there is only one learning rate for all of them",
    )
    layers, inner = config.num_hidden_layers, config.inner_group_num
    parts = "attention|attention_layer_norm|ffn|ffn_layer_norm"
    top = {"standard": 0, "corrected": 1, "original": 2}[rule]
    multipliers = {
        # Unshared parts are numbered by the application of the block.
        rf"(^|/)encoder/({parts})_{layer * inner + i}/": decay
        ** (top + layers - 1 - layer)
        for layer in range(layers)
        for i in range(inner)
    }
    embeddings = "(^|/)(embeddings|encoder/embedding_projection)/"
    multipliers[embeddings] = decay ** (top + layers)
    return multipliers
