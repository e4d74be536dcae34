"""Fine-tuning: it repeats itself, refuses bad settings, leaves its results."""

import json
import logging
from unittest import mock

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
from albert_tf.tasks.text_classification import TextTask
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

pytestmark = pytest.mark.usefixtures("eager")


def weights(folder):
    return {n: np.asarray(v) for n, v in weight_names(from_pretrained(folder)).items()}


@pytest.mark.slow
def test_a_model_by_name_and_a_config_beside_it(
    tables, pretrained, tmp_path, monkeypatch
):
    name, origin = "hf://owner/name", "hf://owner/name@0123"
    monkeypatch.setattr(hubs, "download", lambda _: hubs.Download(pretrained, origin))
    path = tmp_path / "albert_config.json"
    given = {"train_file": tables["train_file"], "init_checkpoint": name}
    given |= {"albert_config_file": str(path), "num_train_steps": 1}
    CONFIG.replace(num_hidden_layers=3, hidden_size=48).to_json(path)
    message = r"albert_config\.json: hidden_size must be 24 as in .*, received 48"
    with pytest.raises(UsageError, match=message):
        run(tmp_path / "out", **given)
    # The file also has the dropout, as in the original.
    config = CONFIG.replace(hidden_dropout_prob=0.2)
    config.to_json(path)
    run(tmp_path / "out", **given)
    assert from_pretrained(tmp_path / "out").config == config
    record = json.loads((tmp_path / "out/run.json").read_text())
    assert record["init_checkpoint"] == origin
    assert record["settings"]["init_checkpoint"] == name


@pytest.mark.slow
def test_a_classifier_of_other_labels_is_replaced(
    model_folder, tmp_path, monkeypatch, caplog
):
    kind = {"labels": ("bad", "good"), "problem_type": "single_label_classification"}
    start = model_folder("text_classifier", **kind)
    counts = count_openings(monkeypatch)
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
def test_f1_is_about_the_second_label_that_is_given(tables, tmp_path):
    start, out = AlbertTextClassifier(CONFIG, num_labels=2, seed=3), tmp_path / "out"
    start.labels = ("good", "bad")
    start.problem_type = "single_label_classification"
    save_pretrained(start, tmp_path / "start", tokenizer=AlbertTokenizer(SPIECE))
    given = {**tables, "labels": ("good", "bad"), "max_seq_length": 5}
    given["num_train_steps"] = 1
    results = run(out, **given, init_checkpoint=str(tmp_path / "start"))
    assert results["labels"] == ["good", "bad"] and results["dev_truncated"] == 50
    lines = (out / "predictions.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    expected = precision_recall_fscore_support(
        [row["label"] == "bad" for row in rows],
        [row["prediction"] == "bad" for row in rows],
        average="binary",
        zero_division=0,
    )
    names = ("precision", "recall", "f1")
    assert [results[f"dev_{name}"] for name in names] == pytest.approx(expected[:3])
    # The model remembers the label, and the length.
    predictor = Predictor.from_pretrained(out)
    table = LabelledTableSettings().read_table(tables["dev_file"])
    again = predictor.metrics(table, predictor.answers(table))
    assert again == {name: results[f"dev_{name}"] for name in again}
    assert {*names} < {*again}
    # The length belongs to the classifier: it survives saving, and only that.
    model = from_pretrained(out, "text_classifier")
    save_pretrained(model, tmp_path / "copy", tokenizer=AlbertTokenizer(SPIECE))
    for path in (out, tmp_path / "copy"):
        assert Classifier.from_pretrained(path).max_seq_length == 5
    save_pretrained(from_pretrained(out, head=None), tmp_path / "bare")
    config = json.loads((tmp_path / "bare" / "config.json").read_text())
    assert "max_seq_length" not in config["model"]


