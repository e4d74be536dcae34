"""LiteRT (TensorFlow Lite), for phones and small CPUs."""

import pathlib
import warnings

import numpy as np
import tensorflow as tf

from albert_tf.export.runtimes.runtime import NUM_THREADS, Run, Runtime
from albert_tf.export.runtimes.tokens_graph import SIGNATURE, TokensGraph
from albert_tf.export.settings import PACKAGES

_MODEL = "model.tflite"


class LiteRT(Runtime):
    """LiteRT: float32, float16 weights, or int8 weights and matrix products."""

    name = "litert"
    packages = PACKAGES["litert"]
    model_files = (_MODEL,)
    example_needs = "ai-edge-litert"

    def write(self, graph: TokensGraph, folder: str, quantization: str) -> None:
        # It cannot transpose five axes, which query, key and value in one have.
        with graph.saved_model(max_rank=4) as saved_model:
            # From the folder: from functions, it would leave out the weights.
            converter = tf.lite.TFLiteConverter.from_saved_model(
                saved_model, signature_keys=[SIGNATURE]
            )
            if quantization != "none":
                converter.optimizations = [tf.lite.Optimize.DEFAULT]
            if quantization == "float16":
                converter.target_spec.supported_types = [tf.float16]
            pathlib.Path(folder, _MODEL).write_bytes(converter.convert())

    def runner(self, folder: str, quantization: str) -> Run:
        with warnings.catch_warnings():
            # It says that its successor is a package of its own; the format is the
            # same.
            warnings.simplefilter("ignore")
            interpreter = tf.lite.Interpreter(
                str(pathlib.Path(folder, _MODEL)), num_threads=NUM_THREADS
            )
        signature = interpreter.get_signature_runner()
        wanted = set(signature.get_input_details())

        def run(batch):
            return signature(**{n: np.asarray(batch[n], np.int32) for n in wanted})

        return run

    def example(self, quantization: str) -> tuple[str, str]:
        return (
            "from ai_edge_litert.interpreter import Interpreter",
            f'model = Interpreter(str(here / "{_MODEL}")).get_signature_runner()\n'
            "outputs = model(**inputs)",
        )
