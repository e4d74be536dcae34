"""`predict` and `evaluate` refuse what cannot work before they load a model."""

import contextlib
import importlib.util
import json
import shutil

import pytest

from albert_tf.converters import keras_model
from albert_tf.converters.load import save_pretrained
from tests.commands import run_command
from tests.tiny import make_model

pytestmark = pytest.mark.slow

OUT = "--output_file=out.tsv"
TABLE = ("--input_file=table.csv", OUT)
LABELLED = "--eval_file=table.csv"
RUNNER = "--runner: Nonsense cannot be used"
if importlib.util.find_spec("apache_beam") is None:
    RUNNER = "--runner: needs Apache Beam: pip install albert_tf[beam]"
# Arguments, exit code, message.
REFUSED = [
    (["predict", "--model=m", OUT], 2, "exactly one of --input_file and --data_dir"),
    (["predict", "--model=m", "--task=foo", *TABLE], 2, "--task must be one of cola, "),
    (["predict", "--model=mlm", *TABLE], 2, "mlm: has no trained classifier"),
    (["predict", "--model=cls", "--task=squad1", *TABLE], 2, "needs a model with the"),
    (["predict", "--model=cls", "--task=mnli", *TABLE], 1, "those of task mnli"),
    (["predict", "--model=cls", "--max_seq_length=99", *TABLE], 2, "embeddings=24"),
    (
        ["predict", "--model=cls", "--input_file=table.csv", "--output_file=x.json"],
        2,
        "texts are written as .tsv, .csv, .jsonl or .parquet, received x.json",
    ),
    (["predict", "--model=squad", *TABLE], 2, "answers to questions are written as"),
    (
        ["predict", "--model=cls", "--input_file=table.csv", "--output_file=table.csv"],
        2,
        "--output_file: table.csv exists already; give --overwrite",
    ),
    (
        ["predict", "--model=cls", "--input_file=table.csv", "--output_file=no/x.tsv"],
        2,
        "--output_file: no/x.tsv: there is no folder no",
    ),
    (
        ["predict", "--model=cls01", "--task=sst2", "--data_dir=glue", OUT],
        1,
        "glue",
    ),
    (
        ["predict", "--model=nli", "--task=mnli", "--data_dir=glue", OUT],
        2,
        "expected one of test_matched, test_mismatched, received test",
    ),
    (
        ["predict", "--model=cls", "--on_bad_input=skip", *TABLE],
        2,
        "predict answers every example",
    ),
    (["predict", "--model=cls", "--runner=Nonsense", *TABLE], 2, RUNNER),
    (
        ["predict", "--model=cls", "--signature=tag", *TABLE],
        2,
        "--signature: only with a SavedModel, not with cls, received 'tag'",
    ),
    *(
        (
            ["predict", "--model=served", f"--{flag}", *TABLE],
            2,
            f"--{flag.split('=')[0]}: not with a SavedModel, received ",
        )
        for flag in ("id_column=i", "exit=layers:1", "max_seq_length=8", "split=dev")
    ),
    (
        ["evaluate", "--model=nli", "--task=mnli", "--text_column=x"]
        + ["--data_dir=tfds:glue/mnli"],
        2,
        "text_column",
    ),
    (
        ["evaluate", "--model=cls", "--report_file=no/r.html", LABELLED],
        2,
        "--report_file: no/r.html: there is no folder no",
    ),
    (["evaluate", "--model=cls"], 2, "exactly one of --eval_file and --data_dir"),
    (["evaluate", "--model=mlm", LABELLED], 2, "mlm: has no trained classifier"),
    (["evaluate", "--model=cls", "--task=wnut17", LABELLED], 2, "token_classifier"),
]
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
    """What all commands have left, and whether they built a model."""
    folder = tmp_path_factory.mktemp("work")
    for name, head, labels in (
        ("cls", "text_classifier", ("bad", "good")),
        ("cls01", "text_classifier", ("0", "1")),
        ("nli", "text_classifier", ("contradiction", "entailment", "neutral")),
        ("mlm", "masked_lm", None),
        ("squad", "question_answering", None),
    ):
        shutil.copytree(model_folder(head, labels=labels), folder / name)
    classifier = make_model("text_classifier", num_labels=2)
    layout = {"header": False, "text_column": "1", "label_column": "0"}
    written = {"1": "bad", "2": "good"}
    classifier.task = {"name": "table", "table": layout, "written": written}
    labels = list(written.values())
    save_pretrained(classifier, folder / "bare", tokenizer=tokenizer, labels=labels)
    (folder / "bare.csv").write_text("2,a film\n1,no film\n")
    (folder / "table.csv").write_text("text,label\na film,good\nno film,bad\n")
    (folder / "served").mkdir()
    (folder / "served/saved_model.pb").touch()
    (folder / "glue").mkdir()
    write_questions(folder / "official")
    commands = [arguments for arguments, *_ in REFUSED] + WORKS
    found, built, build = {}, [], keras_model.build_model
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(folder):
        patch.setattr(
            keras_model,
            "build_model",
            lambda *a, **k: built.append(1) or build(*a, **k),
        )
        for arguments in [*commands, SQUAD, SKIPPED, *CLEAN]:
            built.clear()
            found[tuple(arguments)] = run_command(*arguments), bool(built)
    return found, folder


@pytest.mark.parametrize(("arguments", "code", "message"), REFUSED)
def test_refused_in_one_line_before_a_model_is_loaded(
    results, arguments, code, message
):
    done, is_built = results[0][tuple(arguments)]
    assert (done.code, is_built) == (code, False), done.err
    assert done.err == f"{done.error}\n" and done.error.startswith("error: ")
    assert message in done.error


def test_on_bad_input_reaches_the_rows(results):
    done, _ = results[0][tuple(SQUAD)]
    assert done.code == 1 and "--on_bad_input=skip leaves such questions" in done.error
    assert "qas[1]" in done.error


def test_an_evaluation_leaves_bad_training_questions_out(results):
    found, folder = results
    for command in (SKIPPED, *CLEAN):
        done, _ = found[tuple(command)]
        assert done.code == 0, done.err
    names = ("skipped", "train", "dev")
    values = [
        json.loads((folder / "official" / f"{name}.json").read_text()) for name in names
    ]
    assert values[0] == values[1] == values[2]
    assert values[0]["examples"] == 3


def test_nothing_but_the_answers_is_written(results):
    found, folder = results
    for command in WORKS:
        done, is_built = found[tuple(command)]
        assert (done.code, is_built) == (0, True), done.err
    names = {"cls", "cls01", "nli", "mlm", "squad", "glue", "table.csv", "out.tsv"}
    names |= {"official", "served", "bare", "bare.csv", "bare.tsv"}
    assert {path.name for path in folder.iterdir()} == names
    assert len((folder / "out.tsv").read_text().splitlines()) == 3