def test_a_config_for_a_checkpoint_without_one(
    tables, pretrained, tmp_path, monkeypatch
):
    model = from_pretrained(pretrained, "pretraining")
    save_pretrained(model, tmp_path / "tf1", format="tf1")
    path = (tmp_path / "tf1" / "albert_config.json").rename(tmp_path / "c.json")
    given = {"train_file": tables["train_file"], "spm_model_file": str(SPIECE)}
    given |= {"init_checkpoint": str(tmp_path / "tf1" / "model.ckpt-best")}
    with pytest.raises(DataError, match=r"no albert_config\.json"):
        run(tmp_path / "out", **given)
    monkeypatch.setattr(Finetuning, "train", mock.Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "out", **given, albert_config_file=str(path))
    record = json.loads((tmp_path / "out/run.json").read_text())
    assert record["content"]["config"]["hidden_size"] == CONFIG.hidden_size


@pytest.mark.slow
def test_a_run_from_scratch_with_pairs_whose_outputs_are_not_finite(
    tables, tmp_path, caplog
):
    CONFIG.to_json(tmp_path / "config.json")
    given = {"from_scratch": True, "spm_model_file": str(SPIECE)}
    given |= {"albert_config_file": str(tmp_path / "config.json")}
    lengths = {"max_seq_length": 10, "num_train_steps": 1, "learning_rate": 1e38}
    results = run(tmp_path / "run", **tables, **given, **lengths, text_pair_column="id")
    assert results["train_truncated"] > 50 and results["max_seq_length"] == 10
    assert "its logits are not finite" in caplog.text
    assert results["dev_accuracy"] is not None
    found = {path.name for path in (tmp_path / "run").iterdir()}
    assert found >= {"model.safetensors", "metrics.json", "report.html"}


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


@pytest.fixture
def averaged(tables, pretrained, tmp_path, monkeypatch):
    """Settings of a run, its last averages, and those of each best step."""
    best, last = {}, {}
    save, replace = KeepWeights.save, WeightAverages.replace_weights

    def save_and_copy(self, step):
        save(self, step)
        best[step] = {k: v.numpy() for k, v in self._weights.items()}

    def copy_and_replace(self):
        last.update({k: v.numpy() for k, v in self.averages.items()})
        replace(self)

    monkeypatch.setattr(KeepWeights, "save", save_and_copy)
    monkeypatch.setattr(WeightAverages, "replace_weights", copy_and_replace)
    lengths = {"num_train_steps": 4, "eval_steps": 2, "ema_decay": 0.7}
    return {**tables, **lengths, "init_checkpoint": pretrained}, last, best


def assert_saved(folder, expected):
    found = weights(folder)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.slow
def test_averages_of_the_best_step_are_kept(averaged, tmp_path):
    given, last, best = averaged
    results = run(tmp_path / "run", **given)
    assert_saved(tmp_path / "run", best[results["step"]])
    if 4 in best:  # the averages of that step, not the weights
        name = "classifier/kernel"
        np.testing.assert_array_equal(best[4][name], last[name])


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
def test_without_a_number_to_select_by_the_last_averages_are_kept(
    averaged, tmp_path, monkeypatch, caplog
):
    given, last, best = averaged
    compare = TextTask.compare
    nothing = {"accuracy": float("nan")}
    monkeypatch.setattr(TextTask, "compare", lambda *args: compare(*args) | nothing)
    results = run(tmp_path / "run", **given)
    assert_saved(tmp_path / "run", last)
    assert not best
    message = "The accuracy was not a number at any evaluation: the weights are those"
    assert message in caplog.text
    assert message in (tmp_path / "run/report.html").read_text()
    assert results["step"] == 4 and results["dev_accuracy"] is None
    assert results == json.loads((tmp_path / "run/metrics.json").read_text())
    for name in ("metrics.json", "report.json"):
        json.loads((tmp_path / "run" / name).read_text(), parse_constant=pytest.fail)


@pytest.fixture
def whole(request, eager, longer, tmp_path):
    """A run that nothing disturbed, with graphs, and its settings."""
    eager(False)
    values = family(request.param, tmp_path, longer)
    if request.param == "texts":  # scores, whose metrics show every bit
        for file in (values["train_file"], values["dev_file"]):
            write_table(file, 40, seed=1, labels=("0.5", "1.5"))
    return run(tmp_path / "whole", **values), values


