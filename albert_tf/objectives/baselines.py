"""Accuracies of constant answers."""

import numpy as np
import tensorflow as tf


def trivial_baselines(dataset: tf.data.Dataset, max_steps: int) -> dict[str, float]:
    """Accuracies of always answering the same, over the same batches.

    Args:
        dataset: Evaluation batches, not distributed.
        max_steps: int. At most so many batches; 0 for all.

    Returns:
        dict with `mlm_baseline`, that of the most frequent masked token, and
        `sop_baseline`, that of the larger class. Both know the held-out labels, so a
        model has to beat the best constant answer there is.
    """
    tokens, orders = {}, np.zeros(2)
    for number, batch in enumerate(dataset.as_numpy_iterator(), 1):
        real = batch["mask_weights"] > 0
        found, counts = np.unique(batch["mask_ids"][real], return_counts=True)
        for token, count in zip(found, counts, strict=True):
            tokens[token] = tokens.get(token, 0) + int(count)
        if "sentence_order_labels" in batch:
            weights = batch.get("sentence_order_weights")
            weights = None if weights is None else weights.ravel()
            labels = batch["sentence_order_labels"].ravel()
            orders += np.bincount(labels, weights, minlength=2)
        if number == max_steps:
            break
    baselines = {"mlm_baseline": max(tokens.values()) / sum(tokens.values())}
    if orders.sum():
        baselines["sop_baseline"] = float(orders.max() / orders.sum())
    return baselines
