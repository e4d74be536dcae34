"""Fine-tuning: it learns, repeats itself, refuses bad settings, leaves its results."""

import json
import logging

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
from albert_tf.reports.run_files import read_runs
from albert_tf.reports.run_page import render_runs
from albert_tf.storage import hubs
from albert_tf.tasks.text_classification import TextTask, make_answers, table_task
from albert_tf.tasks.text_tables import LabelledTableSettings
from albert_tf.text.sentencepiece import AlbertTokenizer
from albert_tf.training.callbacks import KeepWeights
from albert_tf.training.finetune import Finetuning
from albert_tf.training.start import Start
from albert_tf.training.weights import WeightAverages
from tests.commands import run_command
from tests.openings import count_openings
from tests.reports.parsed_page import ParsedPage
from tests.tiny import SPIECE
from tests.training import runs
from tests.training.runs import CONFIG, family, run, write_table


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
def test_a_classifier_of_other_labels_is_replaced(
    finished, tmp_path, monkeypatch, caplog
):
    start, counts = str(finished[0]), count_openings(monkeypatch)
    caplog.set_level(logging.INFO, logger="absl")
    train = write_table(tmp_path / "t.tsv", 30, 4, labels=("bad", "good", "so"))
    results = run(
        tmp_path / "out",
        train_file=train,
        dev_fraction=0.2,
        init_checkpoint=start,
        num_train_steps=1,
        learning_rate=1e-9,
    )
    assert counts == {("open", start): 1, ("verify", start): 1}
    assert results["labels"] == ["bad", "good", "so"]
    line = "has weights that AlbertTextClassifier does not use: classifier (2)"
    assert caplog.messages.count(f"{start}: {line}") == 1
    # It is said on what the weights were chosen.
    assert results["selected_on"] == "dev, 0.2 of train"
    assert (results["train_examples"], results["dev_examples"]) == (24, 6)
    assert results["metric"] == "dev_accuracy" and "dev_accuracy" in results
    old = weight_names(from_pretrained(start, head=None))
    new = weight_names(from_pretrained(tmp_path / "out", head=None))
    for name, value in old.items():
        np.testing.assert_allclose(value, new[name], atol=1e-6, err_msg=name)


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_evaluation_uses_the_length_of_fine_tuning(tables, pretrained, tmp_path):
    arguments = {**tables, "init_checkpoint": pretrained, "num_train_steps": 20}
    results = run(tmp_path / "out", max_seq_length=5, **arguments)
    assert results["dev_truncated"] == 50
    classify = Classifier.from_pretrained(tmp_path / "out")
    assert classify.max_seq_length == 5
    table = LabelledTableSettings().read_table(tables["dev_file"])
    task = table_task(classify.labels)
    answers = make_answers(task, classify.logits(table.texts))
    values = task.compare(table, answers)
    assert values == {
        name.removeprefix("dev_"): value
        for name, value in results.items()
        if name.removeprefix("dev_") in values
    }
    # The length belongs to the classifier: it survives saving, and only that.
    model = from_pretrained(tmp_path / "out", "text_classifier")
    save_pretrained(model, tmp_path / "copy", tokenizer=AlbertTokenizer(SPIECE))
    assert Classifier.from_pretrained(tmp_path / "copy").max_seq_length == 5
    save_pretrained(from_pretrained(tmp_path / "out", head=None), tmp_path / "bare")
    config = json.loads((tmp_path / "bare" / "config.json").read_text())
    assert "max_seq_length" not in config["model"]


