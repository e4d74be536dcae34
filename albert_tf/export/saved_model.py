"""Exports a model as one SavedModel that takes raw strings."""

import functools
import importlib.metadata
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf.converters.keras_model import from_model, head_of
from albert_tf.errors import DataError, require
from albert_tf.export import cpu, manifest, warmup
from albert_tf.export.choices import choice_options
from albert_tf.export.questions import answering_of
from albert_tf.export.signatures import CLASSIFY_METHOD, TOP_K, make_signatures
from albert_tf.export.tags import tag_labels
from albert_tf.export.text_inputs import Signature, TextInputs, checked, specs_of
from albert_tf.heads import CHOICES, LABELS, REPLACED, TAGS, find, problem_type_of
from albert_tf.models.classifiers import label_names
from albert_tf.models.tensorflow import fast_forward
from albert_tf.storage import files, folders, hubs
from albert_tf.tasks import saved
from albert_tf.text import inputs
from albert_tf.text.tokenizer import Tokenizer

EXITS = "exits.json"
EXITS_PICTURE = "assets.extra/exits.png"


def check_backend() -> None:
    """Raises `UsageError` if Keras was not started with TensorFlow."""
    backend = keras.backend.backend()
    expected = "export: needs Keras on TensorFlow, without the variable KERAS_BACKEND"
    require(backend == "tensorflow", expected, backend)


def export_saved_model(
    model: keras.Model,
    path: str | os.PathLike,
    *,
    tokenizer: Tokenizer,
    labels: Sequence[str] | None = None,
    max_seq_length: int | None = None,
    version: int | None = None,
    warmup_batch_sizes: Sequence[int] = (1, 8),
    top_k: int | None = None,
    answering: Mapping[str, Any] | None = None,
    precision: str = "float32",
    exit: str | None = None,
    exits_curve: str | os.PathLike | None = None,
) -> str:
    """Writes a SavedModel with normalization, tokenizer, model and label names.

    To load it in Python, `import tensorflow_text` (for its operations) and no other
    package is needed; TensorFlow Serving has these operations built in. It answers any
    text and any batch size; longer texts are cut. `signatures` and `questions`
    list its signatures. Warm-up requests for every length are written next to the
    model and run once, and `assets.extra/manifest.json` lists files,
    digests and operations.

    Args:
        model: keras.Model. One of the kinds that `heads` calls exportable.
        path: str or path. The folder to write. With `version`, the folder that
            TensorFlow Serving watches (`--model_base_path`).
        tokenizer: `Tokenizer`. The tokenizer that the model was trained with.
        labels: Sequence of str or None. Names of the labels of a classifier of texts
            or words. Default: the names it was saved with.
        max_seq_length: int. Longer texts are cut. Default: the length the model
            was fine-tuned with, or else the model's maximum.
        version: int or None. If given, the folder is `path/version`.
        warmup_batch_sizes: Sequence of int. Batch sizes of the warm-up requests; empty
            for no requests.
        top_k: int or None. For a model with a masked LM head: number of tokens that
            `fill_mask(text)` returns for each mask. Default: 10.
        answering: mapping or None. For a model that answers questions: options of
            `QuestionAnswerer` to change, such as `null_threshold`, `n_best_size` or
            `unanswerable`. Default: the options of `QuestionAnswerer` with this model.
        precision: str. "float32", or "bfloat16" for CPUs with AVX512_BF16 or AMX_BF16;
            on others it is much slower, or ends the process that runs the model.
        exit: str or None. Rule by which a text classifier with exits stops early; see
            `ExitRule`. The signature `elastic(text, num_layers)` needs none.
        exits_curve: str, path or None. JSON file that `evaluate --exits_curve` wrote
            for this model. Its numbers go into the manifest; its picture is copied.

    Returns:
        str. Path of the folder. The folder appears once it is complete.

    Raises:
        UsageError: If the folder exists, or an argument does not fit the model or, with
            "bfloat16", this CPU.
        DataError: If the model returns NaN or infinity.

    Example:
        >>> import albert_tf
        >>> model = albert_tf.from_pretrained("demo_output/classifier")
        >>> albert_tf.export_saved_model(
        ...     model, "served", version=1, tokenizer=model.preprocessor.tokenizer
        ... )
        'served/1'
    """
    check_backend()
    target = _target(path, version)
    head = find(head_of(model))
    _check_answers(model)
    answering = answering or {}
    check_uses(model, labels, top_k, answering)
    answers = None
    if head.answers_spans:
        answers = answering_of(model, max_seq_length, answering)
        max_seq_length = answers.max_seq_length
    length = checked_length(model, tokenizer, max_seq_length)
    forward = fast_forward.choose(model, precision)
    elastic = fast_forward.choose_elastic(model, forward, exit)
    exits, picture = read_exits(exits_curve, model)
    segments = model.config.num_segments
    text_inputs = TextInputs(tokenizer.for_segments(segments), length)
    signatures = make_signatures(
        model, text_inputs, labels, top_k or TOP_K, elastic, answers
    )
    requests = warmup.make_requests(model, signatures, length, warmup_batch_sizes)
    cpu.check(precision, will_run=bool(warmup_batch_sizes))
    content = {
        "format": "albert_tf",
        **describe(model, tokenizer, labels, length),
        "tokenizer_sha256": tokenizer.sha256,
        "signatures": {
            name: {
                spec.name: f"{spec.dtype.name} {spec.shape.as_list()}"
                for spec in specs_of(signature, model)
            }
            for name, signature in signatures.items()
        },
        "precision": precision,
        "forward": fast_forward.describe(forward),
    }
    if head.answers == CHOICES:
        content |= choice_options(model)
    if answers is not None:
        content["answering"] = answers.describe()
    if exit:
        content["exit"] = str(elastic.rule)
    if exits is not None:
        content["exits"] = exits
    # A server waits for saved_model.pb: it must never find an incomplete model.
    with folders.writing(target, last=manifest.MODEL_FILE) as out:
        with fast_forward.replacing(model, forward):
            _write(model, text_inputs, signatures, out.path)
        content["operations"] = sorted(manifest.check_operations(out.path))
        os.makedirs(os.path.join(out.path, "assets.extra"))
        if warmup_batch_sizes:
            file = os.path.join(out.path, "assets.extra", warmup.FILE)
            warmup.write_requests(file, requests)
            _run_requests(out.path, file)
        if picture is not None:
            out.write(EXITS_PICTURE, picture)
        manifest.write_manifest(out, content)
    return target


