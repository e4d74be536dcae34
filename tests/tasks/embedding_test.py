"""Tables of texts to train vectors on, their rows, and what is measured."""

import dataclasses
import os

import numpy as np
import pytest

from albert_tf.errors import DataError
from albert_tf.tasks import embedding, registry
from albert_tf.tasks.embedding_files import (
    SCORES,
    TEXTS,
    TUPLES,
    PairFileSettings,
    TupleSource,
    TupleTableSettings,
)

PAIRS = (
    "text\tpositive\tnegative_2\thard_negative_1\nthe\tcat\tsat\tdog\na\tcat\t\tmat\n"
)


def read(tmp_path, content, name="t.tsv", **settings):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    source = TupleSource(columns=TupleTableSettings(**settings))
    return source.read_file(str(path))


def task_of_pairs():
    return embedding.embedding_task("table").with_options(max_seq_length=8)


def test_the_columns_decide_the_form(tmp_path):
    pairs = read(tmp_path, PAIRS)
    assert pairs.form == TUPLES and pairs.labels == ["cat", "cat"]
    assert pairs.texts == [["the", "cat", "dog", "sat"], ["a", "cat", "mat"]]
    lists = '{"query": "a", "positive": "b", "negatives": ["c", "d"]}\n'
    assert read(tmp_path, lists, "t.jsonl").texts == [["a", "b", "c", "d"]]
    scored = "text\tother\tlabel\na\tb\t2.5\n"
    scored = read(tmp_path, scored, text_pair_column="other")
    assert (scored.form, scored.texts, scored.labels) == (SCORES, [["a", "b"]], [2.5])
    two = read(tmp_path, "text\tother\na\tb\n", text_pair_column="other")
    assert two.form == TUPLES and two.labels == ["b"]
    late = (
        '{"text": "a", "positive": "b"}\n{"text": "c", "positive": "d", "neg": "e"}\n'
    )
    assert read(tmp_path, late, "t.jsonl").texts == [["a", "b"], ["c", "d", "e"]]
    last = read(tmp_path, "text,answer\na,b\n", "t.csv", positive_column="-1")
    assert last.texts == [["a", "b"]]
    alone = read(tmp_path, "text\na\nb\n")
    assert (alone.form, alone.texts, alone.labels) == (TEXTS, [["a"], ["b"]], None)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text\tpositive\na\t \n", "line 2: positive: the text is empty"),
        ("text\tpositive\n\tb\n", "line 2: text: the text is empty"),
        (
            "text\tpositive\tnegative\na\tb\tb\n",
            "line 2: the positive is also a negative, 'b'",
        ),
        (
            "text\tpositive\tnegatives\na\tb\t['c', 'd']\n",
            r"line 2: negatives: expected one text, .*\['c', 'd'\]",
        ),
        ("text\tother\tlabel\na\tb\thigh\n", "line 2: label: expected a score"),
        ("text\tother\tlabel\na\tb\tnan\n", "line 2: label: expected a score"),
    ],
)
def test_refuses_a_row(tmp_path, content, message):
    with pytest.raises(DataError, match=message):
        pair = {"text_pair_column": "other"} if "other" in content else {}
        read(tmp_path, content, **pair)


@pytest.mark.parametrize(
    "settings",
    [
        {"positive_column": "anwser"},
        {"negative_columns": ("bad",)},
        {"text_pair_column": "positive", "label_column": "scroe"},
    ],
)
def test_a_named_column_must_be_there(tmp_path, settings):
    with pytest.raises(DataError, match="t.tsv: .*(anwser|bad|scroe)"):
        read(tmp_path, PAIRS, **settings)


def test_a_score_needs_two_texts(tmp_path):
    with pytest.raises(ValueError, match="--text_pair_column names the second"):
        read(tmp_path, "text\tscore\na\t1\n", label_column="score")
    # A positive has none.
    table, named = "text\tpositive\tscore\na\tb\t1\n", {"label_column": "score"}
    with pytest.raises(ValueError, match="--text_pair_column names the second"):
        read(tmp_path, table, **named)
    assert read(tmp_path, table, text_pair_column="positive", **named).labels == [1]
    # Two texts with a label need not belong together.
    read(tmp_path, "text\tother\tlabel\na\tb\t0\n", text_pair_column="other")
    pairs = PairFileSettings(text_pair_column="other")
    with pytest.raises(ValueError, match="no label, .* 'text, other, label'"):
        pairs.stream(str(tmp_path / "t.tsv"))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="pipe: must be a regular file"):
        pairs.stream(str(tmp_path / "pipe"))