# What the settings say by themselves is in settings_test, what is wrong with the
# examples of a task in tests/tasks.
@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"train_file": "no.csv"}, 1, "no.csv: cannot be read"),
        ({"label_column": "id"}, 2, "label_column: .* --many_labels"),
        ({"max_seq_length": 25}, 2, "max_position_embeddings=24, received 25"),
        ({"class_weights": ("bad=x",)}, 2, "and a number of at least 0, rec"),
        ({"class_weights": ("so=2",)}, 2, "a label among bad, good"),
        ({"metric": "f2"}, 2, "metric must be one of accuracy, .*'f2'"),
        ({"metric": "loss"}, 2, "'loss' .the loss is measured on training"),
        ({"metric": "majority_accuracy"}, 2, "metric must be one of accuracy, "),
        ({"dev_file": "", "metric": "f1"}, 2, "metric: there are no dev"),
        ({"dev_file": "", "num_seeds": 2}, 2, "num_seeds: there are no dev"),
        ({"vocab_size": 50}, 2, "--spm_model_file=.*vocab_size=50, has"),
        ({"train": "text\tlabel\ngood\t1\nbad\t1\n"}, 1, "received only '1'"),
    ],
)
def test_one_line_and_nothing_written(
    tables, pretrained, tmp_path, monkeypatch, changes, code, message
):
    monkeypatch.setattr(Start, "make_model", lambda *args: pytest.fail("too late"))
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

    def trained_and_copy(run, last):
        trained(run, last)
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


CHOICES = ["a good day", "a bad day", "a long day"]


@pytest.mark.slow
def test_the_share_of_cut_examples_is_that_of_examples(pretrained, tmp_path, caplog):
    rows = [
        {"context": "the film was long " * (9 if i % 2 else 1), "choices": CHOICES}
        for i in range(12)
    ]
    lines = [json.dumps({**row, "label": i % 3}) for i, row in enumerate(rows)]
    (tmp_path / "train.jsonl").write_text("\n".join(lines) + "\n")
    results = run(
        tmp_path / "out",
        train_file=str(tmp_path / "train.jsonl"),
        init_checkpoint=pretrained,
        max_seq_length=16,
        train_batch_size=4,
        num_train_steps=1,
    )
    assert (results["train_examples"], results["train_truncated"]) == (12, 6)
    assert "selected_on" not in results
    warning = "6 of 12 training examples (50%) do not fit into max_seq_length=16"
    assert f"train.jsonl: {warning}" in caplog.text
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    lengths = report["lengths"]["train"]
    assert (lengths["examples"], lengths["truncated"]) == (12, 6)
    assert len(lengths["values"]) == 36 and max(lengths["values"]) == 16
    page = ParsedPage((tmp_path / "out" / "report.html").read_bytes())
    again = render_runs(read_runs([str(tmp_path / "out")]))
    assert again == (tmp_path / "out/report.html").read_bytes()
    assert "longest row" in page.text
    assert warning in page.text and "50.00%" in page.text and "16.67%" not in page.text


@pytest.mark.slow
def test_without_a_number_to_select_by_the_last_weights_are_kept(
    tables, pretrained, tmp_path, monkeypatch, caplog
):
    compare = TextTask.compare
    nothing = {"accuracy": float("nan")}
    monkeypatch.setattr(TextTask, "compare", lambda *args: compare(*args) | nothing)
    results = run(
        tmp_path / "run",
        **tables,
        init_checkpoint=pretrained,
        num_train_steps=4,
        eval_steps=2,
    )
    message = "The accuracy was not a number at any evaluation: the weights are those"
    assert message in caplog.text
    assert message in (tmp_path / "run/report.html").read_text()
    assert results["step"] == 4 and results["dev_accuracy"] is None
    assert results == json.loads((tmp_path / "run/metrics.json").read_text())
    for name in ("metrics.json", "report.json"):
        json.loads((tmp_path / "run" / name).read_text(), parse_constant=pytest.fail)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["texts", "questions"])
