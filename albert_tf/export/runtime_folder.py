"""Writes the folder of a model for another runtime: model, tokenizer, manifest."""

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from albert_tf import environment, features
from albert_tf.errors import DataError, require
from albert_tf.export import manifest, saved_model
from albert_tf.export.export_settings import PACKAGES
from albert_tf.export.runtimes import (
    NUM_THREADS,
    Run,
    Runtime,
    TokensGraph,
    find_runtime,
)
from albert_tf.export.server_files import fill
from albert_tf.storage import folders
from albert_tf.text.load import OPTION_FILE, library_options
from albert_tf.text.tokenizer import Tokenizer

EXAMPLE = "example.py"
# Expression of the example for each input, given a single text.
_VALUES = {
    features.TOKEN_IDS: "row",
    features.SEGMENT_IDS: "row * 0",
    features.PADDING_MASK: "row * 0 + 1",
    features.MASK_POSITIONS: "row[:, :1] * 0 + 1",
    features.P_MASK: "row * 0",
}
# Numbers of rows and tokens at which speed is measured.
_BATCH_SIZES, _NUM_TOKENS = (1, 8), 128
# Runs are repeated until both limits are reached, or the larger number of runs.
_SECONDS, _FEW_RUNS, _MANY_RUNS = 0.5, 2, 20
# Tolerated differences of the exact forms from Keras, due to the order of sums.
_TOLERANCE = {"none": 1e-4, "float16": 2e-2}


def export_for_runtime(
    model: keras.Model,
    path: str | os.PathLike,
    *,
    format: str,
    tokenizer: Tokenizer,
    labels: Sequence[str] | None = None,
    max_seq_length: int | None = None,
    quantization: str = "none",
    check: Callable[[Run], Mapping[str, Any]] | None = None,
) -> str:
    """Writes a folder with a model for LiteRT, onnxruntime or OpenVINO.

    None of them has the operations of SentencePiece, so the model takes token ids
    (`TokensGraph` describes the inputs and outputs). The folder also contains the
    tokenizer, a manifest with the measurements, and `example.py`, which runs the model
    without TensorFlow. A batch must not be empty. `ExportSettings` describes the
    arguments; `check` is called with a function that runs the written model, before the
    folder appears: its result goes into the manifest, and an error that it raises ends
    the export with nothing written. Raises `UsageError` if the folder
    exists or a package is missing, and `DataError` if the model cannot be converted, or
    its outputs differ. Returns the path of the folder.
    """
    saved_model.check_backend()
    runtime = find_runtime(format, quantization)
    graph = TokensGraph(model)
    length = saved_model.checked_length(model, tokenizer, max_seq_length)
    saved_model.check_uses(model, labels)
    content = {
        "format": format,
        "quantization": quantization,
        "options": runtime.options(quantization),
        "inputs": {n: f"int32 {graph.shape(n)}" for n in graph.inputs},
        **saved_model.describe(model, tokenizer, labels, length, PACKAGES[format]),
    }
    own_names = {*runtime.model_files, EXAMPLE, *folders.OWN_NAMES}
    with folders.writing(path, own_names=own_names) as out:
        run = _write_model(runtime, graph, out.path, quantization)
        content["max_difference"] = _difference(runtime, graph, run, quantization)
        content["max_difference_in_batch"] = _batch_difference(graph, run)
        if check is not None:
            content["check"] = dict(check(run))
        content["speed"] = _speed(graph, run, length)
        tokenizer.save(os.path.join(out.path, tokenizer.file_name))
        out.write_json(OPTION_FILE, library_options(tokenizer))
        out.write(EXAMPLE, make_example(runtime, graph, tokenizer, content).encode())
        listed = manifest.list_files(out.path)
        content["size"] = sum(listed[name]["size"] for name in runtime.model_files)
        out.write_json(folders.MANIFEST, {**content, "files": listed})
    return os.fspath(path).rstrip("/")


