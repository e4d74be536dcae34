"""Answers of both heads against a plain reading of the original's steps."""

import dataclasses
import json

import numpy as np
import pytest

from albert_tf.errors import DataError, UsageError
from albert_tf.inference.formats import prediction_files
from albert_tf.tasks import squad, squad_answers, squad_features
from albert_tf.tasks.squad_files import SquadSource, ask
from albert_tf.tasks.task import Options
from albert_tf.text.sentencepiece import AlbertTokenizer
from tests.tiny import GOLDEN, SPIECE

TOKENIZER = AlbertTokenizer(SPIECE)
LENGTHS = {"max_seq_length": 40, "max_query_length": 12, "max_answer_length": 5}
OPTIONS = Options(**LENGTHS, doc_stride=9, n_best_size=7)
DEV = SquadSource(unanswerable=True).read_file(str(GOLDEN / "squad" / "dev-v2.0.json"))
ENCODED = squad_features.encode_questions(DEV, TOKENIZER, OPTIONS)
WINDOWS = ENCODED.detail
NUM_ROWS = len(ENCODED.rows)


def logits(seed: int) -> dict:
    rng = np.random.default_rng(seed)
    # Few different values, so that there are ties.
    draw = rng.integers(-6, 7, (2, len(ENCODED.rows.ids))).astype(np.float32) / 2
    return {"start_logits": draw[0], "end_logits": draw[1]}


def beams(seed: int, starts: int = 3, ends: int = 4) -> dict:
    rng = np.random.default_rng(seed)
    lengths = ENCODED.rows.lengths
    # As from top_k: different starts, and different ends of each start.
    sizes = [starts] + [ends] * starts
    near = np.stack(
        [np.concatenate([rng.permutation(n)[:k] for k in sizes]) for n in lengths]
    )
    return {
        "start_index": near[:, :starts],
        "start_log_probs": -rng.random((NUM_ROWS, starts), np.float32),
        "end_index": near[:, starts:],
        "end_log_probs": -rng.random((NUM_ROWS, starts * ends), np.float32),
        "cls_logits": rng.standard_normal(NUM_ROWS).astype(np.float32),
    }


def of_logits(outputs, row):
    """All pairs of the best starts and ends of a window."""
    part = slice(ENCODED.rows.splits[row], ENCODED.rows.splits[row + 1])
    start, end = (outputs[n][part].tolist() for n in ("start_logits", "end_logits"))

    def best(values):
        order = sorted(range(len(values)), key=lambda i: values[i], reverse=True)
        return order[: OPTIONS.n_best_size]

    return [(s, e, start[s], end[e]) for s in best(start) for e in best(end)]


