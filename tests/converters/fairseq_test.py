"""The names in SpanBERT's `model.pt`, and what is refused before torch is needed."""

import sys

import pytest

import albert_tf
from albert_tf.converters import fairseq
from albert_tf.converters.keras_model import from_model
from albert_tf.converters.table import rename
from albert_tf.errors import DataError, UsageError
from tests.tiny import make_model

SPANBERT = {
    "head": "span_boundary",
    "vocab_size": 41,
    "embedding_size": 12,
    "hidden_act": "gelu",
    "sharing": "none",
    "num_hidden_layers": 1,
    "max_span": 4,
}
ROBERTA = {
    "head": "masked_lm",
    "family": "roberta",
    "position_offset": 2,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
}
# facebookresearch/SpanBERT, pretraining/fairseq/models/pair_bert.py: BertForPreTraining
# without next sentences, where D is 12, F 20 and V 41.
NORM = {"gamma": (12,), "beta": (12,)}
DENSE = {"weight": (12, 12), "bias": (12,)}
LAYER, PAIR = "bert.encoder.layer.0", "cls.pair_target_predictions"
PUBLISHED = {
    "bert.embeddings.word_embeddings": {"weight": (41, 12)},
    "bert.embeddings.position_embeddings": {"weight": (24, 12)},
    "bert.embeddings.token_type_embeddings": {"weight": (2, 12)},
    "bert.embeddings.LayerNorm": NORM,
    f"{LAYER}.attention.self.query": DENSE,
    f"{LAYER}.attention.self.key": DENSE,
    f"{LAYER}.attention.self.value": DENSE,
    f"{LAYER}.attention.output.dense": DENSE,
    f"{LAYER}.attention.output.LayerNorm": NORM,
    f"{LAYER}.intermediate.dense": {"weight": (20, 12), "bias": (20,)},
    f"{LAYER}.output.dense": {"weight": (12, 20), "bias": (12,)},
    f"{LAYER}.output.LayerNorm": NORM,
    "cls.predictions": {"bias": (41,)},
    "cls.predictions.transform.dense": DENSE,
    "cls.predictions.transform.LayerNorm": NORM,
    PAIR: {"bias": (41,)},
    f"{PAIR}.position_embeddings": {"weight": (4, 200)},
    f"{PAIR}.mlp_layer_norm.linear1": {"weight": (12, 2 * 12 + 200), "bias": (12,)},
    f"{PAIR}.mlp_layer_norm.layer_norm1": NORM,
    f"{PAIR}.mlp_layer_norm.linear2": DENSE,
    f"{PAIR}.mlp_layer_norm.layer_norm2": NORM,
}
TIED = ["cls.predictions.decoder.weight", f"{PAIR}.decoder.weight"]


def test_names_and_shapes_are_those_of_the_published_model():
    model, written = make_model(add_pooler=False, **SPANBERT), fairseq.MODELS["bert"]
    theirs = rename(written.rows(model.config), from_model(model).tensors, "fairseq")
    expected = {
        f"{layer}.{part}": shape
        for layer, parts in PUBLISHED.items()
        for part, shape in parts.items()
    }
    assert {name: tensor.shape for name, tensor in theirs.items()} == expected
    assert list(written.tied) == TIED and set(written.tied.values()) < set(expected)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"head": "masked_lm"},
            "the head span_boundary, received 'bert' and 'masked_lm'",
        ),
        (
            {"embedding_size": 6},
            "equal to hidden_size, received 'albert' and 'none' and 6 and 12",
        ),
        ({"sharing": "all"}, "unshared layers .*, received 'albert' and 'all'"),
        ({"share_layer_norm": False}, "share_layer_norm must be True"),
        (
            {"hidden_act": "gelu_new"},
            "hidden_act must be gelu or relu, as SpanBERT's, r",
        ),
        ({"layer_norm_eps": 1e-5}, "layer_norm_eps must be 1e-12"),
        ({"position_size": 5}, "position_size must be 200, as SpanBERT's, received 5"),
        ({**ROBERTA, "sharing": "all"}, "family roberta, unshared .* 'all'"),
        ({**ROBERTA, "embedding_size": 6}, "RoBERTa has .* 6 and 12$"),
        (
            {**ROBERTA, "position_offset": 1},
            "offset must be 2, as RoBERTa's, received 1",
        ),
        ({**ROBERTA, "type_vocab_size": 2}, "type_vocab_size must be 1, as RoBERTa's"),
        ({**ROBERTA, "hidden_act": "relu"}, "hidden_act must be gelu, as RoBERTa's"),
        ({**ROBERTA, "head": "token_classifier"}, "'roberta' and 'token_cl"),
        (ROBERTA, r"model\.pt: a torch file needs torch"),
        ({}, r"model\.pt: a torch file needs torch \(pip install albert_tf\[peers\]\)"),
    ],
)
def test_what_is_not_written(changes, message, tmp_path, monkeypatch):
    values = {**SPANBERT, **changes}
    if values["head"] != "span_boundary":
        del values["max_span"]
    model = make_model(**values)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UsageError, match=message) as error:
        albert_tf.save_pretrained(model, tmp_path / "m", format="fairseq")
    assert "\n" not in str(error.value) and not list(tmp_path.iterdir())


def test_anything_else_is_no_torch_file(tmp_path):
    (tmp_path / "model.pt").write_bytes(b"not a pickle")
    with pytest.raises(DataError, match=r"model\.pt: .*torch") as error:
        albert_tf.from_pretrained(tmp_path)
    assert "\n" not in str(error.value)
