"""The runtimes by name."""

from albert_tf.errors import UsageError
from albert_tf.export.runtimes.litert import LiteRT
from albert_tf.export.runtimes.onnx_runtime import OnnxRuntime
from albert_tf.export.runtimes.openvino_runtime import OpenVino
from albert_tf.export.runtimes.runtime import Runtime
from albert_tf.export.settings import check_packages, check_quantization

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
    check_packages(name)
    return _RUNTIMES[name]