def of_beam(outputs, row):
    """All pairs of the beam head of a window."""
    names = ("start_index", "start_log_probs", "end_index", "end_log_probs")
    starts, first, ends, last = (outputs[name][row].tolist() for name in names)
    columns = zip(ends, last, strict=True)
    return [
        (starts[i // 4], end, first[i // 4], score)
        for i, (end, score) in enumerate(columns)
    ]


def plain_nbest(number: int, pairs) -> list[tuple[str, float, float]]:
    """Texts and scores of the n best answers, step by step."""
    rows = np.flatnonzero(WINDOWS.question == number).tolist()
    item = DEV.items[number]
    context = WINDOWS.contexts[item.context]
    found = []
    for row in rows:
        first, size = int(WINDOWS.first[row]), int(WINDOWS.size[row])
        offset = int(ENCODED.rows.first_lengths[row])
        for s, e, a, b in pairs(row):
            s, e = s - offset + first, e - offset + first
            if not (first <= s < first + size and first <= e < first + size):
                continue
            scores = []
            for other in rows:
                begin, count = int(WINDOWS.first[other]), int(WINDOWS.size[other])
                if begin <= s < begin + count:
                    around = min(s - begin, begin + count - 1 - s) + 0.01 * count
                    scores.append((-around, other))
            if min(scores)[1] != row or e < s or e - s + 1 > 5:
                continue
            text = DEV.contexts[item.context][context.starts[s] : context.ends[e]]
            found.append((text.strip(), a, b))
    found.sort(key=lambda one: one[1] + one[2], reverse=True)
    listed = {}
    for text, a, b in found:
        listed.setdefault(text, (text, a, b))
    return list(listed.values())[: OPTIONS.n_best_size]


def listed(answers, number):
    return [(c.text, c.start_score, c.end_score) for c in answers.nbest[number]]


@pytest.mark.parametrize("seed", range(3))
def test_logits_of_1_1(seed):
    questions = dataclasses.replace(DEV, unanswerable=False)
    outputs = logits(seed)
    answers = squad_answers.make_answers(questions, ENCODED, outputs, OPTIONS)
    full = 0
    for number, item in enumerate(DEV.items):
        expected = plain_nbest(number, lambda row: of_logits(outputs, row))
        assert listed(answers, number) == (expected or [("empty", 0.0, 0.0)])
        assert answers.texts[number] == answers.nbest[number][0].text
        chances = [c.probability for c in answers.nbest[number]]
        assert sum(chances) == pytest.approx(1) and chances == sorted(chances)[::-1]
        text = DEV.contexts[item.context]
        assert all(text[c.start : c.end] == c.text for c in answers.nbest[number])
        full += len(expected) > 2
    assert full > 10 and answers.null_scores is None


@pytest.mark.parametrize("seed", range(3))
def test_logits_of_2_0(seed):
    outputs = logits(seed)
    answers = squad_answers.make_answers(DEV, ENCODED, outputs, OPTIONS)
    threshold = sorted(answers.null_scores)[10]
    options = dataclasses.replace(OPTIONS, null_threshold=threshold)
    answers = squad_answers.make_answers(DEV, ENCODED, outputs, options)
    for number in range(len(DEV)):
        plain = plain_nbest(number, lambda row: of_logits(outputs, row))
        plain = [one for one in plain if one[0]]
        starts = ENCODED.rows.splits[:-1][WINDOWS.question == number]
        null = min(outputs["start_logits"][starts] + outputs["end_logits"][starts])
        text, a, b = plain[0]
        assert answers.null_scores[number] == pytest.approx(null - (a + b))
        assert (answers.best[number].text, answers.best[number].score) == (text, a + b)
        expected = text if answers.null_scores[number] <= threshold else ""
        assert answers.texts[number] == expected
        names = [c.text for c in answers.nbest[number]]
        assert names.count("") <= 1 and len(names) <= 7
        assert "" in names or len(plain) >= 7
    assert {bool(text) for text in answers.texts} == {True, False}


@pytest.mark.parametrize("seed", range(3))
def test_beams_of_2_0(seed):
    outputs = beams(seed)
    options = dataclasses.replace(OPTIONS, null_threshold=-0.4)
    answers = squad_answers.make_answers(DEV, ENCODED, outputs, options)
    for number in range(len(DEV)):
        expected = plain_nbest(number, lambda row: of_beam(outputs, row))
        assert listed(answers, number) == (expected or [("", -1e6, -1e6)])
        null = outputs["cls_logits"][WINDOWS.question == number].min()
        assert answers.null_scores[number] == pytest.approx(null)
        text = expected[0][0] if expected and null < -0.4 else ""
        assert answers.texts[number] == text
    assert any(answers.texts)


def answered(*texts, unanswerable=False, start=None, end=None):
    """Answers about texts, from zeros and other logits of tokens of the first text."""
    asked = ask(["?"] * len(texts), texts, unanswerable)
    encoded = squad_features.encode_questions(asked, TOKENIZER, OPTIONS)
    shift = int(encoded.rows.first_lengths[0])
    outputs = {n: np.zeros(len(encoded.rows.ids)) for n in logits(0)}
    for values, given in zip(outputs.values(), (start, end), strict=True):
        for token, value in (given or {}).items():
            values[shift + token] = value
    return squad_answers.make_answers(asked, encoded, outputs, OPTIONS)


def test_an_accent_at_the_end_is_kept():
    text = "They went to the cafe\u0301 and on."
    assert answered(text, start={4: 9}, end={4: 9}).texts == ["cafe\u0301"]


def test_a_text_without_tokens():
    answers = answered("", " \n", unanswerable=True)
    assert answers.texts == ["", ""] and min(answers.null_scores) > 1e5
    assert json.loads(files_of(answers)["_null_odds.json"])["0"] > 1e5


def files_of(answers):
    return prediction_files(squad.TASKS[1], None, answers)


def test_files():
    answers = squad_answers.make_answers(DEV, ENCODED, beams(0), OPTIONS)
    files = files_of(answers)
    assert all(text.isascii() and text.endswith("}\n") for text in files.values())
    files = {name: json.loads(text) for name, text in files.items()}
    assert sorted(files) == [".json", "_nbest.json", "_null_odds.json"]
    assert files[".json"] == dict(zip(DEV.ids, answers.texts, strict=True))
    assert list(files["_nbest.json"]) == DEV.ids
    names = ["text", "probability", "start_log_prob", "end_log_prob"]
    assert list(files["_nbest.json"][DEV.ids[0]][0]) == names
    odds = dict(zip(DEV.ids, answers.null_scores, strict=True))
    assert files["_null_odds.json"] == odds
    # A lone surrogate can be written, too.
    answers = answered("a \ud800 b", end={1: 1})
    assert answers.texts == ["a \ud800 b"]
    files = files_of(answers)
    assert sorted(files) == [".json", "_nbest.json"] and files[".json"].encode()
    assert "start_logit" in files["_nbest.json"]


def test_what_cannot_be_answered():
    bad = logits(0)
    bad["end_logits"] = np.where(np.arange(len(ENCODED.rows.ids)) == 3, np.nan, 0)
    with pytest.raises(DataError, match="end_logits are not finite"):
        squad_answers.make_answers(DEV, ENCODED, bad, OPTIONS)
    broken = dataclasses.replace(DEV.items[0], answers=())
    training = dataclasses.replace(DEV, items=[broken, *DEV.items[4:5]], training=True)
    skip = dataclasses.replace(OPTIONS, on_bad_input="skip")
    encoded = squad_features.encode_questions(training, TOKENIZER, skip)
    outputs = {n: np.zeros(len(encoded.rows.ids)) for n in logits(0)}
    with pytest.raises(UsageError, match="was left out"):
        squad_answers.make_answers(training, encoded, outputs, skip)


def test_the_same_text_is_listed_once_with_its_best_score():
    values = {0: 3.0, 2: 5.0, 4: 4.0}
    answers = answered("yes and yes or yes", start=values, end=values)
    (first, *others) = answers.nbest[0]
    assert (first.text, first.score, first.start, first.end) == ("yes", 10.0, 8, 11)
    assert "yes" not in [candidate.text for candidate in others]
