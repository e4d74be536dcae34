"""Fine-tuning a classifier: learns, repeats itself, writes all or nothing."""

import csv
import dataclasses
import json
import pathlib
import random
import shutil

import numpy as np
import pytest

from albert_tf.config import AlbertConfig
from albert_tf.converters import detect
from albert_tf.converters.load import from_pretrained, save_pretrained
from albert_tf.errors import DataError, UsageError
from albert_tf.inference.classifier import Classifier
from albert_tf.models.base import weight_names
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.storage import folders
from albert_tf.tasks.tables import read_table
from albert_tf.tasks.text_classification import evaluate, table_task
from albert_tf.text.sentencepiece import AlbertTokenizer
from albert_tf.training.finetuning.finetune import finetune_text_classifier
from albert_tf.training.finetuning.settings import FinetuneSettings

GOLDEN = pathlib.Path(__file__).parents[2] / "golden"
SPM_MODEL = GOLDEN / "tokenization" / "spiece.model"
CONFIG = AlbertConfig(
    embedding_size=12,
    hidden_size=24,
    num_hidden_layers=1,
    num_attention_heads=3,
    intermediate_size=40,
    max_position_embeddings=24,
    hidden_dropout_prob=0.1,
    initializer_range=0.2,
)


def write_table(path, count, seed, labels=("bad", "good")):
    """Texts that hold a word which decides the label."""
    rng = random.Random(seed)
    with open(path, "w", newline="", encoding="utf-8") as f:
        writer = csv.writer(f, delimiter="\t")
        writer.writerow(["id", "label", "text"])
        for i in range(count):
            label = rng.choice(labels)
            words = rng.choices(["the", "film", "was", "a", "day"], k=5)
            words.insert(rng.randrange(6), label)
            writer.writerow([i, label, " ".join(words)])
    return str(path)


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    return {
        "train_file": write_table(folder / "train.tsv", 200, seed=1),
        "dev_file": write_table(folder / "dev.tsv", 50, seed=2),
    }


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    path = tmp_path_factory.mktemp("pretrained") / "model"
    model = AlbertPretrainer(CONFIG, seed=3)
    save_pretrained(model, path, tokenizer=AlbertTokenizer(SPM_MODEL))
    return str(path)


def run(output_dir, **kwargs):
    defaults = {
        "learning_rate": 5e-3,
        "train_batch_size": 16,
        "num_train_steps": 45,
        "seed": 7,
    }
    settings = FinetuneSettings(output_dir=str(output_dir), **{**defaults, **kwargs})
    return finetune_text_classifier(settings, verbose=0)


@pytest.fixture(scope="module")
def finished(tables, pretrained, tmp_path_factory):
    output_dir = tmp_path_factory.mktemp("run") / "model"
    arguments = {**tables, "init_checkpoint": pretrained}
    results = run(output_dir, test_file=tables["dev_file"], **arguments)
    return output_dir, results


def test_it_learns(finished):
    _, results = finished
    assert results["dev_accuracy"] > 0.95
    assert results["dev_majority_accuracy"] < 0.7
    assert results["labels"] == ["bad", "good"]
    assert results["train_examples"] == 200
    assert results["num_train_steps"] == 45


def test_the_folder(finished, tables):
    output_dir, results = finished
    assert {path.name for path in output_dir.iterdir()} == {
        "config.json",
        "curves.png",
        "manifest.json",
        "metrics.json",
        "metrics.jsonl",
        "model.safetensors",
        "predictions.tsv",
        "run.json",
        "spiece.model",
        "test_predictions.tsv",
    }
    assert json.loads((output_dir / "metrics.json").read_text()) == results
    lines = [json.loads(x) for x in (output_dir / "metrics.jsonl").open()]
    # 200 examples are 12.5 batches: three epochs of 13, and the rest.
    assert [line["step"] for line in lines] == [13, 26, 39, 45]
    assert lines[0]["loss"] > lines[-1]["loss"]
    assert lines[-1]["val_accuracy"] == pytest.approx(results["dev_accuracy"])
    assert (output_dir / "curves.png").read_bytes()[:4] == b"\x89PNG"
    record = json.loads((output_dir / "run.json").read_text())
    assert record["settings"]["max_seq_length"] == 24
    assert record["settings"]["num_warmup_steps"] == 4
    with open(output_dir / "predictions.tsv", encoding="utf-8") as f:
        rows = list(csv.DictReader(f, delimiter="\t"))
    accuracy = np.mean([row["label"] == row["prediction"] for row in rows])
    assert accuracy == pytest.approx(results["dev_accuracy"])
    classify = Classifier.from_pretrained(output_dir)
    assert classify.labels == ["bad", "good"]
    with open(tables["dev_file"], encoding="utf-8") as f:
        texts = [row["text"] for row in csv.DictReader(f, delimiter="\t")]
    scores = [float(row["probability_good"]) for row in rows]
    np.testing.assert_allclose(classify.probabilities(texts)[:, 1], scores, atol=2e-5)


