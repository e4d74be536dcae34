"""ALBERT's objective: masked language model and sentence order prediction.

The losses are those of the original's `get_masked_lm_output` and
`get_sentence_order_output`, added without weights.
"""

from albert_tf import features
from albert_tf.objectives.masked_lm import MASKED_LM
from albert_tf.objectives.objective import Objective, Term

SENTENCE_ORDER = Term(
    name="sop",
    title="SOP",
    logits="sop_logits",
    labels=features.SENTENCE_ORDER_LABELS,  # 0 in order, 1 swapped
    weights=features.SENTENCE_ORDER_WEIGHTS,
    color="tab:orange",
    optional=True,
)

ALBERT = Objective(
    name="albert",
    terms=(MASKED_LM, SENTENCE_ORDER),
    pair_policies=("clean", "original", "none"),
)
