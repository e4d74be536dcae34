"""Answers of a file are those of the same rows at once, for every head and format."""

import csv
import dataclasses
import functools
import json
import random

import numpy as np
import pytest
from pyarrow import parquet

from albert_tf import heads
from albert_tf.environment import ONEDNN
from albert_tf.errors import DataError, UsageError
from albert_tf.inference.classifier import Classifier
from albert_tf.inference.embedder import Embedder
from albert_tf.inference.files import EmbedWork, PredictWork, answer_rows
from albert_tf.inference.formats import prediction_files
from albert_tf.inference.predictor import Loadable, Predictor, find_task
from albert_tf.inference.settings import BulkSettings
from albert_tf.storage import files
from albert_tf.tasks.opening import DataSettings, open_portions
from albert_tf.tasks.tagging import TaggingAnswers, tagging_task
from albert_tf.tasks.tagging_files import TaggedExamples
from albert_tf.tasks.task import Portions
from albert_tf.tasks.text_tables import TableSettings, TextFileSettings
from tests.inference import predictor_test

WORDS = ["the", "cat", "sat", "on", "a", "mat", "while", "it", "rained", "in", "May"]
# Kinds of models, and a format of text for their answers.
MODELS = {
    "single": {"labels": ("a", "b, c", "d")},
    "several": {"labels": ("a", "b"), "problem_type": "multi_label_classification"},
    "score": {"num_labels": 1, "problem_type": "regression"},
}
ENDINGS = {"single": "csv", "several": "tsv", "score": "jsonl"}
COLUMNS = TableSettings()
SMALL = BulkSettings(rows_per_part=7, max_batch_tokens=60)


@pytest.fixture(autouse=True)
def read_in_portions(monkeypatch):
    """Has these small files read as large ones are."""
    monkeypatch.setattr("albert_tf.tasks.task._SMALL", 0)


@pytest.fixture(scope="module", autouse=True)
def opened_once():
    """Opens and compiles each model once, however many files it answers."""
    once = functools.cache(Loadable.from_pretrained.__func__)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Loadable, "from_pretrained", classmethod(once))
        yield


@pytest.fixture
def model(model_folder):
    sizes = {"num_hidden_layers": 1, "seed": 1}
    return lambda kind: model_folder("text_classifier", **sizes, **MODELS[kind])


@pytest.fixture
def table(tmp_path):
    """A table of 20 rows."""
    rng = random.Random(3)
    rows = [
        (" ".join(rng.choices(WORDS, k=rng.randint(0, 30))), rng.choice(WORDS), f"r{i}")
        for i in range(20)
    ]
    path = tmp_path / "in.tsv"
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter="\t").writerows([("text", "other", "name"), *rows])
    return str(path)


def predict(model, table, output, columns=COLUMNS, bulk=SMALL, **options):
    named = bool(columns.id_column)
    source = table if callable(table) else lambda: columns.stream(table)
    work = PredictWork(model=model, output_file=output, named=named, **options)
    return answer_rows(work, source, bulk=bulk)


def embed(model, table, output, name="", bulk=SMALL, **options):
    work = EmbedWork(model=model, output_file=output, named=bool(name), **options)
    columns = TextFileSettings(id_column=name)
    return answer_rows(work, lambda: columns.stream(table), bulk=bulk)


def rows_of(path):
    """Rows as dicts."""
    if path.endswith(".parquet"):
        return parquet.read_table(path).to_pylist()
    text = files.read_text(path)
    if path.endswith(".jsonl"):
        return [json.loads(line) for line in text.splitlines()]
    delimiter = "," if path.endswith(".csv") else "\t"
    return list(csv.DictReader(text.splitlines(), delimiter=delimiter))


@pytest.mark.parametrize("kind", MODELS)
def test_parts_are_joined_to_what_one_part_is(tmp_path, model, table, kind):
    pair, name = {"several": ("other", "")}.get(kind, ("", "name"))
    columns = TableSettings(text_pair_column=pair, id_column=name)

    def answer(ending, rows):
        path = str(tmp_path / f"{rows}.{ending}")
        # One row per call: the other rows of a call may change the last digit.
        bulk = BulkSettings(rows_per_part=rows, max_batch_tokens=1)
        assert predict(model(kind), table, path, columns, bulk).rows == 20
        return path

    parts, whole = (answer(ENDINGS[kind], rows) for rows in (7, 100))
    assert files.read_bytes(parts) == files.read_bytes(whole)
    typed = rows_of(answer("parquet", 7))
    assert len(typed) == 20
    for row, line in zip(typed, rows_of(answer("jsonl", 50)), strict=True):
        assert row.pop("index") == line["index"]
        assert row.pop("prediction") == pytest.approx(line["prediction"])
        expected = line.get("probabilities", {})
        assert row.keys() == {f"probability_{label}" for label in expected}
        for label, value in expected.items():
            assert row[f"probability_{label}"] == pytest.approx(value, abs=1e-6)


