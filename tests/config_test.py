"""Sizes, sharing tables, parameter counts, and config files of others."""

import dataclasses
import json
import math
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert_tf.config import PRESETS, SHARING_MODES, AlbertConfig, generator_config
from albert_tf.errors import DataError
from albert_tf.heads import HEADS

GOLDEN = pathlib.Path(__file__).parent / "golden"
COUNTS = json.loads((GOLDEN / "param_counts.json").read_text())

# The original's and transformers' heads; ours are the same layers.
HEAD_CLASSES = {
    None: "AlbertModel",
    "pretraining": "AlbertForPreTraining",
    "masked_lm": "AlbertForMaskedLM",
    "question_answering": "AlbertForQuestionAnswering",
    "text_classifier": "AlbertForSequenceClassification_2",
}

configs = st.builds(
    dict,
    num_hidden_layers=st.integers(1, 40),
    num_hidden_groups=st.integers(1, 40),
    inner_group_num=st.integers(1, 3),
    sharing=st.sampled_from(SHARING_MODES),
    share_layer_norm=st.booleans(),
).filter(lambda c: c["num_hidden_groups"] <= c["num_hidden_layers"])


# Of transformers 5.23, but for ELECTRA on ALBERT's shared block, which it has not:
# ALBERT's encoder with two layers of the discriminator instead of the pooler.
RELATIVES = {
    ("roberta_base", None): 124_645_632,
    ("roberta_base", "masked_lm"): 124_697_433,
    ("roberta_large", None): 355_359_744,
    ("roberta_large", "masked_lm"): 355_412_057,
    ("electra_small", "discriminator"): 13_549_057,
    ("electra_base", "discriminator"): 109_483_009,
    ("electra_large", "discriminator"): 335_142_913,
    ("electra_albert_base", "discriminator"): 11_684_353,
}


@pytest.mark.parametrize(("preset", "head"), RELATIVES)
def test_relatives_have_the_counts_of_transformers(preset, head):
    config = AlbertConfig.from_preset(preset)
    assert config.num_parameters(head) == RELATIVES[preset, head]
    assert config.family == preset.split("_")[0]
    assert AlbertConfig.from_dict(config.to_dict()) == config
    assert config.replace(hidden_dropout_prob=0.5).family == config.family


def test_generators_have_the_counts_of_transformers():
    for size, heads, count in (("small", 1, 4_620_026), ("base", 4, 33_740_602)):
        sizes = {"hidden_size": 64 * heads, "intermediate_size": 256 * heads}
        sizes["num_attention_heads"] = heads
        config = AlbertConfig.from_preset(f"electra_{size}", **sizes)
        assert config.num_parameters("masked_lm") == count


def test_what_the_family_decides():
    acts = {
        "albert_base_v2": ("gelu_new", "tanh"),
        "bert_base": ("gelu", "tanh"),
        "roberta_base": ("gelu", "tanh"),
        "electra_small": ("gelu", "gelu"),
    }
    for preset, expected in acts.items():
        config = AlbertConfig.from_preset(preset)
        assert (config.head_act, config.pooler_act) == expected
        assert ("position_offset" in config.to_dict()) == (preset == "roberta_base")
    relu = AlbertConfig.from_preset("electra_small", hidden_act="relu")
    assert (relu.head_act, relu.pooler_act) == ("gelu", "gelu")
    rule = (
        r"must be the tokenizer's pad_id \+ 1 for the family 'roberta', else 0, rec.*"
    )
    with pytest.raises(ValueError, match=f"{rule} 0"):
        AlbertConfig(family="roberta")
    with pytest.raises(ValueError, match=f"{rule} 2"):
        AlbertConfig(position_offset=2)


KNOWN = [name for name in PRESETS if name.startswith(("albert", "bert"))]


@pytest.mark.parametrize("preset", KNOWN)
def test_presets_have_the_counts_of_the_released_models(preset):
    config = AlbertConfig.from_preset(preset)
    assert sum(config.parameter_counts().values()) == config.num_parameters()
    peer = "AlbertModel" if preset.startswith("albert") else "BertModel"
    expected = COUNTS["huggingface_5_23"][preset][peer]["total"]
    assert config.num_parameters() == expected
    assert config.family == preset.split("_")[0]


