"""The example beside a model runs without TensorFlow, and answers as the model does."""

import ast
import re

import numpy as np
import pytest

from albert_tf import features
from albert_tf.export import runtimes
from albert_tf.export.runtime_folder import export_for_runtime, make_example
from albert_tf.export.runtimes import TokensGraph
from albert_tf.heads import PROBLEM_TYPES, all_rows
from albert_tf.text.wordpiece import WordPieceTokenizer
from tests.export.runtime_models import classifier, export, make
from tests.text import kinds
from tests.tiny import make_model, randomize

TOKENIZERS = {
    "wordpiece": lambda: WordPieceTokenizer(kinds.WORDPIECE_FILE),
    "byte_bpe": kinds.bpe,
}

# As in an environment that has the runtime but none of these.
_CLEAN = """
import runpy, sys

class Absent:
    def find_spec(self, name, *unused):
        if name.partition(".")[0] in ("tensorflow", "keras", "tensorflow_text", "h5py"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""
# They run the examples; the extras have the same names.
RUNTIMES = ("litert", "onnx", "openvino")
FORMATS = [pytest.param(name, marks=pytest.mark.runtimes) for name in RUNTIMES]


LABELS = ["no", "yes", "so"]


def assert_answers_as(model, tokenizer, run_python, program, example) -> None:
    """Runs an example with a long text, and asks the Keras model."""
    text = "The very long Élodie café text " * 9
    done = run_python("-c", program, example, text)
    assert done.returncode == 0, done.stderr
    label, _, logits = done.stdout.partition(" ")
    ids = tokenizer.encode(text)[:22]
    row = np.array([[tokenizer.cls_id, *ids, tokenizer.sep_id]])
    batch = {features.TOKEN_IDS: row, features.PADDING_MASK: row * 0 + 1}
    expected = np.asarray(model(batch, training=False))[0]
    np.testing.assert_allclose(ast.literal_eval(logits), expected, atol=1e-4)
    assert np.ptp(expected) > 0.01 and label == LABELS[expected.argmax()]


@pytest.mark.parametrize("format", FORMATS)
def test_it_answers_as_the_model(format, tokenizer, run_python):
    example = classifier(format) / "example.py"
    model = make("text_classifier")
    assert_answers_as(model, tokenizer, run_python, _CLEAN, example)


RELATIVES = {
    "wordpiece": {"family": "electra", "embedding_size": 6},
    "byte_bpe": {"family": "roberta", "type_vocab_size": 1, "position_offset": 1},
}


@pytest.mark.runtimes
@pytest.mark.parametrize(
    ("format", "kind"), [("litert", "wordpiece"), ("onnx", "byte_bpe")]
)
def test_relatives_and_their_tokenizers(format, kind, tmp_path, run_python):
    tokenizer = TOKENIZERS[kind]()
    sizes = {**RELATIVES[kind], "vocab_size": tokenizer.vocab_size, "num_labels": 3}
    sizes |= {"hidden_act": "gelu", "sharing": "none"}
    sizes["num_hidden_layers"] = 1 + (format == "onnx")  # none is another's
    model = randomize(make_model("text_classifier", **sizes))
    tokenizer = tokenizer.for_segments(model.config.num_segments)
    given = {"format": format, "tokenizer": tokenizer, "labels": LABELS}
    export_for_runtime(model, tmp_path / "m", **given)
    example = tmp_path / "m/example.py"
    needs = example.read_text().partition("\n")[0]
    absent = {"tokenizers", "sentencepiece"} - set(re.findall(r"\w+", needs))
    program = _CLEAN.replace('"h5py"', f'"h5py", *{absent or ()}')
    assert_answers_as(model, tokenizer, run_python, program, example)


class _Encoder:
    file_name = "spiece.model"


@pytest.mark.parametrize("row", all_rows(), ids=lambda row: str(row.name))
@pytest.mark.parametrize("format", runtimes.RUNTIMES)
def test_every_head_has_a_short_program(row, format):
    graph = TokensGraph(make(row.name))
    for problem_type in PROBLEM_TYPES if row.name == "text_classifier" else (None,):
        labels = ["a", "b"] if row.has_classifier else []
        runtime = runtimes.RUNTIMES[format]
        content = {"max_seq_length": 24, "options": runtime.options("none")}
        content |= {"labels": labels} if labels else {}
        content |= {"problem_type": problem_type} if problem_type else {}
        has_prompts = row.name == "text_embedder"
        content |= {"prompts": {"query": "'😀' "}} if has_prompts else {}
        text = make_example(runtime, graph, _Encoder, content)
        assert ("😀" in text) == ("prompt + sys.argv[1]" in text) == has_prompts
        compile(text, "example.py", "exec")
        assert len(text.splitlines()) <= 15
        assert all(f'"{name}"' in text for name in graph.inputs)


@pytest.mark.broad
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("head", ["masked_lm", "token_classifier", "multiple_choice"])
def test_examples_of_other_heads_run(head, format, tmp_path, run_python):
    export(head, format, tmp_path / "m")
    done = run_python("-c", _CLEAN, tmp_path / "m" / "example.py", "a text")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