@pytest.mark.slow
def test_the_same_call_gives_the_same_weights(tables, pretrained, tmp_path):
    arguments = {
        "train_file": tables["train_file"],
        "init_checkpoint": pretrained,
        "num_train_steps": 3,
    }
    for name in ("a", "b"):
        run(tmp_path / name, **arguments)
    a, b = (tmp_path / name / "model.safetensors" for name in "ab")
    assert a.read_bytes() == b.read_bytes()


@pytest.mark.slow
def test_ten_lines_of_keras_do_the_same(tables, pretrained, tmp_path):
    """What the README shows."""
    import keras

    from albert_tf.optimizers.create import create_optimizer
    from albert_tf.tasks.dataset import make_classification_dataset
    from albert_tf.tasks.tables import label_ids
    from albert_tf.text.inputs import pack_texts

    run(
        tmp_path / "a",
        train_file=tables["train_file"],
        init_checkpoint=pretrained,
        num_train_steps=5,
        dropout=0.0,
    )
    config = CONFIG.replace(hidden_dropout_prob=0.0)
    model = from_pretrained(
        pretrained, head="text_classifier", num_labels=2, config=config, seed=7
    )
    tokenizer = AlbertTokenizer(SPM_MODEL)
    table = read_table(tables["train_file"])
    dataset = make_classification_dataset(
        pack_texts(tokenizer, table.texts, max_seq_length=24),
        label_ids(table, ["bad", "good"]),
        batch_size=16,
        max_seq_length=24,
        pad_id=tokenizer.pad_id,
        shuffle_seed=7,
    )
    model.compile(
        create_optimizer(
            "adamw", learning_rate=5e-3, num_train_steps=5, num_warmup_steps=0
        ),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,
    )
    model.fit(dataset, steps_per_epoch=5, verbose=0, shuffle=False)
    other = from_pretrained(tmp_path / "a", head="text_classifier")
    for (name, x), y in zip(
        weight_names(model).items(), weight_names(other).values(), strict=True
    ):
        np.testing.assert_allclose(x, y, atol=1e-6, err_msg=name)


def test_a_classifier_of_other_labels_is_replaced(finished, tmp_path):
    output_dir, _ = finished
    train = write_table(tmp_path / "t.tsv", 30, 4, labels=("bad", "good", "so"))
    results = run(
        tmp_path / "out",
        train_file=train,
        init_checkpoint=str(output_dir),
        num_train_steps=1,
        learning_rate=1e-9,
    )
    assert results["labels"] == ["bad", "good", "so"]
    old = weight_names(from_pretrained(output_dir, head=None))
    new = weight_names(from_pretrained(tmp_path / "out", head=None))
    for name, value in old.items():
        np.testing.assert_allclose(value, new[name], atol=1e-6, err_msg=name)


def test_from_scratch_with_pairs(tables, tmp_path):
    CONFIG.to_json(tmp_path / "config.json")
    results = run(
        tmp_path / "out",
        train_file=tables["train_file"],
        text_pair_column="id",
        from_scratch=True,
        albert_config_file=str(tmp_path / "config.json"),
        spm_model_file=str(SPM_MODEL),
        max_seq_length=10,
        num_train_steps=2,
    )
    assert results["train_truncated"] > 50
    assert results["max_seq_length"] == 10


@pytest.mark.parametrize("labels", [("bad", "good"), ("good", "bad")])
def test_the_checkpoint_is_opened_once(tables, finished, tmp_path, monkeypatch, labels):
    """Opening verifies digests and unpacks archives."""
    opened = []
    open_path = detect.open_path

    def counting(path, *args, **kwargs):
        opened.append(path)
        return open_path(path, *args, **kwargs)

    monkeypatch.setattr(detect, "open_path", counting)
    checkpoint = str(finished[0])
    run(
        tmp_path / "out",
        train_file=tables["train_file"],
        init_checkpoint=checkpoint,
        labels=labels,
        num_train_steps=1,
    )
    assert opened == [checkpoint]


def test_evaluation_uses_the_length_of_fine_tuning(tables, pretrained, tmp_path):
    arguments = {**tables, "init_checkpoint": pretrained, "num_train_steps": 20}
    results = run(tmp_path / "out", max_seq_length=5, **arguments)
    assert results["dev_truncated"] == 50
    classify = Classifier.from_pretrained(tmp_path / "out")
    assert classify.max_seq_length == 5
    table = read_table(tables["dev_file"])
    values = evaluate(table_task(classify.labels), classify.logits(table.texts), table)
    assert values == {
        name.removeprefix("dev_"): value
        for name, value in results.items()
        if name.removeprefix("dev_") in values
    }
    assert Classifier.from_pretrained(tmp_path / "out", max_seq_length=9)
    # The length belongs to the classifier: it survives saving, and only that.
    model = from_pretrained(tmp_path / "out", "text_classifier")
    save_pretrained(model, tmp_path / "copy", tokenizer=AlbertTokenizer(SPM_MODEL))
    assert Classifier.from_pretrained(tmp_path / "copy").max_seq_length == 5
    backbone = from_pretrained(tmp_path / "out")
    save_pretrained(backbone, tmp_path / "bare")
    config = json.loads((tmp_path / "bare" / "config.json").read_text())
    assert "max_seq_length" not in config["model"]


