"""`Predictor` gives the numbers of fine-tuning's own evaluation, for every head."""

import dataclasses
import re

import keras
import numpy as np
import pytest

from albert_tf.converters import load
from albert_tf.errors import DataError, UsageError
from albert_tf.heads import HEADS
from albert_tf.inference.formats import prediction_files
from albert_tf.inference.forward import as_forward
from albert_tf.inference.predictor import Predictor
from albert_tf.models.backbone import AlbertBackbone
from albert_tf.tasks import saved
from albert_tf.tasks.batches import BatchShape
from albert_tf.tasks.choice_files import ChoiceExamples
from albert_tf.tasks.outputs import collect_outputs
from albert_tf.tasks.registry import find_task
from albert_tf.tasks.squad_files import Question, Questions
from albert_tf.tasks.tagging_files import TaggedExamples
from albert_tf.tasks.task import Options
from albert_tf.tasks.text_tables import TextTable
from tests.tiny import tiny_config

CONFIG = tiny_config(num_hidden_layers=1, max_position_embeddings=40)
SHORT = Options(max_seq_length=32, doc_stride=9, max_query_length=8, max_qa_length=9)


def make_model(head, task=None, seed=3, **kwargs):
    model = HEADS[head].load_class()(CONFIG, seed=seed, **kwargs)
    if task is not None:
        task = dataclasses.replace(task, options=SHORT)
        model.task = saved.describe(task)
        model.labels = task.labels or None
        model.problem_type = task.problem_type
    return model


def save_model(folder, tokenizer, head, task, **kwargs):
    """Saves a model of a task, and returns its folder."""
    model = make_model(head, find_task(task), **kwargs)
    load.save_pretrained(model, folder / "m", tokenizer=tokenizer)
    return str(folder / "m")


def split_numbers(text):
    """Returns a text without its decimal fractions, and these."""
    parts = re.split(r"(\d+\.\d+)", text)
    return parts[::2], np.array(parts[1::2], float)


def questions(unanswerable):
    context = "The river Main runs through Frankfurt and meets the Rhine at Mainz. "
    items = [
        Question("a", "Which river?", 0, (("Main", 10),)),
        Question("b", "Where does it end?", 0, (("Mainz", 61),)),
    ]
    return Questions("dev.json", [context * 2], items, unanswerable=unanswerable)


def tags():
    tokens = [["Anna", "lives", "in", "Bonn"], ["a"] * 60]
    labels = [["B-PER", "O", "O", "B-LOC"], ["O"] * 60]
    return TaggedExamples("dev.txt", ["0", "1"], tokens, labels, [1, 6])


def choices():
    return ChoiceExamples(
        path="dev.csv",
        ids=["0", "1"],
        contexts=["She opened the door.", "It rained " * 30],
        questions=["Then she", ""],
        choices=[["left.", "sang."], ["We stayed.", "We swam.", "We slept."]],
        labels=[0, 2],
        where=["dev.csv: row 1", "dev.csv: row 2"],
        groups=["", ""],
    )


def table():
    texts, others = ["a b", "the " * 60, "an egg"], ["c", "d", ""]
    labels = ["entailment", "neutral", "contradiction"]
    return TextTable("dev.tsv", texts, others, labels, [2, 3, 4])


CASES = {
    "mnli": ("text_classifier", {"num_labels": 3}, table),
    "squad1": ("question_answering", {}, lambda: questions(False)),
    "squad2": ("beam_question_answering", {}, lambda: questions(True)),
    "conll2003": ("token_classifier", {"num_labels": 9}, tags),
    "swag": ("multiple_choice", {}, choices),
}


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_evaluation(tokenizer, tmp_path, name):
    head, kwargs, make = CASES[name]
    model = make_model(head, find_task(name), **kwargs)
    load.save_pretrained(model, tmp_path / "m", tokenizer=tokenizer)
    predictor = Predictor.from_pretrained(tmp_path / "m", batch_size=2)
    assert (predictor.head, predictor.task.name) == (head, name)
    assert predictor.options == SHORT
    examples = make()
    answers = predictor.answers(examples)
    task = dataclasses.replace(find_task(name), options=SHORT)
    encoded = task.encode(examples, tokenizer)
    shape = BatchShape(head, 32, 40, tokenizer.pad_id)
    outputs = collect_outputs(as_forward(model, head), encoded, shape, 2)
    expected = task.answers(examples, encoded, outputs)
    files = [prediction_files(task, examples, one) for one in (answers, expected)]
    main = ".json" if head.endswith("question_answering") else ".tsv"
    # One model, two ways to compute it: the sixth decimal depends on the processor.
    texts, numbers = zip(*(split_numbers(one[main]) for one in files), strict=True)
    assert texts[0] == texts[1]
    np.testing.assert_allclose(*numbers, atol=2e-6)
    metrics = predictor.metrics(examples, answers)
    assert metrics == pytest.approx(task.compare(examples, expected), abs=1e-5)


