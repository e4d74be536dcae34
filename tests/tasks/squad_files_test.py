"""SQuAD's files and rows: what is read, and what is refused."""

import json
import unittest.mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert_tf.errors import DataError
from albert_tf.storage import files
from albert_tf.tables.tfds_source import TfdsRows
from albert_tf.tasks.squad_files import (
    Question,
    Questions,
    SquadSource,
    held_back_articles,
)
from tests.tiny import GOLDEN

SQUAD = GOLDEN / "squad"
TEXT = "The caf\u00e9 is open."


def read_questions(path, **kind):
    return SquadSource(**kind).read_file(str(path))


def question(**changes) -> dict:
    found = {
        "id": "q0",
        "question": "What is open?",
        "answers": [{"text": "caf\u00e9", "answer_start": 4}],
    } | changes
    return {name: value for name, value in found.items() if value is not ...}


def at(text: str, start) -> dict:
    """The field with one answer."""
    return {"answers": [{"text": text, "answer_start": start}]}


def file_of(tmp_path, *questions, content=None) -> str:
    """Writes a file with one text; returns its path."""
    if content is None:
        paragraphs = [{"context": TEXT, "qas": list(questions)}]
        content = {"data": [{"title": "shops", "paragraphs": paragraphs}]}
    if not isinstance(content, bytes):
        content = json.dumps(content).encode()
    (tmp_path / "x.json").write_bytes(content)
    return str(tmp_path / "x.json")


def test_official_files():
    train = read_questions(SQUAD / "train-v1.1.json", unanswerable=False, training=True)
    assert len(train) == 15 and train.labels[0] == ["1,204"]
    assert train.items[4].where == "data[1].paragraphs[0].qas[0]"
    assert train.items[4].article == "observatory"
    dev = read_questions(SQUAD / "dev-v2.0.json", unanswerable=True)
    assert len(dev) == 20 and dev.labels[4] == [] and dev.items[4].is_impossible
    assert len(dev.labels[0]) == 2 and len(dev.contexts) == 4
    part = dev.select([19, 4, 0])
    assert part.ids[1:] == ["harbour-i4", "harbour-0"]
    assert part.labels[0] == dev.labels[19]
    assert [item.context for item in part.items] == [1, 0, 0]
    assert part.contexts == [dev.contexts[0], dev.contexts[3]]
    assert train.select([0]).contexts is train.contexts


def test_windows_files_and_files_without_labels(tmp_path):
    text = json.dumps({"data": [{"paragraphs": [{"context": TEXT, "qas": []}] * 2}]})
    text = text.replace("[]", json.dumps([question(answers=...)]), 1)
    content = b"\xef\xbb\xbf" + text.replace(", ", ",\r\n").encode()
    path = file_of(tmp_path, content=content)
    found = read_questions(path, unanswerable=False)
    assert found.labels is None and found.ids == ["q0"]
    path = file_of(tmp_path, question(answers=[], is_impossible=False))
    assert read_questions(path, unanswerable=True).labels is None


# Wrong for training and for answering.
BROKEN = [
    (question(id=...), ": id: expected text, received nothing"),
    (question(question=...), r" \(id 'q0'\): question: expected text, received noth"),
    (question(question=["x"]), r": question: expected text, received \['x'\]"),
    (question(answers={}), r": answers: expected a list, received {}"),
    (question(answers=["x"]), r"answers\[0\]: expected an object, received 'x'"),
    (question(answers=[{"text": "x"}]), r"0\].answer_start: expected a whole number"),
    (question(**at("x", True)), "answer_start: expected a whole number, received True"),
    (question(**at("x", float("nan"))), r"expected a whole number, received nan"),
    (question(is_impossible="no"), "is_impossible: expected true or false, received"),
    ("x", ": expected an object, received 'x'"),
]
# Wrong for training only.
NO_EXAMPLES = [
    (at("caf\u00e9", 5), r"answer_start 5: expected the answer 'caf\u00e9' there, re"),
    (at("open.", -5), "answer_start -5: expected the answer"),
    (at("x", 10**30), "answer_start 10+: expected the answer"),
    (at(" ", 3), "expected an answer with text, received ' '"),
    ({"answers": question()["answers"] * 3}, "exactly one answer .*, received 3"),
    ({"answers": []}, "expected exactly one answer in training, received 0"),
    ({"answers": ...}, "answers: expected a list, received nothing"),
    ({"is_impossible": True}, r"is_impossible, but has the answer 'caf"),
]


