"""OpenVINO, for Intel's processors and others."""

import pathlib
from typing import Any

import numpy as np
from absl import logging

from albert_tf.export.runtimes.runtime import NUM_THREADS, Run, Runtime
from albert_tf.export.runtimes.tokens_graph import TokensGraph
from albert_tf.export.settings import PACKAGES

_MODEL, _WEIGHTS = "model.xml", "model.bin"
# Fewer weights than these are not worth a scale.
_FEW = 1024


class OpenVino(Runtime):
    """OpenVINO in float32, in bfloat16, or with int8 weights.

    "bfloat16" is how the model is run where the processor can, and float32 elsewhere;
    the file has float16 weights, which are more exact and as small.
    """

    name = "openvino"
    packages = PACKAGES["openvino"]
    model_files = (_MODEL, _WEIGHTS)
    example_needs = "openvino"

    def options(self, quantization: str) -> dict[str, Any]:
        # OpenVINO chooses bfloat16 where the processor has it. Asked for it, it would
        # imitate it elsewhere: 35 times slower than float32 with AVX-512.
        if quantization == "bfloat16":
            return {}
        return {"INFERENCE_PRECISION_HINT": "f32"}

    def write(self, graph: TokensGraph, folder: str, quantization: str) -> None:
        import openvino

        with graph.saved_model() as saved_model:
            # Not convert_model, which reports its use to Intel.
            model = openvino.Core().read_model(saved_model)
            if quantization == "int8_weights":
                _compress(model)
            openvino.save_model(
                model,
                pathlib.Path(folder, _MODEL),
                compress_to_fp16=quantization == "bfloat16",
            )

    def runner(self, folder: str, quantization: str) -> Run:
        import openvino

        model = openvino.Core().compile_model(
            pathlib.Path(folder, _MODEL),
            "CPU",
            {"INFERENCE_NUM_THREADS": NUM_THREADS, **self.options(quantization)},
        )
        chosen = model.get_property("INFERENCE_PRECISION_HINT").get_type_name()
        if quantization == "bfloat16" and chosen != "bf16":
            logging.warning(
                "bfloat16: this CPU has none, so OpenVINO computes in %s; the loss "
                "and the speed in the manifest are of that",
                chosen,
            )
        wanted = [one.any_name for one in model.inputs]

        def run(batch):
            batch = {n: np.asarray(batch[n], np.int32) for n in wanted}
            return {one.any_name: array for one, array in model(batch).items()}

        return run

    def example(self, quantization: str) -> tuple[str, str]:
        return (
            "import openvino",
            f"options = {self.options(quantization)}\n"
            f'model = openvino.compile_model(here / "{_MODEL}", "CPU", options)\n'
            "outputs = {one.any_name: array for one, array in model(inputs).items()}",
        )


def _compress(model) -> None:
    """Stores the matrices of a model in int8, with one scale for each output.

    The form is that of NNCF's symmetric int8, which OpenVINO's plugins recognize.
    """
    import openvino
    from openvino import opset13

    for node in model.get_ordered_ops():
        if node.get_type_name() != "Constant" or len(node.shape) != 2:
            continue
        if node.get_element_type() != openvino.Type.f32 or np.prod(node.shape) < _FEW:
            continue
        targets = node.output(0).get_target_inputs()
        axes = {_reduced_axis(target) for target in targets}
        if len(axes) != 1 or None in axes:
            continue
        weights = node.data
        scale = np.abs(weights).max(axes.pop(), keepdims=True) / 127
        scale[scale == 0] = 1
        whole = np.rint(weights / scale).astype(np.int8)
        product = opset13.multiply(
            opset13.convert(opset13.constant(whole), "f32"), opset13.constant(scale)
        )
        for target in targets:
            target.replace_source_output(product.output(0))


def _reduced_axis(target) -> int | None:
    """Returns the axis of a matrix over which a product sums; None for other uses."""
    node, index = target.get_node(), target.get_index()
    kind = node.get_type_name()
    if kind == "Gather" and index == 0:
        return 1  # One scale for each row of an embedding.
    if kind == "MatMul" and index == 1:
        return 1 if node.get_attributes()["transpose_b"] else 0
    return None
