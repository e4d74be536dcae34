"""`FillMask` and `Classifier` on small random models."""

import json
import pathlib

import numpy as np
import pytest

from albert_tf.config import AlbertConfig
from albert_tf.errors import UsageError
from albert_tf.inference.classifier import Classifier
from albert_tf.inference.fill_mask import FillMask
from albert_tf.models.backbone import AlbertBackbone
from albert_tf.models.classifiers import AlbertTextClassifier, AlbertTokenClassifier
from albert_tf.models.masked_lm import AlbertMaskedLM
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.text.byte_bpe import ByteBPETokenizer
from albert_tf.text.sentencepiece import AlbertTokenizer
from albert_tf.text.train import train_tokenizer

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"
STRINGS = GOLDEN / "tokenization" / "strings.json"
CONFIG = AlbertConfig(
    embedding_size=6,
    hidden_size=12,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=24,
    initializer_range=0.5,
)


@pytest.fixture(scope="module")
def tokenizer():
    return AlbertTokenizer(GOLDEN / "tokenization" / "spiece.model")


@pytest.fixture(scope="module")
def fill_mask(tokenizer):
    return FillMask(AlbertMaskedLM(CONFIG, seed=1), tokenizer)


@pytest.fixture(scope="module")
def classify(tokenizer):
    model = AlbertTextClassifier(CONFIG, num_labels=3, seed=1)
    return Classifier(model, tokenizer, ["no", "maybe", "yes"])


def test_fill_mask_scores_are_the_models(fill_mask, tokenizer):
    result = fill_mask("The cat is so [MASK] .", top_k=4)
    ids = [tokenizer.cls_id, *tokenizer.encode("The cat is so"), tokenizer.mask_id]
    ids += [*tokenizer.encode("."), tokenizer.sep_id]
    position = ids.index(tokenizer.mask_id)
    logits = fill_mask.model({"token_ids": np.array([ids])}).numpy()[0, position]
    expected = np.exp(logits - logits.max())
    expected /= expected.sum()
    best = np.argsort(-expected)[:4]
    assert [row["token"] for row in result] == best.tolist()
    np.testing.assert_allclose(
        [row["score"] for row in result], expected[best], rtol=1e-4
    )
    for row in result:
        assert list(row) == ["score", "token", "token_str", "sequence"]
        assert row["token_str"] == tokenizer.id_to_token(row["token"]).strip("▁")
        filled = ids[1:position] + [row["token"]] + ids[position + 1 : -1]
        assert row["sequence"] == tokenizer.decode(filled, skip_special=False)
        assert row["sequence"].startswith("the cat is so")
        assert "[MASK]" not in row["sequence"]


def test_fill_mask_several_texts_and_masks(fill_mask):
    texts = ["A [MASK] b", "[MASK] and [MASK] and [MASK]", "the last one is [MASK]"]
    one, three, last = fill_mask(texts, top_k=2)
    assert len(one) == 2
    assert [len(candidates) for candidates in three] == [2, 2, 2]
    assert three[1][0]["sequence"].count("[MASK]") == 2
    # Neither the batch nor its padding changes a result.
    for row, alone in zip(last, fill_mask(texts[2], top_k=2), strict=True):
        assert row["token"] == alone["token"]
        assert row["score"] == pytest.approx(alone["score"], rel=1e-4)
    assert fill_mask([]) == []


def test_fill_mask_is_a_data_frame(fill_mask):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(fill_mask("x [MASK]"))
    assert list(frame.columns) == ["score", "token", "token_str", "sequence"]
    assert frame.shape == (5, 4)


@pytest.mark.parametrize("mask", ["[MASK]", "<mask>"])
def test_the_mask_may_have_another_name(mask):
    pytest.importorskip("tokenizers")
    texts = [item["text"] for item in json.loads(STRINGS.read_text())]
    data = train_tokenizer(texts, model_type="byte_bpe", vocab_size=300, progress=False)
    tokenizer = ByteBPETokenizer(data.replace(b"[MASK]", b"<mask>"))
    fill_mask = FillMask(AlbertMaskedLM(CONFIG, seed=1), tokenizer)
    best = fill_mask(f"The cat {mask} down.", top_k=3)
    ids = [*tokenizer.encode("The cat"), tokenizer.mask_id, *tokenizer.encode(" down.")]
    ids = np.array([[tokenizer.cls_id, *ids, tokenizer.sep_id]])
    logits = fill_mask.model({"token_ids": ids}).numpy()[0, :, :300]
    row = logits[ids[0].tolist().index(tokenizer.mask_id)]
    assert [made["token"] for made in best] == np.argsort(-row)[:3].tolist()
    with pytest.raises(UsageError, match="text: expected <mask> in it"):
        fill_mask("No mask.")


def test_pretrainer_fills_masks(tokenizer):
    fill_mask = FillMask(AlbertPretrainer(CONFIG, seed=1), tokenizer)
    assert sum(row["score"] for row in fill_mask("[MASK]", top_k=30000)) == (
        pytest.approx(1.0, abs=1e-4)
    )


def test_fill_mask_refuses(fill_mask, tokenizer):
    with pytest.raises(UsageError, match=r"expected \[MASK\] in it, received 'no'"):
        fill_mask("no")
    with pytest.raises(UsageError, match="at most 24 tokens .* received 33"):
        fill_mask("[MASK]" + " the" * 30)
    with pytest.raises(UsageError, match="top_k must be from 1 to 30000, received 0"):
        fill_mask("[MASK]", top_k=0)
    with pytest.raises(UsageError, match="received AlbertBackbone"):
        FillMask(AlbertBackbone(CONFIG), tokenizer)
    with pytest.raises(UsageError, match="at most vocab_size=40 pieces"):
        FillMask(AlbertMaskedLM(CONFIG.replace(vocab_size=40)), tokenizer)


def test_classifier(classify):
    texts = ["a b", "the " * 50, "", "a b"]
    result = classify(texts)
    assert [list(row) for row in result] == [["label", "score"]] * 4
    assert result[0]["score"] == pytest.approx(result[3]["score"])
    ranked = classify(texts, top_k=None)
    assert [row[0] for row in ranked] == result
    assert sorted(row["label"] for row in ranked[0]) == ["maybe", "no", "yes"]
    assert sum(row["score"] for row in ranked[1]) == pytest.approx(1, abs=1e-5)
    assert classify("a b")[0]["score"] == pytest.approx(result[0]["score"], rel=1e-4)


def test_classifier_pairs(classify):
    one = classify.logits(["a b"], ["c d"])
    many = classify.logits(["a b", "x"], ["c d", "the " * 99])
    np.testing.assert_allclose(one[0], many[0], rtol=1e-4, atol=1e-5)
    assert np.abs(one - classify.logits(["a b c d"])).max() > 1e-3


def test_classifier_refuses(classify, tokenizer):
    with pytest.raises(UsageError, match="labels: expected 3 names, .* received 2"):
        Classifier(classify.model, tokenizer, ["a", "b"])
    with pytest.raises(UsageError, match="received AlbertTokenClassifier"):
        Classifier(AlbertTokenClassifier(CONFIG, num_labels=3), tokenizer)
    with pytest.raises(UsageError, match="max_position_embeddings=24, received 25"):
        Classifier(classify.model, tokenizer, max_seq_length=25)
    with pytest.raises(UsageError, match="top_k must be positive, received 0"):
        classify("a", top_k=0)
