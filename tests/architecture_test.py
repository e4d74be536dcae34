"""The code has the structure that BUILD describes, and the requirements agree.

BUILD has one rule per module (a folder, or files at the root of the package), lower
layers first. A module may import its own files and the modules in its `deps`.
"""

import ast
import collections
import pathlib
import re
import tomllib

import pytest
from packaging.requirements import Requirement

from tests.imports import ROOT, imported, python_files, statements

# Modules that also run with KERAS_BACKEND=jax or torch.
BACKEND_FREE = ("albert_tf/config", "albert_tf/models", "albert_tf/names")
# Beam workers run these without TensorFlow.
WITHOUT_TENSORFLOW = (
    "albert_tf/data/corpus",
    "albert_tf/data/prepare",
    "albert_tf/data/records",
    "albert_tf/names",
)
# Modules that must stay independent, whatever their layers.
APART = [
    (r"albert_tf/(data(/.*)?|tasks(/.*)?)", r"albert_tf/models"),
    (r"albert_tf/data/prepare", r"albert_tf/data/batches"),
    (r"albert_tf/export(/.*)?", r"albert_tf/inference(/.*)?"),
    (r"albert_tf/export(/.*)?", r"albert_tf/training(/.*)?"),
]

DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# A comment, or a string with whatever is in it.
NO_CODE = re.compile(r"""#.*|("{3}|'{3}|"|')(?:\\[\s\S]|(?!\1)[\s\S])*\1""")


def rules(text: str) -> dict[str, dict]:
    """The `py_library` rules of a BUILD file by name, in order."""
    found = {}
    for statement in ast.parse(text).body:
        call = getattr(statement, "value", None)
        if not isinstance(call, ast.Call) or call.func.id != "py_library":
            continue
        attributes = {k.arg: evaluate(k.value) for k in call.keywords}
        if attributes.get("testonly"):
            continue
        assert attributes["name"] not in found, f"two rules {attributes['name']}"
        found[attributes["name"]] = {"deps": [], **attributes}
    return found


def evaluate(node: ast.expr):
    """The value of an attribute; `glob` gives paths below the root."""
    if isinstance(node, ast.Call):
        assert node.func.id == "glob", ast.unparse(node)
        patterns = ast.literal_eval(node.args[0])
        paths = {path for pattern in patterns for path in ROOT.glob(pattern)}
        found = {path.relative_to(ROOT).as_posix() for path in paths}
        return sorted(found.difference(*(evaluate(k.value) for k in node.keywords)))
    return ast.literal_eval(node)


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BUILD = (ROOT / "BUILD").read_text(encoding="utf-8")
RULES = rules(BUILD)
MODULE = {source: name for name, rule in RULES.items() for source in rule["srcs"]}


def modules_and_packages(name: str, at_start: bool = False) -> set[str]:
    """What the files of a module import: labels of other modules, distributions."""
    files = set().union(
        *(imported(source, ROOT, at_start) for source in RULES[name]["srcs"])
    )
    labels = {f if f.startswith("@") else f":{MODULE[f]}" for f in files}
    return labels - {f":{name}"}


def test_every_file_is_in_one_module():
    files = [source for rule in RULES.values() for source in rule["srcs"]]
    assert len(files) == len(set(files))
    missing = sorted(set(python_files(ROOT)) - set(files))
    assert not missing, f"{missing}: add a rule for the module to BUILD"


@pytest.mark.parametrize("name", RULES)
def test_deps_are_the_real_imports_and_point_down(name):
    deps, real = RULES[name]["deps"], modules_and_packages(name)
    more = sorted(real - set(deps))
    fewer = sorted(set(deps) - real)
    assert not more, f"{name} imports {more}: add it to deps in BUILD, or do not"
    assert not fewer, f"{name} does not import {fewer}: remove it from deps in BUILD"
    assert deps == sorted(set(deps)), f"{name}: sort deps in BUILD"
    names = [f":{one}" for one in RULES]
    above = set(deps).intersection(names[names.index(f":{name}") + 1 :])
    assert not above, f"{name} imports {above}, which BUILD lists after it"


def test_no_files_import_each_other():
    below = {path: imported(path, ROOT) for path in python_files(ROOT)}
    while leaves := [path for path, deps in below.items() if not deps & below.keys()]:
        for path in leaves:
            del below[path]
    # What is left lies on a circle, or imports a file on one.
    assert not below, sorted(below)


