"""BERT's objective: masked language model and next sentence prediction.

The losses are those of google-research/bert's `get_masked_lm_output` and
`get_next_sentence_output`, added without weights.
"""

from albert_tf import features
from albert_tf.objectives.masked_lm import MASKED_LM
from albert_tf.objectives.objective import Objective, Term

# Batches have one place for the label of a pair, and models one head of two classes,
# both named after ALBERT's sentence order.
NEXT_SENTENCE = Term(
    name="nsp",
    title="NSP",
    logits="sop_logits",
    # 0 the next sentence, 1 from another document.
    labels=features.SENTENCE_ORDER_LABELS,
    weights=features.SENTENCE_ORDER_WEIGHTS,
    color="tab:green",
    optional=True,
)

BERT = Objective(
    name="bert", terms=(MASKED_LM, NEXT_SENTENCE), pair_policies=("nsp", "none")
)
