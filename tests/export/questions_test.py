"""Question answering in the graph answers as `QuestionAnswerer`."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from albert_tf import features
from albert_tf.errors import UsageError
from albert_tf.export import questions
from albert_tf.export.question_rows import MAX_WINDOWS, cut_windows, read_outputs
from albert_tf.export.text_inputs import TextInputs, specs_of
from albert_tf.heads import HEADS
from albert_tf.inference.predictor import as_unicode
from albert_tf.inference.question_answerer import QuestionAnswerer, _ranked
from albert_tf.tasks.squad_answers import make_answers
from albert_tf.tasks.squad_files import ask
from tests import tiny
from tests.text.kinds import ODD, as_tensor

CONFIG = tiny.CONFIG.replace(max_position_embeddings=40, num_hidden_layers=1)
LOGITS, BEAM = "question_answering", "beam_question_answering"
SIZES = {"doc_stride": 4, "max_query_length": 6, "n_best_size": 7}
CASES = {
    "1.1": (LOGITS, {"unanswerable": False}),
    "2.0": (LOGITS, {"null_threshold": 0.5}),
    "2.0, eager": (LOGITS, {"null_threshold": 1e9}),
    "2.0, one answer": (LOGITS, {"null_threshold": -1.0, "n_best_size": 1}),
    "beam": (BEAM, {"unanswerable": True}),
    "beam, eager": (BEAM, {"null_threshold": 1e9}),
    "beam, two separators": (BEAM, {"unanswerable": True}),
    "beam, 1.1": (BEAM, {"unanswerable": False, "max_answer_length": 3}),
}
RIVER = "The river Main (524\u00a0km) meets  the Rhine at Mainz; E\u0301 ½ Straße. "
PAIRS = [
    ("Which river?", RIVER * 4),
    ("Where?", "\u2003" + RIVER.upper() + "\n"),
    ("", "In 1990, 1,204 of x1990, caf\u00e9 cafe\u0301, \U0001d6ba ΑΣ"),
    ("What is a question that is far too long for a row?", "a a a A a b A. " * 9),
    ("no context", ""),
    ("", " \t\n "),
    ("nul", "a\0b \ufeff\u200b c"),
]


class Pair:
    """`QuestionAnswerer`, and the function of the signature as one graph."""

    def __init__(self, case: str, tokenizer):
        head, options = CASES[case]
        options = {**SIZES, **options}
        offset = tokenizer.pad_id + 1  # RoBERTa's
        one = {"family": "roberta", "type_vocab_size": 1, "position_offset": offset}
        config = CONFIG.replace(**(one if tokenizer.pair_separators == 2 else {}))
        self.model = HEADS[head].load_class()(config, seed=3)
        self.is_beam = head == BEAM
        self.answer = QuestionAnswerer(
            self.model, tokenizer, max_seq_length=24, **options
        )
        self.answering = questions.answering_of(self.model, 24, options)
        text_inputs = TextInputs(tokenizer, 24)
        self.inputs = functools.partial(
            cut_windows, text_inputs, tokenizer.graph_offsets, self.answering
        )
        function = questions.make_question_signatures(
            self.model, text_inputs, self.answering
        )["serving_default"]
        self.graph = tf.function(function, specs_of(function, self.model))

    def from_outputs(self, asked, contexts, outputs):
        windows = self.inputs(asked, contexts)
        mask = windows.inputs[features.PADDING_MASK]
        found = read_outputs(outputs, mask, self.answering.n_best_size)
        return questions.answers_of(found, windows, self.answering, self.is_beam)


@pytest.fixture(
    scope="module",
    params=[
        case
        if case in ("2.0", "beam, two separators")
        else pytest.param(case, marks=pytest.mark.broad)
        for case in CASES
    ],
)
def pair(request, make_pair):
    return make_pair(request.param)


@pytest.fixture(scope="module")
def make_pair(tokenizer, byte_bpe):
    tokenizers = {"beam, two separators": byte_bpe.for_segments(1)}
    return functools.cache(lambda case: Pair(case, tokenizers.get(case, tokenizer)))


def rows_of(outputs) -> list[list[dict]]:
    """The n-best lists of the graph, in the form of `QuestionAnswerer`."""
    values = {name: value.numpy() for name, value in outputs.items()}
    names = ("answer", "score", "start", "end")
    lists = []
    for columns in zip(*(values[f"n_best_{name}s"] for name in names), strict=True):
        entries = zip(*(column.tolist() for column in columns), strict=True)
        row = [dict(zip(names, entry, strict=True)) for entry in entries]
        row = [{**entry, "answer": entry["answer"].decode()} for entry in row]
        kept = [entry for entry in row if entry["start"] >= 0]
        filled = {"answer": "", "score": 0.0, "start": -1, "end": -1}
        assert row == kept + [filled] * (len(row) - len(kept))
        lists.append(kept)
    for name in names:
        np.testing.assert_array_equal(values[name], values[f"n_best_{name}s"][:, 0])
    return lists


def expected_rows(pair, pairs) -> list[list[dict]]:
    most = pair.answering.n_best_size
    rows = pair.answer(*map(list, zip(*pairs, strict=True)), top_k=most)
    return rows if most > 1 else [[row] for row in rows]


def assert_same(pair, pairs) -> None:
    asked, contexts = zip(*pairs, strict=True)
    outputs = pair.graph(as_tensor(asked), as_tensor(contexts))
    found = rows_of(outputs)
    for (question, context), want, got in zip(
        pairs, expected_rows(pair, pairs), found, strict=True
    ):
        message = ascii((question, context))
        scores = [entry["score"] for entry in want]
        np.testing.assert_allclose(
            [entry["score"] for entry in got], scores, atol=1e-6, err_msg=message
        )
        for i, entry in enumerate(got):
            # The order of equals is that of rounding errors.
            equals = [
                w for w, s in zip(want, scores, strict=True) if near(s, scores[i])
            ]
            places = [{**w, "score": entry["score"]} for w in equals]
            assert entry in places, message
    if pair.answering.unanswerable:
        texts = ([as_unicode("", text)[0] for text in x] for x in (asked, contexts))
        answers = pair.answer.answers(ask(*texts, True))
        np.testing.assert_allclose(
            outputs["null_score"], answers.null_scores, rtol=1e-5, atol=1e-5
        )
    assert ("null_score" in outputs) == pair.answering.unanswerable


def near(a: float, b: float) -> bool:
    return abs(a - b) < 2e-6


def test_fixed_texts(pair):
    assert_same(pair, PAIRS)
    assert_same(pair, [(b"caf\xc3 \xff", b"x\xed\xa0\x80y \xf0\x9f caf\xc3")])
    assert pair.graph(as_tensor([]), as_tensor([]))["n_best_ends"].shape[0] == 0


def test_from_the_same_outputs_every_answer_is_the_same(pair):
    """Outputs with few distinct values: the rules for ties decide."""
    questions, contexts = map(list, zip(*PAIRS, strict=True))
    windows = pair.inputs(as_tensor(questions), as_tensor(contexts))
    predictor = pair.answer
    examples = ask(questions, contexts, pair.answering.unanswerable)
    encoded = predictor.encoded(examples)
    lengths = encoded.rows.lengths
    mask = windows.inputs[features.PADDING_MASK].numpy()
    np.testing.assert_array_equal(mask.sum(1), lengths)
    ids = windows.inputs[features.TOKEN_IDS].numpy()
    np.testing.assert_array_equal(ids[mask == 1], encoded.rows.ids)
    segments = windows.inputs[features.SEGMENT_IDS].numpy()
    if encoded.rows.has_segments:
        first = (mask == 1).sum(1) - segments.sum(1)
        np.testing.assert_array_equal(first, encoded.rows.first_lengths)
    else:
        assert not segments.any()
    outputs = pair.model(windows.inputs, training=False)
    outputs = {
        name: value if value.dtype == tf.int32 else tf.round(value)
        for name, value in outputs.items()
    }
    flat = {name: value.numpy() for name, value in outputs.items()}
    if not pair.is_beam:
        flat = {name: value[mask == 1] for name, value in flat.items()}
    answers = make_answers(examples, encoded, flat, predictor.options)
    most = predictor.options.n_best_size
    got = rows_of(pair.from_outputs(as_tensor(questions), as_tensor(contexts), outputs))
    for i, row in enumerate(got):
        want = _ranked(answers, i)[:most]
        scores = [entry.pop("score") for entry in want]
        found = [entry.pop("score") for entry in row]
        assert row == want
        np.testing.assert_allclose(found, scores, rtol=1e-6, atol=1e-30)


TEXTS = st.text(max_size=60) | st.text(
    st.sampled_from(sorted({*ODD, *"abAB19., "} - {"\ud800"})), max_size=60
)


@given(pairs=st.lists(st.tuples(TEXTS, TEXTS), min_size=6, max_size=6))
@settings(max_examples=3)
def test_random_texts(pair, pairs):
    assert_same(pair, pairs)


@pytest.mark.broad
@given(pairs=st.lists(st.tuples(TEXTS, TEXTS), min_size=6, max_size=6))
@settings(max_examples=100)
def test_many_random_texts(pair, pairs):
    assert_same(pair, pairs)


def test_huge_texts_cost_little(make_pair):
    pair = make_pair("2.0")
    words, blanks = b"the cat " * 131_072, b" \xff" * 500_000
    asked = tf.constant([words, blanks, b"x"]), tf.constant([words, blanks, b"x y"])
    windows = pair.inputs(*asked)
    assert np.bincount(windows.question).tolist() == [MAX_WINDOWS, 1, 1]
    got = rows_of(pair.graph(*asked))
    assert got[2] == rows_of(pair.graph(as_tensor(["x"]), as_tensor(["x y"])))[0]
    # What is read is answered as if it were all.
    budget = 24 - 3 - 6
    tokens = budget + (MAX_WINDOWS - 1) * pair.answering.doc_stride
    read = "the cat " * (tokens // 2) + "the" * (tokens % 2)
    want = expected_rows(pair, [(words[:600], read), (blanks[:600], "")])
    for found, row in zip(got, want, strict=False):
        assert [e["answer"] for e in found] == [e["answer"] for e in row]


def test_a_null_score_at_the_threshold_is_answered():
    start, end, count = (tf.constant(x, tf.int64) for x in ([[0]], [[3]], [1]))
    found = questions.Found(tf.constant([[0.5]], tf.float64), start, end, count)
    null = tf.constant([0.25], tf.float64)
    for threshold, place in ((0.25, 1), (0.2, 0)):
        assert questions.rank_beams(found, null, threshold).place == place
    for threshold, place in ((-0.25, 1), (-0.3, 0)):
        assert questions.rank_logits(found, null, threshold).place == place


def test_refuses(tokenizer):
    model = HEADS[LOGITS].load_class()(CONFIG, seed=3)
    for name in ("stride", 3, "max_seq_length"):
        message = f"answering: expected options among doc_stride, .*, received {name}"
        with pytest.raises(UsageError, match=message):
            questions.answering_of(model, 24, {name: 16})
    for value in ("1", True, float("nan")):
        with pytest.raises(UsageError, match="null_threshold must be a number, receiv"):
            questions.answering_of(model, None, {"null_threshold": value})
    with pytest.raises(UsageError, match="unanswerable must be True or False, receiv"):
        questions.answering_of(model, None, {"unanswerable": 1})
    with pytest.raises(UsageError, match="doc_stride must be from 1 to"):
        questions.answering_of(model, None, {"doc_stride": 300})