@pytest.mark.parametrize("name", RULES)
def test_modules_that_must_stay_independent(name):
    for one, other in (pair[::step] for pair in APART for step in (1, -1)):
        if re.fullmatch(one, name):
            met = [d for d in RULES[name]["deps"] if re.fullmatch(other, d[1:])]
            assert not met, f"{name} must not import {met}"


@pytest.mark.parametrize("name", BACKEND_FREE)
def test_backend_free_modules_import_only_keras_and_numpy(name):
    deps = set(RULES[name]["deps"])
    # Both import TensorFlow only inside functions: storage for remote paths, AdamW's
    # kernel where it is Keras's backend.
    modules = {":albert_tf/storage", ":albert_tf/kernels"}
    modules |= {f":{name}" for name in BACKEND_FREE}
    assert deps <= {"@pypi//keras", "@pypi//numpy", *modules}


@pytest.mark.parametrize("name", WITHOUT_TENSORFLOW)
def test_modules_of_beam_workers_start_without_tensorflow(name):
    seen, todo = set(), list(RULES[name]["srcs"])
    while todo:
        path = todo.pop()
        seen.add(path)
        found = imported(path, ROOT, at_start=True)
        assert not {f for f in found if f.startswith("@pypi//tensorflow")}, path
        todo += [f for f in found - seen if not f.startswith("@")]


# The only files that import modules by a name computed at run time: the lazy public
# names, and the class of a head. No other file can hide an import that way.
IMPORT_BY_NAME = {"albert_tf/__init__.py", "albert_tf/heads.py"}


def test_flags_are_defined_only_in_tools_and_cli():
    pattern = re.compile(
        r"^ *(from absl import (\([^)]*|.*)\bflags\b|import absl\.flags)", re.M
    )
    for path in python_files(ROOT):
        if not path.startswith(("tools/", "albert_tf/cli/")):
            assert not pattern.search((ROOT / path).read_text("utf-8")), path


@pytest.mark.parametrize("path", ["Makefile", ".ci/run", "CONTRIBUTING.md"])
def test_files_that_are_named_exist(path):
    text = (ROOT / path).read_text(encoding="utf-8")
    named = set(re.findall(r"\b(?:tests|tools)/[\w/]+\.py\b", text))
    assert named and not {name for name in named if not (ROOT / name).exists()}


def test_no_file_hides_its_imports():
    texts = {path: (ROOT / path).read_text("utf-8") for path in python_files(ROOT)}
    pattern = r"\b(import_module|__import__)\b"
    found = {path for path, text in texts.items() if re.search(pattern, text)}
    assert found == IMPORT_BY_NAME


@pytest.mark.parametrize("module", ["albert_tf/text", "albert_tf/data/masking"])
def test_only_graph_modules_import_tensorflow(module):
    for path in RULES[module]["srcs"]:
        if not path.endswith("_graph.py"):
            found = {f for f in imported(path, ROOT) if "tensorflow" in f}
            assert not found, f"{path} imports {found}"


