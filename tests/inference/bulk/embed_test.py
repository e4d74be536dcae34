"""Vectors of a file are those of `Embedder`, in every format."""

import json

import numpy as np
import pytest
from pyarrow import parquet

from albert_tf.converters.load import save_pretrained
from albert_tf.errors import UsageError
from albert_tf.inference.bulk import embed
from albert_tf.inference.bulk.embed import embed_texts
from albert_tf.inference.bulk.environment import environment
from albert_tf.inference.bulk.settings import BulkSettings
from albert_tf.inference.embedder import Embedder
from albert_tf.models.backbone import AlbertBackbone
from albert_tf.tasks.text_tables import TextFileSettings
from tests.tiny import CONFIG

TEXTS = ["the cat sat", "a", "the dog " * 30, "", "it rained in May"] * 3
SMALL = BulkSettings(rows_per_part=4, max_batch_tokens=40)


@pytest.fixture(scope="module")
def model(tokenizer, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("models") / "encoder")
    made = AlbertBackbone(CONFIG, seed=1)
    save_pretrained(made, path, tokenizer=tokenizer)
    return path


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "in.jsonl"
    rows = [{"text": text, "key": f'k"{i}'} for i, text in enumerate(TEXTS)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.mark.parametrize(
    ("layer", "pooling"), [(-1, "mean"), (0, "cls"), (1, "mean"), (-1, "pooled")]
)
def test_vectors_are_those_of_the_class(tmp_path, model, table, layer, pooling):
    output = str(tmp_path / "out.npy")
    summary = embed_texts(
        model,
        TextFileSettings().stream(table),
        output,
        layer=layer,
        pooling=pooling,
        bulk=SMALL,
    )
    assert summary.rows == len(TEXTS)
    found = np.load(output)
    assert found.dtype == np.float32
    expected = Embedder.from_pretrained(model)(TEXTS, layer, pooling)
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("name", ["", "key"])
def test_formats_hold_the_same_numbers(tmp_path, model, table, name):
    source = TextFileSettings(id_column=name)
    for ending in ("jsonl", "parquet"):
        output = str(tmp_path / f"out.{ending}")
        embed_texts(model, source.stream(table), output, named=bool(name), bulk=SMALL)
    embed_texts(
        model, TextFileSettings().stream(table), str(tmp_path / "out.npy"), bulk=SMALL
    )
    lines = [json.loads(x) for x in (tmp_path / "out.jsonl").read_text().splitlines()]
    rows = parquet.read_table(tmp_path / "out.parquet").to_pylist()
    keys = [f'k"{i}' if name else i for i in range(len(TEXTS))]
    assert [line["index"] for line in lines] == [row["index"] for row in rows] == keys
    vectors = np.load(tmp_path / "out.npy")
    for found in (lines, rows):
        again = np.array([row["vector"] for row in found], np.float32)
        np.testing.assert_array_equal(again, vectors)


def test_the_environment_is_recorded(tmp_path, model, table, monkeypatch):
    # The fifth argument is what parts of two runs must share.
    monkeypatch.setattr(embed, "answer_file", lambda *arguments: arguments[4])
    recorded = embed_texts(
        model, TextFileSettings().stream(table), str(tmp_path / "out.npy")
    )
    assert environment().items() <= recorded.items()


def test_what_cannot_be_written_is_refused(tmp_path, model, table):
    for output, named, message in (
        ("out.csv", False, "written as .npy, .jsonl or .parquet, received"),
        ("out.npy", True, "id_column: an .npy file holds vectors alone"),
    ):
        with pytest.raises(UsageError, match=message):
            embed_texts(
                model,
                TextFileSettings().stream(table),
                str(tmp_path / output),
                named=named,
            )
    with pytest.raises(UsageError, match="layer must be from -3 to 2, received 5"):
        embed_texts(
            model, TextFileSettings().stream(table), str(tmp_path / "a.npy"), layer=5
        )
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]