def test_an_impossible_recorded_length_is_refused(finished, tmp_path):
    shutil.copytree(finished[0], tmp_path / "copy")
    config_file = tmp_path / "copy" / "config.json"
    config = json.loads(config_file.read_text())
    config["model"]["max_seq_length"] = "24"
    config_file.write_text(json.dumps(config))
    with folders.writing(tmp_path / "new") as out:
        for file in ("config.json", "model.safetensors", "spiece.model"):
            out.write(file, (tmp_path / "copy" / file).read_bytes())
        out.write_manifest()
    with pytest.raises(DataError, match="max_seq_length must be a positive .*'24'"):
        from_pretrained(tmp_path / "new")


def test_an_unwritable_folder_is_reported_before_the_work(pretrained, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="output_dir: .*/out cannot be created in"):
        run(tmp_path / "file" / "out", train_file="no.csv", init_checkpoint=pretrained)
    # A possible folder passes, and nothing is left behind.
    with pytest.raises(DataError, match="no.csv"):
        run(tmp_path / "a" / "b", train_file="no.csv", init_checkpoint=pretrained)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_leftovers_of_an_interrupted_write_are_ignored(tables, pretrained, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "run.json.tmp-0123abcd").write_text("{")
    run(
        tmp_path / "out",
        train_file=tables["train_file"],
        init_checkpoint=pretrained,
        num_train_steps=1,
    )
    names = [path.name for path in (tmp_path / "out").iterdir()]
    assert "run.json" in names and "run.json.tmp-0123abcd" not in names


def test_overwriting(tables, pretrained, finished, tmp_path):
    output_dir, _ = finished
    arguments = {
        "train_file": tables["train_file"],
        "init_checkpoint": pretrained,
        "num_train_steps": 1,
    }
    before = (output_dir / "model.safetensors").read_bytes()
    with pytest.raises(UsageError, match="model exists already"):
        run(output_dir, **arguments)
    assert (output_dir / "model.safetensors").read_bytes() == before
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("precious")
    with pytest.raises(UsageError, match="other is not a fine-tuning run"):
        run(tmp_path / "other", overwrite=True, **arguments)
    shutil.copytree(output_dir, tmp_path / "new")
    first = (tmp_path / "new" / "run.json").read_text()
    run(tmp_path / "new", overwrite=True, **{**arguments, "seed": 9})
    assert (tmp_path / "new" / "run.json").read_text() != first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "other"]


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"init_checkpoint": ""}, UsageError, "init_checkpoint: required"),
        ({"from_scratch": True}, UsageError, "cannot be combined with init_checkpoint"),
        ({"preset": "albert_base_v2"}, UsageError, "only with from_scratch"),
        ({"output_dir": ""}, UsageError, "output_dir: required"),
        ({"train_file": "no.csv"}, DataError, "no.csv: cannot be read"),
        ({"text_column": "x"}, DataError, "no column 'x'; expected one of id, label"),
        ({"labels": ("good", "x")}, DataError, "one of the labels good, x, received"),
        ({"label_column": "id"}, UsageError, "label_column: .* --many_labels"),
        ({"max_seq_length": 25}, UsageError, "max_position_embeddings=24, received 25"),
        ({"max_seq_length": 2}, UsageError, "max_seq_length must be at least 3"),
        ({"train_batch_size": 0}, UsageError, "train_batch_size must be positive"),
        ({"num_train_steps": 0}, UsageError, "num_train_steps must be positive"),
        ({"learning_rate": -1.0}, UsageError, "learning_rate"),
        ({"optimizer": "sgd"}, UsageError, "optimizer must be one of"),
        ({"recipe": "x"}, UsageError, "recipe must be one of cola"),
        ({"recipe": "stsb"}, UsageError, "recipe must be .* received 'stsb'"),
        ({"recipe": "squad1"}, UsageError, "recipe must be .* received 'squad1'"),
        ({"dropout": 1.0}, UsageError, r"dropout must be in \[0, 1\), received 1.0"),
        ({"seed": -1}, UsageError, "seed must be from 0"),
    ],
)
def test_bad_settings(tables, pretrained, tmp_path, changes, error, message):
    arguments = {
        **tables,
        "output_dir": str(tmp_path / "out"),
        "init_checkpoint": pretrained,
        "learning_rate": 1e-3,
        **changes,
    }
    with pytest.raises(error, match=message):
        finetune_text_classifier(FinetuneSettings(**arguments), verbose=0)
    assert not list(tmp_path.iterdir())


def test_recipes_and_defaults():
    settings = FinetuneSettings("t", "o", recipe="rte", learning_rate=1e-4)
    settings = settings.resolved(2490)
    assert settings.learning_rate == 1e-4
    assert (settings.train_batch_size, settings.dropout) == (32, 0.1)
    assert (settings.num_train_steps, settings.num_warmup_steps) == (800, 200)
    settings = FinetuneSettings("t", "o", num_train_epochs=2.0).resolved(100)
    assert settings.num_train_steps == 7
    assert settings.num_warmup_steps == 0
    assert settings.dropout is None
    assert all(field.metadata["help"] for field in dataclasses.fields(settings))