def test_evaluate_gives_the_same_numbers_to_the_last_bit(longer, tmp_path, name):
    given = family(name, tmp_path, longer)
    if name == "texts":  # scores, whose metrics show every bit
        for file in (given["train_file"], given["dev_file"]):
            write_table(file, 40, seed=1, labels=("0.5", "1.5"))
    results, model = run(tmp_path / "out", **given), f"--model={tmp_path}/out"
    bad = "--on_bad_input=skip" if name == "questions" else "--on_bad_input=stop"
    page = tmp_path / "page.html"
    files = {"eval_file": given["dev_file"], "report_file": page}
    done = run_command("evaluate", model, bad, **files)
    assert ParsedPage(page.read_bytes()).titles == ["Results", "Answers on dev"]
    found = json.loads(done.out)
    assert found.pop("task") == results["task"] and len(found) > 3
    assert found == {name: results[f"dev_{name}"] for name in found}


@pytest.mark.slow
def test_a_run_whose_outputs_are_not_finite_ends(tables, pretrained, tmp_path, caplog):
    settings = {"init_checkpoint": pretrained, "num_train_steps": 1}
    results = run(tmp_path / "run", **tables, **settings, learning_rate=1e38)
    assert "its logits are not finite" in caplog.text
    assert results["dev_accuracy"] is not None
    found = {path.name for path in (tmp_path / "run").iterdir()}
    assert found >= {"model.safetensors", "metrics.json", "report.html"}


EXACT = {
    "max_position_embeddings": 64,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "classifier_dropout_prob": 0.0,
}


def weights(folder):
    return {n: np.asarray(v) for n, v in weight_names(from_pretrained(folder)).items()}


_BROAD = [pytest.param(x, marks=pytest.mark.broad) for x in runs.FAMILIES[1:]]


@pytest.mark.slow
@pytest.mark.parametrize("family", ["texts", *_BROAD])
def test_the_weights_are_the_same(pretrained_as, tmp_path, family):
    settings = {
        **runs.family(family, tmp_path, pretrained_as(**EXACT)),
        "dropout": 0.0,
        "num_train_steps": 6,
        "keep": "last",
        "early_stopping_patience": 0,
    }
    runs.run(tmp_path / "one", **settings)
    runs.run(tmp_path / "accumulated", **settings, gradient_accumulation_steps=2)
    runs.run(tmp_path / "unpacked", **settings, packing=False)
    # Logical devices can only be made before TensorFlow starts.
    two = {"distribution": "mirrored", "num_devices": 2}
    runs.execute("finetune", runs.finetuning(tmp_path / "two", **settings, **two))
    known = weights(tmp_path / "one")
    metrics = json.loads((tmp_path / "one" / "metrics.json").read_text())
    for name in ("accumulated", "unpacked", "two"):
        for key, value in weights(tmp_path / name).items():
            np.testing.assert_allclose(value, known[key], atol=5e-5, err_msg=name + key)
        other = json.loads((tmp_path / name / "metrics.json").read_text())
        assert other["step"] == metrics["step"]


@pytest.mark.slow
def test_a_run_goes_on_with_rows_of_fixed_length(tables, pretrained, tmp_path):
    """As it has to on a TPU."""
    given = runs.finetuning(
        tmp_path / "o",
        **tables,
        init_checkpoint=pretrained,
        num_train_steps=4,
        save_checkpoints_steps=2,
    )
    runs.execute("finetune", given, "checkpoint")
    assert (tmp_path / "o/checkpoints/step-2.index").exists()
    runs.execute("finetune", given | {"fixed_length": True})
    record = json.loads((tmp_path / "o/run.json").read_text())
    assert record["settings"]["fixed_length"] is True
    assert record["changed_from"] == [{"fixed_length": False}]


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        {"precision": "bfloat16"},
        {"precision": "float16"},
        {"jit_compile": True},
        {"depth": "loop_remat"},
    ],
)
def test_other_ways_to_compute_learn_too(tables, pretrained_as, tmp_path, change):
    results = runs.run(
        tmp_path / "o",
        **tables,
        init_checkpoint=pretrained_as(num_hidden_layers=1 + ("depth" in change)),
        num_train_steps=90,
        **change,
    )
    assert results["dev_accuracy"] > 0.9
