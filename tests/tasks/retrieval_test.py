"""Retrieval on a BEIR folder: files, ranks, and the numbers of trec_eval."""

import json

import numpy as np
import pytest

from albert_tf.errors import DataError
from albert_tf.tasks.registry import find_task

DOCUMENTS = [("d1", "The", "cat"), ("d2", "", "dog"), ("q2", "A", "mat")]
QUERIES = [("q1", "cat"), ("q2", "mat"), ("q3", "not judged")]
JUDGED = "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t1\nq2\td2\t1\nq2\td1\t0\n"


@pytest.fixture
def folder(tmp_path):
    def lines(rows, names):
        objects = (dict(zip(names, row, strict=True)) for row in rows)
        return "".join(json.dumps(one) + "\n" for one in objects)

    (tmp_path / "qrels").mkdir()
    corpus = lines(DOCUMENTS, ("_id", "title", "text"))
    (tmp_path / "corpus.jsonl").write_text(corpus)
    (tmp_path / "queries.jsonl").write_text(lines(QUERIES, ("_id", "text")))
    (tmp_path / "qrels/test.tsv").write_text(JUDGED)
    return tmp_path


def test_ranks_and_numbers(folder, tokenizer):
    task = find_task("beir").with_options(max_seq_length=8)
    examples = task.splits["test"].read(str(folder))
    assert examples.texts == ["cat", "mat"]
    assert examples.documents == ["The cat", "dog", "A mat"]
    encoded = task.encode(examples, tokenizer)
    assert len(encoded) == 5
    angles = np.radians([0, 90, 40, 20, 90])  # q1 q2 | d1 d2 q2
    outputs = {"logits": np.stack([np.cos(angles), np.sin(angles)], -1)}
    answers = task.answers(examples, encoded, outputs)
    # q2 does not find itself.
    assert [list(x) for x in answers] == [["d2", "d1", "q2"], ["d1", "d2"]]
    values = task.compare(examples, answers)
    log3 = np.log2(3)
    first = (1 + 2 / log3) / (2 + 1 / log3)
    assert values["ndcg_at_10"] == pytest.approx((first + 1 / log3) / 2)
    assert values["mrr_at_10"] == pytest.approx((1 + 1 / 2) / 2)
    assert values["recall_at_100"] == 1.0
    assert values["map"] == pytest.approx((1 + 1 / 2) / 2)
    worst = task.report(examples, answers, encoded)["errors"][0]
    assert worst["label"] == "dog" and worst["prediction"] == "The cat"


@pytest.mark.parametrize(
    ("file", "line", "message"),
    [
        ("qrels/test.tsv", "q9\td1\t1", "line 6: query-id must be an _id .*'q9'"),
        ("qrels/test.tsv", "q1\td9\t1", "line 6: corpus-id must be an _id .*'d9'"),
        ("qrels/test.tsv", "q1\td1\tyes", "line 6: score must be a whole number"),
        (
            "corpus.jsonl",
            '{"_id": "d1", "title": "", "text": "x"}',
            "corpus.jsonl: line 4: the id 'd1' is already used",
        ),
        ("queries.jsonl", '{"_id": "q4", "text": null}', "_id and text must be texts"),
    ],
)
def test_refuses(folder, file, line, message):
    with (folder / file).open("a") as f:
        f.write(line + "\n")
    with pytest.raises(DataError, match=message):
        find_task("beir").splits["test"].read(str(folder))
