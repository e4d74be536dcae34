"""Windows and offsets of question answering beside those of transformers' tokenizer."""

import dataclasses

import numpy as np
import pytest

import albert_tf
from albert_tf.tasks.squad_features import encode_questions
from albert_tf.tasks.squad_files import ask
from albert_tf.tasks.task import Options
from tests import tiny

transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.peers

OURS = albert_tf.AlbertTokenizer(tiny.SPIECE)
TEXT = tiny.TEXT.read_text()[:1500].replace("\n", " ").strip()
QUESTION = "what did she say about the house?"
OPTIONS = Options(max_seq_length=48, doc_stride=11, max_query_length=20)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "m"
    model = tiny.make_model("masked_lm", max_position_embeddings=48)
    albert_tf.save_pretrained(model, path, format="huggingface", tokenizer=OURS)
    return transformers.AutoTokenizer.from_pretrained(path)


def windows(theirs, stride: int) -> list[list[int]]:
    return theirs(
        QUESTION,
        TEXT,
        truncation="only_second",
        max_length=OPTIONS.max_seq_length,
        stride=stride,
        return_overflowing_tokens=True,
    )["input_ids"]


def our_windows(stride: int) -> list[list[int]]:
    options = dataclasses.replace(OPTIONS, doc_stride=stride)
    asked = ask([QUESTION], [TEXT], unanswerable=False)
    rows = encode_questions(asked, OURS, options).rows
    return [part.tolist() for part in np.split(rows.ids, rows.splits[1:-1])]


def test_their_stride_is_the_overlap(theirs):
    budget = OPTIONS.max_seq_length - len(OURS.encode(QUESTION)) - 3
    ours = our_windows(OPTIONS.doc_stride)
    assert len(ours) > 5
    assert ours == windows(theirs, budget - OPTIONS.doc_stride)
    # The difference: the same number means something else.
    assert ours != windows(theirs, OPTIONS.doc_stride)


def test_offsets(theirs):
    encoded = theirs(TEXT, add_special_tokens=False, return_offsets_mapping=True)
    ids, starts, ends = OURS.encode_with_offsets(TEXT)
    assert ids.tolist() == encoded["input_ids"]
    for (a, b), start, end in zip(
        encoded["offset_mapping"], starts.tolist(), ends.tolist(), strict=True
    ):
        assert TEXT[a:b].strip() == TEXT[start:end].strip()
