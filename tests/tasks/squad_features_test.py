"""Windows, targets and masks against the original's, and what cannot be cut."""

import dataclasses
import json

import numpy as np
import pytest

from albert_tf import features
from albert_tf.errors import DataError, UsageError
from albert_tf.tasks import batches, squad_features, squad_files
from albert_tf.tasks.squad_files import Question, Questions, SquadSource
from albert_tf.tasks.task import Options
from albert_tf.text.sentencepiece import AlbertTokenizer
from tests.tiny import GOLDEN, SPIECE

SQUAD = GOLDEN / "squad"
TOKENIZER = AlbertTokenizer(SPIECE)
ORIGINAL = json.loads((SQUAD / "features_train_v1.1.json").read_text())
OPTIONS = Options(max_seq_length=64, doc_stride=16, max_query_length=16)
TRAIN = SquadSource(unanswerable=False, training=True).read_file(
    str(SQUAD / "train-v1.1.json")
)


TARGETS = (features.START_POSITIONS, features.END_POSITIONS, features.IS_IMPOSSIBLE)


def one(text: str, answer: str, start: int = -1) -> Questions:
    """A question to train on, with its answer."""
    start = text.index(answer) if start < 0 else start
    item = Question("q", "what?", 0, ((answer, start),), where="data[0]")
    return Questions("x.json", [text], [item], training=True)


def test_windows_are_the_original_s():
    encoded = squad_features.encode_questions(TRAIN, TOKENIZER, OPTIONS)
    expected = ORIGINAL["features"]
    assert len(encoded) == len(encoded.rows) == len(expected) == 56
    windows, rows = encoded.detail, encoded.rows
    mask = batches.p_mask(rows, np.arange(56), 64)
    assert mask.dtype == np.int32
    for r, feature in enumerate(expected):
        length = feature["paragraph_len"]
        ids = rows.ids[rows.splits[r] : rows.splits[r + 1]]
        assert ids.tolist() == feature["input_ids"][:length]
        assert rows.first_lengths[r] == feature["segment_ids"].index(1)
        assert mask[r].tolist() == feature["p_mask"]
        names = ("start_position", "end_position", "is_impossible")
        assert [encoded.targets[k][r] for k in TARGETS] == [feature[n] for n in names]
        item = TRAIN.items[windows.question[r]]
        context = windows.contexts[item.context]
        part = slice(windows.first[r], windows.first[r] + windows.size[r])
        assert context.starts[part].tolist() == feature["tok_start_to_orig_index"]
        assert (context.ends[part] - 1).tolist() == feature["tok_end_to_orig_index"]
    assert {x.dtype for x in encoded.targets.values()} == {np.dtype(np.int32)}
    assert not encoded.truncated.any()


def test_max_context_is_the_original_s():
    encoded = squad_features.encode_questions(TRAIN, TOKENIZER, OPTIONS)
    windows = encoded.detail
    compared = 0
    for number in range(len(TRAIN)):
        rows = np.flatnonzero(windows.question == number)
        owner = squad_features.max_context(windows.first[rows], windows.size[rows])
        for window, r in enumerate(rows):
            shift = encoded.rows.first_lengths[r] - windows.first[r]
            expected = ORIGINAL["features"][r]["token_is_max_context"]
            for place, value in expected.items():
                assert bool(owner[int(place) - shift] == window) is value
                compared += 1
    assert compared > 2000


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"doc_stride": 0}, "doc_stride must be from 1 to 45 .* received 0"),
        ({"max_seq_length": 19}, "max_seq_length must be .* = 20.*received 19"),
        ({"max_query_length": 0}, "max_query_length must be at least 1, received 0"),
        ({"max_answer_length": -1}, "max_answer_length must be at least 1"),
    ],
)
def test_sizes_are_checked(changes, message):
    options = dataclasses.replace(OPTIONS, **changes)
    with pytest.raises(UsageError, match=message):
        squad_features.encode_questions(TRAIN, TOKENIZER, options)


