"""The runtimes by name."""

import importlib.util

from albert_tf.errors import UsageError
from albert_tf.export.runtimes.litert import LiteRT
from albert_tf.export.runtimes.onnx_runtime import OnnxRuntime
from albert_tf.export.runtimes.openvino_runtime import OpenVino
from albert_tf.export.runtimes.runtime import Runtime
from albert_tf.export.settings import check_quantization

_RUNTIMES: dict[str, Runtime] = {
    one.name: one for one in (LiteRT(), OnnxRuntime(), OpenVino())
}


def find(name: str, quantization: str) -> Runtime:
    """Returns a runtime that can be used here.

    Raises:
        UsageError: If there is no such runtime or it has no such quantization, or if a
            package that it needs is not installed.
    """
    if name not in _RUNTIMES:
        raise UsageError(
            f"format: must be one of {', '.join(_RUNTIMES)}, received {name!r}"
        )
    check_quantization(name, quantization)
    runtime = _RUNTIMES[name]
    for package in runtime.packages:
        if importlib.util.find_spec(package) is None:
            raise UsageError(
                f"format: {name} needs {package}; pip install 'albert_tf[{name}]'"
            )
    return runtime
