"""A converted model is judged by the metric of its task, whatever its head."""

import functools

import numpy as np
import pytest

from albert_tf.errors import DataError
from albert_tf.export.runtime_folder import export_for_runtime
from albert_tf.inference.converted import accuracy_check, as_forward, labelled_check
from albert_tf.inference.predictor import Predictor
from albert_tf.tasks.opening import DataSettings
from albert_tf.tasks.registry import find_task
from albert_tf.tasks.text_tables import TextTable
from tests.inference.predictor_test import CASES, make_model


@pytest.mark.broad
@pytest.mark.parametrize("name", CASES)
def test_litert_answers_as_the_model(name, tokenizer, tmp_path):
    head, sizes, make = CASES[name]
    predictor = Predictor(make_model(head, find_task(name), **sizes), tokenizer)
    examples = make()
    found = {}

    def check(run):
        found.update(accuracy_check(predictor, examples, 0.0, run))
        return found

    export_for_runtime(
        predictor.model,
        tmp_path / "m",
        format="litert",
        tokenizer=tokenizer,
        check=check,
    )
    assert found["metric"] == predictor.task.selecting_metric
    assert found["before"] == found["after"] and found["drop_in_points"] == 0.0


def test_a_drop_is_refused(tokenizer):
    texts = ["a b", "the dog", "an egg"]
    labels = ["entailment", "neutral", "entailment"]
    examples = TextTable("dev.tsv", texts, texts, labels, [2, 3, 4])
    model = make_model("text_classifier", find_task("mnli"), num_labels=3)
    names = Predictor(model, tokenizer).task.labels

    def always(label):
        row = np.array([name == label for name in names], np.float32)
        return lambda batch: {"logits": np.tile(row, (len(batch["token_ids"]), 1))}

    predictor = Predictor(model, tokenizer)
    # Its own answer, whatever the text.
    bias = [30.0 * (name == "entailment") for name in names]
    model.classifier.bias.assign(bias)
    right, wrong = always("entailment"), always("neutral")
    check = functools.partial(accuracy_check, predictor, examples)
    assert check(33.0, right)["drop_in_points"] == 0.0
    with pytest.raises(DataError, match=r"falls from 0.6667 to 0.3333, by 33.33 po"):
        check(33.0, wrong)
    found = check(34.0, wrong)
    assert (found["metric"], found["examples"]) == ("accuracy", 3)


def test_the_examples_are_those_of_the_settings(tokenizer, tmp_path):
    model = make_model("text_classifier", find_task("mnli"), num_labels=3)
    given = {"max_seq_length": 16, "max_drop": 0.0}
    none = labelled_check(model, tokenizer, DataSettings(), eval_file="", **given)
    assert none is None
    rows = "text\tlabel\na b\tneutral\nthe dog\tentailment\n"
    (tmp_path / "dev.tsv").write_text(rows)
    data = DataSettings(task="table", text_column="text", label_column="label")
    file = str(tmp_path / "dev.tsv")
    check = labelled_check(model, tokenizer, data, eval_file=file, **given)
    found = check(lambda batch: {"logits": np.asarray(model(batch))})
    assert (found["examples"], found["drop_in_points"]) == (2, 0.0)


def test_words_are_picked_after_the_model():
    logits = np.arange(24.0).reshape(2, 4, 3)
    forward = as_forward(lambda batch: {"logits": logits}, "token_classifier")
    places = np.array([[0, 2], [5, 7]])
    np.testing.assert_array_equal(
        forward({"places": places})["logits"],
        [[logits[0, 0], logits[0, 2]], [logits[1, 1], logits[1, 3]]],
    )