def test_long_questions_are_cut_and_counted():
    options = dataclasses.replace(OPTIONS, max_query_length=3)
    encoded = squad_features.encode_questions(TRAIN, TOKENIZER, options)
    assert encoded.truncated.all()
    assert set(encoded.rows.first_lengths.tolist()) == {5}


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("the cafe\u0301 is shut", "cafe\u0301"),
        ("in 1990, it was", "1990"),
        ("x ½ y", "½"),
        ("  spaced   out ", "spaced   out"),
        ("an 1,204.5 boats", "1,204.5"),
    ],
)
def test_targets_cover_the_answer(text, answer):
    encoded = squad_features.encode_questions(one(text, answer), TOKENIZER, OPTIONS)
    first, last, impossible = (encoded.targets[k][0] for k in TARGETS)
    assert not impossible
    shift = encoded.rows.first_lengths[0]
    context = encoded.detail.contexts[0]
    found = text[context.starts[first - shift] : context.ends[last - shift]]
    assert found.strip() == answer


LONG = "one two three four five six seven eight nine ten " * 20


def test_answers_without_a_window_stop_or_are_left_out(caplog):
    questions = one(LONG, LONG[:300])
    message = r"x.json: data\[0\] \(id 'q'\): no window .* 62 tokens.* \(--on"
    with pytest.raises(DataError, match=message):
        squad_features.encode_questions(questions, TOKENIZER, OPTIONS)
    skip = dataclasses.replace(OPTIONS, on_bad_input="skip")
    with pytest.raises(DataError, match=r"with a window, received none; the first"):
        squad_features.encode_questions(questions, TOKENIZER, skip)
    good = Question("good", "what?", 0, (("b", 2),))
    long = dataclasses.replace(questions.items[0], answers=((LONG[:300], 4),))
    changes = {"contexts": ["a b " + LONG], "items": [long, good]}
    questions = dataclasses.replace(questions, **changes)
    encoded = squad_features.encode_questions(questions, TOKENIZER, skip)
    assert set(encoded.detail.question.tolist()) == {1}
    assert "x.json: questions without a window 1" in caplog.text


def test_questions_to_answer_are_never_left_out(caplog):
    text = "one two three"
    items = [
        Question("0", "what?", 0, (("two", 0),)),
        Question("1", "", 0, (("two", -4),)),
        Question("2", "what?", 1, (("", 0),)),
        Question("3", "what?", 0, (("three", 8), ("one", 0))),
    ]
    questions = Questions("x.json", [text, ""], items)
    encoded = squad_features.encode_questions(questions, TOKENIZER, OPTIONS)
    assert encoded.detail.question.tolist() == [0, 1, 2, 3]
    assert encoded.detail.size.tolist() == [3, 3, 0, 3]
    assert encoded.targets[features.IS_IMPOSSIBLE].tolist() == [1, 1, 1, 0]
    assert encoded.targets[features.START_POSITIONS][3] == (
        encoded.rows.first_lengths[3] + 2
    )
    assert "3 answers are not at their answer_start" in caplog.text
    asked = squad_files.ask(["what?", "who?"], [text, text], unanswerable=True)
    encoded = squad_features.encode_questions(asked, TOKENIZER, OPTIONS)
    assert not encoded.targets and len(encoded.detail.contexts) == 1


def test_a_target_is_the_whole_answer_or_nothing():
    words = ["one", "two", "three", "four", "five", "six", "seven"] * 11
    options = dataclasses.replace(OPTIONS, max_seq_length=24, doc_stride=3)
    for number in range(0, 70, 7):
        start = len(" ".join([*words[:number], ""]))
        questions = one(" ".join(words), " ".join(words[number : number + 4]), start)
        encoded = squad_features.encode_questions(questions, TOKENIZER, options)
        windows, held = encoded.detail, 0
        for r, first in enumerate(windows.first):
            inside = first <= number and number + 3 < first + windows.size[r]
            at = number + encoded.rows.first_lengths[r] - first
            expected = [at, at + 3, 0] if inside else [0, 0, 1]
            assert [encoded.targets[k][r] for k in TARGETS] == expected
            held += inside
        assert held > (number > 10)