def _write_model(
    runtime: Runtime, graph: TokensGraph, folder: str, quantization: str
) -> Run:
    """Writes the model and returns a function that runs it."""
    try:
        runtime.write(graph, folder, quantization)
        return runtime.runner(folder, quantization)
    except Exception as error:  # the converters' own errors have no public names
        reason = str(error).strip().partition("\n")[0][:300] or type(error).__name__
        raise DataError(
            f"{type(graph.model).__name__} cannot be written as {runtime.name}: "
            f"{reason}"
        ) from error


def _difference(
    runtime: Runtime, graph: TokensGraph, run: Run, quantization: str
) -> float:
    """Returns the largest difference from Keras for random tokens of two lengths."""
    rng = np.random.default_rng(0)
    worst = 0.0
    for size in (2, min(32, graph.model.config.max_position_embeddings)):
        batch = graph.random_batch(3, size, rng)
        expected, got = graph.outputs(batch), run(batch)
        for name, values in expected.items():
            values = keras.ops.convert_to_numpy(values)
            # The ends of a beam belong to starts, whose order may change by rounding.
            if values.dtype.kind == "f" and name != "end_log_probs":
                error = np.abs(got[name] - values).max() / max(1.0, values.std())
                worst = float(np.maximum(worst, error))  # keeps NaN, unlike max()
    limit = _TOLERANCE.get(quantization, np.inf)
    need = (
        f"{type(graph.model).__name__}: the {runtime.name} model differs from the "
        f"Keras model by {worst:.2g} in random rows; expected at most {limit:.0e}"
    )
    require(worst <= limit, need, error=DataError)
    return worst


def _batch_difference(graph: TokensGraph, run: Run) -> float:
    """Returns the largest difference between a row alone and among others."""
    # It is not 0 where a number format has one scale for a whole batch.
    size = min(16, graph.model.config.max_position_embeddings)
    batch = graph.random_batch(8, size, np.random.default_rng(1), full=True)
    together, worst = run(batch), 0.0
    for row in range(2):
        alone = run({name: values[row : row + 1] for name, values in batch.items()})
        for name, values in alone.items():
            if values.dtype.kind == "f" and name != "end_log_probs":
                error = np.abs(together[name][row] - values[0]).max()
                worst = max(worst, float(error / max(1.0, values.std())))
    return worst


def make_example(
    runtime: Runtime,
    graph: TokensGraph,
    tokenizer: Tokenizer,
    content: Mapping[str, Any],
) -> str:
    """Returns a program that answers a text with the files of the folder.

    Classifiers print labels and scores; other models, whose answers take more than one
    text or more than ten lines, the shapes of their outputs. If there are prompts, a
    second argument names the role of the text. `content` is the manifest's.
    """
    is_sentencepiece = tokenizer.file_name.endswith(".model")
    return fill(
        EXAMPLE,
        format=runtime.name,
        needs=runtime.example_needs,
        library="sentencepiece" + ", tokenizers" * (not is_sentencepiece),
        length=content["max_seq_length"],
        has_choices=graph.head.input_rank == 3,
        inputs=graph.inputs,
        values=_VALUES,
        model_file=runtime.model_files[0],
        options=content["options"],
        labels=content.get("labels"),
        prompts=content.get("prompts"),
        problem_type=content.get("problem_type"),
    )


def _speed(graph: TokensGraph, run: Run, length: int) -> dict[str, Any]:
    """Returns the time per row at some batch sizes, and the machine."""
    tokens = min(_NUM_TOKENS, length)
    rng = np.random.default_rng(0)
    machine = environment.machine()
    times = {}
    for rows in _BATCH_SIZES:
        batch = graph.random_batch(rows, tokens, rng, full=True)
        run(batch)  # the first run also prepares the later ones
        seconds: list[float] = []
        while len(seconds) < _FEW_RUNS or (
            sum(seconds) < _SECONDS and len(seconds) < _MANY_RUNS
        ):
            start = time.perf_counter()
            run(batch)
            seconds.append(time.perf_counter() - start)
        times[str(rows)] = round(1000 * statistics.median(seconds) / rows, 3)
    return {
        "milliseconds_per_row": times,  # by batch size
        "tokens": tokens,
        "threads": NUM_THREADS,
        **{key: machine[key] for key in ("cpu", "cores", "load_at_start")},
    }