def test_rows_and_numbers_of_equal_texts(tmp_path, tokenizer):
    task = embedding.embedding_task("table", prompts={"query": "the ", "": "a "})
    task = task.with_options(max_seq_length=8)
    encoded = task.encode(read(tmp_path, PAIRS), tokenizer)
    assert encoded.unit_splits.tolist() == [0, 4, 7]
    assert encoded.targets["text_ids"].tolist() == [[1, 2, 3, 4], [5, 2, 6, 0]]
    cut = [encoded.rows.ids[slice(*encoded.rows.splits[i : i + 2])] for i in (4, 5)]
    expected = [tokenizer.encode("the a"), tokenizer.encode("a cat")]
    assert [row[1:-1].tolist() for row in cut] == expected
    alone = task.encode(read(tmp_path, "text\ncat\nsat\n"), tokenizer)
    assert alone.unit_splits.tolist() == [0, 2, 4]
    assert alone.targets["text_ids"].tolist() == [[1, 1], [2, 2]]


def test_a_teacher_s_vectors_go_with_their_rows(tmp_path, tokenizer):
    examples = read(tmp_path, "text\na\nb\nc\n").select([2, 0])
    path = str(tmp_path / "v.npy")
    task = dataclasses.replace(embedding.embedding_task("table"), teacher=path)
    task = task.with_options(max_seq_length=8)
    for vectors, message in (
        (np.zeros(3, "f4"), "expected an array of vectors"),
        (np.zeros((3, 4), "i4"), "expected an array of vectors"),
        (np.full((3, 2), np.inf, "f4"), "holds a vector that is not finite"),
    ):
        np.save(path, vectors)
        with pytest.raises(DataError, match=message):
            task.encode(examples, tokenizer)
    np.save(path, np.arange(6, dtype="f4").reshape(3, 2))
    encoded = task.encode(examples, tokenizer)
    assert encoded.targets["labels"].tolist() == [[4, 5], [0, 1]]
    assert encoded.unit_splits.tolist() == [0, 1, 2]


def test_measures_ranks_and_correlations(tmp_path, tokenizer):
    equal = read(tmp_path, "text\tpositive\na\ta\nb\tb\n")
    encoded, logits = task_of_pairs().encode(equal, tokenizer), np.eye(2)[[0, 0, 1, 1]]
    answers = task_of_pairs().answers(equal, encoded, {"logits": logits})
    assert answers.ranks.tolist() == [1, 1]
    table = "text\tpositive\na\tx\nb\ty\na\tz\nx\tw\n"
    examples = read(tmp_path, table)
    task = task_of_pairs()
    encoded = task.encode(examples, tokenizer)
    angles = {"a": 0, "b": 50, "x": 40, "y": 95, "z": 30, "w": 35}
    degrees = np.radians([angles[t] for row in examples.texts for t in row])
    outputs = {"logits": 3 * np.stack([np.cos(degrees), np.sin(degrees)], -1)}
    answers = task.answers(examples, encoded, outputs)
    # Nearest to a: z, its second positive; to b: x, w, z, y; to x, itself left out: w.
    assert answers.ranks.tolist() == [1, 4, 1, 1] and answers.best == [
        "z",
        "x",
        "z",
        "w",
    ]
    values = task.compare(examples, answers)
    assert values["accuracy_at_1"] == 0.75 and values["chance_accuracy"] == 0.25
    assert values["mrr_at_10"] == pytest.approx((3 + 1 / 4) / 4)
    report = task.report(examples, answers, encoded)
    assert [error["text"] for error in report["errors"]] == ["b"]
    assert task.cells(examples, answers)[2][2:] == ["4", "x"]
    table = "text\tother\tlabel\na\tz\t3\na\tx\t2\nb\ty\t1\na\ty\t0\n"
    examples = read(tmp_path, table, text_pair_column="other")
    encoded = task.encode(examples, tokenizer)
    degrees = np.radians([angles[t] for row in examples.texts for t in row])
    outputs = {"logits": np.stack([np.cos(degrees), np.sin(degrees)], -1)}
    answers = task.answers(examples, encoded, outputs)
    assert task.compare(examples, answers)["spearman"] == pytest.approx(1.0)
    assert not task.collapse(examples, answers)
    same = task.answers(examples, encoded, {"logits": np.ones((8, 2))})
    assert "the same vector" in task.collapse(examples, same)


def test_scores_of_a_named_task_become_scores_of_vectors(tmp_path):
    task = embedding.as_embedding(registry.find_task("stsb"))
    assert task.head == "text_embedder" and task.selecting_metric == "spearman"
    folder = tmp_path / "STS-B"
    folder.mkdir()
    columns = ["index", "genre", "filename", "year", "old_index"]
    columns += ["source1", "source2", "sentence1", "sentence2", "score"]
    cells = ["0", "g", "f", "2012", "1", "s", "t", "a", "b", "2.5"]
    lines = ["\t".join(columns), "\t".join(cells)]
    (folder / "dev.tsv").write_text("\n".join(lines) + "\n")
    examples = task.splits["dev"].read(str(tmp_path))
    assert examples.texts == [["a", "b"]] and examples.labels == [0.5]
    with pytest.raises(ValueError, match="sst2 has no scores for pairs"):
        embedding.as_embedding(registry.find_task("sst2"))
