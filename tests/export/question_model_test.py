"""A SavedModel that answers questions: from a fine-tuned folder, as in Python."""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.converters import load
from albert_tf.errors import UsageError
from albert_tf.export import manifest, warmup
from albert_tf.export.saved_model import export_saved_model
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


@pytest.mark.slow
def test_from_a_fine_tuned_model(tokenizer, exported):
    served = exported("question_answering")
    assert_answers_as_python(served, heads.make_model("question_answering"), tokenizer)
    content = json.loads(pathlib.Path(served, manifest.FILE).read_text())
    assert content["max_seq_length"] == 24
    assert content["answering"] == {
        "doc_stride": 4,
        "max_query_length": 6,
        "n_best_size": 5,
        "max_answer_length": 30,
        "null_threshold": 0.25,
        "unanswerable": True,
        "max_windows": 64,
    }
    assert content["signatures"] == {
        "serving_default": {"question": "string [None]", "context": "string [None]"},
        "tokens": {
            "token_ids": "int32 [None, None]",
            "lengths": "int32 [None]",
            "segment_ids": "int32 [None, None]",
        },
    }
    custom = {name for name in content["operations"] if "entencepiece" in name}
    assert custom == {
        "SentencepieceOp",
        "SentencepieceTokenizeOp",
        "SentencepieceTokenizeWithOffsetsOp",
    }
    assert not [name for name in content["operations"] if ">" in name]
    file = str(pathlib.Path(served, "assets.extra", warmup.FILE))
    sizes = [
        (name, len(request["context"][0].split()))
        for name, request in warmup.read_requests(file)
        if name == "serving_default"
    ]
    # With a question of one token and three special ones: 16 and 24.
    assert sizes == [("serving_default", size) for size in (12, 12, 20, 20)]


@pytest.mark.broad
def test_the_command(run_python, tokenizer, tmp_path):
    model, folder = heads.make_model("beam_question_answering"), tmp_path / "m"
    load.save_pretrained(model, folder, tokenizer=tokenizer)
    served = tmp_path / "served"
    flags = [f"--model={folder}", f"--output_dir={served}", "--warmup_batch_sizes=1,2"]
    result = run_python("tools/export.py", *flags)
    assert result.returncode == 0, result.stderr
    assert_answers_as_python(served, model, tokenizer)
    result = run_python(
        "tools/export.py", *flags[:1], f"--output_dir={served}2", "--n_best_size=0"
    )
    assert result.returncode == 2
    assert "n_best_size must be at least 1, received 0" in result.stderr


def test_options_are_for_question_answering(tokenizer, tmp_path):
    model = heads.make_model("text_classifier")
    with pytest.raises(UsageError, match="AlbertTextClassifier does not answer quest"):
        export_saved_model(
            model, tmp_path / "m", tokenizer=tokenizer, answering={"n_best_size": 3}
        )
