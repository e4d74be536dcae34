"""Names of tensors are spelled in one module."""

import ast

from albert_tf import features
from tests.imports import ROOT, python_files

NAMES = {
    value
    for name, value in vars(features).items()
    if name.isupper() and isinstance(value, str)
}
# Words that config.json, reports and SQuAD's files have as well.
NAMES -= {features.LABELS, features.PLACES, features.IS_IMPOSSIBLE}
# Names with another owner that happen to be the same: Hugging Face's inputs, and the
# arguments of served endpoints.
EXCEPTIONS = {
    "albert_tf/converters/parity.py": {"input_ids"},
    "albert_tf/converters/tokenizers.py": {"input_ids"},
    "albert_tf/export/choices.py": {"token_ids"},
    "albert_tf/export/signatures.py": {"token_ids"},
    "albert_tf/export/text_inputs.py": {"token_ids", "segment_ids", "mask_positions"},
}


def spelled(path: str) -> set[str]:
    """Returns the names that a file has as string literals."""
    nodes = ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8")))
    literals = (node.value for node in nodes if isinstance(node, ast.Constant))
    return {value for value in literals if value in NAMES}


def test_only_features_spells_the_names():
    paths = [path for path in python_files(ROOT) if path.startswith("albert_tf/")]
    found = {path: spelled(path) for path in paths if path != "albert_tf/features.py"}
    assert {path: names for path, names in found.items() if names} == EXCEPTIONS
