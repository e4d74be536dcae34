"""Runtimes other than TensorFlow's: how models are written and run in each.

None of them has the operations of SentencePiece, so a model takes token ids.

Legend: `B` batch, `T` sequence, `K` choices, `P` masks.
"""

import contextlib
import logging as python_logging
import pathlib
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf import features
from albert_tf.converters.keras_model import head_of
from albert_tf.errors import require
from albert_tf.export.export_settings import check_packages, check_quantization
from albert_tf.export.saved_model import write_functions
from albert_tf.heads import VECTORS, find
from albert_tf.models.tensorflow import fast_forward

SIGNATURE = "serving_default"
# Number of threads for checking and measuring exported models.
NUM_THREADS = 2
_ONNX_OPSET = 17
# Matrices with fewer weights are not worth a scale.
_FEW = 1024

Run = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]


class TokensGraph:
    """A model as a function of integers.

    Its inputs are int32 and of any size: `token_ids`, `segment_ids` and `padding_mask`
    `[B, T]` (`[B, K, T]` for multiple choice), for masked LMs also `mask_positions`
    `[B, P]`, for the beam head `p_mask` `[B, T]`. Its outputs equal the Keras
    model; a single one is named `logits`, of an embedder `embedding`.
    """

    def __init__(self, model: keras.Model):
        self.model = model
        self.head = find(head_of(model))
        self.inputs = (*features.ROWS, *self.head.also_reads)

    def shape(self, name: str) -> list[None]:
        """Returns the shape of an input."""
        return [None] * (2 if name == features.MASK_POSITIONS else self.head.input_rank)

    def specs(self) -> list[tf.TensorSpec]:
        """Returns the name, type and shape of every input."""
        return [tf.TensorSpec(self.shape(n), tf.int32, n) for n in self.inputs]

    def outputs(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Computes the outputs with Keras."""
        outputs = self.model(batch, training=False)
        if not isinstance(outputs, Mapping):
            name = "embedding" if self.head.answers == VECTORS else "logits"
            outputs = {name: outputs}
        return {n: v for n, v in outputs.items() if v is not None}

    @contextlib.contextmanager
    def function(
        self, max_rank: int = 5
    ) -> Iterator[tf.types.experimental.GenericFunction]:
        """Yields the model in TensorFlow; it must be traced inside this context.

        A tensor of the encoder has at most `max_rank` axes; 4 or more.
        """
        forward = fast_forward.choose(self.model, "float32", max_rank)

        def serve(*tensors):
            batch = dict(zip(self.inputs, tensors, strict=True))
            # Every tensor gets its own name, even one that is also an input.
            return {n: tf.identity(v, n) for n, v in self.outputs(batch).items()}

        with fast_forward.replacing(self.model, forward):
            yield tf.function(serve, input_signature=self.specs())

    @contextlib.contextmanager
    def saved_model(self, max_rank: int = 5) -> Iterator[str]:
        """Yields a temporary folder with the model as a SavedModel; see `function`."""
        with tempfile.TemporaryDirectory(prefix="albert_tf-") as folder:
            with self.function(max_rank) as function:
                write_functions(folder, {SIGNATURE: function})
            yield folder

    def random_batch(
        self, rows: int, size: int, rng: np.random.Generator, full: bool = False
    ) -> dict[str, np.ndarray]:
        """Returns rows of random tokens, in multiple choice three choices each."""
        shape = (rows, 3, size) if self.head.input_rank == 3 else (rows, size)
        lengths = rng.integers(size if full else 2, size + 1, shape)[..., :1]
        batch = {
            features.TOKEN_IDS: rng.integers(0, self.model.config.vocab_size, shape),
            features.SEGMENT_IDS: np.zeros(shape),
            features.PADDING_MASK: np.arange(size) < lengths,
            features.MASK_POSITIONS: rng.integers(0, size, (rows, 2)),
            features.P_MASK: np.zeros(shape),
        }
        return {n: np.asarray(batch[n], np.int32) for n in self.inputs}


class Runtime:
    """A program that runs exported models.

    `write(graph, folder, quantization)` writes `model_files` of a `TokensGraph` into a
    local folder; `open(folder, quantization)` returns the names of the inputs of a
    written model, and a function from the inputs to outputs by name.

    Attributes:
        name: str. Value of `--format`, and the extra that installs the runtime.
        model_files: tuple of str. Files that `write` writes; the first one is opened.
        example_needs: str. The package with which the example runs the model.
    """

    name: str
    model_files: tuple[str, ...]
    example_needs: str

    def runner(self, folder: str, quantization: str) -> Run:
        """Returns a function from the inputs of a model in `folder` to its outputs."""
        names, run = self.open(folder, quantization)
        return lambda batch: run({n: np.asarray(batch[n], np.int32) for n in names})

    def model_file(self, folder: str) -> pathlib.Path:
        """Returns the path of the file that the runtime opens."""
        return pathlib.Path(folder, self.model_files[0])

    def options(self, quantization: str) -> dict[str, Any]:
        """Returns the options that a caller must set; they are in the manifest."""
        del quantization
        return {}


class LiteRT(Runtime):
    """LiteRT: float32, float16 weights, or int8 weights and matrix products."""

    name = "litert"
    model_files = ("model.tflite",)
    example_needs = "ai-edge-litert"

    def write(self, graph: TokensGraph, folder: str, quantization: str) -> None:
        # LiteRT cannot transpose the five axes of joined query, key and value.
        with graph.saved_model(max_rank=4) as saved_model:
            # Converted from the folder: from functions, the weights would be left out.
            converter = tf.lite.TFLiteConverter.from_saved_model(
                saved_model, signature_keys=[SIGNATURE]
            )
            if quantization != "none":
                converter.optimizations = [tf.lite.Optimize.DEFAULT]
            if quantization == "float16":
                converter.target_spec.supported_types = [tf.float16]
            self.model_file(folder).write_bytes(converter.convert())

    def open(self, folder: str, quantization: str) -> tuple[Iterable[str], Run]:
        with warnings.catch_warnings():
            # The warning announces that its successor is a separate package; the format
            # is the same.
            warnings.simplefilter("ignore")
            interpreter = tf.lite.Interpreter(
                str(self.model_file(folder)), num_threads=NUM_THREADS
            )
        signature = interpreter.get_signature_runner()
        return signature.get_input_details(), lambda batch: signature(**batch)


class OnnxRuntime(Runtime):
    """ONNX in float32, or with int8 weights and matrix products."""

    name = "onnx"
    model_files = ("model.onnx",)
    example_needs = "onnxruntime"

    def write(self, graph: TokensGraph, folder: str, quantization: str) -> None:
        import onnx
        import tf2onnx

        path = str(self.model_file(folder))
        with graph.function() as function, _quietly():
            model, _ = tf2onnx.convert.from_function(
                function,
                graph.specs(),
                opset=_ONNX_OPSET,
                custom_op_handlers={"Erfc": (_write_erfc, [])},
            )
        if quantization == "none":
            onnx.save(model, path)
            return
        from onnxruntime import quantization as quantizing
        from onnxruntime.quantization import quant_utils

        # Without this metadata, a warning demands a preparation that is not needed.
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

    def open(self, folder: str, quantization: str) -> tuple[Iterable[str], Run]:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = NUM_THREADS
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(
            self.model_file(folder), options, providers=["CPUExecutionProvider"]
        )
        names = [one.name for one in session.get_outputs()]

        def run(batch):
            return dict(zip(names, session.run(names, batch), strict=True))

        return [one.name for one in session.get_inputs()], run


def _write_erfc(context: Any, node: Any, name: str, args: Any) -> None:
    """Writes erfc, of the exact gelu, as `1 - erf`, because ONNX has only erf."""
    del args
    (output,), dtypes, shapes = node.output, node.output_dtypes, node.output_shapes
    one = context.make_const(f"{name}_one", np.ones((), np.float32))
    erf = context.make_node("Erf", node.input, dtypes=dtypes, shapes=shapes)
    context.remove_node(name)
    inputs = [one.output[0], erf.output[0]]
    context.make_node(
        "Sub", inputs, name=name, outputs=[output], dtypes=dtypes, shapes=shapes
    )


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Silences the libraries' log of each step and tensor."""
    before = python_logging.root.manager.disable
    python_logging.disable(python_logging.INFO)
    try:
        yield
    finally:
        python_logging.disable(before)


class OpenVino(Runtime):
    """OpenVINO in float32, in bfloat16, or with int8 weights.

    "bfloat16" is used to run the model where the processor supports it, and float32
    elsewhere; the file has float16 weights, which are more exact and as small.
    """

    name = "openvino"
    model_files = ("model.xml", "model.bin")
    example_needs = "openvino"

    def options(self, quantization: str) -> dict[str, Any]:
        # OpenVINO chooses bfloat16 where the processor has it. If requested, it would
        # be emulated elsewhere: 35 times slower than float32 with AVX-512.
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
                self.model_file(folder),
                compress_to_fp16=quantization == "bfloat16",
            )

    def open(self, folder: str, quantization: str) -> tuple[Iterable[str], Run]:
        import openvino

        model = openvino.Core().compile_model(
            self.model_file(folder),
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

        def run(batch):
            return {one.any_name: array for one, array in model(batch).items()}

        return [one.any_name for one in model.inputs], run


def _compress(model) -> None:
    """Stores the matrices of a model in int8, with one scale for each output."""
    # The form equals NNCF's symmetric int8, which OpenVINO's plugins recognize.
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
    """Returns the axis of a matrix that a product sums over; None for other uses."""
    node, index = target.get_node(), target.get_index()
    kind = node.get_type_name()
    if kind == "Gather" and index == 0:
        return 1  # one scale for each row of an embedding
    if kind == "MatMul" and index == 1:
        return 1 if node.get_attributes()["transpose_b"] else 0
    return None


RUNTIMES: dict[str, Runtime] = {
    one.name: one for one in (LiteRT(), OnnxRuntime(), OpenVino())
}


def find_runtime(name: str, quantization: str) -> Runtime:
    """Returns a runtime that can be used here.

    Raises `UsageError` if there is no such runtime, it has no such quantization, or a
    package that it needs is not installed.
    """
    require(name in RUNTIMES, f"format: must be one of {', '.join(RUNTIMES)}", name)
    check_quantization(name, quantization)
    check_packages(name)
    return RUNTIMES[name]
