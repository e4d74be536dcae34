"""Reads which modules a Python file imports, for the tests of the architecture."""

import ast
import functools
import pathlib
import sys
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDERS = ("albert_tf", "benchmarks", "configs", "tools")
# The installed name of a folder.
INSTALLED = {"albert_tf_tools": "tools"}
# Distributions whose name differs from the module's.
DISTRIBUTIONS = {
    "PIL": "pillow",
    "absl": "absl_py",
    "google.protobuf": "protobuf",
    "pytrec_eval": "pytrec_eval_terrier",
    "sklearn": "scikit_learn",
    "tensorflow_serving": "tensorflow_serving_api",
    "yaml": "pyyaml",
}
STATEMENTS = ast.stmt | ast.excepthandler | ast.match_case


@functools.cache
def python_files(root: pathlib.Path) -> list[str]:
    """The Python files of the product, as sorted paths below `root`."""
    paths = [path for folder in FOLDERS for path in (root / folder).rglob("*.py")]
    return sorted(path.relative_to(root).as_posix() for path in paths)


@functools.cache
def imported(path: str, root: pathlib.Path, at_start: bool = False) -> set[str]:
    """Returns what a file imports, without the standard library.

    Imports under `if TYPE_CHECKING:` do not count.

    Args:
        path: str. Path of the file below `root`.
        root: pathlib.Path. Root of the repository.
        at_start: bool. Whether to leave out imports inside functions, which do not
            run when the file is imported.

    Returns:
        set of str. Paths of our own files, and `@pypi//name` for distributions.
    """
    files = set(python_files(root))
    tree = ast.parse((root / path).read_text(encoding="utf-8"))
    found = {_resolve(name, files) for name in _names(tree, at_start)}
    return found - {None, path}


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """The statements in a node, without their expressions, which are most of a tree."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, STATEMENTS):
            yield child
            yield from statements(child)


def _names(node: ast.AST, at_start: bool) -> Iterator[str]:
    """Dotted names: `a.b` of `import a.b`, `a.b.c` of `from a.b import c`."""
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
        return
    if at_start and isinstance(node, ast.FunctionDef):
        return
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        if node.level:
            raise ValueError(
                f"line {node.lineno}: relative import; write the full name"
            )
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    for child in ast.iter_child_nodes(node):
        if isinstance(child, STATEMENTS):
            yield from _names(child, at_start)


def _resolve(name: str, files: set[str]) -> str | None:
    """The file, or the distribution, that a dotted name belongs to."""
    top, *rest = name.split(".")
    parts = [INSTALLED.get(top, top), *rest]
    if parts[0] in FOLDERS:
        for length in range(len(parts), 0, -1):
            stem = "/".join(parts[:length])
            for path in (f"{stem}.py", f"{stem}/__init__.py"):
                if path in files:
                    return path
        return None
    if top in sys.stdlib_module_names:
        return None
    two = ".".join(name.split(".")[:2])
    distribution = DISTRIBUTIONS.get(two) or DISTRIBUTIONS.get(top) or top
    return f"@pypi//{distribution.lower()}"
