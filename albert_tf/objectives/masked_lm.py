"""The masked language model's term, shared by the objectives of BERT's family."""

from albert_tf import features
from albert_tf.objectives.objective import Term

MASKED_LM = Term(
    name="mlm",
    title="MLM",
    logits="mlm_logits",
    labels=features.MASK_IDS,
    weights=features.MASK_WEIGHTS,
    color="tab:blue",
    epsilon=1e-5,  # as in the original
)