def test_files_and_functions_stay_small():
    for path in python_files(ROOT):
        text = (ROOT / path).read_text(encoding="utf-8")
        lines = text.count("\n")
        limit = 120 if path.startswith("tools/") else 500
        assert lines <= limit, f"{path} has {lines} lines; the limit is {limit}"
        for node in statements(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                # Complete docstrings are wanted, so they do not count.
                start = (
                    node.body[0].end_lineno if ast.get_docstring(node) else node.lineno
                )
                size = node.end_lineno - start
                assert size <= 60, f"{path}: {node.name} has {size} lines, limit 60"


# Lower them when code goes; whoever raises one says why in docs/decisions.md.
MOST_CODE = {"albert_tf": 36_715, "tests": 36_442}
MOST_FILES, MOST_RULES, MOST_LINES_OF_BUILD = 278, 26, 458
# Pairs of rooms of which one imports the other: a room is a folder of albert_tf, or a
# file next to its `__init__.py`.
MOST_ARROWS = 148
# What a native writer would put otherwise, in albert_tf.
MOST_PHRASES = {r"Returns (what|how|where|which)\b": 2, r"\bthose of\b": 7}


def code_lines(path: pathlib.Path) -> int:
    """The lines of a file that are neither blank, nor a comment, nor a docstring."""
    source = path.read_text(encoding="utf-8")
    plain = NO_CODE.sub(
        lambda m: "" if m[0][0] == "#" else "x\n" * m[0].count("\n") + "x", source
    )
    code = {n for n, line in enumerate(plain.split("\n"), 1) if line.strip()}
    tree = ast.parse(source)
    for node in (tree, *statements(tree)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False):
            first = node.body[0]
            code.difference_update(range(first.lineno, first.end_lineno + 1))
    return len(code)


@pytest.mark.parametrize("folder", MOST_CODE)
def test_growth_is_a_decision(folder):
    found = sum(map(code_lines, (ROOT / folder).rglob("*.py")))
    assert found <= MOST_CODE[folder], f"{folder}: {found:,} lines of code"


def test_files_and_rules_do_not_multiply():
    assert len(list((ROOT / "albert_tf").rglob("*.py"))) <= MOST_FILES
    assert len(RULES) <= MOST_RULES
    assert len(BUILD.splitlines()) <= MOST_LINES_OF_BUILD


def room(path: str) -> str:
    """The folder of a file, or the file itself if it is at the root of the package."""
    return path if path.count("/") == 1 else path.rpartition("/")[0]


def test_rooms_know_few_others():
    # The root has the version and the lazy public names, which any file may use.
    files = [f for f in python_files(ROOT) if f.startswith("albert_tf/")]
    files.remove("albert_tf/__init__.py")
    pairs = {(room(f), room(to)) for f in files for to in imported(f, ROOT) & {*files}}
    arrows = {(a, b) for a, b in pairs if a != b}
    assert len(arrows) <= MOST_ARROWS, sorted(arrows)


def test_sentences_have_heads():
    text = "".join(p.read_text("utf-8") for p in (ROOT / "albert_tf").rglob("*.py"))
    for phrase, most in MOST_PHRASES.items():
        assert len(re.findall(phrase, text)) <= most, phrase


def test_few_files_have_the_same_name():
    names = collections.Counter(pathlib.Path(path).name for path in python_files(ROOT))
    del names["__init__.py"]
    assert max(names.values()) <= 3, names.most_common(1)


def plain(name: str) -> str:
    """The normalized name of a distribution."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(path: pathlib.Path) -> dict[str, Requirement]:
    """Normalized name -> requirement, of a requirements file."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    found = [Requirement(line) for line in lines if line]
    return {plain(one.name): one for one in found}


def test_requirements_agree():
    ranges = {plain(one.name): one for one in map(Requirement, PROJECT["dependencies"])}
    exact, lock = pins(ROOT / "requirements.txt"), pins(ROOT / "requirements.lock")
    assert exact.keys() == ranges.keys()
    for name, requirement in exact.items():
        (pin,) = requirement.specifier
        assert pin.operator == "=="
        assert pin.version in ranges[name].specifier, name
        assert requirement.extras == ranges[name].extras, name
        assert str(lock[name].specifier) == str(pin), name


def test_a_tpu_gets_the_same_versions_where_its_tensorflow_allows():
    tpu, exact = pins(ROOT / "requirements-tpu.txt"), pins(ROOT / "requirements.txt")
    differ = {n for n in tpu.keys() & exact.keys() if tpu[n] != exact[n]}
    assert differ == {"numpy"}
    assert tpu.keys() - exact.keys() == {"libtpu", "protobuf", "tensorflow-tpu"}


def test_extras_are_in_the_lock():
    lock = pins(ROOT / "requirements.lock")
    for extra, requirements in PROJECT["optional-dependencies"].items():
        for requirement in map(Requirement, requirements):
            # Beam needs another protobuf than TensorFlow gets here; an extra may also
            # take in other modules of this package.
            if extra not in ("beam", "dask") and plain(requirement.name) != "albert-tf":
                (pin,) = lock[plain(requirement.name)].specifier
                assert pin.version in requirement.specifier, (extra, requirement.name)


def test_third_party_imports_are_declared():
    extras = sum(PROJECT["optional-dependencies"].values(), [])
    declared = {
        plain(Requirement(text).name).replace("-", "_")
        for text in [*PROJECT["dependencies"], *extras]
    }
    names = {
        dep.removeprefix("@pypi//")
        for rule in RULES.values()
        for dep in rule["deps"]
        if dep.startswith("@")
    }
    # TensorFlow and protobuf come together.
    assert names - declared <= {"protobuf"}
