"""`inspect_model` against its definitions, for models of every family and format."""

import json
import math

import keras
import numpy as np
import pytest

import albert_tf
from albert_tf.converters.load import save_pretrained
from albert_tf.errors import DataError, UsageError
from albert_tf.inference import inspection
from albert_tf.inference.inspection import inspect_model, principal_plane, transitions
from albert_tf.text.byte_bpe import ByteBPETokenizer, train
from albert_tf.text.wordpiece import WordPieceTokenizer
from tests.text import kinds
from tests.tiny import SPIECE, make_model, randomize

MASKED = "the cat is [MASK] and [MASK] ."
GIVEN = ["a sheep on the hill", MASKED, "", "[MASK] boats"]
BERT = {"embedding_size": 12, "sharing": "none", "hidden_act": "gelu"}
ROBERTA = {"type_vocab_size": 1, "position_offset": 2, "layer_norm_eps": 1e-5}


def tokenizer_of(family):
    if family == "roberta":
        special = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
        return ByteBPETokenizer(train(kinds.TEXTS * 3, 600, special))
    return WordPieceTokenizer(kinds.WORDPIECE_FILE)


def test_transitions_token_by_token():
    states = np.random.default_rng(3).normal(size=(4, 3, 5))
    states[2, 1] = 2 * states[1, 1]  # no angle, but a distance
    states[3, 2] = -states[2, 2]
    found = transitions(states)
    for layer, token in np.ndindex(3, 3):
        x, y = states[layer, token].tolist(), states[layer + 1, token].tolist()
        cosine = sum(a * b for a, b in zip(x, y, strict=True))
        cosine /= math.hypot(*x) * math.hypot(*y)
        degrees = math.degrees(math.acos(max(-1.0, min(1.0, cosine))))
        expected = [math.dist(x, y), cosine, degrees]
        np.testing.assert_allclose(found[:, layer, token], expected, atol=1e-5)
    assert found[1, 1, 1] == pytest.approx(1) and found[2, 2, 2] == pytest.approx(180)
    assert np.isfinite(transitions(np.zeros((2, 1, 5)))).all()


def test_the_plane_keeps_the_distances_of_what_lies_in_one():
    rng = np.random.default_rng(5)
    flat = rng.normal(size=(4, 3, 2)) * [5.0, 1.0]
    axes = np.linalg.qr(rng.normal(size=(7, 2)))[0].T
    plane, variance = principal_plane(flat @ axes + 3.0)
    points, expected = plane.reshape(-1, 2), flat.reshape(-1, 2)
    pairs = [np.linalg.norm(x[:, None] - x, axis=-1) for x in (points, expected)]
    np.testing.assert_allclose(*pairs, atol=1e-9)
    assert sum(variance) == pytest.approx(1) and variance[0] > variance[1]
    # The same picture, whichever way a library turns the axes.
    again, _ = principal_plane(-(flat @ axes))
    np.testing.assert_allclose(np.abs(again), np.abs(plane), atol=1e-9)


