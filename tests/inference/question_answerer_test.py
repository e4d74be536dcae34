"""`QuestionAnswerer` on small random models."""

import math

import pytest

import albert_tf
from albert_tf.converters import load
from albert_tf.errors import UsageError
from albert_tf.export import questions
from albert_tf.heads import HEADS
from albert_tf.inference.question_answerer import QuestionAnswerer, _ranked
from albert_tf.tasks import saved
from albert_tf.tasks.registry import find_task
from albert_tf.tasks.squad_answers import Answers, Candidate
from tests.tiny import tiny_config

CONFIG = tiny_config(num_hidden_layers=1, max_position_embeddings=40)
CONTEXT = (
    "The river Main (524\u00a0km) meets  the Rhine at Mainz; E\u0301 ½ Straße. " * 3
)
HEADS_OF_SPANS = ("question_answering", "beam_question_answering")
NOTHING = {"answer": "", "start": 0, "end": 0}


def make_model(head):
    return HEADS[head].load_class()(CONFIG, seed=3)


def same(entry):
    """The same entry, whose score may have been computed in another batch."""
    return entry | {"score": pytest.approx(entry["score"], rel=1e-3)}


@pytest.fixture(scope="module", params=HEADS_OF_SPANS)
def answer(request, tokenizer):
    return QuestionAnswerer(make_model(request.param), tokenizer, unanswerable=True)


def test_answers_are_parts_of_the_context(answer):
    rows = answer(["Which river?", "Where?"], CONTEXT, top_k=4)
    assert len(rows) == 2
    for entry in (entry for row in rows for entry in row):
        assert entry["answer"] == CONTEXT[entry["start"] : entry["end"]]
        assert 0 < entry["score"] <= 1
    one = answer("Which river?", CONTEXT)
    assert one == same(rows[0][0])
    assert answer("Which river?", [CONTEXT]) == [same(one)]


def test_threshold_decides(tokenizer):
    for head in HEADS_OF_SPANS:
        model = make_model(head)
        strict = QuestionAnswerer(model, tokenizer, null_threshold=-1000)
        eager = QuestionAnswerer(model, tokenizer, null_threshold=math.inf)
        found = eager("Which?", CONTEXT, top_k=20)
        assert found[0]["answer"]
        refused = strict("Which?", CONTEXT, top_k=20)
        assert refused[0] | NOTHING == refused[0]
        assert refused[1] == same(found[0])


def test_record_of_the_task(tokenizer, tmp_path):
    model = make_model("question_answering")
    assert not QuestionAnswerer(model, tokenizer).unanswerable
    model.task = saved.describe(find_task("squad2"))
    sizes = {"max_seq_length": 24, "max_query_length": 6, "doc_stride": 4}
    model.task["options"] |= {**sizes, "null_threshold": -1000.0}
    load.save_pretrained(model, tmp_path / "m", tokenizer=tokenizer)
    answer = albert_tf.QuestionAnswerer.from_pretrained(tmp_path / "m")
    assert answer.unanswerable
    assert answer.options.doc_stride == 4
    assert answer("Which?", CONTEXT) | NOTHING == answer("Which?", CONTEXT)
    again = QuestionAnswerer.from_pretrained(tmp_path / "m", null_threshold=math.inf)
    assert again("Which?", CONTEXT)["answer"]


def test_room_beside_two_separators(tokenizer):
    config = CONFIG.replace(type_vocab_size=1, max_position_embeddings=64 + 128 + 3)
    model = albert_tf.AlbertQuestionAnswering(config, seed=3)
    answer = QuestionAnswerer(model, tokenizer.for_segments(1))
    assert answer("Which?", CONTEXT)
    exported = questions.answering_of(model, config.max_position_embeddings, {})
    assert exported.doc_stride == answer.options.doc_stride < 128


def test_probabilities_by_hand():
    """Logits: the list holds "no answer"; beams: it has a probability of its own."""
    texts = [Candidate("a", 1, 1, 0.6, 0, 1), Candidate("b", 1, 0, 0.1, 2, 3)]
    null = Candidate("", 0.5, 0.5, 0.3)
    logits = Answers(["0"], texts[:1], [[texts[0], null, texts[1]]], [-1.0], 0.0, False)
    assert [(r["answer"], r["score"]) for r in _ranked(logits, 0)] == [
        ("a", 0.6),
        ("", 0.3),
        ("b", 0.1),
    ]
    cut = Answers(["0"], texts[:1], [texts], [math.log(0.05)], -9.0, False)
    assert [r["answer"] for r in _ranked(cut, 0)] == ["", "a", "b"]
    assert _ranked(cut, 0)[0]["score"] == pytest.approx(0.6 * 0.05)
    beam = Answers(["0"], texts[:1], [texts], [math.log(3)], 2.0, True)
    assert [(r["answer"], r["score"]) for r in _ranked(beam, 0)] == [
        ("a", pytest.approx(0.15)),
        ("", pytest.approx(0.75)),
        ("b", pytest.approx(0.025)),
    ]
    made_up = Answers(["0"], [], [[Candidate("empty", 0, 0, 1.0)]], None, 0.0, False)
    assert _ranked(made_up, 0) == [{**NOTHING, "score": 0.0}]


@pytest.mark.parametrize("context", ["", " \n\t", "\ud800", b"\xff"])
def test_texts_without_words(answer, context):
    assert answer("Which?", context) == {**NOTHING, "score": 1.0}


def test_odd_texts(answer):
    assert answer([], []) == answer([], "x") == []
    assert answer("", b"b\xff c")["answer"] in ("", "b", "c", "b  c")
    long = answer("w " * 9999, "word and " * 2000)
    assert long["end"] <= 18000


def test_refuses(answer):
    with pytest.raises(UsageError, match="context: .* each of 2 questions, received 3"):
        answer(["x", "y"], ["a", "b", "c"])
    with pytest.raises(UsageError, match="top_k must be at most n_best_size=20"):
        answer("x", "y", top_k=21)
