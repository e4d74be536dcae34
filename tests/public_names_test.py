"""Every public name has a page and an example, which runs as it stands."""

import ast
import doctest
import inspect
import re
import shutil

import pytest

import albert_tf
from tests.documents import ROOT
from tests.text.kinds import BPE
from tests.tiny import SPIECE

NAMES = [name for name in albert_tf.__all__ if name != "__version__"]
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
# Stand for models of the reader, by the arguments of the fixture `model_folder`.
MODELS = {
    "demo_output/pretrain/model": dict(head="pretraining"),
    "demo_output/classifier": dict(
        head="text_classifier", labels=("keras", "numpy"), max_position_embeddings=24
    ),
    "my_multi_label_model": dict(
        head="text_classifier",
        labels=("weather", "sport"),
        problem_type="multi_label_classification",
        seed=4,
    ),
    "my_squad_model": dict(head="question_answering", task="squad1"),
    "my_ner_model": dict(head="token_classifier", task="conll2003"),
    "my_race_model": dict(head="multiple_choice", task="race"),
}


# The demo's width, and rows that are long enough for a question with its text.
SIZES = dict(hidden_size=128, num_attention_heads=2, max_position_embeddings=384)
SIZES["num_hidden_layers"] = 1


class SameForm(doctest.OutputChecker):
    """Compares what depends on a model's weights by its form."""

    def check_output(self, want, got, optionflags):
        """Returns whether the outputs agree."""
        if re.search(r"('score'|'cosine'): 0\.|^\['\w+', 0\.", want):
            return form(ast.literal_eval(want)) == form(ast.literal_eval(got))
        return super().check_output(want, got, optionflags)


def form(value):
    """Returns the types in a value; a list may have any length but 0."""
    if isinstance(value, list):
        return [*map(form, value[:1])]
    if isinstance(value, dict):
        return {name: form(one) for name, one in value.items()}
    return type(value)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, model_folder, records):
    """Returns a folder with what the examples read."""
    made = tmp_path_factory.mktemp("examples")
    for name, arguments in MODELS.items():
        model = model_folder(**SIZES | arguments)
        shutil.copytree(model, made / name)
    shutil.copy(SPIECE, made / "demo_output/spiece.model")
    records(max_seq_length=64, output_file=str(made / "demo_output/data/docs"))
    (made / "my_roberta").mkdir()
    (made / "my_roberta/tokenizer.json").write_bytes(BPE)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore::albert_tf.UntrainedWeightsWarning")
def test_the_example_runs(name, folder, monkeypatch, eager):
    monkeypatch.chdir(folder)
    eager(name not in ("AlbertTextEmbedder", "export_saved_model"))
    text = inspect.getdoc(getattr(albert_tf, name))
    example = doctest.DocTestParser().get_doctest(text, {}, name, name, 0)
    assert example.examples[0].source.startswith("import albert_tf")
    assert example.examples[-1].want
    said = []
    run = doctest.DocTestRunner(SameForm(), optionflags=OPTIONS).run
    assert not run(example, out=said.append).failed, "".join(said)


def test_every_name_has_a_page():
    index = (ROOT / "docs/api/index.md").read_text(encoding="utf-8")
    lists = re.findall(r"^\.\. autosummary::\n(.*?)^```", index, re.S | re.M)
    assert all(":toctree: names" in one for one in lists)
    listed = re.findall(r"^   (\w+)$", "".join(lists), re.M)
    assert sorted(listed) == sorted(NAMES)
