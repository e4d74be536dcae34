"""Predictions of a file are those of the same texts at once, in every format."""

import csv
import json
import random

import numpy as np
import pytest
from pyarrow import parquet

from albert_tf.converters.load import save_pretrained
from albert_tf.errors import DataError, UsageError
from albert_tf.inference.bulk.predict import predict_texts
from albert_tf.inference.bulk.settings import BulkSettings
from albert_tf.inference.prediction_files import prediction_contents
from albert_tf.inference.predictor import Predictor
from albert_tf.models.classifiers import AlbertTextClassifier
from albert_tf.reports.environment import ONEDNN
from albert_tf.storage import files
from albert_tf.tasks.text_tables import TableSettings
from tests.tiny import CONFIG

LABELS = {"single": ["a", "b, c", "d"], "several": ["a", "b"], "score": None}
TYPES = {"several": "multi_label_classification", "score": "regression"}
WORDS = ["the", "cat", "sat", "on", "a", "mat", "while", "it", "rained", "in", "May"]
SMALL = BulkSettings(rows_per_part=7, max_batch_tokens=60)


@pytest.fixture(scope="module")
def models(tokenizer, tmp_path_factory):
    """Paths of models by what they predict."""
    folder = tmp_path_factory.mktemp("models")
    for kind, labels in LABELS.items():
        model = AlbertTextClassifier(CONFIG, num_labels=len(labels or [""]), seed=1)
        model.problem_type = TYPES.get(kind)
        path = str(folder / kind)
        save_pretrained(model, path, tokenizer=tokenizer, labels=labels)
    return {kind: str(folder / kind) for kind in LABELS}


def write_table(path, count=20):
    rng = random.Random(3)
    rows = [
        (" ".join(rng.choices(WORDS, k=rng.randint(0, 30))), rng.choice(WORDS), f"r{i}")
        for i in range(count)
    ]
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter="\t").writerows([("text", "other", "name"), *rows])
    return str(path)


def values_of(path):
    """Rows as dicts, with numbers as floats."""
    if path.endswith(".parquet"):
        return parquet.read_table(path).to_pylist()
    text = files.read_text(path)
    if path.endswith(".jsonl"):
        return [json.loads(line) for line in text.splitlines()]
    delimiter = "," if path.endswith(".csv") else "\t"
    return list(csv.DictReader(text.splitlines(), delimiter=delimiter))


def flat(row):
    """Strings and numbers of a row, in order; equal probabilities may change places."""
    if isinstance(row, dict):
        return [x for key in sorted(row) for x in (key, *flat(row[key]))]
    if isinstance(row, list):
        return [x for value in row for x in flat(value)]
    try:
        return [float(row)]
    except ValueError:
        return [row]


@pytest.mark.parametrize(
    ("kind", "ending", "pair", "name"),
    [
        ("single", "tsv", "", ""),
        ("single", "csv", "other", "name"),
        ("single", "jsonl", "", "name"),
        ("several", "tsv", "other", ""),
        ("score", "jsonl", "other", ""),
    ],
)
def test_text_formats_are_those_of_all_rows_at_once(
    tmp_path, models, kind, ending, pair, name
):
    table = write_table(tmp_path / "in.tsv")
    columns = TableSettings(text_pair_column=pair, id_column=name)
    output = str(tmp_path / f"out.{ending}")
    source = columns.stream(table)
    summary = predict_texts(models[kind], source, output, named=bool(name), bulk=SMALL)
    assert summary.rows == 20
    predictor = Predictor.from_pretrained(models[kind])
    examples = columns.read_table(table)
    answers = predictor.answers(examples)
    whole = str(tmp_path / f"whole.{ending}")
    for path, text in prediction_contents(whole, predictor, examples, answers).items():
        files.write_text(path, text)
    rows = list(zip(values_of(output), values_of(whole), strict=True))
    assert len(rows) == 20
    for one, other in rows:
        for x, y in zip(flat(one), flat(other), strict=True):
            # The last of six digits may be rounded differently.
            assert x == y if isinstance(y, str) else x == pytest.approx(y, abs=3e-6)


