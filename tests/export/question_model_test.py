"""A SavedModel that answers questions: from a fine-tuned folder, as in Python."""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.export import manifest, warmup
from albert_tf.inference.question_answerer import QuestionAnswerer
from tests.export import heads

QUESTIONS = ["Which river?", "", "a\0b \xff"]
CONTEXTS = ["The Main, since 1990, runs through Café Straße. " * 3, "no", ""]


def assert_answers_as_python(served, model, tokenizer) -> None:
    answer = QuestionAnswerer(model, tokenizer)
    loaded = tf.saved_model.load(served)
    got = loaded.signatures["serving_default"](
        question=tf.constant(QUESTIONS), context=tf.constant(CONTEXTS)
    )
    rows = answer(QUESTIONS, CONTEXTS, top_k=5)
    assert got["n_best_scores"].shape == (3, 5)
    for i, row in enumerate(rows):
        best = {name: got[name][i].numpy() for name in ("answer", "start", "end")}
        best["answer"] = best["answer"].decode()
        assert {**best, "score": row[0]["score"]} == row[0]
        scores = [entry["score"] for entry in row] + [0] * (5 - len(row))
        np.testing.assert_allclose(got["n_best_scores"][i], scores, atol=1e-6)
        np.testing.assert_allclose(got["score"][i], scores[0], atol=1e-6)
    tokens = {
        "token_ids": tf.constant([[2, 9, 3, 11, 12, 3, 0, 0]]),
        "segment_ids": tf.constant([[0, 0, 0, 1, 1, 1, 0, 0]]),
    }
    outputs = loaded.signatures["tokens"](lengths=tf.constant([6]), **tokens)
    mask = {"padding_mask": tf.constant([[1] * 6 + [0] * 2])}
    expected = answer.model({**tokens, **mask}, training=False)
    assert outputs.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(outputs[name], values, rtol=1e-5, atol=1e-5)


@pytest.mark.broad  # questions_test has the answers, saved_model_test the manifest
@pytest.mark.parametrize("head", ["question_answering", "beam_question_answering"])
def test_from_a_fine_tuned_model(tokenizer, exported, head):
    served = exported(head)
    assert_answers_as_python(served, heads.make_model(head), tokenizer)
    content = json.loads(pathlib.Path(served, manifest.FILE).read_text())
    assert content["max_seq_length"] == 24
    sizes = {"doc_stride": 4, "max_query_length": 6, "n_best_size": 5}
    rules = {"max_answer_length": 30, "null_threshold": 0.25, "unanswerable": True}
    assert content["answering"] == sizes | rules | {"max_windows": 64}
    texts = {"question": "string [None]", "context": "string [None]"}
    matrices = dict.fromkeys(("token_ids", "segment_ids"), "int32 [None, None]")
    tokens = matrices | {"lengths": "int32 [None]"}
    assert content["signatures"] == {"serving_default": texts, "tokens": tokens}
    custom = {name for name in content["operations"] if "entencepiece" in name}
    ops = ("Op", "TokenizeOp", "TokenizeWithOffsetsOp")
    assert custom == {f"Sentencepiece{op}" for op in ops}
    assert not [name for name in content["operations"] if ">" in name]
    file = str(pathlib.Path(served, "assets.extra", warmup.FILE))
    sizes = [
        (name, len(request["context"][0].split()))
        for name, request in warmup.read_requests(file)
        if name == "serving_default"
    ]
    # With a question of one token and three special ones: 16 and 24.
    assert sizes == [("serving_default", size) for size in (12, 12, 20, 20)]
