"""`predict` and `evaluate` as commands; what they refuse: before_tensorflow_test."""

import contextlib
import json
import shutil

import pytest

from albert_tf.converters.load import save_pretrained
from tests.commands import run_command
from tests.tiny import make_model

pytestmark = pytest.mark.slow

OUT = "--output_file=out.tsv"
TABLE = ("--input_file=table.csv", OUT)
LABELLED = "--eval_file=table.csv"
# Two questions of the training file cannot be used.
SQUAD = ["evaluate", "--model=squad", "--data_dir=official", "--split=train"]
SKIPPED = [*SQUAD, "--on_bad_input=skip", "--output_file=official/skipped.json"]
# The same file without them, as one to train on and as one to be answered.
CLEAN = [
    [*SQUAD, "--data_dir=official/clean", "--output_file=official/train.json"],
    ["evaluate", "--model=squad", "--eval_file=official/clean/train-v1.1.json"]
    + ["--output_file=official/dev.json"],
]
WORKS = [
    ["predict", "--model=cls", *TABLE],
    ["evaluate", "--model=cls", LABELLED],
    # A model that was trained on a table without a header, and remembers it.
    ["predict", "--model=bare", "--input_file=bare.csv", "--output_file=bare.tsv"],
    ["evaluate", "--model=bare", "--eval_file=bare.csv"],
    ["evaluate", "--model=bare", "--header", "--text_column=text", LABELLED]
    + ["--label_column=label"],
]


def write_questions(folder):
    """Questions, of which two have an answer in the wrong place, or none."""
    context = "It rains in May, " + "day and night, " * 20 + "but not in June."
    # The fourth answer is longer than any window.
    texts = ["rains", "May", "June", context, "May"]
    places = [context.index(text) for text in texts]
    for path, bad in ((folder, True), (folder / "clean", False)):
        path.mkdir()
        questions = [
            {"id": str(i), "question": f"What {i}?", "answers": [found]}
            for i, (text, start) in enumerate(zip(texts, places, strict=True))
            for found in [{"text": text, "answer_start": start}]
        ]
        questions[1]["answers"][0]["answer_start"] += bad
        questions[4]["answers"] *= not bad
        if not bad:
            del questions[4], questions[1]
        paragraph = {"context": context, "qas": questions}
        data = [{"title": "t", "paragraphs": [paragraph]}]
        text = json.dumps({"version": "1.1", "data": data})
        (path / "train-v1.1.json").write_text(text)


@pytest.fixture(scope="module")
def results(tokenizer, model_folder, tmp_path_factory):
    """What all commands have left."""
    folder = tmp_path_factory.mktemp("work")
    shutil.copytree(
        model_folder("text_classifier", labels=("bad", "good")), folder / "cls"
    )
    shutil.copytree(model_folder("question_answering"), folder / "squad")
    classifier = make_model("text_classifier", num_labels=2)
    layout = {"header": False, "text_column": "1", "label_column": "0"}
    written = {"1": "bad", "2": "good"}
    classifier.task = {"name": "table", "table": layout, "written": written}
    labels = list(written.values())
    save_pretrained(classifier, folder / "bare", tokenizer=tokenizer, labels=labels)
    (folder / "bare.csv").write_text("2,a film\n1,no film\n")
    (folder / "table.csv").write_text("text,label\na film,good\nno film,bad\n")
    write_questions(folder / "official")
    with contextlib.chdir(folder):
        commands = [*WORKS, SQUAD, SKIPPED, *CLEAN]
        return {tuple(words): run_command(*words) for words in commands}, folder


def test_on_bad_input_reaches_the_rows(results):
    done = results[0][tuple(SQUAD)]
    assert done.code == 1 and "--on_bad_input=skip leaves such questions" in done.error
    assert "qas[1]" in done.error


def test_an_evaluation_leaves_bad_training_questions_out(results):
    found, folder = results
    for command in (SKIPPED, *CLEAN):
        assert found[tuple(command)].code == 0, found[tuple(command)].err
    names = ("skipped", "train", "dev")
    values = [
        json.loads((folder / "official" / f"{name}.json").read_text()) for name in names
    ]
    assert values[0] == values[1] == values[2]
    assert values[0]["examples"] == 3


def test_nothing_but_the_answers_is_written(results):
    found, folder = results
    for command in WORKS:
        assert found[tuple(command)].code == 0, found[tuple(command)].err
    names = {"cls", "squad", "table.csv", "out.tsv", "official", "bare"}
    names |= {"bare.csv", "bare.tsv"}
    assert {path.name for path in folder.iterdir()} == names
    assert len((folder / "out.tsv").read_text().splitlines()) == 3