@pytest.mark.parametrize("preset", [p for p in PRESETS if p.startswith("albert")])
@pytest.mark.parametrize("head", HEAD_CLASSES)
def test_heads_have_the_counts_of_transformers(preset, head):
    expected = COUNTS["huggingface_5_23"][preset][HEAD_CLASSES[head]]["total"]
    assert AlbertConfig.from_preset(preset).num_parameters(head) == expected


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="one of albert_b.*received 'albert_huge'"):
        AlbertConfig.from_preset("albert_huge")
    with pytest.raises(ValueError, match="one of pretraining, .*received 'nsp'"):
        AlbertConfig().num_parameters("nsp")
    assert all(AlbertConfig().num_parameters(head) > 0 for head in HEADS)


def test_more_labels_need_more_parameters():
    config = AlbertConfig()
    for head in ("text_classifier", "token_classifier"):
        three, two = (config.num_parameters(head, num_labels=n) for n in (3, 2))
        assert three - two == 768 + 1


def test_presets_differ_in_dropout_and_take_changes():
    assert AlbertConfig.from_preset("albert_base_v1").hidden_dropout_prob == 0.1
    assert AlbertConfig.from_preset("albert_base_v2").hidden_dropout_prob == 0.0
    assert AlbertConfig.from_preset("albert_xxlarge_v1").hidden_dropout_prob == 0.0
    assert AlbertConfig.from_preset("bert_base").hidden_act == "gelu"
    changed = AlbertConfig.from_preset("albert_base_v2", num_hidden_layers=3)
    assert (changed.num_hidden_layers, changed.hidden_size) == (3, 768)
    assert changed.replace(num_hidden_layers=12) == AlbertConfig.from_preset(
        "albert_base_v2"
    )


@given(configs)
def test_the_table_uses_every_weight_in_order(values):
    config = AlbertConfig(**values)
    rows = config.layer_table()
    layers, inner = config.num_hidden_layers, config.inner_group_num
    assert len(rows) == layers * inner
    for column in zip(*rows, strict=True):
        # First met in order 0, 1, 2...: no weight is left out, and none is skipped.
        assert list(dict.fromkeys(column)) == list(range(max(column) + 1))
    shared, own = config.num_hidden_groups * inner, layers * inner
    attention, attention_norm, ffn, ffn_norm = (
        max(c) + 1 for c in zip(*rows, strict=True)
    )
    assert attention == (shared if config.sharing in ("all", "attention") else own)
    assert ffn == (shared if config.sharing in ("all", "ffn") else own)
    assert attention_norm == (attention if config.share_layer_norm else own)
    assert ffn_norm == (ffn if config.share_layer_norm else own)


@pytest.mark.parametrize("rule", ["original", "huggingface"])
def test_the_group_rules_of_others(rule):
    sizes = dict(num_hidden_layers=18, num_hidden_groups=14)
    theirs = AlbertConfig(**sizes, group_rule=rule).layer_table()
    for layer, row in enumerate(theirs):
        expected = {
            "original": int(layer / 18 * 14),
            "huggingface": int(layer / (18 / 14)),
        }
        assert row.attention == expected[rule]
    assert theirs[9].attention == (7 if rule == "original" else 6)
    # int(15 / 22 * 22) is 14; ours needs no floats.
    assert AlbertConfig(**sizes).layer_table()[9].attention == 7
    table = AlbertConfig(num_hidden_layers=22, num_hidden_groups=22).layer_table()
    assert [row.ffn for row in table] == list(range(22))


def test_a_projection_even_where_the_sizes_are_equal():
    sizes = dict(hidden_size=12, embedding_size=12, num_attention_heads=2)
    auto, always = (
        AlbertConfig(**sizes, embedding_projection=p) for p in ("auto", "always")
    )
    assert not auto.has_embedding_projection
    assert always.has_embedding_projection
    assert always.num_parameters() - auto.num_parameters() == 13 * 12
    assert always.flops_per_token() - auto.flops_per_token() == 2 * 12 * 12


def test_a_table_with_groups_and_inner_blocks():
    config = AlbertConfig(num_hidden_layers=4, num_hidden_groups=2, inner_group_num=2)
    indices = [row.attention for row in config.layer_table()]
    assert indices == [0, 1, 0, 1, 2, 3, 2, 3]
    config = config.replace(sharing="ffn", share_layer_norm=False)
    rows = config.layer_table()
    assert [row.attention for row in rows] == list(range(8))
    assert [row.ffn for row in rows] == [0, 1, 0, 1, 2, 3, 2, 3]
    assert [row.ffn_layer_norm for row in rows] == list(range(8))


