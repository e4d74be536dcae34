"""Pretraining losses as sums and counts, so that they add up over replicas.

Legend: `B` batch, `P` predictions, `V` vocabulary, `K` examples in a packed row.
"""

from keras import ops

# In the denominator of the masked LM loss, as in the original.
MLM_EPSILON = 1e-5


def cross_entropy(logits, labels):
    """Negative log-likelihood, in float32.

    Args:
        logits: `[..., C]`.
        labels: int `[...]`, values in `[0, C)`.

    Returns:
        float32 `[...]`.
    """
    logits = ops.cast(logits, "float32")
    picked = ops.take_along_axis(logits, ops.expand_dims(labels, -1), axis=-1)
    return ops.logsumexp(logits, axis=-1) - ops.squeeze(picked, -1)


def pretraining_sums(outputs: dict, batch: dict) -> dict:
    """Summed losses and hits of a batch, with what each is to be divided by.

    Args:
        outputs: Of `AlbertPretrainer`: `mlm_logits` `[B, P, V]`, `sop_logits` `[B, 2]`
            or `[B, K, 2]`.
        batch: `mask_ids` int `[B, P]`, `mask_weights` float `[B, P]`; and
            `sentence_order_labels` int `[B]` or `[B, K]`, with
            `sentence_order_weights` of the same shape where some do not count. A batch
            without labels has no sentence order loss.

    Returns:
        dict of float32 scalars: `mlm_loss_sum`, `mlm_hits`, `mlm_weight`,
        `sop_loss_sum`, `sop_hits`, `sop_weight`.
    """
    sums = {}
    parts = [("mlm", "mlm_logits", "mask_ids", "mask_weights")]
    if "sentence_order_labels" in batch:
        names = ("sentence_order_labels", "sentence_order_weights")
        parts.append(("sop", "sop_logits", *names))
    for part, logits_name, labels_name, weights_name in parts:
        logits, labels = outputs[logits_name], batch[labels_name]
        weights = batch.get(weights_name)
        if weights is None:
            weights = ops.ones(ops.shape(labels), "float32")
        weights = ops.cast(weights, "float32")
        hits = ops.equal(ops.argmax(logits, -1), ops.cast(labels, "int32"))
        sums[f"{part}_loss_sum"] = ops.sum(cross_entropy(logits, labels) * weights)
        sums[f"{part}_hits"] = ops.sum(ops.cast(hits, "float32") * weights)
        sums[f"{part}_weight"] = ops.sum(weights)
    if len(parts) == 1:
        zero = ops.zeros((), "float32")
        sums.update(sop_loss_sum=zero, sop_hits=zero, sop_weight=zero)
    return sums


def pretraining_means(sums: dict) -> dict:
    """Losses and accuracies from (added up) `pretraining_sums`.

    Masked LM: `sum / (weight + 1e-5)`; sentence order: mean; their sum, unweighted, is
    the loss (the original's `get_masked_lm_output`, `get_sentence_order_output`).

    Returns:
        dict of float32 scalars: `loss`, `mlm_loss`, `sop_loss`, `mlm_accuracy`,
        `sop_accuracy`.
    """
    mlm_weight = sums["mlm_weight"] + MLM_EPSILON
    sop_weight = ops.maximum(sums["sop_weight"], 1.0)
    means = {
        "mlm_loss": sums["mlm_loss_sum"] / mlm_weight,
        "sop_loss": sums["sop_loss_sum"] / sop_weight,
        "mlm_accuracy": sums["mlm_hits"] / mlm_weight,
        "sop_accuracy": sums["sop_hits"] / sop_weight,
    }
    return {"loss": means["mlm_loss"] + means["sop_loss"], **means}


def pretraining_loss(outputs: dict, batch: dict) -> dict:
    """`pretraining_means` of one batch."""
    return pretraining_means(pretraining_sums(outputs, batch))