@pytest.mark.parametrize(
    ("broken", "training", "message"),
    [(x, training, text) for x, text in BROKEN for training in (True, False)]
    + [(question(**changes), True, text) for changes, text in NO_EXAMPLES],
)
def test_broken_questions(tmp_path, broken, training, message, caplog):
    path = file_of(tmp_path, broken, question(id="good"))
    kind = {"unanswerable": True, "training": training}
    with pytest.raises(DataError, match=message) as error:
        read_questions(path, **kind)
    assert str(error.value).startswith(f"{path}: data[0].paragraphs[0].qas[0]")
    assert "\n" not in str(error.value)
    assert read_questions(path, **kind, on_bad_input="skip").ids == ["good"]
    skipped = f"{path}: questions that cannot be used 1; the first one: {path}: data"
    assert skipped in caplog.text
    path = file_of(tmp_path, broken)
    with pytest.raises(DataError, match=f"received none; the first one: .*{message}"):
        read_questions(path, **kind, on_bad_input="skip")


def test_the_same_id_twice(tmp_path):
    path = file_of(tmp_path, question(), question())
    message = r"qas\[1\] \(id 'q0'\): the id 'q0' is already used in data.*qas\[0\]"
    with pytest.raises(DataError, match=message):
        read_questions(path, unanswerable=False)
    found = read_questions(path, unanswerable=False, on_bad_input="skip")
    assert len(found) == 1


def test_answers_that_only_evaluation_can_use(tmp_path, caplog):
    several = question()["answers"] * 2 + at("shop", 99)["answers"]
    path = file_of(tmp_path, question(answers=several))
    found = read_questions(path, unanswerable=False)
    assert found.labels == [["caf\u00e9", "caf\u00e9", "shop"]]
    path = file_of(tmp_path, question(is_impossible=True))
    found = read_questions(path, unanswerable=True)
    assert not found.items[0].is_impossible
    assert "1 questions are impossible but have answers" in caplog.text
    path = file_of(tmp_path, question(), question(id="q1", answers=[]))
    found = read_questions(path, unanswerable=True)
    assert found.items[1].is_impossible
    with pytest.raises(DataError, match=r"\(id 'q1'\): .* use --task=squad2"):
        read_questions(path, unanswerable=False)
    path = file_of(tmp_path, question(is_impossible=True, answers=[]))
    with pytest.raises(DataError, match="is_impossible=true; use --task=squad2"):
        read_questions(path, unanswerable=False, training=True)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe{", "not UTF-8"),
        (b"[" * 100_000, "not JSON"),
        ([], "expected a JSON object, received list"),
        ({"version": "1.1"}, "expected a list named data, received nothing"),
        ({"data": {}}, "expected a list named data, received {}"),
        ({"data": []}, "expected questions, received none"),
    ],
)
def test_files_of_another_format(tmp_path, content, message, training):
    path = file_of(tmp_path, content=content)
    with pytest.raises(DataError, match=message):
        read_questions(path, unanswerable=False, training=training)


@pytest.mark.parametrize(
    ("article", "message"),
    [
        ("x", r"data\[0\]: expected an object"),
        ({"paragraphs": {}}, r"data\[0\]: paragraphs: expected a list"),
        ({"paragraphs": ["x"]}, r"data\[0\]\.paragraphs\[0\]: expected an object"),
        ({"paragraphs": [{"qas": []}]}, "context: expected text, received nothing"),
        ({"paragraphs": [{"context": TEXT}]}, "qas: expected a list"),
    ],
)
def test_broken_articles(tmp_path, article, message):
    good = {"paragraphs": [{"context": TEXT, "qas": [question()]}]}
    path = file_of(tmp_path, content={"data": [article, good]})
    with pytest.raises(DataError, match=message):
        read_questions(path, unanswerable=False)
    found = read_questions(path, unanswerable=False, on_bad_input="skip")
    assert found.ids == ["q0"] and found.items[0].article == "article 1"