def test_flops_do_not_depend_on_sharing_and_are_those_of_the_matrices():
    config = AlbertConfig.from_preset("albert_base_v2")
    assert config.flops_per_token(128) == config.replace(
        sharing="none"
    ).flops_per_token(128)
    block = 2 * (4 * 768 * 768 + 2 * 768 * 3072) + 4 * 128 * 768
    assert config.flops_per_token(128) == 12 * block + 2 * 128 * 768
    assert config.flops_per_token() == config.flops_per_token(512)
    bert = AlbertConfig.from_preset("bert_base")
    assert bert.flops_per_token(128) == 12 * block


INTEGERS = [f.name for f in dataclasses.fields(AlbertConfig) if f.type is int]
INTEGERS = [name for name in INTEGERS if name not in ("position_offset", "depth_rank")]


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("value", [0, -3, 2.0, "12", True, None, 2**31])
def test_sizes_must_be_positive_integers(name, value):
    with pytest.raises(ValueError) as error:
        AlbertConfig(**{name: value})
    assert str(error.value) == f"{name} must be a positive integer, received {value!r}"


NAMES = "query, key, value, attention_output, ffn_intermediate, ffn_output"


@pytest.mark.parametrize(
    "name, value, rule",
    [
        ("hidden_dropout_prob", 1.0, "a number in [0, 1)"),
        ("attention_probs_dropout_prob", -0.1, "a number in [0, 1)"),
        ("classifier_dropout_prob", math.nan, "a number in [0, 1)"),
        ("hidden_dropout_prob", "0.1", "a number in [0, 1)"),
        ("hidden_dropout_prob", False, "a number in [0, 1)"),
        ("layer_norm_eps", 0.0, "a positive number"),
        ("initializer_range", math.inf, "a positive number"),
        ("hidden_act", "mish", "one of gelu_new, gelu, relu, tanh, silu, linear"),
        ("hidden_act", None, "one of gelu_new, gelu, relu, tanh, silu, linear"),
        ("mlm_layer_norm_eps", -1e-5, "a positive number"),
        ("embedding_projection", "never", "one of auto, always"),
        ("group_rule", "float", "one of integer, original, huggingface"),
        ("sharing", "layers", "one of all, attention, ffn, none"),
        ("sharing", ["all"], "one of all, attention, ffn, none"),
        ("share_layer_norm", 1, "true or false"),
        ("depth_embedding", 1, "true or false"),
        ("depth_rank", -1, "an integer of at least 0"),
        ("depth_rank", True, "an integer of at least 0"),
        *(
            ("depth_matrices", value, f"a list of different names of {NAMES}")
            for value in ("query", [], ["dense"], ["key", "key"], [1], 3)
        ),
    ],
)
def test_other_values_are_checked(name, value, rule):
    with pytest.raises(ValueError) as error:
        AlbertConfig(**{name: value})
    assert str(error.value) == f"{name} must be {rule}, received {value!r}"


def test_impossible_combinations_are_refused():
    with pytest.raises(
        ValueError, match="multiple of num_attention_heads, .*768 and 7"
    ):
        AlbertConfig(num_attention_heads=7)
    with pytest.raises(ValueError, match="at most num_hidden_layers, .*5 and 4"):
        AlbertConfig(num_hidden_layers=4, num_hidden_groups=5)
    sizes = {"hidden_size": 12, "num_attention_heads": 3, "intermediate_size": 8}
    AlbertConfig(**sizes, depth_rank=12, depth_matrices=["query"])
    with pytest.raises(ValueError, match="most 12, the width of query, received 13"):
        AlbertConfig(**sizes, depth_rank=13, depth_matrices=["query"])
    with pytest.raises(ValueError, match="most 8, the width of ffn_int.*received 12"):
        AlbertConfig(**sizes, depth_rank=12)
    with pytest.raises(ValueError, match="depth_matrices needs a depth_rank above 0; "):
        AlbertConfig(depth_matrices=["key"])


def test_weights_of_single_layers_are_counted_and_left_out_of_old_files():
    config = AlbertConfig.from_preset("albert_base_v2")
    assert not {name for name in config.to_dict() if name.startswith("depth")}
    own = config.replace(depth_rank=8, depth_matrices=["value", "query"])
    assert own == config.replace(depth_rank=8, depth_matrices=("query", "value"))
    counts = own.replace(depth_embedding=True).parameter_counts()
    assert counts["depth"] == 12 * (2 * (2 * 8 * 768 + 768) + 768)
    more = own.flops_per_token() - config.flops_per_token()
    assert more == 12 * 2 * 2 * 2 * 8 * 768
    whole = config.replace(depth_rank=8, depth_matrices=NAMES.split(", "))
    assert whole == config.replace(depth_rank=8)
    small = generator_config(own.replace(depth_rank=768), 0.25, 1.0)
    assert small.depth_rank == small.hidden_size == 192


