"""ONNX, run by onnxruntime."""

import contextlib
import logging
import pathlib
from collections.abc import Iterator

import numpy as np

from albert_tf.export.runtimes.runtime import NUM_THREADS, Run, Runtime
from albert_tf.export.runtimes.tokens_graph import TokensGraph
from albert_tf.export.settings import PACKAGES

_MODEL = "model.onnx"
_OPSET = 17


class OnnxRuntime(Runtime):
    """ONNX in float32, or with int8 weights and matrix products."""

    name = "onnx"
    packages = PACKAGES["onnx"]
    model_files = (_MODEL,)
    example_needs = "onnxruntime"

    def write(self, graph: TokensGraph, folder: str, quantization: str) -> None:
        import onnx
        import tf2onnx

        path = str(pathlib.Path(folder, _MODEL))
        with graph.function() as function, _quietly():
            model, _ = tf2onnx.convert.from_function(
                function, graph.specs(), opset=_OPSET
            )
        if quantization == "none":
            onnx.save(model, path)
            return
        from onnxruntime import quantization as quantizing
        from onnxruntime.quantization import quant_utils

        # Without it, a warning asks for a preparation that such a graph does not need.
        quant_utils.add_pre_process_metadata(model)
        with _quietly():
            quantizing.quantize_dynamic(
                model,
                path,
                per_channel=True,
                # 7 bits: with 8, sums of two products overflow on x86 without VNNI.
                reduce_range=True,
                weight_type=quantizing.QuantType.QInt8,
            )

    def runner(self, folder: str, quantization: str) -> Run:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = NUM_THREADS
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(
            pathlib.Path(folder, _MODEL), options, providers=["CPUExecutionProvider"]
        )
        wanted = [one.name for one in session.get_inputs()]
        names = [one.name for one in session.get_outputs()]

        def run(batch):
            batch = {n: np.asarray(batch[n], np.int32) for n in wanted}
            return dict(zip(names, session.run(names, batch), strict=True))

        return run

    def example(self, quantization: str) -> tuple[str, str]:
        return (
            "import onnxruntime",
            f'model = onnxruntime.InferenceSession(here / "{_MODEL}")\n'
            "names = [output.name for output in model.get_outputs()]\n"
            "outputs = dict(zip(names, model.run(names, inputs)))",
        )


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Silences what the libraries log about each step and tensor."""
    before = logging.root.manager.disable
    logging.disable(logging.INFO)
    try:
        yield
    finally:
        logging.disable(before)
