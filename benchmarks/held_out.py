"""Scores of models on pretraining records that none of them has read.

Legend: `N` examples, `D` hidden.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from albert_tf import features
from albert_tf.errors import UntrainedWeightsWarning
from albert_tf.storage import files
from benchmarks.objectives_jobs import (
    FIRST_SEED,
    TOKENIZER,
    Study,
    done_once,
    forget_graphs,
    regression,
)

_ROWS = 64


def held_out_score(
    study: Study, model: str, objective: str, fitted: bool
) -> dict[str, float]:
    """Scores a model on the held-out records of an objective.

    The accuracy of pairs is balanced, the mean of the accuracies of both labels: a
    constant answer always scores 0.5, although 60% of BERT's records have label 1.

    Args:
        study: `Study`.
        model: str. Its name in the study's folder of models.
        objective: str. Objective of the records, such as "bert".
        fitted: bool. Whether to fit an additional head of pairs: logistic regression on
            the pooled outputs, which are frozen, for `probe_examples` training records.

    Returns: dict. `mlm`, the accuracy of masked words; for records with labels also
        `pairs`, the accuracy of the model's own head, and on request `fitted`, that of
        the other.
    """
    path = study.join("scores", f"{model}-{objective}-held-out.json")
    if files.exists(path):
        return files.read_json(path)
    import tensorflow as tf
    from sklearn.metrics import balanced_accuracy_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from albert_tf.converters.load import from_pretrained

    # An untrained head of pairs is intended in this study.
    with warnings.catch_warnings(category=UntrainedWeightsWarning, action="ignore"):
        net = from_pretrained(study.join("models", model), head="pretraining")
    forward = tf.function(lambda batch: net(batch, training=False))
    found = _outputs(study, forward, f"{study.records(objective)}-eval")
    result = {"mlm": found["hits"] / found["masked"]}
    labels = found["labels"]
    if len(labels):
        given = found["logits"].argmax(-1)
        result["pairs"] = float(balanced_accuracy_score(labels, given))
    if fitted:
        most = study.scale.probe_examples
        shown = _outputs(study, forward, study.records(objective), most)
        head = make_pipeline(StandardScaler(), regression(class_weight="balanced"))
        head.fit(shown["vectors"], shown["labels"])
        answers = head.predict(found["vectors"])
        result["fitted"] = float(balanced_accuracy_score(labels, answers))
    forget_graphs()
    return done_once(path, result)


def _outputs(
    study: Study, forward: Callable, records: str, most: int = 0
) -> dict[str, Any]:
    """Returns a model's outputs for records, in the order of their files.

    Args:
        study: `Study`.
        forward: callable. An `AlbertPretrainer`, compiled.
        records: str. Their prefix.
        most: int. Approximate number of examples to read; 0 for all.

    Returns:
        dict. `hits` and `masked`, numbers of words; `logits` `[N, 2]`, `vectors`
        `[N, D]` and `labels` `[N]` of pairs, empty without labels.
    """
    from albert_tf.data.batches.pretraining import PretrainingData
    from albert_tf.objectives.pretraining import MASKED_LM
    from albert_tf.text.load import load_tokenizer

    data = PretrainingData(
        records,
        tokenizer=load_tokenizer(study.join(TOKENIZER)),
        max_seq_length=study.scale.sizes["max_position_embeddings"],
        seed=FIRST_SEED,
    )
    hits = masked = 0.0
    parts: dict[str, list[np.ndarray]] = {"logits": [], "vectors": [], "labels": []}
    batches = data.batches(_ROWS, is_training=False)
    for batch in batches.take(-(-most // _ROWS) or -1):
        outputs = forward(batch)
        sums = MASKED_LM.sums(outputs, batch)
        _, batch_hits, weight = (float(sums[name]) for name in MASKED_LM.sum_names[:3])
        hits, masked = hits + batch_hits, masked + weight
        if features.SENTENCE_ORDER_LABELS not in batch:
            continue
        real = batch[features.SENTENCE_ORDER_WEIGHTS].numpy() > 0
        for name, values in (
            ("logits", outputs["sop_logits"]),
            ("vectors", outputs["pooled_output"]),
            ("labels", batch[features.SENTENCE_ORDER_LABELS]),
        ):
            parts[name].append(values.numpy()[real])
    joined = {name: np.concatenate(one or [[]]) for name, one in parts.items()}
    return {"hits": hits, "masked": masked, **joined}
