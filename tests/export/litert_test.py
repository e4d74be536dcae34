"""LiteRT models compute what the Keras models do, and come with what they need."""

import json

import numpy as np
import pytest

from albert_tf import features
from albert_tf.config import AlbertConfig
from albert_tf.errors import DataError, UsageError
from albert_tf.export import litert
from albert_tf.export.settings import QUANTIZATIONS
from albert_tf.heads import all_rows
from albert_tf.storage import digests

CONFIG = AlbertConfig(
    embedding_size=8,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=24,
    max_position_embeddings=24,
    initializer_range=0.3,
)
LABELS = {"text_classifier": 3, "token_classifier": 4}


def make(head, **changes):
    row = next(row for row in all_rows() if row.name == head)
    sizes = {"num_labels": LABELS[head]} if head in LABELS else {}
    return row.load_class()(CONFIG, seed=3, **sizes, **changes)


def manifest(folder):
    return json.loads((folder / "manifest.json").read_text())


QUICK = ("beam_question_answering",)
HEADS = [
    pytest.param(row.name, marks=() if row.name in QUICK else pytest.mark.broad)
    for row in all_rows()
]


@pytest.mark.parametrize("head", HEADS)
def test_every_head_is_written_and_compared(head, tokenizer, tmp_path):
    litert.export_litert(make(head), tmp_path / "m", tokenizer=tokenizer)
    content = manifest(tmp_path / "m")
    assert content["max_difference"] < 1e-4
    assert content["files"]["model.tflite"] == {
        k: digests.of_tree(tmp_path / "m")["model.tflite"][k]
        for k in ("sha256", "size")
    }


def test_any_number_and_length_of_rows(tokenizer, tmp_path):
    model = make("text_classifier")
    litert.export_litert(model, tmp_path / "m", tokenizer=tokenizer, labels="abc")
    assert manifest(tmp_path / "m")["labels"] == ["a", "b", "c"]
    run = litert.runner(litert.read_model(tmp_path / "m"))
    rng = np.random.default_rng(1)
    for shape in ((1, 24), (5, 3), (1, 1)):
        batch = {
            features.TOKEN_IDS: rng.integers(0, CONFIG.vocab_size, shape),
            features.SEGMENT_IDS: np.zeros(shape, np.int32),
            features.PADDING_MASK: np.ones(shape, np.int32),
        }
        expected = model(batch, training=False)
        np.testing.assert_allclose(run(batch)["logits"], expected, atol=1e-5)


def test_quantization_makes_it_smaller(tokenizer, tmp_path):
    model, sizes = make("text_classifier"), {}
    for name in QUANTIZATIONS:
        folder = tmp_path / name
        litert.export_litert(model, folder, tokenizer=tokenizer, quantization=name)
        content = manifest(folder)
        sizes[name] = content["files"]["model.tflite"]["size"]
        assert content["quantization"] == name
        assert name == "none" or content["max_difference"] > 1e-6
    assert sizes["none"] > 1.5 * sizes["float16"] > 1.5 * sizes["dynamic_int8"]


def test_a_failed_check_writes_nothing(tokenizer, tmp_path):
    model = make("text_classifier")

    def check(run):
        raise DataError("the accuracy falls")

    with pytest.raises(DataError, match="the accuracy falls"):
        litert.export_litert(model, tmp_path / "m", tokenizer=tokenizer, check=check)
    assert not list(tmp_path.iterdir())
    litert.export_litert(
        model, tmp_path / "m", tokenizer=tokenizer, check=lambda run: {"drop": 0.0}
    )
    assert manifest(tmp_path / "m")["check"] == {"drop": 0.0}


def test_a_model_that_differs_is_refused(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setitem(litert._TOLERANCE, "float16", 1e-9)
    with pytest.raises(DataError, match="differs from the Keras model by .* 1e-09"):
        litert.export_litert(
            make("text_classifier"),
            tmp_path / "m",
            tokenizer=tokenizer,
            quantization="float16",
        )


@pytest.mark.parametrize(
    ("head", "changes", "message"),
    [
        ("text_classifier", {"quantization": "int4"}, "quantization must be one of"),
        ("text_classifier", {"labels": ["a"]}, "labels: expected 3 names"),
        ("question_answering", {"labels": ["a"]}, "labels: .* has none"),
        ("text_classifier", {"max_seq_length": 99}, "max_seq_length"),
    ],
)
def test_bad_arguments(head, changes, message, tokenizer, tmp_path):
    with pytest.raises(UsageError, match=message):
        litert.export_litert(make(head), tmp_path / "m", tokenizer=tokenizer, **changes)


@pytest.mark.broad
def test_weights_that_are_not_finite_are_refused(tokenizer, tmp_path):
    model = make("text_classifier")
    model.classifier.bias.assign([np.nan, 0, 0])
    with pytest.raises(DataError, match="differs from the Keras model by nan"):
        litert.export_litert(model, tmp_path / "m", tokenizer=tokenizer)