def test_bad_input_is_the_affair_of_each_command(tokenizer):
    task = find_task("squad1")
    given = dataclasses.replace(task.options, on_bad_input="skip")
    record = saved.describe(dataclasses.replace(task, options=given))
    assert "on_bad_input" not in record["options"]
    record["options"]["on_bad_input"] = "skip"  # by hand
    model = make_model("question_answering", task)
    model.task = record | {"options": {**record["options"], "max_seq_length": 40}}
    short = {"max_query_length": 8, "doc_stride": 9}
    bad = dataclasses.replace(questions(False), training=True)
    bad.items[0] = dataclasses.replace(bad.items[0], answers=())
    with pytest.raises(DataError, match="expected an answer with tokens"):
        Predictor(model, tokenizer, **short).encoded(bad)
    skipping = Predictor(model, tokenizer, on_bad_input="skip", **short)
    assert set(skipping.encoded(bad).detail.question) == {1}


def test_foreign_models_have_defaults(tokenizer):
    """Models without a record: what the head can do, with labels that have no names."""
    predictor = Predictor(make_model("text_classifier", num_labels=3), tokenizer)
    assert predictor.task.labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    assert predictor.options.max_seq_length == 40
    predictor = Predictor(make_model("token_classifier", num_labels=2), tokenizer)
    assert predictor.task.labels == ("LABEL_0", "LABEL_1")
    assert predictor.task.selecting_metric == "accuracy"
    assert make_model("token_classifier", num_labels=2).labels is None
    model = make_model("text_classifier", num_labels=1)
    predictor = Predictor(model, tokenizer)
    answers = predictor.answers(dataclasses.replace(table(), labels=None))
    assert (predictor.task.problem_type, answers.scores.shape) == ("regression", (3,))
    predictor = Predictor(make_model("question_answering"), tokenizer)
    assert predictor.task.name == "squad1"


def test_another_task(tokenizer):
    model = make_model("text_classifier", find_task("mnli"), num_labels=3)
    assert Predictor(model, tokenizer, task="ax").task.name == "ax"
    with pytest.raises(UsageError, match="squad1 needs a model with the head"):
        Predictor(model, tokenizer, task="squad1")
    with pytest.raises(UsageError, match="beir .*--head=text_embedder makes it"):
        Predictor(model, tokenizer, task="beir")
    model.labels = None
    assert Predictor(model, tokenizer).task.labels == find_task("mnli").labels
    with pytest.raises(DataError, match="expected 2 labels, 0, 1, as task cola"):
        Predictor(model, tokenizer, task="cola")


def test_options_override_the_record(tokenizer):
    model = make_model("question_answering", find_task("squad1"))
    predictor = Predictor(model, tokenizer, doc_stride=5, null_threshold=None)
    assert predictor.options == dataclasses.replace(SHORT, doc_stride=5)
    assert predictor.encoded(questions(False)).rows.lengths.max() <= 32


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_seq_length": 41}, "max_position_embeddings=40, received 41"),
        ({"batch_size": 0}, "batch_size must be a positive integer, received 0"),
        ({"doc_stride": True}, "doc_stride must be a positive integer"),
        ({"null_threshold": float("nan")}, "null_threshold must be a number"),
        ({"null_threshold": "x"}, "null_threshold must be a number, received 'x'"),
        ({"task": "squad3"}, "task must be one of .* received 'squad3'"),
    ],
)
def test_bad_options(tokenizer, given, message):
    with pytest.raises(UsageError, match=message):
        Predictor(make_model("question_answering"), tokenizer, **given)


