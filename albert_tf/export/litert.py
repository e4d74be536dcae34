"""Exports a model as a LiteRT (TensorFlow Lite) file, for phones and small CPUs.

LiteRT has no operations for SentencePiece, so the model takes token ids; the file of
the tokenizer is beside it. Legend: `B` batch, `T` sequence, `K` choices, `P` masks.
"""

import json
import os
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from albert_tf import features
from albert_tf.converters.checkpoint.keras_model import head_of
from albert_tf.errors import DataError, UsageError
from albert_tf.export import saved_model
from albert_tf.export.endpoints.tags import tag_labels
from albert_tf.export.settings import QUANTIZATIONS
from albert_tf.heads import Head, find
from albert_tf.models.classifiers import PROBLEM_TYPES, label_names, problem_type_of
from albert_tf.storage import digests, files, folders
from albert_tf.text.tokenizer import Tokenizer

MODEL_FILE = "model.tflite"
_EXAMPLE = "example.py"
_NUM_THREADS = 2
# What the exact forms may differ by from Keras: sums in another order.
_TOLERANCE = {"none": 1e-4, "float16": 2e-2}
_OWN_NAMES = {MODEL_FILE, _EXAMPLE, *folders.OWN_NAMES}

Run = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]


def export_litert(
    model: keras.Model,
    path: str | os.PathLike,
    *,
    tokenizer: Tokenizer,
    labels: Sequence[str] | None = None,
    max_seq_length: int | None = None,
    quantization: str = "none",
    check: Callable[[Run], Mapping[str, Any]] | None = None,
) -> str:
    """Writes a folder with a LiteRT model, its tokenizer and a manifest.

    A classifier with one label per text also gets `example.py`, which runs it.

    The model has one signature, `serving_default`. Its inputs are int32 and of any
    size: `token_ids`, `segment_ids` and `padding_mask` `[B, T]` (`[B, K, T]` for
    multiple choice), for masked LMs also `mask_positions` `[B, P]`, for the beam head
    `p_mask` `[B, T]`. Its outputs are those of the Keras model; a single one is named
    `logits`. A batch must not be empty.

    Args:
        model: keras.Model. Any model of this package.
        path: str or path. The folder to write, local or remote.
        tokenizer: `Tokenizer`. The one the model was trained with.
        labels: Sequence of str. Names of a classifier's labels. Default: those it was
            saved with.
        max_seq_length: int. Recorded in the manifest for whoever cuts texts. Default:
            the length of fine-tuning, or else the model's maximum.
        quantization: str. `"none"` (float32), `"float16"` (weights), `"dynamic_int8"`
            (weights, and the matrix products in integers).
        check: callable or None. Called with a function that runs the LiteRT model,
            before the folder appears; what it returns goes into the manifest, and what
            it raises ends the export with nothing written.

    Returns:
        str. Path of the folder.

    Raises:
        UsageError: If the folder exists, or an argument does not fit the model.
        DataError: If the model cannot be converted, or does not compute what it did.
    """
    if quantization not in QUANTIZATIONS:
        raise UsageError(
            f"quantization must be one of {', '.join(QUANTIZATIONS)}, received "
            f"{quantization!r}"
        )
    head = find(head_of(model))
    length = saved_model.checked_length(model, tokenizer, max_seq_length)
    names = _labels(model, head, labels)
    folders.check_free(os.fspath(path).rstrip("/"))
    data = _convert(model, head, quantization)
    run = runner(data)
    content = {
        "format": "litert",
        "kind": type(model).__name__,
        "quantization": quantization,
        "inputs": {n: f"int32 {_shape(head, n)}" for n in _inputs(head)},
        "max_seq_length": length,
        "tokenizer": tokenizer.get_config(),
        "max_difference": _difference(model, head, run, quantization, length),
    }
    if names:
        content["labels"] = names
    if head.name == "text_classifier":
        content["problem_type"] = problem_type_of(model)
    if check is not None:
        content["check"] = dict(check(run))
    with folders.writing(path, own_names=_OWN_NAMES) as out:
        out.write(MODEL_FILE, data)
        tokenizer.save(os.path.join(out.path, tokenizer.file_name))
        out.write_json("tokenizer_config.json", tokenizer.get_config())
        if content.get("problem_type") == PROBLEM_TYPES[2]:
            out.write(_EXAMPLE, _example(names, length).encode())
        listed = digests.of_tree(out.path)
        content["files"] = {
            n: {k: listed[n][k] for k in ("sha256", "size")} for n in sorted(listed)
        }
        out.write_json(folders.MANIFEST, content)
    return os.fspath(path).rstrip("/")


