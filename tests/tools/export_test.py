"""`albert-tf export` before it exports: what it loads, and what it refuses."""

import json
import pathlib

import pytest

from albert_tf.config import AlbertConfig
from albert_tf.converters import load
from albert_tf.errors import UsageError
from albert_tf.export.settings import ExportSettings
from albert_tf.models.classifiers import AlbertTextClassifier
from albert_tf.text.sentencepiece import AlbertTokenizer

ROOT = pathlib.Path(__file__).parents[2]
TOOL = ROOT / "tools/export.py"
CONFIG = AlbertConfig(
    embedding_size=6,
    hidden_size=12,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=20,
    max_position_embeddings=24,
)
# Prints what is opened; the SavedModel itself is saved_model_test's.
_COUNT = """
import runpy, sys
import pytest
from albert_tf.export import saved_model
from tests.openings import count_openings

counts = count_openings(pytest.MonkeyPatch())

def export(model, path, *, tokenizer, **kwargs):
    print(*sorted(counts.items()), sep="\\n")
    print(type(model).__name__, model.labels, tokenizer.vocab_size, kwargs["top_k"])
    return path

saved_model.export_saved_model = export
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_the_model_is_opened_once(tmp_path, run_python):
    tokenizer = AlbertTokenizer(ROOT / "tests/golden/tokenization/spiece.model")
    model = AlbertTextClassifier(CONFIG, num_labels=2)
    folder = tmp_path / "m"
    load.save_pretrained(model, folder, tokenizer=tokenizer, labels=["no", "yes"])
    flags = (f"--model={folder}", "--output_dir=served", "--top_k=7")
    done = run_python("-c", _COUNT, TOOL, *flags)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"(('open', '{folder}'), 1)",
        f"(('verify', '{folder}'), 1)",
        "AlbertTextClassifier ('no', 'yes') 30000 7",
        "served",
    ]
    assert "Assets written" not in done.stderr  # to a temporary folder
    # Without this import neither Python nor saved_model_cli can load the folder.
    assert "import tensorflow_text before tf.saved_model.load('served')" in done.stderr
    assert "import tensorflow_text; from tensorflow.python.tools" in done.stderr


def test_warmup_batch_sizes_are_checked(run_python):
    done = run_python(TOOL, "--model=m", "--output_dir=o", "--warmup_batch_sizes=1,x")
    assert done.returncode == 2
    assert "--warmup_batch_sizes: expected positive numbers, at most" in done.stderr
    # With a larger request than max_batch_size, the server does not load the model.
    with pytest.raises(UsageError, match="at most 10000 .*received 1,10001"):
        ExportSettings(model="m", output_dir="o", warmup_batch_sizes=("1", "10001"))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--quantization=float16"], "--quantization: only with --format=litert, onnx"),
        (["--eval_file=dev.tsv"], "--eval_file: only with --format=litert, onnx"),
        (
            ["--format=openvino", "--quantization=dynamic_int8"],
            "--quantization: must be one of none, bfloat16, int8_weights for openvino",
        ),
        (["--format=litert", "--version=1"], "--version: only with --format=saved_mo"),
        (["--format=litert", "--precision=bfloat16"], "--precision: only with --for"),
        (["--text_column=a"], "--eval_file: max_accuracy_drop and flags"),
        (["--max_accuracy_drop=1"], "--max_accuracy_drop: only with --format=litert"),
        (
            ["--format=onnx", "--max_accuracy_drop=1"],
            "--eval_file: max_accuracy_drop and flags about data need this",
        ),
        (
            ["--format=litert", "--max_accuracy_drop=nan"],
            "--max_accuracy_drop: must be a number, received nan",
        ),
        (
            ["--format=litert", "--warmup_batch_sizes=4"],
            "--warmup_batch_sizes: only with --format=saved_model",
        ),
    ],
)
def test_flags_of_the_other_format_are_refused(run_python, flags, message):
    done = run_python(TOOL, "--model=m", "--output_dir=o", *flags)
    assert done.returncode == 2
    assert message in done.stderr


@pytest.mark.broad
def test_litert_is_compared_on_a_table(tmp_path, run_python):
    tokenizer = AlbertTokenizer(ROOT / "tests/golden/tokenization/spiece.model")
    model = AlbertTextClassifier(CONFIG, num_labels=2, seed=1)
    load.save_pretrained(
        model, tmp_path / "m", tokenizer=tokenizer, labels=["no", "yes"]
    )
    rows = "".join(f"{'yes' if i % 2 else 'no'}\ttext {i}\n" for i in range(20))
    (tmp_path / "dev.tsv").write_text("label\ttext\n" + rows)
    out = tmp_path / "phone"
    given = [f"--model={tmp_path / 'm'}", f"--eval_file={tmp_path / 'dev.tsv'}"]
    given += ["--format=litert", "--text_column=text", "--label_column=label"]
    given += ["--quantization=dynamic_int8"]
    refused = run_python(TOOL, *given, f"--output_dir={out}", "--max_accuracy_drop=-50")
    assert refused.returncode == 1
    assert "accuracy falls from" in refused.stderr
    assert not out.exists()
    done = run_python(TOOL, *given, f"--output_dir={out}", "--max_accuracy_drop=100")
    assert done.returncode == 0, done.stderr
    check = json.loads((out / "manifest.json").read_text())["check"]
    assert (check["metric"], check["examples"]) == ("accuracy", 20)
    pytest.importorskip("ai_edge_litert")
    answer = run_python(out / "example.py", "a text")
    assert answer.stdout.split()[0] in ("no", "yes"), answer.stderr
