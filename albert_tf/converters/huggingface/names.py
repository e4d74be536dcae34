"""Hugging Face's names of ALBERT's and BERT's weights, head by head."""

from albert_tf.config import AlbertConfig
from albert_tf.converters.checkpoint.table import Row, pair

_PARTS = (".weight", ".bias")
_ALBERT_BLOCK = {
    "attention_{}/query": "attention.query",
    "attention_{}/key": "attention.key",
    "attention_{}/value": "attention.value",
    "attention_{}/output": "attention.dense",
    "attention_layer_norm_{}": "attention.LayerNorm",
    "ffn_{}/intermediate": "ffn",
    "ffn_{}/output": "ffn_output",
    "ffn_layer_norm_{}": "full_layer_layer_norm",
}
_BERT_BLOCK = {
    "attention_{}/query": "attention.self.query",
    "attention_{}/key": "attention.self.key",
    "attention_{}/value": "attention.self.value",
    "attention_{}/output": "attention.output.dense",
    "attention_layer_norm_{}": "attention.output.LayerNorm",
    "ffn_{}/intermediate": "intermediate.dense",
    "ffn_{}/output": "output.dense",
    "ffn_layer_norm_{}": "output.LayerNorm",
}
# The class for each head, after "Albert" or "Bert".
CLASS_NAMES = {
    None: "Model",
    "pretraining": "ForPreTraining",
    "masked_lm": "ForMaskedLM",
    "text_classifier": "ForSequenceClassification",
    "token_classifier": "ForTokenClassification",
    "question_answering": "ForQuestionAnswering",
    "multiple_choice": "ForMultipleChoice",
}
# Buffers that old versions saved.
NO_WEIGHTS = ("embeddings.position_ids", "embeddings.token_type_ids")


def name_table(config: AlbertConfig, bert: bool, prefix: str, head: str | None):
    """Rows for a model.

    Args:
        config: `AlbertConfig`; for ALBERT, with the sharing `"all"`.
        bert: bool. Which of the two models.
        prefix: `"albert."`, `"bert."` or, in a bare model, `""`.
        head: One of `config.HEADS` or None.
    """
    rows = _encoder(config, bert, prefix)
    if head == "question_answering":
        rows += _dense("classifier", "qa_outputs")
    else:
        rows += _dense("classifier", "classifier")
    transform = "cls.predictions.transform." if bert else "predictions."
    rows += _dense("mlm_head/dense", f"{transform}dense")
    rows += pair("mlm_head/layer_norm", f"{transform}LayerNorm", *_PARTS)
    rows.append(Row("mlm_head/output_bias", decoder_names(bert)[0]))
    sop = "cls.seq_relationship" if bert else "sop_classifier.classifier"
    return rows + _dense("sop_head", sop)


def decoder_names(bert: bool) -> tuple[str, str, str]:
    """The masked LM's bias, its second name, and the tied table's second name."""
    stem = "cls.predictions" if bert else "predictions"
    return f"{stem}.bias", f"{stem}.decoder.bias", f"{stem}.decoder.weight"


def _encoder(config: AlbertConfig, bert: bool, prefix: str) -> list[Row]:
    rows = [
        Row(f"backbone/embeddings/{name}", f"{prefix}embeddings.{name}.weight")
        for name in ("word_embeddings", "position_embeddings", "token_type_embeddings")
    ]
    rows += pair(
        "backbone/embeddings/layer_norm", f"{prefix}embeddings.LayerNorm", *_PARTS
    )
    if not bert:  # there even if E = D
        mapping = f"{prefix}encoder.embedding_hidden_mapping_in"
        rows += _dense("backbone/encoder/embedding_projection", mapping)
    blocks = max(row.attention for row in config.layer_table()) + 1
    for block in range(blocks):
        if bert:
            scope = f"{prefix}encoder.layer.{block}"
        else:
            number, inner = divmod(block, config.inner_group_num)
            group = config.group_numbers()[number]
            scope = f"{prefix}encoder.albert_layer_groups.{group}.albert_layers.{inner}"
        for ours, theirs in (_BERT_BLOCK if bert else _ALBERT_BLOCK).items():
            name = f"backbone/encoder/{ours.format(block)}"
            rows += _dense(name, f"{scope}.{theirs}")
    pooler = f"{prefix}pooler.dense" if bert else f"{prefix}pooler"
    return rows + _dense("backbone/pooler", pooler)


def _dense(ours: str, theirs: str) -> list[Row]:
    return pair(ours, theirs, *_PARTS, transpose=True)