def test_all_ways_to_ask_a_model_agree_to_the_last_digit(tmp_path, model, table):
    path, folder = str(tmp_path / "a.parquet"), model("single")
    predict(folder, table, path, bulk=BulkSettings())
    examples = TableSettings().read_table(table)
    evaluated = Predictor.from_pretrained(folder).answers(examples).scores
    found = [list(row.values())[2:] for row in rows_of(path)]
    np.testing.assert_array_equal(np.float32(found), evaluated)
    scores = Classifier.from_pretrained(folder).scores(examples.texts)
    np.testing.assert_array_equal(scores, evaluated)
    path = str(tmp_path / "a.npy")
    embed(folder, table, path, bulk=BulkSettings())
    expected = Embedder.from_pretrained(folder)(examples.texts)
    np.testing.assert_array_equal(np.load(path), expected)


HEADS = {
    "swag": ("csv", "jsonl", "parquet"),
    "conll2003": ("tsv", "jsonl", "parquet"),
    "squad1": ("json",),
    "squad2": ("json", "parquet"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HEADS)
def test_every_head_answers_in_parts(tmp_path, tokenizer, name):
    head, sizes, make = predictor_test.CASES[name]
    folder = predictor_test.save_model(tmp_path, tokenizer, head, name, **sizes)
    examples, answers = make(), heads.HEADS[head].answers
    examples = examples.select([*range(len(examples))] * 3)
    ids = [f"e{i}" for i in range(len(examples))]
    if hasattr(examples, "items"):
        pairs = zip(examples.items, ids, strict=True)
        items = [dataclasses.replace(item, id=name) for item, name in pairs]
        examples = dataclasses.replace(examples, items=items)
    else:
        examples = dataclasses.replace(examples, ids=ids)
    for ending in HEADS[name]:
        outputs = []
        for rows in (2, 100):
            path = tmp_path / str(rows) / f"out.{ending}"
            path.parent.mkdir(exist_ok=True)
            bulk = BulkSettings(rows_per_part=rows, max_batch_tokens=1)
            columns, source = TableSettings(id_column="id"), Portions.of(examples)
            options = {"columns": columns, "bulk": bulk, "answers": answers}
            done = predict(folder, lambda s=source: s, str(path), **options)
            assert done.rows == len(examples)
            outputs.append({p.name: p.read_bytes() for p in path.parent.iterdir()})
            if ending == "parquet":
                outputs[-1] = parquet.read_table(path).to_pylist()
        assert outputs[0] == outputs[1]
        if ending == "json":
            whole = Predictor.from_pretrained(folder, max_batch_tokens=1)
            found = whole.answers(examples)
            contents = prediction_files(whole.task, examples, found)
            expected = {f"out{end}": text for end, text in contents.items()}
            found = {n: text.decode() for n, text in outputs[0].items()}
            assert found.items() >= {"out.json": expected.pop("out.json")}.items()
            assert {**found, **expected} == found
        for path in tmp_path.glob("*/out*"):
            path.unlink()


def test_conlleval_reads_tags_without_header_or_quotes():
    examples = TaggedExamples("x", ["0"], [['"a\tb"', "c"]], [["O", "B"]], [1])
    answers = TaggingAnswers([["B", "O"]], [])
    found = prediction_files(tagging_task("x"), examples, answers)
    assert found[".tsv"] == '"a b"\tO\tB\nc\tB\tO\n\n'


def test_a_bad_row_is_named_and_parts_are_kept(tmp_path, model):
    path = tmp_path / "in.jsonl"
    good = "".join(json.dumps({"text": text}) + "\n" for text in WORDS)
    path.write_text(good + '{"text": null}\n')
    output = str(tmp_path / "out.tsv")
    with pytest.raises(DataError, match="in.jsonl: line 12: text: expected text"):
        predict(model("single"), str(path), output)
    assert (tmp_path / "out.tsv.parts" / "part-000000").exists()
    with pytest.raises(DataError, match="line 12: text: expected text, re[^(]*$"):
        embed(model("single"), str(path), str(tmp_path / "v.npy"))
    path.write_text(good)
    summary = predict(model("single"), str(path), output)
    assert (summary.rows, summary.resumed) == (11, 7)
    # What exists is refused before anything is read.
    with pytest.raises(UsageError, match="out.tsv exists already"):
        predict(model("single"), lambda: pytest.fail("rows were read"), output)


def test_a_bad_row_has_an_empty_answer(tmp_path, model):
    path, folder = tmp_path / "a.csv", model("single")
    path.write_bytes(b"text,id\na cat,0\nsat\n\xff,2\non,0\na mat,4\n")
    columns = DataSettings(on_bad_input="skip", id_column="id")
    source = lambda: open_portions(find_task(folder), columns, "test", str(path))  # noqa: E731
    for ending in ("tsv", "jsonl", "parquet"):
        output = str(tmp_path / f"out.{ending}")
        done = predict(folder, source, output, columns, BulkSettings(rows_per_part=2))
        assert [not row["prediction"] for row in rows_of(output)] == [0, 1, 1, 1, 0]
        assert "; 3 of 5 rows could not be read" in done.text()
        assert f"first at {path}: line 3: expected 2" in done.text()


def test_another_model_or_environment_does_not_go_on(tmp_path, model, monkeypatch):
    path = tmp_path / "in.jsonl"
    path.write_text('{"text": "a"}\n' * 8 + "{}\n")
    output = str(tmp_path / "out.tsv")
    with pytest.raises(DataError, match="line 9"):
        predict(model("single"), str(path), output)
    with pytest.raises(UsageError, match=r"model was \w{8}…, is \w{8}…"):
        predict(model("several"), str(path), output)
    monkeypatch.setenv(ONEDNN, "other")
    with pytest.raises(UsageError, match=f'{ONEDNN} was .*, is "other"; repeat'):
        predict(model("single"), str(path), output)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("x.json", "as .tsv, .csv, .jsonl or .parquet, received .*x.json"),
        ("absent/x.tsv", "there is no folder .*absent"),
    ],
)
def test_other_outputs_are_refused(tmp_path, output, message):
    with pytest.raises(UsageError, match=message):
        predict("", "", str(tmp_path / output))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rows_per_part": 0}, "rows_per_part must be positive, received 0"),
        ({"beam_option": ("--x",)}, "beam_option requires --runner"),
        ({"num_workers": 2, "runner": "DirectRunner"}, "num_workers=2: not with"),
    ],
)
def test_wrong_settings_are_refused(given, message):
    with pytest.raises(UsageError, match=message):
        BulkSettings(**given)


