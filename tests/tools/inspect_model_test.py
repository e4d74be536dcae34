"""`albert-tf inspect` as a person runs it."""

import json

import pytest

from albert_tf.inference.inspection import TEXTS
from tests.commands import run_command
from tests.imports import ROOT
from tools import main as dispatch


@pytest.fixture
def run_inspect(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: run_command("inspect_model", *arguments)


def test_the_file_hides_no_module_of_python(run_python):
    """Python looks for modules in the folder of the file that it runs, first of all."""
    assert dispatch.verb_files()["inspect"] == ROOT / "tools/inspect_model.py"
    done = run_python(ROOT / "tools/facts.py", "--help")
    assert done.returncode == 0, done.stderr
    names = {path.stem for path in (ROOT / "tools").glob("*.py")}
    code = "import sys; print(*sys.stdlib_module_names)"
    assert not names & {*run_python("-c", code).stdout.split()}


@pytest.mark.slow
def test_a_folder_of_two_models(run_inspect, tmp_path, model_folder):
    models = [model_folder("masked_lm"), model_folder("text_classifier")]
    done = run_inspect(*models, "--output_dir=out", "--layers=2")
    assert done.code == 0, done.err
    assert "the capital of france is [MASK] ." in done.out
    assert "no answers after each layer: no trained masked-LM head" in done.out
    found = json.loads((tmp_path / "out/inspect.json").read_text())
    assert found["texts"] == list(TEXTS)
    assert [one["model"] for one in found["models"]] == models
    names = ["answers_1.png", "attention_1_layer_2.png", "attention_2_layer_2.png"]
    names += ["inspect.json", "layers.png", "path_1.png", "path_2.png"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names
    first = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    # Nothing is replaced unasked, and nothing that is not ours at all.
    done = run_inspect(*models, "--output_dir=out")
    assert done.code == 2 and "out: exists already" in done.error
    again = ("--output_dir=out", "--layers=2", "--overwrite", "--json")
    done = run_inspect(*models, *again)
    assert done.code == 0 and json.loads(done.out) == found
    assert {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()} == first
    (tmp_path / "out/notes.txt").write_text("mine")
    done = run_inspect(*models, *again)
    assert done.code == 2 and "out: contains notes.txt" in done.error


def test_texts_of_flags_and_of_a_file(run_inspect, tmp_path, model_folder):
    (tmp_path / "texts.txt").write_text("the\u2028hill\n\nthe [MASK]\n")
    given = ("--text=a sheep", "--input_file=texts.txt", "--json", "--top_k=1")
    done = run_inspect(model_folder("masked_lm"), *given)
    found = json.loads(done.out)
    assert found["texts"] == ["a sheep", "the\u2028hill", "the [MASK]"]
    assert [one["text"] for one in found["models"][0]["answers"]] == ["the [MASK]"]
    assert [path.name for path in tmp_path.iterdir()] == ["texts.txt"]


@pytest.mark.filterwarnings("error")
def test_a_text_that_no_font_and_no_file_can_show(run_inspect, tmp_path, model_folder):
    given = ("--text=\udcff 日 [MASK]", "--layers=1", "--output_dir=out")
    done = run_inspect(model_folder("masked_lm"), *given)
    assert done.code == 0, done.err
    found = json.loads((tmp_path / "out/inspect.json").read_text(encoding="utf-8"))
    assert found["texts"] == ["\udcff 日 [MASK]"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "MODEL: required"),
        (("none",), 1, "none: no such file or folder"),
        (("none", "--input_file=empty.txt"), 2, "--input_file=empty.txt: holds no"),
        (("none", "--layers=1,x"), 2, "--layers must be numbers, received ['1', 'x']"),
        (("none", "--layers=²"), 2, "--layers must be numbers, received ['²']"),
        (("none", "--top_k=0"), 2, "--top_k"),
    ],
)
def test_mistakes(run_inspect, tmp_path, arguments, code, message):
    (tmp_path / "empty.txt").write_text("\n")
    done = run_inspect(*arguments)
    assert done.code == code and message in done.error, done.err
