"""BUILD, the levels of the design and the two lists of requirements hold."""

import ast
import pathlib
import re
import tomllib

import pytest
from packaging.requirements import Requirement

from tools import build_file

ROOT = build_file.ROOT

# Level of a module: that of its name here, or of the longest name that it continues
# (`config` and `config_json`, `data` and `data/masking`). An import points down or
# stays inside its own entry; single files may go sideways within their level.
LEVELS = {
    "albert_tf/cli": 0,
    "albert_tf/config": 0,
    "albert_tf/errors": 0,
    "albert_tf/features": 0,
    "albert_tf/files": 0,
    "albert_tf/quiet_start": 0,
    "albert_tf/text_normalization": 0,
    "albert_tf/byte_bpe": 1,
    "albert_tf/graph_base": 1,
    "albert_tf/layers": 1,
    "albert_tf/losses": 1,
    "albert_tf/metrics": 1,
    "albert_tf/optimizers": 1,
    "albert_tf/tokenization": 1,
    "albert_tf/tokenizer_training": 1,
    "albert_tf/tokenizer_base": 1,
    "albert_tf/tokenizers": 1,
    "albert_tf/facts": 1,
    "albert_tf/data": 2,
    "albert_tf/models": 3,
    "albert_tf/converters": 4,
    # Starts from and leaves checkpoints of any format.
    "albert_tf/training": 5,
    "albert_tf/inference": 6,
    "albert_tf/benchmarks": 7,
    "albert_tf/demo": 7,
    "albert_tf/serving": 7,
    # Imports nothing until a name is asked for.
    "albert_tf": 8,
    "configs": 9,
    "tools": 10,
}
# These also run under KERAS_BACKEND=jax or torch.
BACKEND_FREE = (
    "albert_tf/config",
    "albert_tf/errors",
    "albert_tf/features",
    "albert_tf/layers",
    "albert_tf/losses",
    "albert_tf/models",
    "albert_tf/optimizers",
)
NEVER = {("albert_tf/data", "albert_tf/models"), ("albert_tf/models", "albert_tf/data")}

# label of a module of ours -> what it imports; tests aside.
GRAPH = {
    build_file.label(path): build_file.imports(path, ROOT)
    for path in build_file.python_files(ROOT)
    if not path.startswith("tests/")
}


def entry(target: str) -> str | None:
    """The name in LEVELS that a target belongs to."""
    names = [name for name in LEVELS if re.match(rf"{name}(/|_|$)", target)]
    longest = max(names, key=len, default=None)
    # A new module beside config.py is not covered by the entry of the package.
    return None if longest == "albert_tf" != target else longest


def parse_build(text: str) -> dict[str, tuple[str, dict]]:
    """Target name -> (kind, attributes) of the rules in a BUILD file."""
    calls = [node.value for node in ast.parse(text).body if isinstance(node, ast.Expr)]
    found = {}
    for call in calls:
        if isinstance(call, ast.Call) and call.func.id in ("py_library", "py_test"):
            attributes = {k.arg: ast.literal_eval(k.value) for k in call.keywords}
            assert attributes["name"] not in found, attributes["name"]
            found[attributes["name"]] = (call.func.id, attributes)
    return found


RULES = parse_build((ROOT / "BUILD").read_text(encoding="utf-8"))


def test_every_file_has_its_rule():
    wanted = {
        build_file.label(path): "py_test" if path.endswith("_test.py") else "py_library"
        for path in build_file.python_files(ROOT)
    }
    assert {name: kind for name, (kind, _) in RULES.items()} == wanted, (
        "run `make build-file`"
    )


@pytest.mark.parametrize("name", sorted(RULES))
def test_deps_are_the_real_imports(name):
    _, attributes = RULES[name]
    real = set().union(
        *(build_file.imports(source, ROOT) for source in attributes["srcs"])
    )
    assert set(attributes["deps"]) == real, "run `make build-file`"
    assert attributes["deps"] == sorted(set(attributes["deps"]))


def test_generator_writes_this_file():
    text = (ROOT / "BUILD").read_text(encoding="utf-8")
    assert text == build_file.render(ROOT), "run `make build-file`"


@pytest.mark.parametrize("target", sorted(GRAPH))
def test_imports_point_down(target):
    home = entry(target)
    assert home, f"{target}: give it a level in tests/build_test.py"
    for dep in sorted(GRAPH[target]):
        if not dep.startswith(":"):
            continue
        other = entry(dep[1:])
        assert (home, other) not in NEVER, f"{target} imports {dep}"
        down = LEVELS[home] - LEVELS[other]
        files = all((ROOT / f"{name}.py").is_file() for name in (home, other))
        assert home == other or down > 0 or (down == 0 and files), (
            f"{target} imports {dep}"
        )


