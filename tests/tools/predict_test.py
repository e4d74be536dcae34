"""`predict` and `evaluate` as commands; what they refuse: before_tensorflow_test."""

import json
import shutil

import pytest

from albert_tf.converters.load import save_pretrained
from tests.commands import run_command
from tests.tiny import make_model

pytestmark = pytest.mark.slow


def run(command):
    done = run_command(*command.split())
    assert done.code == 0, done.err


def test_nothing_but_the_answers_is_written(
    tokenizer, model_folder, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    labels = ("bad", "good")
    shutil.copytree(model_folder("text_classifier", labels=labels), "cls")
    # This one was trained on a table without a header, and remembers it.
    classifier = make_model("text_classifier", num_labels=2)
    layout = {"header": False, "text_column": "1", "label_column": "0"}
    written = {"1": "bad", "2": "good"}
    classifier.task = {"name": "table", "table": layout, "written": written}
    save_pretrained(classifier, "bare", tokenizer=tokenizer, labels=list(labels))
    (tmp_path / "bare.csv").write_text("2,a film\n1,no film\n")
    (tmp_path / "table.csv").write_text("text,label\na film,good\nno film,bad\n")
    run("predict --model=cls --input_file=table.csv --output_file=out.tsv")
    run("evaluate --model=cls --eval_file=table.csv")
    run("predict --model=bare --input_file=bare.csv --output_file=bare.tsv")
    run("evaluate --model=bare --eval_file=bare.csv")
    columns = "--header --text_column=text --label_column=label"
    run(f"evaluate --model=bare --eval_file=table.csv {columns}")
    names = {"cls", "bare", "table.csv", "out.tsv", "bare.csv", "bare.tsv"}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert len((tmp_path / "out.tsv").read_text().splitlines()) == 3


def write_questions(folder, bad):
    """Writes five questions, or without the two that cannot be used."""
    context = "It rains in May, " + "day and night, " * 20 + "but not in June."
    # The fourth answer is longer than any window.
    texts = ["rains", "May", "June", context, "May"]
    answers = [[{"text": t, "answer_start": context.index(t)}] for t in texts]
    answers[1][0]["answer_start"] += 1
    answers[4] = []
    questions = [
        {"id": str(i), "question": f"What {i}?", "answers": found}
        for i, found in enumerate(answers)
        if bad or i not in (1, 4)
    ]
    data = [{"title": "t", "paragraphs": [{"context": context, "qas": questions}]}]
    folder.mkdir()
    content = json.dumps({"version": "1.1", "data": data})
    (folder / "train-v1.1.json").write_text(content)


def test_questions_that_cannot_be_used(model_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_questions(tmp_path / "bad", bad=True)
    write_questions(tmp_path / "clean", bad=False)
    evaluate = f"evaluate --model={model_folder('question_answering')}"
    done = run_command(*f"{evaluate} --data_dir=bad --split=train".split())
    assert done.code == 1 and "--on_bad_input=skip leaves it out" in done.error
    assert "qas[1]" in done.error
    # Left out; the same without them, as a file to train on and as one to be answered.
    for number, source in enumerate(
        (
            "--data_dir=bad --split=train --on_bad_input=skip",
            "--data_dir=clean --split=train",
            "--eval_file=clean/train-v1.1.json",
        )
    ):
        run(f"{evaluate} {source} --output_file={number}.json")
    first, *others = [json.loads((tmp_path / f"{n}.json").read_text()) for n in "012"]
    assert others == [first, first] and first["examples"] == 3
