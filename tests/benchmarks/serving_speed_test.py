"""What the benchmark of serving sends, and how it sums up."""

import numpy as np
import pytest

from albert_tf.errors import DataError
from benchmarks import serving_speed
from benchmarks.serving_peers import Server


def test_texts_are_sentences_and_documents_in_turn(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("".join(f"one {i}.\ntwo {i}.\n\n" for i in range(10)))
    texts = serving_speed.mixed_texts(str(path), 4)
    assert texts == ["one 0.", "one 3. two 3.", "one 6.", "one 9. two 9."]
    with pytest.raises(DataError, match="10 documents, received num_texts=11"):
        serving_speed.mixed_texts(str(path), 11)


def test_percentiles():
    row = serving_speed.latency_row("a", [i / 1000 for i in range(101)], 1.23e-5)
    assert row.text() == "50 ms; 90%: 90, 99%: 99"
    assert row.details == {
        "p90": 90,
        "p99": 99,
        "largest difference of a logit": 1.2e-5,
    }


def test_every_text_is_counted_once():
    sent = []
    server = Server(None, lambda texts: sent.append(texts) or np.zeros((1, 1)))
    texts = ["a", "b", "c"]
    names = ("albert_tf, float32", "transformers, float32")
    rows = serving_speed._time_texts(dict.fromkeys(names, server), texts, 2)
    first, last = ["a", "b"], ["c"]
    # Both are warmed up, then take turns, twice through the texts.
    assert sent == [first] * 4 + [first, first, last, last] * 2
    assert [row.unit for row in rows] == ["texts/s", "texts/s", ""]
    assert rows[2].value == pytest.approx(rows[0].value / rows[1].value)
