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
# Other libraries' inputs, the original's code, and the signatures of served models have
# names of their own, some of them the same.
OTHER_FORMATS = (
    "albert_tf/benchmarks/original_data.py",
    "albert_tf/converters/",
    "albert_tf/export/",
)


def spelled(path: str) -> list[str]:
    """The names that a file has as string literals, with their lines."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return [
        f"{path}:{node.lineno}: {node.value!r}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in NAMES
    ]


PATHS = [
    path
    for path in python_files(ROOT)
    if path.startswith("albert_tf/")
    and path != "albert_tf/features.py"
    and not path.startswith(OTHER_FORMATS)
]


@pytest.mark.parametrize("path", PATHS)
def test_only_features_spells_the_names(path):
    assert not spelled(path), "use the constants of albert_tf.features"


def test_the_scan_finds_names():
    assert spelled("albert_tf/features.py")
    assert {"token_ids", "input_ids", "token_boundary"} <= NAMES


def test_record_names():
    assert features.record_name(features.TOKEN_IDS) == "input_ids"
    assert features.record_name(features.SEGMENT_IDS) == "segment_ids"
    assert features.record_name(features.TOKEN_BOUNDARY) == "token_boundary"
    batch_names = set(features.RECORD_NAMES)
    assert len(set(features.RECORD_NAMES.values())) == len(batch_names)
