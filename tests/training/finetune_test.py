"""Fine-tuning a classifier: it learns, repeats itself, refuses bad settings."""

import dataclasses
import json
import os
import re
import shutil
import subprocess

import numpy as np
import pytest
from sklearn.metrics import precision_recall_fscore_support

from albert_tf.cli.run import _describe
from albert_tf.converters.load import from_pretrained, save_pretrained
from albert_tf.errors import DataError, UsageError
from albert_tf.inference.classifier import Classifier
from albert_tf.inference.predictor import Predictor
from albert_tf.models.base import weight_names
from albert_tf.models.classifiers import AlbertTextClassifier
from albert_tf.optimizers.create import create_optimizer
from albert_tf.storage import hubs
from albert_tf.tasks.batches import BatchShape, make_training_dataset
from albert_tf.tasks.text_classification import (
    make_answers,
    table_task,
    with_labels,
)
from albert_tf.tasks.text_tables import LabelledTableSettings
from albert_tf.text.sentencepiece import AlbertTokenizer
from albert_tf.training.callbacks import KeepWeights
from albert_tf.training.finetune import Finetuning
from albert_tf.training.start import Start
from albert_tf.training.tensorflow.checkpoints import WeightAverages
from tests.openings import count_openings
from tests.tiny import GOLDEN, SPIECE
from tests.training.runs import CONFIG, command_line, finetuning, run, write_table

SQUAD = {"task": "squad1", "train_file": str(GOLDEN / "squad/train-v1.1.json")}
SQUAD |= {"dev_file": "", "on_bad_input": "skip"}


@pytest.mark.parametrize(
    "num_seeds",
    [
        pytest.param(1, marks=pytest.mark.slow),
        pytest.param(2, marks=pytest.mark.broad),
    ],
)
def test_a_model_by_name_is_recorded_with_its_commit(
    tables, pretrained, tmp_path, monkeypatch, num_seeds
):
    name, origin, asked = "hf://owner/name", "hf://owner/name@0123", []

    def download(name):
        asked.append(name)
        return hubs.Download(pretrained, origin)

    monkeypatch.setattr(hubs, "download", download)
    given = {**tables, "num_train_steps": 1, "num_seeds": num_seeds}
    run(tmp_path / "run", init_checkpoint=name, **given)
    record = json.loads((tmp_path / "run/run.json").read_text())
    assert record["init_checkpoint"] == origin
    assert record["settings"]["init_checkpoint"] == name
    # All seeds start from the commit that the first one found.
    assert asked == [name] + [origin] * (num_seeds if num_seeds > 1 else 0)


def test_it_learns(finished):
    _, results = finished
    assert results["dev_accuracy"] > 0.95
    assert results["dev_majority_accuracy"] < 0.7
    assert results["labels"] == ["bad", "good"]
    assert results["train_examples"] == 200
    assert results["num_train_steps"] == 45


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
def test_fit_does_the_same(tables, tmp_path):
    """Keras's own `fit`, on the batches of the command; dropout draws otherwise."""
    import keras

    config = CONFIG.replace(
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        classifier_dropout_prob=0.0,
    )
    start = AlbertTextClassifier(config, num_labels=2, seed=3)
    start.labels = ("bad", "good")
    start.problem_type = "single_label_classification"
    save_pretrained(start, tmp_path / "start", tokenizer=AlbertTokenizer(SPIECE))
    run(
        tmp_path / "a",
        train_file=tables["train_file"],
        init_checkpoint=str(tmp_path / "start"),
        num_train_steps=5,
        keep="last",
    )
    model = from_pretrained(tmp_path / "start", preprocessor=None)
    tokenizer = AlbertTokenizer(SPIECE)
    table = LabelledTableSettings().read_table(tables["train_file"])
    task = with_labels(table_task(), table)
    options = dataclasses.replace(task.options, max_seq_length=24)
    encoded = task.family.encode(task, table, tokenizer, options)
    shape = BatchShape("text_classifier", 24, 24, tokenizer.pad_id)
    dataset = make_training_dataset(encoded, shape, batch_size=16, seed=7)
    model.compile(
        create_optimizer(
            "adamw", learning_rate=5e-3, num_train_steps=5, num_warmup_steps=0
        ),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,
    )
    pairs = dataset.map(lambda batch: (batch, batch["labels"]))
    model.fit(pairs, steps_per_epoch=5, verbose=0, shuffle=False)
    other = from_pretrained(tmp_path / "a", head="text_classifier")
    for (name, x), y in zip(
        weight_names(model).items(), weight_names(other).values(), strict=True
    ):
        np.testing.assert_allclose(x, y, atol=5e-5, err_msg=name)


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


