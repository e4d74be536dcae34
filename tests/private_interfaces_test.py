"""The one list of private interfaces of other packages that this package uses.

They may change in any release. Each has a test that then fails.
"""

import ast
import re

import keras

from tests.imports import ROOT, python_files

WATCHED_BY = {
    # Overridden by the optimizers, which check at construction that Keras calls them.
    "_all_reduce_sum_gradients": "tests/optimizers/optimizer_test.py",
    "_backend_apply_gradients": "tests/optimizers/optimizer_test.py",
    "_backend_update_step": "tests/optimizers/optimizer_test.py",
    "_get_variable_index": "tests/optimizers/optimizer_test.py",
    "_trainable_variables": "tests/optimizers/optimizer_test.py",
    "_getframe": "tests/converters/own_format_test.py",
    "tensorflow.core.framework": "tests/export/verify_test.py",
    "tensorflow.core.protobuf": "tests/export/verify_test.py",
    "tensorflow.python.eager": "tests/training/multi_worker_test.py",
    "tensorflow.python.tools": "tests/tools/export_test.py",
}
# Documented in spite of the underscore.
PUBLIC = {"_asdict", "_exit", "_fields"}
MODULES = r"\b(?:tensorflow\.(?:python|core)|keras\.src|tf\.__internal__)\.?\w*"
BASES = (keras.Model, keras.optimizers.Optimizer, keras.random.SeedGenerator)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_interfaces() -> set[str]:
    """Names of modules, and private names that are not (only) defined here."""
    texts = [(ROOT / path).read_text() for path in python_files(ROOT)]
    found = {name for text in texts for name in re.findall(MODULES, text)}
    nodes = [node for text in texts for node in ast.walk(ast.parse(text))]
    used = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    own = {n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    foreign = {name for base in BASES for name in dir(base)} & (own | used)
    stored = [node for node in nodes if isinstance(vars(node).get("ctx"), ast.Store)]
    own |= {getattr(n, "attr", getattr(n, "id", "")) for n in stored}
    return found | set(filter(is_private, foreign | used - own - PUBLIC))


def test_every_private_interface_is_listed_with_its_test():
    assert private_interfaces() == set(WATCHED_BY)
    assert not [test for test in WATCHED_BY.values() if not (ROOT / test).is_file()]
