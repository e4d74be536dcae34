"""A runtime is found with what it needs, or one line says what is missing."""

import importlib.util

import pytest

from albert_tf.errors import UsageError
from albert_tf.export import runtimes
from albert_tf.export.settings import QUANTIZATIONS


def test_the_settings_list_every_runtime():
    assert runtimes.RUNTIMES.keys() == QUANTIZATIONS.keys()
    assert all(name == one.name for name, one in runtimes.RUNTIMES.items())


def test_a_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "tf2onnx" else True
    )
    with pytest.raises(UsageError, match=r"needs tf2onnx; pip .*'albert_tf\[onnx\]'"):
        runtimes.find_runtime("onnx", "none")
    assert runtimes.find_runtime("openvino", "bfloat16").name == "openvino"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("coreml", "none"), "format: must be one of litert, onnx, openvino, received"),
        (("onnx", "float16"), "none, dynamic_int8 for onnx, received 'float16'"),
    ],
)
def test_unknown_names(given, message):
    with pytest.raises(UsageError, match=message):
        runtimes.find_runtime(*given)