@pytest.mark.parametrize("labels", [(), ("good", "bad")])
def test_f1_is_about_one_label_whatever_order_the_model_has(tables, tmp_path, labels):
    start = AlbertTextClassifier(CONFIG, num_labels=2, seed=3)
    start.labels = ("good", "bad")
    start.problem_type = "single_label_classification"
    save_pretrained(start, tmp_path / "start", tokenizer=AlbertTokenizer(SPIECE))
    results = run(
        tmp_path / "out",
        **tables,
        init_checkpoint=str(tmp_path / "start"),
        labels=labels,
        num_train_steps=2,
    )
    assert results["labels"] == ["good", "bad"]
    lines = (tmp_path / "out" / "predictions.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    positive = "bad" if labels else "good"
    expected = precision_recall_fscore_support(
        [row["label"] == positive for row in rows],
        [row["prediction"] == positive for row in rows],
        average="binary",
        zero_division=0,
    )
    names = ("precision", "recall", "f1")
    assert [results[f"dev_{name}"] for name in names] == pytest.approx(expected[:3])
    # The model remembers the label.
    predictor = Predictor.from_pretrained(tmp_path / "out")
    table = LabelledTableSettings().read_table(tables["dev_file"])
    again = predictor.metrics(table, predictor.answers(table))
    assert [again[name] for name in names] == [results[f"dev_{n}"] for n in names]


def test_a_config_beside_a_checkpoint(tables, pretrained, tmp_path):
    values = CONFIG.to_dict()
    path = tmp_path / "albert_config.json"
    arguments = {
        "train_file": tables["train_file"],
        "init_checkpoint": pretrained,
        "albert_config_file": str(path),
        "num_train_steps": 1,
    }
    path.write_text(json.dumps({**values, "num_hidden_layers": 3, "hidden_size": 48}))
    with pytest.raises(
        UsageError,
        match=r"albert_config\.json: hidden_size must be 24 as in .*, received 48",
    ):
        run(tmp_path / "out", **arguments)
    # The file also has the dropout, as in the original.
    path.write_text(json.dumps({**values, "hidden_dropout_prob": 0.2}))
    run(tmp_path / "out", **arguments)
    config = from_pretrained(tmp_path / "out").config
    assert config == CONFIG.replace(hidden_dropout_prob=0.2)


def test_a_config_for_a_checkpoint_without_one(tables, pretrained, tmp_path):
    model = from_pretrained(pretrained, "pretraining")
    save_pretrained(model, tmp_path / "tf1", format="tf1")
    path = (tmp_path / "tf1" / "albert_config.json").rename(tmp_path / "c.json")
    arguments = {
        "train_file": tables["train_file"],
        "init_checkpoint": str(tmp_path / "tf1" / "model.ckpt-best"),
        "spm_model_file": str(SPIECE),
        "num_train_steps": 1,
    }
    with pytest.raises(DataError, match=r"no albert_config\.json"):
        run(tmp_path / "out", **arguments)
    run(tmp_path / "out", **arguments, albert_config_file=str(path))
    assert from_pretrained(tmp_path / "out").config.hidden_size == CONFIG.hidden_size


def test_from_scratch_with_pairs(tables, tmp_path):
    CONFIG.to_json(tmp_path / "config.json")
    results = run(
        tmp_path / "out",
        train_file=tables["train_file"],
        text_pair_column="id",
        from_scratch=True,
        albert_config_file=str(tmp_path / "config.json"),
        spm_model_file=str(SPIECE),
        max_seq_length=10,
        num_train_steps=2,
    )
    assert results["train_truncated"] > 50
    assert results["max_seq_length"] == 10


@pytest.mark.parametrize("labels", [("bad", "good"), ("good", "bad")])
def test_the_checkpoint_is_opened_once(tables, finished, tmp_path, monkeypatch, labels):
    counts = count_openings(monkeypatch)
    checkpoint = str(finished[0])
    run(
        tmp_path / "out",
        train_file=tables["train_file"],
        init_checkpoint=checkpoint,
        labels=labels,
        num_train_steps=1,
    )
    assert counts == {("open", checkpoint): 1, ("verify", checkpoint): 1}


def test_evaluation_uses_the_length_of_fine_tuning(tables, pretrained, tmp_path):
    arguments = {**tables, "init_checkpoint": pretrained, "num_train_steps": 20}
    results = run(tmp_path / "out", max_seq_length=5, **arguments)
    assert results["dev_truncated"] == 50
    classify = Classifier.from_pretrained(tmp_path / "out")
    assert classify.max_seq_length == 5
    table = LabelledTableSettings().read_table(tables["dev_file"])
    task = table_task(classify.labels)
    answers = make_answers(task, classify.logits(table.texts))
    values = task.family.metrics(task, table, answers)
    assert values == {
        name.removeprefix("dev_"): value
        for name, value in results.items()
        if name.removeprefix("dev_") in values
    }
    assert Classifier.from_pretrained(tmp_path / "out", max_seq_length=9)
    # The length belongs to the classifier: it survives saving, and only that.
    model = from_pretrained(tmp_path / "out", "text_classifier")
    save_pretrained(model, tmp_path / "copy", tokenizer=AlbertTokenizer(SPIECE))
    assert Classifier.from_pretrained(tmp_path / "copy").max_seq_length == 5
    backbone = from_pretrained(tmp_path / "out", head=None)
    save_pretrained(backbone, tmp_path / "bare")
    config = json.loads((tmp_path / "bare" / "config.json").read_text())
    assert "max_seq_length" not in config["model"]


# What the settings say by themselves is in settings_test, what is wrong with the
# examples of a task in tests/tasks.
@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"train_file": "no.csv"}, 1, "no.csv: cannot be read"),
        ({"text_column": "x"}, 1, "no column 'x'; expected one of id, label"),
        ({"labels": ("good", "x")}, 1, "one of the labels good, x, received"),
        ({"label_column": "id"}, 2, "label_column: .* --many_labels"),
        ({"max_seq_length": 25}, 2, "max_position_embeddings=24, received 25"),
        ({"recipe": "stsb"}, 2, "recipe must be .* received 'stsb'"),
        ({"class_weights": ("bad=x",)}, 2, "and a number of at least 0, rec"),
        ({"class_weights": ("so=2",)}, 2, "a label among bad, good"),
        ({"dev_file": "", "metric": "f1"}, 2, "metric: there are no dev"),
        ({"dev_file": "", "num_seeds": 2}, 2, "num_seeds: there are no dev"),
        ({"task": "ax"}, 2, "no split 'train'"),
        ({"exits": "joint"}, 2, "exits: needs at least 2 layers"),
        ({"vocab_size": 50}, 2, "--spm_model_file=.*vocab_size=50, has"),
        (
            {**SQUAD, "max_query_length": 4, "doc_stride": 99},
            2,
            "doc_stride must be from 1 to .* received 99",
        ),
        ({"train": "text\tlabel\ngood\t1\nbad\t1\n"}, 1, "received only '1'"),
        ({"train": "text\tlabel\na\0b\t1\n"}, 1, "line 2: a NUL byte"),
    ],
)
def test_one_line_and_nothing_written(
    tables, pretrained, tmp_path, changes, code, message
):
    arguments = {**tables, "init_checkpoint": pretrained, **changes}
    if text := arguments.pop("train", None):
        (tmp_path / "train.tsv").write_text(text)
        arguments["train_file"] = str(tmp_path / "train.tsv")
    if size := arguments.pop("vocab_size", None):
        CONFIG.replace(vocab_size=size).to_json(tmp_path / "config.json")
        arguments |= {"from_scratch": True, "init_checkpoint": ""}
        arguments |= {"spm_model_file": str(SPIECE)}
        arguments |= {"albert_config_file": str(tmp_path / "config.json")}
    before = sorted(tmp_path.iterdir())
    with pytest.raises((DataError, UsageError), match=message) as caught:
        run(tmp_path / "out", **arguments)
    assert "\n" not in str(caught.value)
    assert _describe(caught.value)[0] == code
    assert sorted(tmp_path.iterdir()) == before


