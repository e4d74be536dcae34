"""Names of the tensors that travel between data, models and training.

Legend: `B` batch, `T` sequence, `P` masked predictions.

Batches use KerasHub's names, so that its preprocessors and ours can be exchanged;
record files keep the names of the original `create_pretraining_data.py`. Only this
module knows both.
"""

TOKEN_IDS = "token_ids"  # int32 [B, T], values in [0, V)
SEGMENT_IDS = "segment_ids"  # int32 [B, T], 0 for A and 1 for B
PADDING_MASK = "padding_mask"  # int32 [B, T], 1 = a real token
MASK_POSITIONS = "mask_positions"  # int32 [B, P], index into T; 0 where unused
MASK_IDS = "mask_ids"  # int32 [B, P], the token that stood there
MASK_WEIGHTS = "mask_weights"  # float32 [B, P], 0 where unused
SENTENCE_ORDER_LABELS = "sentence_order_labels"  # int32 [B], 0 in order, 1 swapped
SENTENCE_ORDER_WEIGHTS = "sentence_order_weights"  # float32, 0 = no example there
# Only asked for by objectives over spans (SpanBERT), all int32 [B, P]:
MASK_NGRAMS = "mask_ngrams"  # equal for pieces of one n-gram
MASK_SPAN_STARTS = "mask_span_starts"  # first position of the run of masked pieces
MASK_SPAN_ENDS = "mask_span_ends"  # its last position, inclusive
PACK_IDS = "pack_ids"  # int32 [B, T], 0 = padding, 1... = which example
POSITION_IDS = "position_ids"  # int32 [B, T], restarts at 0 in every example
CLS_POSITIONS = "cls_positions"  # int32 [B, K], first piece of each packed example

# Batch name -> feature name in TFRecord files written by the original.
RECORD_NAMES = {
    TOKEN_IDS: "input_ids",
    PADDING_MASK: "input_mask",
    SEGMENT_IDS: "segment_ids",
    MASK_POSITIONS: "masked_lm_positions",
    MASK_IDS: "masked_lm_ids",
    MASK_WEIGHTS: "masked_lm_weights",
    SENTENCE_ORDER_LABELS: "next_sentence_labels",
}
# Only in record files: 1 where a piece starts a word. Masking needs it, models do not.
TOKEN_BOUNDARY = "token_boundary"