@pytest.mark.slow
@pytest.mark.parametrize(
    *("whole", ["texts", pytest.param("questions", marks=pytest.mark.broad)]),
    indirect=True,
)
def test_evaluate_and_a_killed_run_give_the_same_to_the_last_bit(whole, tmp_path):
    results, given = whole
    model, page = f"--model={tmp_path}/whole", tmp_path / "page.html"
    bad = f"--on_bad_input={given.get('on_bad_input', 'stop')}"
    files = {"eval_file": given["dev_file"], "report_file": page}
    done = run_command("evaluate", model, bad, **files)
    assert ParsedPage(page.read_bytes()).titles == ["Results", "Answers on dev"]
    found = json.loads(done.out)
    assert found.pop("task") == results["task"] and len(found) > 3
    assert found == {name: results[f"dev_{name}"] for name in found}
    # Killed in an evaluation.
    killed = runs.finetuning(tmp_path / "killed", **given)
    runs.execute("finetune", killed, "evaluation", 2)
    # What is there is no model, and another run does not take its place unasked.
    with pytest.raises(DataError, match="fine-tuning run that has not finished"):
        from_pretrained(tmp_path / "killed")
    with pytest.raises(UsageError, match="holds another run, with --seed=7"):
        run(**{**killed, "seed": 8})
    run(**killed)
    runs.assert_same_run(tmp_path / "whole", tmp_path / "killed")
    assert not (tmp_path / "killed" / "checkpoints").exists()


EXACT = {
    "max_position_embeddings": 64,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "classifier_dropout_prob": 0.0,
}


_BROAD = [pytest.param(x, marks=pytest.mark.broad) for x in runs.FAMILIES[1:]]


@pytest.mark.slow
@pytest.mark.parametrize("family", ["texts", *_BROAD])
def test_replicas_and_micro_batches_train_the_same(
    pretrained_as, model_folder, tmp_path, family
):
    settings = {
        **runs.family(family, tmp_path, pretrained_as(**EXACT)),
        "dropout": 0.0,
        "num_train_steps": 6,
        "keep": "last",
        "early_stopping_patience": 0,
    }
    if family == "texts":
        teacher = model_folder("text_classifier", labels=("good", "bad"))
        settings |= {"teacher": teacher, "teacher_weight": 0.5}
    results = run(tmp_path / "one", **settings)
    # Logical devices can only be made before TensorFlow starts.
    two = {"distribution": "mirrored", "num_devices": 2, "packing": False}
    two |= {"gradient_accumulation_steps": 2}
    runs.execute("finetune", runs.finetuning(tmp_path / "two", **settings, **two))
    known = weights(tmp_path / "one")
    for name, value in weights(tmp_path / "two").items():
        np.testing.assert_allclose(value, known[name], atol=5e-5, err_msg=name)
    other = json.loads((tmp_path / "two" / "metrics.json").read_text())
    assert other["step"] == results["step"]


def test_a_run_goes_on_with_rows_of_fixed_length(
    tables, pretrained, tmp_path, monkeypatch
):
    """As it has to on a TPU."""
    train = mock.Mock(side_effect=KeyboardInterrupt)
    monkeypatch.setattr(Finetuning, "train", train)
    given = {"train_file": tables["train_file"], "init_checkpoint": pretrained}
    for fixed in (False, True):
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "o", **given, num_train_steps=4, fixed_length=fixed)
    record = json.loads((tmp_path / "o/run.json").read_text())
    assert record["settings"]["fixed_length"] is True
    assert record["changed_from"] == [{"fixed_length": False}]


@pytest.mark.slow
def test_a_compiled_run_in_bfloat16_learns_too(eager, tables, pretrained, tmp_path):
    """Other ways to compute are shown with the step."""
    eager(False)
    given = {**tables, "precision": "bfloat16", "jit_compile": True}
    results = run(tmp_path / "o", **given, init_checkpoint=pretrained)
    assert results["dev_accuracy"] > 0.9
