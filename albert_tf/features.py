"""Names of the tensors that travel between data, models and training.

Legend: `B` batch, `T` sequence, `P` masked predictions, `K` examples in a packed row.

Batches use KerasHub's names, so that its preprocessors and ours can be exchanged.
Record files keep the names of the original `create_pretraining_data.py`. All other
modules use the constants of this one; only the argument names of served endpoints and
other libraries' names, some of them the same, are spelled where they are used.
"""

# Keys of batches.
TOKEN_IDS = "token_ids"  # int32 [B, T], values in [0, V)
SEGMENT_IDS = "segment_ids"  # int32 [B, T], 0 for A and 1 for B; also in records
PADDING_MASK = "padding_mask"  # int32 [B, T], 1 = a real token
ROWS = (TOKEN_IDS, SEGMENT_IDS, PADDING_MASK)  # what every model reads
MASK_POSITIONS = "mask_positions"  # int32 [B, P], index into T; 0 where unused
MASK_IDS = "mask_ids"  # int32 [B, P], the original token at that position
MASK_WEIGHTS = "mask_weights"  # float32 [B, P], 0 where unused
# float32 [B, P] in [0, 1), from which ELECTRA draws replacements.
SAMPLE_DRAWS = "sample_draws"
# int32 [B]. The label of the pair of segments. The objective defines what 1 means:
# swapped (ALBERT), or that B is not the text after A (BERT).
SENTENCE_ORDER_LABELS = "sentence_order_labels"
# float32 [B], or [B, K] of packed rows; 0 = not an example.
SENTENCE_ORDER_WEIGHTS = "sentence_order_weights"
# Only from `masking.apply.mask_batch`, all int32 [B, P]:
MASK_NGRAMS = "mask_ngrams"  # equal for the tokens of one n-gram
# Only in packed rows:
PACK_IDS = "pack_ids"  # int32 [B, T], index of the example from 1; 0 = padding
POSITION_IDS = "position_ids"  # int32 [B, T], restarts at 0 in every example
CLS_POSITIONS = "cls_positions"  # int32 [B, K], first token of each example

# Only for fine-tuning; `U` examples, `L` words, `K` choices, `C` labels:
# int32 [U] (the class; also of the right choice), float32 [U] (a score), float32 [U, C]
# (1 = the label applies), or int32 [U, L] (the tag of each word, -1 = no label).
LABELS = "labels"
# int32 [U], [U, K] or [U, L]: the tokens that the head reads, as numbers of the
# flattened rows [B * T]: `[CLS]` of each example or choice, first token of each word.
PLACES = "places"
CHOICE_MASK = "choice_mask"  # int32 [U, K], 1 = there is such a choice or text
# int32 [U, K]: equal for equal texts of a data set, so that they are no negatives.
TEXT_IDS = "text_ids"
# float32 [U, C], [U, L, C], [U, K] or, of starts and ends, [B, T, 2].
TEACHER_LOGITS = "teacher_logits"
START_POSITIONS = "start_positions"  # int32 [B], index into T; 0 = no answer here
END_POSITIONS = "end_positions"  # int32 [B], inclusive
IS_IMPOSSIBLE = "is_impossible"  # int32 [B], 1 = the row does not hold the answer
P_MASK = "p_mask"  # int32 [B, T], 1 = cannot be part of an answer

# Features of records. 1 where a token starts a word: needed for masking, not by models.
TOKEN_BOUNDARY = "token_boundary"
INPUT_IDS = "input_ids"
INPUT_MASK = "input_mask"
MASKED_LM_POSITIONS = "masked_lm_positions"
MASKED_LM_IDS = "masked_lm_ids"
MASKED_LM_WEIGHTS = "masked_lm_weights"
NEXT_SENTENCE_LABELS = "next_sentence_labels"

# Batch key -> feature of a record; the others have the same name in both.
RECORD_NAMES = {
    TOKEN_IDS: INPUT_IDS,
    PADDING_MASK: INPUT_MASK,
    SEGMENT_IDS: SEGMENT_IDS,
    MASK_POSITIONS: MASKED_LM_POSITIONS,
    MASK_IDS: MASKED_LM_IDS,
    MASK_WEIGHTS: MASKED_LM_WEIGHTS,
    SENTENCE_ORDER_LABELS: NEXT_SENTENCE_LABELS,
}


def record_name(key: str) -> str:
    """Returns the name that a batch key has in records."""
    return RECORD_NAMES.get(key, key)


# Values of create_pretraining_data's --pair_policy whose records have no label of the
# pair; every objective can learn from them.
UNLABELLED_POLICIES = ("none", "full_sentences", "doc_sentences", "doc", "segments")
