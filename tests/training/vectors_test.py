"""Runs that train vectors: their model, their numbers, and what they refuse."""

import json
import types
from contextlib import nullcontext

import numpy as np
import pytest

from albert_tf.converters.load import from_pretrained
from albert_tf.errors import UsageError
from albert_tf.inference.files import TextsDigest
from albert_tf.inference.predictor import Predictor
from albert_tf.models.embedder import AlbertTextEmbedder
from albert_tf.tasks.embedding import EmbeddingTask
from albert_tf.tasks.opening import DataSettings, read_labelled
from albert_tf.training import examples
from albert_tf.training.finetune_settings import FinetuneSettings
from albert_tf.training.vectors import make_objective, model_arguments
from tests.training import runs
from tests.training.runs import run

WORDS = ["the", "film", "was", "a", "day", "good", "bad", "cat", "sat"]


def write(path, columns, count=10):
    """Writes a table of short texts, and of a score if there is a column for it."""
    rng = np.random.default_rng(len(columns))
    lines = ["\t".join(columns)]
    for i in range(count):
        texts = (" ".join(rng.choice(WORDS, 3)) + f" {i}" for _ in columns)
        cells = zip(columns, texts, strict=True)
        lines.append("\t".join(f"{i / 9}" if c == "label" else x for c, x in cells))
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.mark.slow
def test_a_run_on_pairs_leaves_an_embedder(pretrained, tmp_path):
    train = write(tmp_path / "train.tsv", ["text", "positive", "negative"])
    dev = write(tmp_path / "dev.tsv", ["text", "positive"])
    results = run(
        tmp_path / "out",
        train_file=train,
        dev_file=dev,
        init_checkpoint=pretrained,
        num_train_steps=2,
        train_batch_size=4,
        gradient_accumulation_steps=2,
        embedding_dims=("8",),
        embedding_layers=("1",),
        prompt=("query=the ", "passage=a "),
        projection_size=16,
        both_directions=True,
    )
    model = from_pretrained(tmp_path / "out")
    assert model.prompts == {"query": "the ", "passage": "a "}
    assert model.vector_size == 16 and not model.untrained_weights
    predictor = Predictor.from_pretrained(tmp_path / "out")
    assert predictor.task.prompts == model.prompts
    part = read_labelled(predictor.task, DataSettings(), "dev", dev)
    values, report = predictor.evaluate(part)
    assert values["accuracy_at_1"] == results["dev_accuracy_at_1"]
    assert values["mrr_at_10"] == results["dev_mrr_at_10"]
    lines = (tmp_path / "out/predictions.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == [str(i) for i in range(10)]


def read(tmp_path, columns, **changes):
    """Returns settings, task and training rows without tokenizing or training."""
    path = write(tmp_path / "t.tsv", columns)
    values = runs.finetuning(tmp_path / "out", train_file=path, init_checkpoint="m")
    pair = {"text_pair_column": "other"} if "other" in columns else {}
    settings = FinetuneSettings(
        **{**values, "table_kind": "vectors", **pair, **changes}
    )
    settings, task, parts = examples.read_task(settings)
    return settings, task, parts["train"]


@pytest.mark.parametrize(
    ("columns", "changes", "message"),
    [
        ("text", {"prompt": ("title=x",)}, "prompt: expected one of query, passage"),
        (
            "text positive",
            {"prompt": ("query=x", "query=y")},
            "prompt: .* passage, once, .*'query=y'",
        ),
        (
            "text label",
            {"table_kind": "texts", "embedding_pooling": "cls"},
            "embedding_pooling: only for",
        ),
        (
            "text positive",
            {"teacher_vectors": "v.npy"},
            "teacher_vectors: only for texts alone, .* received 'tuples'",
        ),
        ("text", {"teacher_vectors": "no.npy"}, "no.npy: expected an array of vectors"),
        ("text", {"prompt": ("query=x",)}, "prompt: query and passage are for pairs"),
        ("text", {"dev_fraction": 0.2}, "dev_fraction: texts alone have nothing"),
        ("text positive", {"score_loss": "mse"}, "score_loss: without effect on tup"),
        ("text positive", {"teacher_loss": "mse"}, "teacher_loss: without effect on"),
    ],
)
def test_refuses_settings_of_a_task(tmp_path, columns, changes, message):
    with pytest.raises(ValueError, match=message):
        read(tmp_path, columns.split(), **changes)


def test_a_teacher_knows_the_texts_if_embed_wrote_its_vectors(tmp_path):
    teacher, digest = str(tmp_path / "v.npy"), TextsDigest()
    np.save(teacher, np.ones((10, 3), "f4"))
    _, _, part = read(tmp_path, ["text"], teacher_vectors=teacher)
    digest.add(row[0] for row in part.texts)
    for texts, fits in ((digest.value(), True), ("1", False)):
        (tmp_path / "v.npy.json").write_text(json.dumps({"texts": texts}))
        with nullcontext() if fits else pytest.raises(UsageError, match="other texts"):
            read(tmp_path, ["text"], teacher_vectors=teacher)


def test_a_projection_to_the_width_of_a_teacher(tmp_path):
    teacher, part = str(tmp_path / "v.npy"), types.SimpleNamespace()
    np.save(teacher, np.ones((10, 3), "f4"))
    settings, task, _ = read(tmp_path, ["text"], teacher_vectors=teacher)
    part.targets = {"labels": np.load(teacher)}
    for width, kept, size in ((3, None, {}), (12, None, {"projection_size": 3})):
        found = model_arguments(settings, task, part, width, kept)
        assert found == {"prompts": {}, **size}
    assert model_arguments(settings, task, part, 12, 3) == {"prompts": {}}
    with pytest.raises(UsageError, match="projects its vectors to 5 .*received 3"):
        model_arguments(settings, task, part, 12, 5)


@pytest.mark.parametrize(
    ("columns", "changes", "message"),
    [
        ("text positive", {"train_batch_size": 1}, "one pair has no negatives"),
        ("text positive", {"embedding_dims": ("25",)}, "numbers from 1 to 24"),
        ("text positive", {"embedding_layers": ("2",)}, "numbers from 1 to 1"),
        ("text other label", {"score_loss": "mse"}, "mse is for scores from -1 to 1"),
    ],
)
def test_refuses_what_no_objective_can_use(
    tmp_path, tokenizer, monkeypatch, columns, changes, message
):
    settings, task, part = read(tmp_path, columns.split(), **changes)
    part = part if "label" not in columns else part.select([9, 1])
    if part.labels and "label" in columns:
        part.labels[0] = 2.0
    assert isinstance(task, EmbeddingTask)
    encoded = task.with_options(max_seq_length=16).encode(part, tokenizer)
    model = AlbertTextEmbedder(runs.CONFIG)
    with pytest.raises(UsageError, match=message):
        make_objective(settings, part.form, encoded, model)