def test_fields_survive_a_file(tmp_path):
    own = {"depth_rank": 2, "depth_matrices": ["key"], "depth_embedding": True}
    config = AlbertConfig.from_preset("bert_large", share_layer_norm=False, **own)
    path = tmp_path / "config.json"
    config.to_json(path)
    assert AlbertConfig.from_json(path) == config
    assert [p.name for p in tmp_path.iterdir()] == ["config.json"]
    path.write_text(path.read_text(), "utf-8-sig")
    assert AlbertConfig.from_json(path) == config


BERT = {"sharing": "none", "embedding_size": 768}


def test_the_family_follows_from_the_architecture():
    assert AlbertConfig().family == "albert"
    assert AlbertConfig(**BERT).family == "bert"
    assert AlbertConfig().replace(**BERT).family == "bert"
    for change in (
        {"sharing": "all"},
        {"inner_group_num": 2},
        {"embedding_size": 128},
        {"embedding_projection": "always"},
    ):
        assert AlbertConfig(**{**BERT, **change}).family == "albert"
        assert AlbertConfig.from_preset("bert_base", **change).family == "albert"
        with pytest.raises(ValueError, match="family 'bert' needs sharing='none', "):
            AlbertConfig(**{**BERT, **change}, family="bert")


def test_a_family_is_kept_and_written_and_older_files_lack_it():
    config = AlbertConfig(**BERT, family="albert")
    assert config.replace(hidden_dropout_prob=0.1).family == "albert"
    assert AlbertConfig.from_dict(config.to_dict()) == config
    assert config.replace(family=None).family == "bert"
    config = AlbertConfig.from_preset("bert_base")
    values = config.to_dict()
    assert values.pop("family") == "bert"
    assert AlbertConfig.from_dict(values) == config
    with pytest.raises(ValueError, match="family must be one of albert, bert, .*'gpt'"):
        AlbertConfig(family="gpt")


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
# Files that users write for a relative.
BERT_LIKE = {**SIZES, "hidden_act": "gelu", "family": "bert"}
ROBERTA_LIKE = BERT_LIKE | {"family": "roberta", "position_offset": 1}
EXACT = {"hidden_act": "gelu"}
NAMED = {**EXACT, "sharing": "none", "embedding_size": 12}


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
        (HF_BERT | {"hidden_dropout_prob": 0.2}, {"classifier_dropout_prob": 0.2}),
        (EARLY, {"sharing": "none"}),
        (EARLY | {"embedding_size": 6}, {"sharing": "all"}),
        # The original's gelu is the tanh approximation; ours is the exact one.
        (GOOGLE | {"hidden_act": None}, {"hidden_act": "gelu_new"}),
        (GOOGLE | {"hidden_act": "relu"}, {"hidden_act": "relu"}),
        (ORIGINAL_BERT, {"hidden_act": "gelu_new", "sharing": "none"}),
        (AlbertConfig(hidden_act="gelu").to_dict(), {"hidden_act": "gelu"}),
        (BERT_LIKE, {"family": "bert", "sharing": "none", "hidden_act": "gelu_new"}),
        (ROBERTA_LIKE, {"type_vocab_size": 1, "position_offset": 1, **NAMED}),
        (ROBERTA_LIKE | {"layer_norm_eps": 1e-6}, {"layer_norm_eps": 1e-6, **NAMED}),
        (BERT_LIKE | {"family": "electra"}, NAMED),
        (GOOGLE | {"family": "electra", "sharing": "all"}, {"sharing": "all", **EXACT}),
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
    ({"model_type": "distilbert", "dim": 8}, "model_type must be .*'distilbert'"),
    ({"model_type": "modernbert"}, "none of which is pre-norm and rotary"),
    (HF_ALBERT | {"model_type": "deberta"}, "must be albert or bert or .*'deberta'"),
    (
        {**SIZES, "layer_norm_eps": 1e-5, "architectures": ["XLNetModel"]},
        "architectures must be of albert or bert or .*, received 'XLNetModel'",
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
