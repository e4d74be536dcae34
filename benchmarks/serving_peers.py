"""Other programs that serve a text classifier: transformers, onnxruntime, OpenVINO.

The latter two run torch's exports, and are measured if they are installed; this package
does not depend on them.
"""

import importlib.util
import os
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np

from albert_tf.converters.load import save_pretrained
from albert_tf.text.tokenizer import Tokenizer

# Token ids, padding mask and segments `[B, T]` of integers to logits `[B, C]`.
Forward = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


class Server(NamedTuple):
    """A contestant that answers requests.

    Attributes:
        forward: `Forward`.
        texts: callable. From a list of texts to logits `[B, C]`.
    """

    forward: Forward
    texts: Callable[[list[str]], np.ndarray]


class Peers:
    """The other programs, all with the weights of one model of ours.

    Args:
        model: keras.Model. A text classifier.
        tokenizer: `Tokenizer`.
        max_seq_length: int. Longer texts are cut.
        folder: str. An empty folder for files.
    """

    def __init__(
        self, model: keras.Model, tokenizer: Tokenizer, max_seq_length: int, folder: str
    ):
        import transformers

        self._path = os.path.join(folder, "peer")
        save_pretrained(model, self._path, format="huggingface", tokenizer=tokenizer)
        self._folder = folder
        self._max_seq_length = max_seq_length
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(self._path)
        self._programs = {"onnxruntime": self._onnx, "openvino": self._openvino}

    def servers(self, precisions: list[str]) -> tuple[dict[str, Server], list[str]]:
        """Returns the programs by name, and sentences about missing ones."""
        found = {
            f"transformers, {precision}": self._transformers(precision)
            for precision in precisions
        }
        absent = []
        for name, make in self._programs.items():
            if importlib.util.find_spec(name) is None:
                absent.append(f"{name} is not installed, so it was not measured.")
                continue
            for precision in precisions:
                with warnings.catch_warnings():
                    # torch warns about tracing and its old exporter; the new one
                    # needs another package.
                    warnings.simplefilter("ignore")
                    forward = make(precision)
                if forward is not None:
                    found[f"{name}, {precision}"] = self._server(forward)
        return found, absent

    def _server(self, forward: Forward) -> Server:
        def answer(texts: list[str]) -> np.ndarray:
            batch = self._tokenizer(
                texts,
                padding=True,  # to the longest of the batch
                truncation=True,
                max_length=self._max_seq_length,
                return_tensors="np",
            )
            names = ("input_ids", "attention_mask", "token_type_ids")
            return forward(*(batch[name] for name in names))

        return Server(forward, answer)

    def _load(self, **kwargs) -> Any:
        import transformers

        kind = transformers.AlbertForSequenceClassification
        return kind.from_pretrained(self._path, **kwargs).eval()

    def _transformers(self, precision: str) -> Server:
        import torch

        model = self._load(dtype=getattr(torch, precision))

        @torch.inference_mode()
        def forward(ids, mask, segments) -> np.ndarray:
            tensors = [torch.from_numpy(x).long() for x in (ids, mask, segments)]
            return model(*tensors).logits.float().numpy()

        return self._server(forward)

    def _traceable(self) -> tuple[Any, tuple]:
        """Returns torch's model with plain inputs and outputs, and examples of them."""
        import torch

        model = self._load(attn_implementation="eager")

        class Logits(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.model = model

            def forward(self, input_ids, attention_mask, token_type_ids):
                return self.model(input_ids, attention_mask, token_type_ids).logits

        example = torch.ones((2, 9), dtype=torch.long)
        return Logits().eval(), (example, example, torch.zeros_like(example))

    def _onnx(self, precision: str) -> Forward | None:
        if precision != "float32":
            return None  # it has no kernels for bfloat16 on CPUs
        import onnxruntime
        import torch

        model, example = self._traceable()
        names = ["input_ids", "attention_mask", "token_type_ids"]
        path = os.path.join(self._folder, "peer.onnx")
        torch.onnx.export(
            model,
            example,
            path,
            input_names=names,
            output_names=["logits"],
            dynamic_axes={name: {0: "batch", 1: "tokens"} for name in names},
            dynamo=False,
        )
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

        def forward(*arrays) -> np.ndarray:
            inputs = {k: v.astype(np.int64) for k, v in zip(names, arrays, strict=True)}
            return session.run(["logits"], inputs)[0]

        return forward

    def _openvino(self, precision: str) -> Forward:
        import openvino

        model, example = self._traceable()
        converted = openvino.convert_model(model, example_input=example)
        hints = {
            "INFERENCE_PRECISION_HINT": {"float32": "f32", "bfloat16": "bf16"}[
                precision
            ],
            "PERFORMANCE_HINT": "LATENCY",
        }
        compiled = openvino.compile_model(converted, "CPU", hints)

        def forward(*arrays) -> np.ndarray:
            return compiled([x.astype(np.int64) for x in arrays])[0]

        return forward
