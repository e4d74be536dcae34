"""Writes BUILD from the imports of the Python files; `--check` only compares.

One py_library a module and one py_test a test file, named like their path. `deps` are
what the sources import, wherever in the file the import stands; imports under
`if TYPE_CHECKING:` do not count. A package whose `__init__.py` imports lazily depends
on the modules that its strings name.
"""

import ast
import json
import pathlib
import sys
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("albert_tf", "configs", "tests", "tools")
# The installed name of a folder.
INSTALLED = {"albert_tf_tools": "tools"}
# Distributions that are not called like the module they hold.
DISTRIBUTIONS = {
    "PIL": "pillow",
    "absl": "absl_py",
    "google.protobuf": "protobuf",
    "sklearn": "scikit_learn",
    "tensorflow_serving": "tensorflow_serving_api",
    "yaml": "pyyaml",
}
# What every test brings along: its start under Bazel, and the fixtures.
TEST_SOURCES = ("tests/conftest.py", "tests/pytest_main.py")
HEADER = '''"""Made by `make build-file`: modules, tests and what they import."""

load("@rules_python//python:defs.bzl", "py_library", "py_test")

package(default_visibility = ["//visibility:public"])

exports_files(["requirements.txt", "requirements.lock", "pyproject.toml"])

filegroup(
    name = "golden",
    testonly = True,
    srcs = glob(["tests/golden/**"]),
)
'''


def python_files(root: pathlib.Path) -> list[str]:
    """The Python files that BUILD describes, as sorted paths below `root`."""
    paths = [path for folder in FOLDERS for path in (root / folder).rglob("*.py")]
    return sorted(path.relative_to(root).as_posix() for path in paths)


def label(path: str) -> str:
    """The target of a file: its path without `.py`, a package's without `__init__`."""
    return path.removesuffix(".py").removesuffix("/__init__")


def imports(path: str, root: pathlib.Path) -> set[str]:
    """Labels of everything that the file imports, without the standard library."""
    targets = {label(file) for file in python_files(root)}
    tree = ast.parse((root / path).read_text(encoding="utf-8"))
    found = {_resolve(name, targets) for name in _imported_names(tree)}
    if path.endswith("/__init__.py"):
        found |= _lazy_targets(tree, label(path), targets)
    return found - {None, f":{label(path)}"}


def _imported_names(node: ast.AST) -> Iterator[str]:
    """Dotted names: `a.b` of `import a.b`, `a.b.c` of `from a.b import c`."""
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
        return
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        if node.level:
            raise ValueError(f"line {node.lineno}: relative import; write it in full")
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    for child in ast.iter_child_nodes(node):
        yield from _imported_names(child)


def _resolve(name: str, targets: set[str]) -> str | None:
    """The label of the longest part of a dotted name that is a module."""
    top, *rest = name.split(".")
    parts = [INSTALLED.get(top, top), *rest]
    if parts[0] in FOLDERS:
        for length in range(len(parts), 0, -1):
            target = "/".join(parts[:length])
            if target in targets:
                return f":{target}"
        return None
    if top in sys.stdlib_module_names:
        return None
    two = ".".join(name.split(".")[:2])
    distribution = DISTRIBUTIONS.get(two) or DISTRIBUTIONS.get(top) or top
    return f"@pypi//{distribution.lower()}"


def _lazy_targets(tree: ast.AST, package: str, targets: set[str]) -> set[str]:
    strings = {
        node.value.replace(".", "/")
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    inside = {f"{package}/{string}" for string in strings}
    return {f":{target}" for target in (strings | inside) & targets}


def rules(root: pathlib.Path) -> Iterator[tuple[str, dict[str, object]]]:
    """Each rule of BUILD and its attributes, in the order of the paths."""
    for path in python_files(root):
        if path.startswith("tests/") and path.endswith("_test.py"):
            yield "py_test", _test_rule(path, root)
            continue
        attributes: dict[str, object] = {"name": label(path), "srcs": [path]}
        if path.startswith("tests/"):
            attributes["testonly"] = True
        yield "py_library", attributes | {"deps": sorted(imports(path, root))}


def _test_rule(path: str, root: pathlib.Path) -> dict[str, object]:
    sources = [path, *(file for file in TEST_SOURCES if (root / file).is_file())]
    deps = set().union(*(imports(source, root) for source in sources))
    rule: dict[str, object] = {"name": label(path), "srcs": sources}
    rule |= {"main": TEST_SOURCES[-1], "args": [path]}
    if "golden" in (root / path).read_text(encoding="utf-8"):
        rule["data"] = [":golden"]
    return rule | {"deps": sorted(deps)}


def render(root: pathlib.Path) -> str:
    """The text of BUILD."""
    return HEADER + "".join(
        f"\n{kind}(\n{''.join(_attribute(*item) for item in attributes.items())})\n"
        for kind, attributes in rules(root)
    )


def _attribute(name: str, value: object) -> str:
    if isinstance(value, list) and len(value) > 1:
        lines = "".join(f"        {json.dumps(entry)},\n" for entry in value)
        return f"    {name} = [\n{lines}    ],\n"
    # JSON spells strings and short lists as BUILD does, but not True.
    return f"    {name} = {value if value is True else json.dumps(value)},\n"


def main() -> int:
    """Writes BUILD, or with `--check` says whether it is up to date."""
    file, text = ROOT / "BUILD", render(ROOT)
    if "--check" not in sys.argv[1:]:
        file.write_text(text, encoding="utf-8")
    elif not file.is_file() or file.read_text(encoding="utf-8") != text:
        print("error: BUILD is out of date; run `make build-file`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