def test_no_cycles():
    finished: set[str] = set()

    def visit(target: str, path: tuple[str, ...]) -> None:
        assert target not in path, " -> ".join([*path, target])
        if target in finished:
            return
        for dep in sorted(GRAPH.get(target, ())):
            if dep.startswith(":"):
                visit(dep[1:], (*path, target))
        finished.add(target)

    for target in sorted(GRAPH):
        visit(target, ())


@pytest.mark.parametrize(
    "target", sorted(name for name in GRAPH if entry(name) in BACKEND_FREE)
)
def test_backend_free_modules_import_only_keras_and_numpy(target):
    outside = {dep for dep in GRAPH[target] if dep.startswith("@")}
    assert outside <= {"@pypi//keras", "@pypi//numpy"}
    # albert_tf.files imports TensorFlow only for remote paths.
    allowed = {*BACKEND_FREE, "albert_tf/files"}
    assert {entry(dep[1:]) for dep in GRAPH[target] - outside} <= allowed


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import os, json\nfrom collections import abc", set()),
        ("import numpy as np", {"@pypi//numpy"}),
        ("from absl import flags", {"@pypi//absl_py"}),
        ("import sklearn.metrics", {"@pypi//scikit_learn"}),
        ("from albert_tf.data import masking", {":albert_tf/data/masking"}),
        ("from albert_tf.data.masking import f", {":albert_tf/data/masking"}),
        ("from albert_tf.data import f", {":albert_tf/data"}),
        ("import albert_tf.data.masking", {":albert_tf/data/masking"}),
        ("import albert_tf", {":albert_tf"}),
        ("from albert_tf_tools import main", {":tools/main"}),
        ("def f():\n  import keras", {"@pypi//keras"}),
        ("if TYPE_CHECKING:\n  import keras", set()),
    ],
)
def test_generator_reads_every_form_of_import(tmp_path, source, expected):
    for path in ("__init__", "data/__init__", "data/masking", "other"):
        file = tmp_path / f"albert_tf/{path}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/main.py").touch()
    (tmp_path / "albert_tf/other.py").write_text(source)
    assert build_file.imports("albert_tf/other.py", tmp_path) == expected


def test_generator_reads_lazy_packages(tmp_path):
    package = tmp_path / "albert_tf"
    package.mkdir()
    (package / "__init__.py").write_text('_HOME = {"f": "other", "g": "absent"}')
    (package / "other.py").touch()
    found = build_file.imports("albert_tf/__init__.py", tmp_path)
    assert found == {":albert_tf/other"}


def test_generator_refuses_relative_imports(tmp_path):
    (tmp_path / "albert_tf").mkdir()
    (tmp_path / "albert_tf/a.py").write_text("from . import b")
    with pytest.raises(ValueError, match="relative import"):
        build_file.imports("albert_tf/a.py", tmp_path)


def plain(name: str) -> str:
    """The normalized name of a distribution."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(path: pathlib.Path) -> dict[str, Requirement]:
    """Normalized name -> requirement, of a requirements file."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    found = [Requirement(line) for line in lines if line]
    return {plain(one.name): one for one in found}


def test_requirements_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ranges = {plain(one.name): one for one in map(Requirement, project["dependencies"])}
    exact, lock = pins(ROOT / "requirements.txt"), pins(ROOT / "requirements.lock")
    assert exact.keys() == ranges.keys()
    for name, requirement in exact.items():
        (pin,) = requirement.specifier
        assert pin.operator == "=="
        assert pin.version in ranges[name].specifier, name
        assert requirement.extras == ranges[name].extras, name
        assert str(lock[name].specifier) == str(pin), name


def test_extras_are_in_the_lock():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lock = pins(ROOT / "requirements.lock")
    for extra, requirements in project["optional-dependencies"].items():
        for requirement in map(Requirement, requirements):
            # Beam needs another protobuf than TensorFlow gets here; an extra may also
            # take in others of this package.
            if extra != "beam" and plain(requirement.name) != "albert-tf":
                (pin,) = lock[plain(requirement.name)].specifier
                assert pin.version in requirement.specifier, (extra, requirement.name)


def test_third_party_imports_are_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = sum(project["optional-dependencies"].values(), [])
    declared = {
        plain(Requirement(text).name).replace("-", "_")
        for text in [*project["dependencies"], *extras]
    }
    imported = {
        dep.removeprefix("@pypi//")
        for deps in GRAPH.values()
        for dep in deps
        if dep.startswith("@")
    }
    # TensorFlow and protobuf come together; setuptools belongs to setup.py.
    assert imported - declared <= {"protobuf"}