@pytest.mark.parametrize("kind", LABELS)
def test_parquet_has_types(tmp_path, models, kind):
    table = write_table(tmp_path / "in.tsv")
    paths = [str(tmp_path / name) for name in ("a.parquet", "a.jsonl")]
    for path in paths:
        predict_texts(models[kind], TableSettings().stream(table), path, bulk=SMALL)
    for row, line in zip(*map(values_of, paths), strict=True):
        assert row.pop("index") == line["index"]
        assert row.pop("prediction") == pytest.approx(line["prediction"])
        expected = line.get("probabilities", {})
        assert row.keys() == {f"probability_{label}" for label in expected}
        for label, value in expected.items():
            assert row[f"probability_{label}"] == pytest.approx(value, abs=1e-6)


def test_batches_do_not_change_answers(tmp_path, models):
    table = write_table(tmp_path / "in.tsv")
    outputs = []
    for tokens, rows in ((1, 100), (10_000, 100), (10_000, 3)):
        path = str(tmp_path / f"{tokens}-{rows}.parquet")
        bulk = BulkSettings(max_batch_tokens=tokens, rows_per_part=rows)
        predict_texts(models["single"], TableSettings().stream(table), path, bulk=bulk)
        outputs.append(parquet.read_table(path).column("probability_a").to_numpy())
    np.testing.assert_allclose(outputs[1], outputs[0], atol=1e-5)
    np.testing.assert_allclose(outputs[2], outputs[0], atol=1e-5)


def test_a_bad_row_is_named_and_parts_are_kept(tmp_path, models):
    model = models["single"]
    path = tmp_path / "in.jsonl"
    good = "".join(json.dumps({"text": text}) + "\n" for text in WORDS)
    path.write_text(good + '{"text": null}\n')
    output = str(tmp_path / "out.tsv")
    for _ in range(2):
        with pytest.raises(DataError, match="in.jsonl: line 12: expected a text"):
            predict_texts(model, TableSettings().stream(str(path)), output, bulk=SMALL)
        assert (tmp_path / "out.tsv.parts" / "part-000000").exists()
    path.write_text(good)
    source = TableSettings().stream(str(path))
    summary = predict_texts(model, source, output, bulk=SMALL)
    assert (summary.rows, summary.resumed) == (11, 7)


def test_another_model_does_not_go_on(tmp_path, models, tokenizer):
    path = tmp_path / "in.jsonl"
    path.write_text('{"text": "a"}\n' * 8 + "{}\n")
    output = str(tmp_path / "out.tsv")

    def run(model):
        return predict_texts(
            model, TableSettings().stream(str(path)), output, bulk=SMALL
        )

    with pytest.raises(DataError, match="line 9"):
        run(models["single"])
    other = str(tmp_path / "other")
    made = AlbertTextClassifier(CONFIG, num_labels=2, seed=2)
    save_pretrained(made, other, tokenizer=tokenizer)
    with pytest.raises(UsageError, match=r"model was \w{8}…, is \w{8}…"):
        run(other)


def test_another_environment_does_not_go_on(tmp_path, models, monkeypatch):
    path = tmp_path / "in.jsonl"
    path.write_text('{"text": "a"}\n' * 8 + "{}\n")

    def run():
        source, output = TableSettings().stream(str(path)), str(tmp_path / "out.tsv")
        return predict_texts(models["single"], source, output, bulk=SMALL)

    with pytest.raises(DataError, match="line 9"):
        run()
    monkeypatch.setenv(ONEDNN, "other")
    with pytest.raises(UsageError, match=f'{ONEDNN} was .*, is "other"; repeat'):
        run()


@pytest.mark.parametrize("name", ["x.json", "x.xlsx", "x", "x.tsv/y"])
def test_other_formats_are_refused(tmp_path, name):
    with pytest.raises(UsageError, match="as .tsv, .csv, .jsonl or .parquet, received"):
        predict_texts("m", None, str(tmp_path / name))
