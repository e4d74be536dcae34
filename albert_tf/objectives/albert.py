"""ALBERT's objective: masked language model and sentence order prediction.

The losses are those of the original's `get_masked_lm_output` and
`get_sentence_order_output`, added without weights.
"""

from albert_tf.objectives.masked_lm import MASKED_LM
from albert_tf.objectives.objective import Objective, Term

SENTENCE_ORDER = Term(
    name="sop",
    title="SOP",
    logits="sop_logits",
    labels="sentence_order_labels",  # 0 in order, 1 swapped
    weights="sentence_order_weights",
    color="tab:orange",
    optional=True,
)

ALBERT = Objective(
    name="albert",
    terms=(MASKED_LM, SENTENCE_ORDER),
    pair_policies=("clean", "original", "none"),
)
