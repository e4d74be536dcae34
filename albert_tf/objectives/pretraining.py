"""The pretraining objectives of ALBERT and BERT, by the name that `--objective` takes.

The losses are those of the original's `get_masked_lm_output` and
`get_sentence_order_output`, and of google-research/bert's `get_next_sentence_output`,
added without weights.
"""

from albert_tf import features
from albert_tf.objectives.objective import Objective, Term

MASKED_LM = Term(
    name="mlm",
    title="MLM",
    logits="mlm_logits",
    labels=features.MASK_IDS,
    weights=features.MASK_WEIGHTS,
    epsilon=1e-5,  # as in the original
)
SENTENCE_ORDER = Term(
    name="sop",
    title="SOP",
    logits="sop_logits",
    labels=features.SENTENCE_ORDER_LABELS,  # 0 in order, 1 swapped
    weights=features.SENTENCE_ORDER_WEIGHTS,
    optional=True,
)
# Batches have one place for the label of a pair, and models one head of two classes,
# both named after ALBERT's sentence order.
NEXT_SENTENCE = Term(
    name="nsp",
    title="NSP",
    logits="sop_logits",
    # 0 the next sentence, 1 from another document.
    labels=features.SENTENCE_ORDER_LABELS,
    weights=features.SENTENCE_ORDER_WEIGHTS,
    optional=True,
)

ALBERT = Objective(
    name="albert",
    terms=(MASKED_LM, SENTENCE_ORDER),
    pair_policies=("clean", "original", "none"),
)
BERT = Objective(
    name="bert", terms=(MASKED_LM, NEXT_SENTENCE), pair_policies=("nsp", "none")
)
OBJECTIVES = {one.name: one for one in (ALBERT, BERT)}


def pretraining_loss(outputs: dict, batch: dict) -> dict:
    """Returns losses and accuracies of one batch, for loops of one's own.

    Args:
        outputs: dict. Outputs of `AlbertPretrainer`.
        batch: dict. Pretraining batch.

    Returns:
        dict of float32 scalars: `loss`, `mlm_loss`, `sop_loss`, `mlm_accuracy`,
        `sop_accuracy`.
    """
    return ALBERT.means(ALBERT.sums(outputs, batch))
