"""The flags of convert_checkpoint, which must not import TensorFlow for `--help`."""

import ast
import pathlib

from albert_tf.converters import convert, detect

TOOL = pathlib.Path(__file__).parents[2] / "tools/convert_checkpoint.py"


def test_choices_are_those_of_the_converter():
    tree = ast.parse(TOOL.read_text(encoding="utf-8"))
    lists = [
        [element.value for element in node.elts]
        for node in ast.walk(tree)
        if isinstance(node, ast.List)
    ]
    assert lists == [list(detect.FORMATS), list(convert.VERIFY)]