ROW = {
    "id": "q0",
    "title": "shops",
    "context": TEXT,
    "question": "What is open?",
    "answers": {"text": ["caf\u00e9"], "answer_start": [4]},
    "is_impossible": False,
    "plausible_answers": {"text": []},
}


def from_rows(*rows, **kind):
    return SquadSource(**kind).from_rows(TfdsRows("squad", {}, rows))


def test_rows():
    none = {"text": [], "answer_start": []}
    impossible = ROW | {"id": "q1", "answers": none, "is_impossible": True}
    found = from_rows(ROW, impossible, unanswerable=True, training=True)
    assert found.labels == [["caf\u00e9"], []] and found.contexts == [TEXT]
    assert [item.article for item in found.items] == ["shops", "shops"]
    plain = {"id": "q0", "context": TEXT, "question": "?", "answers": ROW["answers"]}
    assert from_rows(plain, unanswerable=False).items[0].article == TEXT


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"context": b"\xff"}, r"squad: row 0 \(id 'q0'\): context: expected text"),
        ({"answers": {"text": ["x"], "answer_start": []}}, "answers: expected a list"),
        ({"question": None}, "row 0 .*: question: expected text, received nothing"),
    ],
)
def test_broken_rows(changes, message):
    with pytest.raises(DataError, match=message):
        from_rows(ROW | changes, unanswerable=True)


def many(counts: dict[str, int]) -> Questions:
    items = [
        Question(f"{article}{i}", "?", 0, (("x", 0),), article=article)
        for article, count in counts.items()
        for i in range(count)
    ]
    return Questions("x.json", ["x"], items, unanswerable=True, training=True)


def test_articles_are_held_back_whole():
    questions = many({"a": 10, "b": 3, "c": 20, "d": 5, "e": 2})
    draws = set()
    for seed in range(8):
        train, held = held_back_articles(questions, 0.2, seed)
        assert sorted(train.ids + held.ids) == sorted(questions.ids)
        kept = {item.article for item in train.items}
        back = {item.article for item in held.items}
        assert kept and back and not kept & back
        assert train.training and not held.training
        assert held_back_articles(questions, 0.2, seed)[1].ids == held.ids
        draws.add(tuple(sorted(back)))
    assert len(draws) > 1


OTHER = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
OTHER |= st.lists(OTHER, max_size=2) | st.dictionaries(st.text(max_size=3), OTHER)


def some(strategy):
    """A list of what it should hold or of anything else, or no list."""
    return st.lists(strategy | OTHER, max_size=3) | OTHER


ANSWER = st.fixed_dictionaries(
    {"text": st.just("open") | OTHER, "answer_start": st.just(12) | OTHER}
)
QUESTION = st.fixed_dictionaries(
    {"id": st.text() | OTHER, "question": st.text() | OTHER},
    optional={"answers": some(ANSWER), "is_impossible": st.booleans() | OTHER},
)
PARAGRAPH = st.fixed_dictionaries(
    {"context": st.just(TEXT) | OTHER, "qas": some(QUESTION)}
)


@given(
    paragraphs=some(PARAGRAPH),
    unanswerable=st.booleans(),
    training=st.booleans(),
    policy=st.sampled_from(["stop", "skip"]),
)
def test_whatever_a_file_holds(paragraphs, unanswerable, training, policy):
    content = json.dumps({"data": [{"paragraphs": paragraphs}]}).encode()
    with unittest.mock.patch.object(files, "read_bytes", return_value=content):
        try:
            found = read_questions(
                "x", unanswerable=unanswerable, training=training, on_bad_input=policy
            )
        except DataError as error:
            assert "\n" not in str(error) and len(str(error)) < 500
            return
    for item in found.items:
        if training and not item.is_impossible:
            ((text, start),) = item.answers
            assert found.contexts[item.context][start:].startswith(text)
