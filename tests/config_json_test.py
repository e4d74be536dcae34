"""Which model a config JSON of somebody else describes."""

import json
import pathlib

import pytest

from albert_tf.config import AlbertConfig
from albert_tf.errors import DataError

GOLDEN = pathlib.Path(__file__).parent / "golden"

# The released albert_base_v2's file, key by key.
GOOGLE = {
    "attention_probs_dropout_prob": 0,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0,
    "embedding_size": 128,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "num_hidden_groups": 1,
    "net_structure_type": 0,
    "gap_size": 0,
    "num_memory_blocks": 0,
    "inner_group_num": 1,
    "down_scale_factor": 1,
    "type_vocab_size": 2,
    "vocab_size": 30000,
}
SIZES = {
    "vocab_size": 53,
    "hidden_size": 12,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 20,
}
HF_ALBERT = {**SIZES, "model_type": "albert", "embedding_size": 6}
HF_BERT = {**SIZES, "model_type": "bert"}


def test_the_released_file():
    assert AlbertConfig.from_dict(GOOGLE) == AlbertConfig.from_preset("albert_base_v2")
    dropped = AlbertConfig.from_dict({**GOOGLE, "layers_to_keep": []})
    assert dropped == AlbertConfig.from_preset("albert_base_v2")


def test_the_hugging_face_file_describes_the_same_model():
    hf = AlbertConfig.from_json(GOLDEN / "hf_tiny/AlbertForPreTraining/config.json")
    google = AlbertConfig.from_json(GOLDEN / "tf1_tiny/base/albert_config.json")
    assert hf == google


ORIGINAL_BERT = {**SIZES, "hidden_act": "gelu", "directionality": "bidi"}
ORIGINAL_BERT |= {"pooler_fc_size": 768, "pooler_num_attention_heads": 12}
ORIGINAL_BERT |= {"pooler_num_fc_layers": 3, "pooler_size_per_head": 128}
ORIGINAL_BERT |= {"type_vocab_size": 2, "pooler_type": "first_token_transform"}
# Early files of Hugging Face have no model_type.
EARLY = {**SIZES, "layer_norm_eps": 1e-12, "architectures": ["BertForMaskedLM"]}
BRIGHTMART = {**SIZES, "embedding_size": 6, "ln_type": "postln"}
BRIGHTMART |= {"directionality": "bidi"}
SHARED = "share_parameter_across_layers"


@pytest.mark.parametrize(
    "values, expected",
    [
        (HF_ALBERT, {"hidden_act": "gelu_new", "sharing": "all"}),
        (HF_ALBERT | {"hidden_act": "gelu"}, {"hidden_act": "gelu"}),
        (HF_ALBERT | {"hidden_act": "gelu_pytorch_tanh"}, {"hidden_act": "gelu_new"}),
        (HF_ALBERT | {"hidden_act": "gelu_python"}, {"hidden_act": "gelu"}),
        (HF_ALBERT | {"hidden_act": "swish"}, {"hidden_act": "silu"}),
        (HF_ALBERT | {"id2label": {"0": "no"}, "xyz": 1}, {"hidden_size": 12}),
        (HF_BERT, {"sharing": "none", "embedding_size": 12, "hidden_act": "gelu"}),
        (HF_BERT | {"classifier_dropout": 0.3}, {"classifier_dropout_prob": 0.3}),
        (HF_BERT | {"classifier_dropout": None}, {"classifier_dropout_prob": 0.1}),
        (EARLY, {"sharing": "none"}),
        (EARLY | {"embedding_size": 6}, {"sharing": "all"}),
        # The original's gelu is the tanh approximation; ours is the exact one.
        (GOOGLE | {"hidden_act": None}, {"hidden_act": "gelu_new"}),
        (GOOGLE | {"hidden_act": "relu"}, {"hidden_act": "relu"}),
        (ORIGINAL_BERT, {"hidden_act": "gelu_new", "sharing": "none"}),
        (AlbertConfig(hidden_act="gelu").to_dict(), {"hidden_act": "gelu"}),
        (BRIGHTMART, {"sharing": "all"}),
        (BRIGHTMART | {SHARED: True}, {"sharing": "all"}),
        (BRIGHTMART | {SHARED: False}, {"sharing": "none"}),
    ],
)
def test_what_a_file_of_others_describes(values, expected):
    config = AlbertConfig.from_dict(values)
    assert {name: getattr(config, name) for name in expected} == expected


BAD = [
    ({}, "missing vocab_size, hidden_size, num_hidden_layers, num_attention_heads, "),
    (
        GOOGLE | {"hiden_size": 5},
        "unknown key 'hiden_size'; did you mean 'hidden_size'",
    ),
    (GOOGLE | {"qqq": 5}, "unknown key 'qqq'"),
    (GOOGLE | {"ln_type": "preln"}, "ln_type must be 'postln', received 'preln'"),
    (HF_BERT | {"position_embedding_type": "relative_key"}, "must be 'absolute'"),
    (HF_BERT | {"is_decoder": True}, "is_decoder must be False, received True"),
    (HF_ALBERT | {"model_type": "roberta"}, "must be albert or bert, .*'roberta'"),
    (
        {**SIZES, "layer_norm_eps": 1e-5, "architectures": ["RobertaForMaskedLM"]},
        "architectures must be of albert or bert, received 'RobertaForMaskedLM'",
    ),
    (HF_ALBERT | {"hidden_act": "mish"}, "hidden_act must be one of .*'mish'"),
    (HF_ALBERT | {"hidden_act": ["gelu"]}, "hidden_act must be one of .*'gelu'"),
    (HF_BERT | {"hidden_size": None}, "size must be a positive integer, .*None"),
    (GOOGLE | {"vocab_size": "30000"}, "vocab_size must be a positive .*'30000'"),
    (AlbertConfig().to_dict() | {"num_layers": 3}, "unknown key 'num_layers'"),
]


@pytest.mark.parametrize("values, message", BAD)
def test_bad_configs(values, message):
    with pytest.raises(ValueError, match=message):
        AlbertConfig.from_dict(values)


def test_bad_values_in_files_name_the_file(tmp_path):
    path = tmp_path / "albert_config.json"
    path.write_text(json.dumps(AlbertConfig().to_dict() | {"hidden_size": 770}))
    with pytest.raises(DataError) as error:
        AlbertConfig.from_json(path)
    assert str(error.value) == (
        f"{path}: hidden_size must be a multiple of num_attention_heads, "
        "received 770 and 12"
    )


def test_a_byte_order_mark_is_tolerated(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(AlbertConfig().to_dict()), "utf-8-sig")
    assert AlbertConfig.from_json(path) == AlbertConfig()