def test_refuses_models_without_a_trained_head(tokenizer, tmp_path):
    load.save_pretrained(AlbertBackbone(CONFIG), tmp_path / "b", tokenizer=tokenizer)
    with pytest.raises(UsageError, match="no trained classifier, .*=text_embedder"):
        Predictor.from_pretrained(tmp_path / "b")
    with pytest.raises(UsageError, match="no trained start_head, .* head is none"):
        Predictor.from_pretrained(tmp_path / "b", head="beam_question_answering")
    for head in ("masked_lm", ["x"]):
        with pytest.raises(UsageError, match="head must be one of .* received"):
            Predictor.from_pretrained(tmp_path / "b", head=head)
    with pytest.raises(UsageError, match="fine-tuned model, received Albert"):
        Predictor(AlbertBackbone(CONFIG), tokenizer)


def test_damaged_weights(tokenizer):
    model = make_model("question_answering")
    model.classifier.bias.assign(np.full(2, np.nan))
    with pytest.raises(DataError, match="start_logits are not finite"):
        Predictor(model, tokenizer).answers(questions(False))


def models_in_orders(tokenizer, task, names, orders):
    """Models whose outputs are those of the first one, in other orders."""
    model = make_model("text_classifier", find_task(task), num_labels=len(names))
    logits = Predictor(model, tokenizer).answers(pairs(16)).logits
    kernel, bias = map(keras.ops.convert_to_numpy, model.classifier.weights)
    for order in map(list, orders):
        model.classifier.kernel.assign(kernel[:, order])
        # No class is always the likeliest.
        model.classifier.bias.assign((bias - logits.mean(0))[order])
        model.labels = tuple(names[i] for i in order)
        yield order, model


def pairs(count, labels=None):
    texts = [f"word{i} and the {i}" for i in range(count)]
    others = [f"of {i * 7} a" for i in range(count)]
    return TextTable("dev.tsv", texts, others, labels, list(range(count)))


def test_f1_is_that_of_the_same_class_in_any_order(tokenizer):
    names, orders, found = ("not_duplicate", "duplicate"), ((0, 1), (1, 0)), []
    examples = pairs(16, ["1"] * 9 + ["0"] * 7)
    for order, model in models_in_orders(tokenizer, "qqp", names, orders):
        predictor = Predictor(model, tokenizer, task="qqp", max_seq_length=16)
        answers = predictor.answers(examples)
        assert predictor.task.labels == tuple("01"[i] for i in order)
        decided = [answers.text(i) for i in range(len(examples))]
        found.append((decided, predictor.metrics(examples, answers)))
    assert found[0] == found[1]
    decided, values = found[0]
    assert len(set(decided)) == 2
    hits = sum(a == b == "1" for a, b in zip(decided, examples.labels, strict=True))
    expected = 2 * hits / (decided.count("1") + examples.labels.count("1"))
    assert values["f1"] == pytest.approx(expected)


def test_the_diagnostics_by_a_model_with_another_order(tokenizer):
    names = find_task("mnli").labels
    examples = pairs(16)
    tables, orders = [], ((0, 1, 2), (1, 2, 0))
    for order, model in models_in_orders(tokenizer, "mnli", names, orders):
        predictor = Predictor(model, tokenizer, task="ax")
        assert predictor.task.labels == tuple(names[i] for i in order)
        answers = predictor.answers(examples)
        rows = predictor.task.cells(examples, answers)
        tables.append({column[0]: column for column in zip(*rows, strict=True)})
        # The probabilities are in the order of the model, and say so.
        shown = [name for name in tables[-1] if name.startswith("probability_")]
        assert shown == [f"probability_{names[i]}" for i in order]
    assert tables[0]["prediction"] == tables[1]["prediction"]
    found = set(tables[0]["prediction"][1:])
    assert len(found) > 1 and found <= set(names)
