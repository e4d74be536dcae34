"""Retrieval on a BEIR folder, reranking of tables, and the numbers of trec_eval."""

import dataclasses
import gzip
import json

import numpy as np
import pytest

from albert_tf.errors import DataError, UsageError
from albert_tf.tasks import opening
from albert_tf.tasks.registry import find_task
from albert_tf.tasks.task import MULTI_LABEL, REGRESSION, EncodedExamples
from albert_tf.tasks.text_classification import make_answers, table_task
from albert_tf.tasks.text_tables import LabelledTableSettings

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
    packed = gzip.compress((folder / "corpus.jsonl").read_bytes())
    (folder / "corpus.jsonl").unlink()
    (folder / "corpus.jsonl.gz").write_bytes(packed)
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
        ("qrels/test.tsv", "q1\td1\t--1", "line 6: score must be a whole number"),
        ("qrels/test.tsv", "q1\td1\t2000000000", "a whole number up to 1,000,000"),
        ("qrels/test.tsv", "q1\td1\t1", "line 6: an earlier line gives .* 2, .*'1'"),
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


SCORES = table_task(problem_type=REGRESSION)
COLUMNS = {"text_pair_column": "candidate", "group_column": "query"}
# Groups need not be together; q2 has no relevant candidate.
RATED = [
    *(("q1", "a", "2"), ("q2", "b", "0"), ("q1", "c", "0.0"), ("q1", "d", "1")),
    *(("q2", "e", "0"), ("q3", "f", "1")),
]


def read(tmp_path, rows=RATED, **columns):
    path, names = tmp_path / "t.tsv", ("query", "candidate", "label")
    lines = (f"text {row[0]}\t" + "\t".join(row) + "\n" for row in rows)
    path.write_text("text\t" + "\t".join(names) + "\n" + "".join(lines))
    return LabelledTableSettings(**COLUMNS | columns).read_table(path)


def test_means_over_queries_and_the_worst_ones(tmp_path):
    rows = SCORES.usable(read(tmp_path))
    # In q1, c is before d, which has the same score, and before a.
    answers = make_answers(SCORES, np.array([[1.0], [9], [2], [2], [8], [-3]]))
    values = SCORES.compare(rows, answers)
    log3 = np.log2(3)
    first = (1 / log3 + 2 / 2) / (2 + 1 / log3)
    assert values["ndcg_at_10"] == pytest.approx((first + 0 + 1) / 3)
    assert values["mrr_at_10"] == pytest.approx((1 / 2 + 0 + 1) / 3)
    assert values["map"] == pytest.approx(((1 / 2 + 2 / 3) / 2 + 0 + 1) / 3)
    assert (values["queries"], values["queries_without_relevant"]) == (3, 1)
    assert {"ndcg_at_10", "map"} < set(SCORES.metric_names(rows)) < set(values)
    cut = EncodedExamples(None, None, {}, np.arange(6) == 3)
    worst, other = SCORES.report(rows, answers, cut)["errors"]
    assert other["index"] == "q3"
    assert worst == {
        "index": "q1",
        "text": "text q1",
        "label": "d; a",
        "prediction": "c",
        "score": pytest.approx(first),
        "truncated": True,
    }
    # Rows of a group stay together in training.
    assert [unit for unit, _ in SCORES.strata(rows)] == rows.groups


@pytest.mark.parametrize("order", [("no", "yes"), ("yes", "no")])
def test_of_two_labels_the_positive_one_is_relevant(tmp_path, order):
    labels = ("yes", "no", "no", "no", "no", "yes")
    rows = [(*row[:2], x) for row, x in zip(RATED, labels, strict=True)]
    task = dataclasses.replace(table_task(("no", "yes")), labels=order)
    rows = task.usable(read(tmp_path, rows))
    # Probabilities of 1 in float32 are still ranked.
    logits = np.array([[0, 41], [0, 0], [0, 40], [0, 42], [0, 0], [0, 0]], "f4")
    answers = make_answers(task, logits[:, [("no", "yes").index(x) for x in order]])
    assert task.compare(rows, answers)["map"] == pytest.approx((1 / 2 + 0 + 1) / 3)


@pytest.mark.parametrize(
    ("task", "rows", "columns", "message"),
    [
        (SCORES, RATED, {"group_column": "qid"}, "t.tsv: no column 'qid'"),
        (SCORES, [*RATED, (" ", "g", "1")], {}, "line 8: query: .* empty"),
        (SCORES, [*RATED, ("q1", "g", "-1")], {}, "line 8: .* relevance .*'-1'"),
        (SCORES, [*RATED, ("q1", "g", "0.5")], {}, "line 8: .* relevance .*'0.5'"),
        (SCORES, [*RATED, ("q1", "g", "good")], {}, "line 8: .* score, .*'good'"),
        (SCORES, [*RATED, ("q1", "g", "1e7")], {}, "line 8: .* relevance .*'1e7'"),
        (SCORES, RATED, {"group_column": "candidate"}, "t.tsv: .* 6 of one"),
        (table_task("012"), RATED, {}, "=regression .* 0, 1, 2"),
        (table_task("012", MULTI_LABEL), RATED, {}, "=regression .* 0, 1, 2"),
    ],
)
def test_refuses_groups(tmp_path, task, rows, columns, message):
    with pytest.raises((DataError, UsageError), match=message):
        task.usable(read(tmp_path, rows, **columns))


def test_only_texts_have_groups():
    settings = opening.DataSettings(group_column="query")
    with pytest.raises(UsageError, match="group_column: .* not for vectors"):
        opening._own_source("vectors", settings, "train", {})
