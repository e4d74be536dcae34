"""The heads there are, one row each."""

HEADS = (
    "pretraining",
    "masked_lm",
    "text_classifier",
    "token_classifier",
    "question_answering",
    "multiple_choice",
)


CLASSIFIER_HEADS = (
    "text_classifier",
    "token_classifier",
    "question_answering",
    "multiple_choice",
)


POOLER_HEADS = ("pretraining", "text_classifier", "multiple_choice")


FIXED_LABELS = {"question_answering": 2, "multiple_choice": 1}