def test_what_is_odd_but_not_wrong(pretrained, tmp_path):
    """A byte order mark, Windows' line ends, quotes, empty and very long texts."""
    rows = ['so " good\t1', "\t0", "word " * 200_000 + "\t1", '"bad\t0']
    text = "\ufeff" + "\r\n".join(["sentence\tlabel", *rows, ""])
    (tmp_path / "train.tsv").write_bytes(text.encode())
    results = run(
        tmp_path / "out",
        task="sst2",
        data_dir=str(tmp_path),
        init_checkpoint=pretrained,
        num_train_steps=1,
        train_batch_size=4,
    )
    assert results["train_examples"] == 4 and results["train_truncated"] == 1


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("foo", "metric must be one of accuracy, .*'foo'"),
        ("loss", "one of accuracy, .*'loss' .the loss is measured on training"),
        ("majority_accuracy", "metric must be one of accuracy, .*'majority_accuracy'"),
    ],
)
def test_a_metric_that_cannot_select_is_refused_before_the_model_is_made(
    tables, pretrained, tmp_path, monkeypatch, metric, message
):
    monkeypatch.setattr(Start, "make_model", lambda *args: pytest.fail("too late"))
    with pytest.raises(UsageError, match=message):
        run(tmp_path / "o", **tables, init_checkpoint=pretrained, metric=metric)


