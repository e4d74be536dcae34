"""`albert-tf export` before it exports: what it loads, and what it refuses."""

import json

import pytest

from albert_tf.export import saved_model
from tests.commands import run_command
from tests.openings import count_openings


def test_the_model_is_opened_once(tmp_path, model_folder, monkeypatch):
    def export(model, path, *, tokenizer, **kwargs):
        layers = model.config.num_hidden_layers
        print(model.labels, tokenizer.vocab_size, kwargs["top_k"], layers)
        return path

    folder = model_folder("text_classifier", labels=("no", "yes"))
    monkeypatch.setattr(saved_model, "export_saved_model", export)
    counts = count_openings(monkeypatch)
    done = run_command("export", model=folder, output_dir="served", top_k=7, layers=1)
    assert done.code == 0, done.err
    assert done.out.splitlines() == ["('no', 'yes') 30000 7 1", "served"]
    assert counts == {("open", folder): 1, ("verify", folder): 1}
    assert "Assets written" not in done.err  # to a temporary folder
    # Without this import neither Python nor saved_model_cli can load the folder.
    assert "import tensorflow_text before tf.saved_model.load('served')" in done.err
    assert "import tensorflow_text; from tensorflow.python.tools" in done.err


@pytest.mark.broad
def test_litert_is_compared_on_a_table(tmp_path, model_folder, run_python):
    rows = "".join(f"{'yes' if i % 2 else 'no'}\ttext {i}\n" for i in range(20))
    (tmp_path / "dev.tsv").write_text("label\ttext\n" + rows)
    out = tmp_path / "phone"
    given = {"model": model_folder("text_classifier", labels=("no", "yes"))}
    given |= {"eval_file": tmp_path / "dev.tsv", "format": "litert"}
    given |= {"text_column": "text", "label_column": "label", "output_dir": out}
    given |= {"quantization": "dynamic_int8"}
    refused = run_command("export", **given, max_accuracy_drop=-50)
    assert refused.code == 1
    assert "accuracy falls from" in refused.error
    assert not out.exists()
    done = run_command("export", **given, max_accuracy_drop=100)
    assert done.code == 0, done.err
    check = json.loads((out / "manifest.json").read_text())["check"]
    assert (check["metric"], check["examples"]) == ("accuracy", 20)
    pytest.importorskip("ai_edge_litert")
    answer = run_python(out / "example.py", "a text")
    assert answer.stdout.split()[0] in ("no", "yes"), answer.stderr


def test_at_least_one_answer_is_served(tmp_path, model_folder):
    given = {"model": model_folder("question_answering"), "output_dir": tmp_path / "o"}
    done = run_command("export", **given, n_best_size=0)
    assert done.code == 2 and "n_best_size must be at least 1" in done.error


def test_a_discriminator_is_fine_tuned_first(tmp_path, model_folder):
    sizes = {"family": "electra", "sharing": "none", "hidden_act": "gelu"}
    given = {"model": model_folder("discriminator", **sizes)}
    done = run_command("export", **given, output_dir=tmp_path / "o")
    assert done.code == 2 and done.error.endswith("received 'AlbertDiscriminator'")
    assert "fine-tune ELECTRA's discriminator" in done.error and len(done.error) < 300
    (tmp_path / "t.jsonl").write_text('{"text": "a"}')
    table = {"input_file": tmp_path / "t.jsonl", "output_file": tmp_path / "o.jsonl"}
    done = run_command("predict", **given, **table)
    assert done.code == 2 and "its head is discriminator" in done.error