def _target(path: str | os.PathLike, version: int | None) -> str:
    target = os.fspath(path).rstrip("/")
    if version is not None:
        require(version > 0, "version must be positive", version)
        target = files.join(target, str(version))
    require(
        not set(target) & set("[\\"),
        f"{target}: must have neither [ nor \\ in it; TensorFlow would not find the "
        "model there",
    )
    folders.check_free(target)
    return target


def _check_answers(model: keras.Model) -> None:
    """Raises `UsageError` if no signature would contain the model's answers."""
    need = (
        "model: expected one that answers texts; fine-tune ELECTRA's discriminator, "
        "export its encoder with --head=none (in Python: its backbone), or take "
        "another --format, which has the scores of tokens"
    )
    require(find(head_of(model)).answers != REPLACED, need, type(model).__name__)


def check_uses(model, labels, top_k: int | None = None, answering=()) -> None:
    """Raises `UsageError` if an argument is for another kind of model."""
    head, kind = find(head_of(model)), type(model).__name__
    for name, is_set, fits in (
        ("labels", labels is not None, head.has_labels),
        ("top_k", top_k is not None, head.has_masked_lm),
    ):
        require(fits or not is_set, f"{name}: {kind} has no use for it")
    expected = f"answering: {kind} has no use for {', '.join(map(str, answering))}"
    require(head.answers_spans or not answering, expected)


def checked_length(
    model: keras.Model, tokenizer: Tokenizer, max_seq_length: int | None
) -> int:
    """Returns the maximum length of a row: the given one, or fine-tuning's.

    Raises `UsageError` if the length does not fit the model, or the tokenizer has more
    tokens than the model.
    """
    longest = model.config.max_position_embeddings
    length = max_seq_length
    if length is None:
        # The length of fine-tuning, as in the Python classes.
        head = head_of(model)
        if find(head).answers in (CHOICES, TAGS):
            length = saved.task_of(model, head, None).options.max_seq_length
        else:
            length = getattr(model, "max_seq_length", None) or longest
    separators = 2 if model.config.num_segments == 1 else 1
    inputs.check_max_seq_length(
        length, pairs=True, longest=longest, separators=separators
    )
    need = (
        f"tokenizer: expected at most vocab_size={model.config.vocab_size} tokens, as "
        "the model has"
    )
    require(tokenizer.vocab_size <= model.config.vocab_size, need, tokenizer.vocab_size)
    return length