def runner(data: bytes, num_threads: int = _NUM_THREADS) -> Run:
    """Returns a function from the inputs of a LiteRT model to its outputs.

    Args:
        data: bytes. The model.
        num_threads: int. Threads of the interpreter.
    """
    with warnings.catch_warnings():
        # It says that its successor is a package of its own; the format is the same.
        warnings.simplefilter("ignore")
        interpreter = tf.lite.Interpreter(model_content=data, num_threads=num_threads)
    signature = interpreter.get_signature_runner()
    wanted = set(signature.get_input_details())

    def run(batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return signature(**{n: np.asarray(batch[n], np.int32) for n in wanted})

    return run


def _inputs(head: Head) -> tuple[str, ...]:
    names = (features.TOKEN_IDS, features.SEGMENT_IDS, features.PADDING_MASK)
    if head.has_masked_lm:
        return (*names, features.MASK_POSITIONS)
    if head.name == "beam_question_answering":
        return (*names, features.P_MASK)
    return names


def _shape(head: Head, name: str) -> list[None]:
    return [None] * (2 if name == features.MASK_POSITIONS else head.input_rank)


def _labels(model, head: Head, labels) -> list[str]:
    if head.name == "text_classifier":
        return label_names(model, labels)
    if head.name == "token_classifier":
        return tag_labels(model, labels)
    if labels is not None:
        raise UsageError(f"labels: {type(model).__name__} has none")
    return []


def _outputs(model, batch) -> dict[str, Any]:
    outputs = model(batch, training=False)
    if not isinstance(outputs, Mapping):
        outputs = {"logits": outputs}
    return {n: v for n, v in outputs.items() if v is not None}


def _convert(model, head: Head, quantization: str) -> bytes:
    specs = [tf.TensorSpec(_shape(head, n), tf.int32, n) for n in _inputs(head)]

    def serve(*tensors):
        batch = dict(zip(_inputs(head), tensors, strict=True))
        # A name of its own for each tensor, even for one that is also an input.
        return {n: tf.identity(v, n) for n, v in _outputs(model, batch).items()}

    archive = keras.export.ExportArchive()
    archive.track(model)
    archive.add_endpoint("serving_default", serve, specs)
    with tempfile.TemporaryDirectory(prefix="albert_tf-") as folder:
        archive.write_out(folder, verbose=False)
        # From the folder: from functions, the converter would leave out the weights.
        converter = tf.lite.TFLiteConverter.from_saved_model(
            folder, signature_keys=["serving_default"]
        )
        if quantization != "none":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if quantization == "float16":
            converter.target_spec.supported_types = [tf.float16]
        try:
            return converter.convert()
        except Exception as error:  # Its class has no public name.
            reason = str(error).strip().partition("\n")[0][:300]
            raise DataError(
                f"{type(model).__name__} cannot be written as LiteRT: {reason}"
            ) from error


def _difference(model, head: Head, run: Run, quantization: str, length: int) -> float:
    """Returns the largest difference from Keras for random tokens of two lengths.

    Raises:
        DataError: If it is larger than the number format explains.
    """
    rng = np.random.default_rng(0)
    worst = 0.0
    for size in (2, min(32, length)):
        shape = (2, 3, size) if head.input_rank == 3 else (3, size)
        batch = {
            features.TOKEN_IDS: rng.integers(0, model.config.vocab_size, shape),
            features.SEGMENT_IDS: np.zeros(shape),
            features.PADDING_MASK: np.arange(size)
            < rng.integers(2, size + 1, shape)[..., :1],
            features.MASK_POSITIONS: rng.integers(0, size, (3, 2)),
            features.P_MASK: np.zeros(shape),
        }
        batch = {n: np.asarray(batch[n], np.int32) for n in _inputs(head)}
        expected, got = _outputs(model, batch), run(batch)
        for name, values in expected.items():
            values = keras.ops.convert_to_numpy(values)
            # The ends of a beam belong to starts, whose order a rounding may change.
            if values.dtype.kind == "f" and name != "end_log_probs":
                error = np.abs(got[name] - values).max() / max(1.0, values.std())
                worst = float(np.maximum(worst, error))  # keeps NaN, unlike max()
    limit = _TOLERANCE.get(quantization, np.inf)
    if not worst <= limit:
        raise DataError(
            f"{type(model).__name__}: the LiteRT model differs from the Keras model by "
            f"{worst:.2g} in random rows; expected at most {limit:.0e}"
        )
    return worst


def _example(labels: Sequence[str], length: int) -> str:
    """Returns a program that classifies a text with the files of the folder."""
    return f'''# Needs ai-edge-litert, absl-py, numpy, albert_tf and sentencepiece.
import pathlib, sys, albert_tf, numpy as np
from ai_edge_litert.interpreter import Interpreter
here = pathlib.Path(__file__).parent
labels = {json.dumps(list(labels))}
tokenizer = albert_tf.load_tokenizer(here)
model = Interpreter(str(here / "{MODEL_FILE}")).get_signature_runner()
ids = tokenizer.encode(sys.argv[1])[:{length - 2}]
row = np.array([[tokenizer.cls_id, *ids, tokenizer.sep_id]], np.int32)
out = model(token_ids=row, segment_ids=row * 0, padding_mask=row * 0 + 1)
print(labels[out["logits"][0].argmax()], out["logits"][0].tolist())
'''


def read_model(path: str | os.PathLike) -> bytes:
    """Reads the LiteRT file of a folder that `export_litert` wrote."""
    return files.read_bytes(files.join(path, MODEL_FILE))
