"""`import albert_tf` is cheap; the public names arrive when they are used."""

import json
import re

import pytest

import albert_tf
from tests.imports import ROOT
from tests.tiny import make_model

HEAVY = ("tensorflow", "keras", "torch", "jax", "numpy", "pandas", "matplotlib")


@pytest.mark.parametrize("module", ["", ".cli.run", ".heads", ".settings", ".config"])
def test_import_loads_nothing_heavy(run_python, module):
    code = f"import albert_tf{module}, json, sys; print(json.dumps([*sys.modules]))"
    result = run_python("-c", code)
    assert (result.returncode, result.stderr) == (0, "")
    assert not set(HEAVY) & set(json.loads(result.stdout))


def test_names_are_listed():
    assert set(albert_tf.__all__) <= set(dir(albert_tf))
    assert albert_tf.__version__


def test_public_names_resolve_and_others_do_not():
    for name in set(albert_tf.__all__) - {"__version__"}:
        assert getattr(albert_tf, name).__doc__, name
    with pytest.raises(AttributeError, match="nonsense"):
        _ = albert_tf.nonsense


_LOAD = """
{imports}
import sys
assert "albert_tf.models" not in sys.modules
model = keras.models.load_model(sys.argv[1])
print(type(model).__module__, type(model).__name__, type(model.optimizer).__name__)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "imports",
    [
        pytest.param("import keras, albert_tf", marks=pytest.mark.broad),
        "import albert_tf, keras",
    ],
)
def test_keras_loads_models_in_a_new_process(keras_file, run_python, imports):
    result = run_python("-c", _LOAD.replace("{imports}", imports), keras_file)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "albert_tf.models.masked_lm AlbertMaskedLM Lamb\n"


@pytest.fixture(scope="module")
def keras_file(tmp_path_factory):
    model = make_model("masked_lm", vocab_size=11)
    optimizer = albert_tf.create_optimizer(
        "lamb", learning_rate=0.1, num_train_steps=3, num_warmup_steps=1
    )
    model.compile(optimizer, "sparse_categorical_crossentropy")
    path = tmp_path_factory.mktemp("keras") / "model.keras"
    model.save(path)
    return path


def test_all_registered_classes_have_stand_ins():
    pattern = re.compile(r"register_keras_serializable\([^)]*\)\nclass (\w+)")
    package = ROOT / "albert_tf"
    found = {
        name: ".".join(file.relative_to(package).with_suffix("").parts)
        for file in package.rglob("*.py")
        for name in pattern.findall(file.read_text(encoding="utf-8"))
    }
    assert found == albert_tf._SAVED_BY_KERAS