def test_vectors_are_those_of_the_class(tmp_path, model, table):
    output, folder = str(tmp_path / "out.npy"), model("single")
    assert embed(folder, table, output, layer=0, pooling="cls").rows == 20
    texts = TextFileSettings().read_table(table).texts
    expected = Embedder.from_pretrained(folder)(texts, 0, "cls")
    np.testing.assert_allclose(np.load(output), expected, atol=1e-5)


def test_formats_hold_the_same_vectors(tmp_path, model, table):
    def answer(output, name=""):
        embed(model("single"), table, str(tmp_path / output), name)
        return str(tmp_path / output)

    vectors = np.load(answer("a.npy"))
    assert vectors.dtype == np.float32
    for ending in ("jsonl", "parquet"):
        for name, keys in (("", [*range(20)]), ("name", [f"r{i}" for i in range(20)])):
            rows = rows_of(answer(f"a{name}.{ending}", name))
            assert [row["index"] for row in rows] == keys
            again = np.array([row["vector"] for row in rows], np.float32)
            np.testing.assert_array_equal(again, vectors)


def test_vectors_that_cannot_be_written_are_refused(tmp_path, model, table):
    for output, named, layer, message in (
        ("out.csv", "", -1, "written as .npy, .jsonl or .parquet, received"),
        ("out.npy", "name", -1, "id_column: an .npy file holds vectors alone"),
        ("out.npy", "", 5, "layer must be from -2 to 1, received 5"),
    ):
        with pytest.raises(UsageError, match=message):
            embed(model("single"), table, str(tmp_path / output), named, layer=layer)
    with pytest.raises(UsageError, match="layers: must be from 1 to 1, the layers of"):
        predict(model("single"), table, str(tmp_path / "out.tsv"), layers=2)
    assert [path.name for path in tmp_path.iterdir()] == ["in.tsv"]


# What `predict` does before a model is loaded.
THREADS = """
import sys
import tensorflow as tf
from albert_tf.inference import files
from albert_tf.inference.forward import use_one_thread_per_call
from albert_tf.inference.predictor import find_task
find_task(sys.argv[1])
files.model_digest(sys.argv[1])
use_one_thread_per_call(3)
threading = tf.config.threading
found = threading.get_intra_op_parallelism_threads()
print(found, threading.get_inter_op_parallelism_threads())
"""


@pytest.mark.slow
def test_tensorflow_has_not_started_before_threads_are_set(model, run_forked):
    done = run_forked("-c", THREADS, model("single"))
    assert done.stdout == "1 3\n", done.stderr