def describe(
    model: keras.Model,
    tokenizer: Tokenizer,
    labels: Sequence[str] | None,
    length: int,
    packages: Iterable[str] = (),
) -> dict[str, Any]:
    """Returns the entries about a model in the manifests of all formats.

    The labels replace the model's own; `packages` are named besides TensorFlow and
    Keras.
    """
    head = find(head_of(model))
    packages = dict.fromkeys(("tensorflow", "keras", *packages))
    content = {
        "kind": type(model).__name__,
        "max_seq_length": length,
        "layers": model.config.num_hidden_layers,
        "tokenizer": tokenizer.get_config(),
        "versions": {name: importlib.metadata.version(name) for name in packages},
    }
    if head.has_labels:
        is_tagger = head.answers == TAGS
        names_of = tag_labels if is_tagger else label_names
        content["labels"] = names_of(model, labels)
    if head.answers == LABELS:
        content["problem_type"] = problem_type_of(model)
    if prompts := getattr(model, "prompts", None):
        content["prompts"] = dict(prompts)
    return content


def _write(model, text_inputs, signatures: dict[str, Signature], folder: str) -> None:
    functions = {}
    for name, signature in signatures.items():
        specs = specs_of(signature, model)
        function = _checking_shapes(signature, specs)
        functions[name] = tf.function(function, input_signature=specs, autograph=False)
    # Otherwise the vocabulary is an "untracked resource" and saving fails.
    write_functions(folder, functions, text_inputs)
    # TensorFlow writes "predict" for every signature, but a server's Classify call
    # looks for its own method name.
    saved_model = manifest.read_saved_model(folder)
    for meta_graph in saved_model.meta_graphs:
        if "classify" in meta_graph.signature_def:
            meta_graph.signature_def["classify"].method_name = CLASSIFY_METHOD
    data = saved_model.SerializeToString(deterministic=True)
    pathlib.Path(folder, manifest.MODEL_FILE).write_bytes(data)


def write_functions(
    folder: str, functions: Mapping[str, Any], resources: tf.Module | None = None
) -> None:
    """Saves functions as signatures, with no other variables than they read.

    As with `keras.export.ExportArchive`, which would trace each of them twice, they can
    also be called as members of the loaded object.
    """
    traced = {name: f.get_concrete_function() for name, f in functions.items()}
    root = tf.Module()
    root.resources = resources
    for name, function in traced.items():
        setattr(root, name, function)
    read = {id(v): v for function in traced.values() for v in function.variables}
    root.weights = list(read.values())
    tf.saved_model.save(root, folder, traced)


def _checking_shapes(signature: Signature, specs: list[tf.TensorSpec]) -> Signature:
    """Returns a signature that rejects inputs of other shapes."""
    # A server checks only names and types of inputs, and would answer for a part of
    # them, for example if one has fewer rows than the others.
    names = ", ".join(spec.name for spec in specs)

    @functools.wraps(signature)  # the names of its arguments
    def function(*values):
        tensors = [
            tf.ensure_shape(value, spec.shape)
            for value, spec in zip(values, specs, strict=True)
        ]
        rows = tf.stack([tf.shape(value)[0] for value in tensors])
        message = f"{names}: expected the same number of rows, received"
        check = (tf.reduce_all(rows == rows[0]), message, rows)
        return signature(*checked(tensors, check))

    return function


def _run_requests(folder: str, file: str) -> None:
    """Loads the model and runs every warm-up request, as a server does."""
    loaded = tf.saved_model.load(folder)
    for name, request in warmup.read_requests(file):
        function = loaded.signatures[name]
        outputs = function(**{k: tf.constant(v) for k, v in request.items()})
        for key, value in outputs.items():
            if value.dtype.is_floating and not np.isfinite(value).all():
                raise DataError(
                    f"{name}: {key} contains NaN or infinity; check the model's weights"
                )


def find_exits(model: str) -> str | None:
    """Returns the file of exits in a model folder, or None if it is missing."""
    if hubs.is_name(model) or not files.is_folder(model):
        return None
    path = files.join(model, EXITS)
    return path if files.exists(path) else None


def read_exits(
    path: str | os.PathLike | None, model: keras.Model
) -> tuple[dict[str, Any] | None, bytes | None]:
    """Reads measurements that `evaluate --exits_curve` wrote for a model.

    Measurements of other weights are ignored if they are in the model folder. Returns
    the numbers and the picture. Raises `DataError` if the file is damaged, and
    `UsageError` if it is about other weights.
    """
    if path is None:
        return None, None
    numbers = files.read_json(path)
    is_curve = isinstance(numbers, dict) and "weights" in numbers
    message = f"{path}: not written by evaluate --exits_curve"
    require(is_curve, message, error=DataError)
    with from_model(model) as checkpoint:
        is_ours = numbers["weights"] == checkpoint.digest()
    message = f"exits_curve: {path} is about other weights than the model's"
    require(is_ours or os.path.basename(path) == EXITS, message)
    if not is_ours:
        logging.warning("%s; it is left out of the manifest", message)
        return None, None
    picture = os.fspath(path).removesuffix(".json") + ".png"
    return numbers, files.read_bytes(picture) if files.exists(picture) else None
