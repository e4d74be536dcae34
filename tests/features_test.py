"""Names of tensors are spelled in one module."""

import ast

import pytest

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
    "benchmarks/finetune_speed.py": {"input_ids"},
    "benchmarks/serving_peers.py": {"input_ids"},
    "benchmarks/serving_speed.py": {"token_ids", "segment_ids"},
    "benchmarks/step_speed.py": {"input_ids"},
    "albert_tf/converters/parity.py": {"input_ids"},
    "albert_tf/converters/tokenizers.py": {"input_ids"},
    "albert_tf/export/choices.py": {"token_ids"},
    "albert_tf/export/signatures.py": {"token_ids"},
    "albert_tf/export/text_inputs.py": {"token_ids", "segment_ids", "mask_positions"},
}


def spelled(path: str) -> dict[str, int]:
    """Returns the names that a file has as string literals, with the last line."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {
        node.value: node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in NAMES
    }


PATHS = [
    path
    for path in python_files(ROOT)
    if path.startswith("albert_tf/") and path != "albert_tf/features.py"
]


@pytest.mark.parametrize("path", PATHS)
def test_only_features_spells_the_names(path):
    found = spelled(path)
    for name in EXCEPTIONS.get(path, ()):
        assert found.pop(name, None), f"{name} is no longer an exception"
    assert not found, "use the constants of albert_tf.features"