@pytest.mark.parametrize(
    ("family", "head", "format", "changes"),
    [
        ("albert", "pretraining", "albert_tf", {"num_hidden_layers": 3}),
        ("roberta", "masked_lm", "huggingface", {**BERT, **ROBERTA}),
        ("electra", "masked_lm", "huggingface", {**BERT, "embedding_size": 6}),
    ],
)
def test_what_it_says_of_a_model(family, head, format, changes, tokenizer, tmp_path):
    if family != "albert":
        tokenizer = tokenizer_of(family)
        changes = {**changes, "vocab_size": tokenizer.vocab_size, "family": family}
    changes = {"max_position_embeddings": 40, **changes}
    model = randomize(make_model(head, **changes))
    save_pretrained(model, tmp_path / "m", format, tokenizer=tokenizer)
    found = inspect_model(tmp_path / "m", GIVEN, layers=(2, 1), top_k=3)
    assert json.loads(json.dumps(found)) == found
    rows = [tokenizer.encode_masked(text) for text in GIVEN]
    rows = [[tokenizer.cls_id, *row, tokenizer.sep_id] for row in rows]
    asked = {"output_hidden_states": True, "output_attentions": True}
    outputs = [model.backbone({"token_ids": np.array([r])}, **asked) for r in rows]
    states = [np.stack([s.numpy()[0] for s in o["hidden_states"]]) for o in outputs]
    expected = transitions(np.concatenate(states, axis=1).astype(float)).mean(axis=-1)
    names = ("l2_distance", "cosine", "degrees")
    measured = np.array([[one[n] for one in found["transitions"]] for n in names])
    np.testing.assert_allclose(measured, expected, rtol=1e-4, atol=1e-5)
    layers = model.config.num_hidden_layers
    assert [one["layer"] for one in found["transitions"]] == [*range(1, layers + 1)]
    assert (found["texts"], found["tokens"]) == (4, sum(map(len, rows)))
    # The head answers to every state, the embeddings included.
    assert [one["text"] for one in found["answers"]] == [GIVEN[1], GIVEN[3]]
    for one in found["answers"]:
        number = GIVEN.index(one["text"])
        places = np.flatnonzero(np.equal(rows[number], tokenizer.mask_id))
        for place, mask in zip(places, one["masks"], strict=True):
            hidden = outputs[number]["hidden_states"]
            for state, best in zip(hidden, mask, strict=True):
                logits = model.mlm_head(state, model.backbone.word_embeddings)[0, place]
                ids = np.argsort(-logits.numpy())[:3]
                tokens, scores = zip(*best, strict=True)
                assert list(tokens) == [tokenizer.id_to_text(int(i)) for i in ids]
                expected = keras.ops.softmax(logits).numpy()[ids]
                np.testing.assert_allclose(scores, expected, rtol=1e-4)
    # What is shown is the first text.
    assert list(found["attention"]) == ["1", "2"]
    for name, maps in found["attention"].items():
        expected = outputs[0]["attentions"][int(name) - 1].numpy()[0]
        np.testing.assert_allclose(maps, expected, atol=2e-5)
    assert np.shape(found["path"]) == (layers + 1, len(rows[0]), 2)
    assert len(found["tokens_shown"]) == len(rows[0])


@pytest.mark.parametrize("head", [None, "text_classifier"])
def test_models_without_a_masked_lm(head, model_folder):
    found = inspect_model(model_folder(head), [MASKED])
    assert found["answers"] == []
    assert found["no_answers"] == "no trained masked-LM head"
    assert found["head"] == head and len(found["transitions"]) == 2


def test_long_texts_are_cut(model_folder):
    found = inspect_model(model_folder("masked_lm"), ["the " * 90], max_seq_length=9)
    assert (found["tokens"], found["no_answers"]) == (9, "no text has a mask")
    longer = model_folder("masked_lm", max_position_embeddings=40)
    found = inspect_model(longer, ["a " * 90])
    assert found["tokens"] == 40 and len(found["tokens_shown"]) == 24
    assert found["tokens_shown"][-1] == "[SEP]"


def test_the_masked_lm_that_was_never_trained_says_nothing(tokenizer, tmp_path):
    model = make_model("masked_lm")
    model.mark_untrained(["mlm_head/dense/kernel"])
    save_pretrained(model, tmp_path / "m", tokenizer=tokenizer)
    found = inspect_model(tmp_path / "m", [MASKED])
    assert found["no_answers"] == "no trained masked-LM head"


def test_a_tokenizer_is_taken_where_there_is_none(tmp_path):
    save_pretrained(make_model("pretraining"), tmp_path / "bare", "tf1")
    with pytest.raises(DataError, match="holds no tokenizer"):
        inspect_model(tmp_path / "bare")
    given = {"tokenizer": SPIECE, "do_lower_case": True, "keep_accents": False}
    found = inspect_model(tmp_path / "bare", **given)
    assert found["format"] == "tf1" and found["texts"] == len(inspection.TEXTS)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"texts": []}, "texts must contain a text"),
        ({"layers": [3]}, r"layers must be from 1 to 2 for .*, received \[3\]"),
        ({"layers": [0]}, "layers must be from 1 to 2"),
        ({"top_k": 0}, "top_k must be"),
        ({"texts": ["a " * 30 + "[MASK]"]}, "a mask lies behind max_seq_length=24"),
        ({"max_seq_length": 25}, "at most max_position_embeddings=24, received 25"),
    ],
)
def test_mistakes(given, message, model_folder):
    with pytest.raises(UsageError, match=message):
        albert_tf.inspect_model(model_folder("masked_lm"), **given)


def test_damaged_weights(tokenizer, tmp_path):
    model = make_model("masked_lm")
    model.backbone.word_embeddings.assign(model.backbone.word_embeddings * np.nan)
    save_pretrained(model, tmp_path / "m", tokenizer=tokenizer)
    with pytest.raises(DataError, match="m: its states are not finite"):
        inspect_model(tmp_path / "m")
