"""Lists Hugging Face's names of BERT's weights."""

from albert_tf.converters.huggingface.family import Family

BERT = Family(
    class_prefix="Bert",
    blocks={
        "attention_{}/query": "attention.self.query",
        "attention_{}/key": "attention.self.key",
        "attention_{}/value": "attention.self.value",
        "attention_{}/output": "attention.output.dense",
        "attention_layer_norm_{}": "attention.output.LayerNorm",
        "ffn_{}/intermediate": "intermediate.dense",
        "ffn_{}/output": "output.dense",
        "ffn_layer_norm_{}": "output.LayerNorm",
    },
    block_scope=lambda config, block: f"encoder.layer.{block}",
    pooler="pooler.dense",
    mlm_head="cls.predictions",
    mlm_transform="cls.predictions.transform",
    sop_head="cls.seq_relationship",
    config_names={
        "embedding_size": None,
        "num_hidden_groups": None,
        "inner_group_num": None,
        "classifier_dropout_prob": "classifier_dropout",
    },
)