FULL = """
mount -t tmpfs -o size=1m tmpfs "$1" || exit 99
shift
for size in 1m 4m 6m 8m 10m 99m; do
  mount -o remount,size=$size "$FOLDER"
  "$@" 2> "$RESULTS/$size.txt"
  echo $? > "$RESULTS/$size.code"
  ls -A "$FOLDER" "$FOLDER/model" > "$RESULTS/$size.list" 2>&1
done
cp -r "$FOLDER/model" "$RESULTS/model"
"""


def can_mount():
    command = ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    if not shutil.which("unshare"):
        return False
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.broad
@pytest.mark.skipif(not can_mount(), reason="a disk of a given size cannot be made")
def test_a_disk_that_is_full(tables, pretrained, tmp_path):
    """On a disk that grows from attempt to attempt, the last one ends as any run."""
    disk, found = tmp_path / "disk", tmp_path / "results"
    disk.mkdir()
    found.mkdir()
    values = {**tables, "init_checkpoint": pretrained, "num_train_steps": 6}
    values |= {"eval_steps": 3, "save_checkpoints_steps": 2}
    command = command_line("finetune", finetuning(disk / "model", **values))
    environment = {**os.environ, "FOLDER": str(disk), "RESULTS": str(found)}
    subprocess.run(
        ["unshare", "-rm", "sh", "-c", FULL, "sh", str(disk), *command],
        env=environment,
        check=True,
        timeout=900,
    )
    failed = 0
    for file in found.glob("*.code"):
        errors = file.with_suffix(".txt").read_text()
        if file.stem == "99m":
            assert file.read_text() == "0\n", errors
            continue
        assert file.read_text() in ("0\n", "1\n"), errors
        if file.read_text() == "1\n":
            failed += 1
            assert "Traceback" not in errors
            (line,) = re.findall(r"^error: .*", errors, re.M)
            assert re.search("No space left|disk is full", line), line
            assert "config.json" not in file.with_suffix(".list").read_text()
    assert failed >= 3
    run(tmp_path / "whole", **values)
    for name in ("metrics.json", "model.safetensors", "predictions.tsv"):
        whole = (tmp_path / "whole" / name).read_bytes()
        assert (found / "model" / name).read_bytes() == whole


@pytest.mark.slow
@pytest.mark.parametrize("keep", ["last", "best"])
def test_averages_are_what_is_kept(tables, pretrained, tmp_path, monkeypatch, keep):
    kept, finished = {}, {}
    save, trained = KeepWeights.save, Finetuning.trained
    replace = WeightAverages.replace_weights

    def save_and_copy(self, step):
        save(self, step)
        kept[step] = {k: v.numpy() for k, v in self._weights.items()}

    def copy_and_replace(self):
        finished.update({k: v.numpy() for k, v in self.averages.items()})
        replace(self)

    def trained_and_copy(run, averages, last):
        trained(run, averages, last)
        finished["best"] = run.selection.best_step

    monkeypatch.setattr(KeepWeights, "save", save_and_copy)
    monkeypatch.setattr(WeightAverages, "replace_weights", copy_and_replace)
    monkeypatch.setattr(Finetuning, "trained", trained_and_copy)
    run(
        tmp_path / "run",
        **tables,
        init_checkpoint=pretrained,
        num_train_steps=6,
        eval_steps=2,
        ema_decay=0.7,
        keep=keep,
    )
    best = finished.pop("best")
    expected = finished if keep == "last" else kept[best]
    saved = weight_names(from_pretrained(tmp_path / "run"))
    for name in finished:
        np.testing.assert_array_equal(saved[name].numpy(), expected[name])
    assert bool(kept) == (keep == "best")
    if 6 in kept:  # the averages of that step, not the weights
        np.testing.assert_array_equal(
            kept[6]["classifier/kernel"], finished["classifier/kernel"]
        )
