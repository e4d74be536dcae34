"""A model as one SavedModel that takes raw strings."""

import contextlib
import importlib.metadata
import os
import pathlib
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from albert_tf.errors import DataError, UsageError
from albert_tf.export import manifest, warmup
from albert_tf.export.signatures import (
    CLASSIFY_METHOD,
    Signature,
    make_signatures,
)
from albert_tf.export.text_inputs import TextInputs
from albert_tf.models.backbone import AlbertBackbone
from albert_tf.models.classifiers import AlbertTextClassifier, label_names
from albert_tf.models.masked_lm import AlbertMaskedLM
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.storage import files
from albert_tf.text import inputs as packing
from albert_tf.text.tokenizer import Tokenizer

_KINDS = (AlbertTextClassifier, AlbertBackbone, AlbertPretrainer, AlbertMaskedLM)


def export_saved_model(
    model: keras.Model,
    path: str | os.PathLike,
    *,
    tokenizer: Tokenizer,
    labels: Sequence[str] | None = None,
    max_seq_length: int | None = None,
    version: int | None = None,
    warmup_batch_sizes: Sequence[int] = (1, 8),
) -> str:
    """Writes a SavedModel with normalization, tokenizer, model and label names.

    It needs `import tensorflow_text` (for its operations) and no other Python code;
    TensorFlow Serving has these operations built in. `signatures.make_signatures`
    lists what it can be asked. Any text and any batch size is answered; longer texts
    are cut. Warm-up requests for every length are written beside it and run, and
    `assets.extra/manifest.json` lists files, digests and operations.

    Args:
        model: `AlbertTextClassifier`, `AlbertBackbone`, `AlbertPretrainer` or
            `AlbertMaskedLM`.
        path: The folder to make. With `version`, the folder that TensorFlow Serving
            watches (`--model_base_path`).
        tokenizer: `Tokenizer` the model was trained with.
        labels: Names of a classifier's classes; default: those it was saved with.
        max_seq_length: int. Default: the length the model was fine-tuned with, or
            else the model's maximum.
        version: int or None. Makes the folder `path/version`.
        warmup_batch_sizes: Of the warm-up requests; empty for none.

    Returns:
        The path of the folder that was made. It appears when it is complete.

    Raises:
        UsageError: If the folder exists, or an argument does not fit the model.
    """
    target = _target(path, version)
    length = _checked_length(model, tokenizer, max_seq_length)
    text_inputs = TextInputs(tokenizer, length)
    signatures = make_signatures(model, text_inputs, labels)
    requests = warmup.make_requests(
        list(signatures), length, warmup_batch_sizes, tokenizer.unk_id
    )
    with _writing(target) as folder:
        _write(model, text_inputs, signatures, folder)
        content = _content(model, tokenizer, labels, signatures, length)
        content["operations"] = sorted(manifest.check_operations(folder))
        extra = os.path.join(folder, "assets.extra")
        os.makedirs(extra)
        if warmup_batch_sizes:
            file = os.path.join(extra, warmup.FILE)
            warmup.write_requests(file, requests)
            _run_requests(folder, file)
        manifest.write_manifest(folder, content)
    return target


def _target(path: str | os.PathLike, version: int | None) -> str:
    target = os.fspath(path).rstrip("/")
    if version is not None:
        if version < 1:
            raise UsageError(f"version must be positive, received {version}")
        target = files.join(target, str(version))
    if files.exists(target) and not (
        files.is_folder(target) and not files.list_folder(target)
    ):
        raise UsageError(f"{target}: exists already and would be overwritten")
    return target


def _checked_length(model, tokenizer, max_seq_length: int | None) -> int:
    if not isinstance(model, _KINDS):
        raise UsageError(
            f"model must be one of {', '.join(kind.__name__ for kind in _KINDS)}, "
            f"received {type(model).__name__}"
        )
    longest = model.config.max_position_embeddings
    length = max_seq_length
    if length is None:
        length = getattr(model, "max_seq_length", None) or longest
    packing.check_max_seq_length(length, pairs=True, longest=longest)
    if tokenizer.vocab_size > model.config.vocab_size:
        raise UsageError(
            f"tokenizer: expected at most vocab_size={model.config.vocab_size} pieces, "
            f"as the model has, received {tokenizer.vocab_size}"
        )
    return length


def _content(model, tokenizer, labels, signatures, length: int) -> dict[str, Any]:
    """The manifest, but for files and operations."""
    content = {
        "format": "albert_tf",
        "kind": type(model).__name__,
        "signatures": _describe(signatures),
        "max_seq_length": length,
        "tokenizer_sha256": tokenizer.sha256,
        "versions": {
            name: importlib.metadata.version(name) for name in ("tensorflow", "keras")
        },
    }
    if isinstance(model, AlbertTextClassifier):
        content["labels"] = label_names(model, labels)
    return content


def _write(model, text_inputs, signatures: dict[str, Signature], folder: str) -> None:
    archive = keras.export.ExportArchive()
    archive.track(model)
    # Without this the vocabulary is an "untracked resource" and saving fails.
    archive.track(text_inputs)
    for name, signature in signatures.items():
        archive.add_endpoint(name, signature.function, list(signature.inputs))
    archive.write_out(folder, verbose=False)
    # TensorFlow writes "predict" for every signature; a server's Classify and
    # Regress calls look for their own method name.
    saved_model = manifest.read_saved_model(folder)
    for meta_graph in saved_model.meta_graphs:
        if "classify" in meta_graph.signature_def:
            meta_graph.signature_def["classify"].method_name = CLASSIFY_METHOD
    data = saved_model.SerializeToString(deterministic=True)
    pathlib.Path(folder, "saved_model.pb").write_bytes(data)


def _run_requests(folder: str, file: str) -> None:
    """Loads the model and runs every warm-up request, as a server will."""
    loaded = tf.saved_model.load(folder)
    for name, inputs in warmup.read_requests(file):
        function = loaded.signatures[name]
        outputs = function(**{k: tf.constant(v) for k, v in inputs.items()})
        for key, value in outputs.items():
            if value.dtype.is_floating and not np.isfinite(value).all():
                raise DataError(f"{name}: {key} is not finite; are the weights?")


def _describe(signatures: dict[str, Signature]) -> dict[str, dict[str, str]]:
    return {
        name: {
            spec.name: f"{spec.dtype.name} {spec.shape.as_list()}"
            for spec in signature.inputs
        }
        for name, signature in signatures.items()
    }


@contextlib.contextmanager
def _writing(target: str) -> Iterator[str]:
    """A folder that takes the name `target` when all has gone well.

    A server looks for folders named by numbers; it must never find half a model.
    """
    if files.is_remote(target):
        with tempfile.TemporaryDirectory() as folder:
            local = os.path.join(folder, "model")
            yield local
            _upload(local, target)
        return
    parent = os.path.dirname(os.path.abspath(target))
    os.makedirs(parent, exist_ok=True)
    name = f".{os.path.basename(target)}.tmp-{uuid.uuid4().hex[:8]}"
    temporary = os.path.join(parent, name)
    try:
        yield temporary
        os.rename(temporary, target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _upload(local: str, target: str) -> None:
    """Copies a folder into a bucket; `saved_model.pb`, which a server awaits, last."""
    names = [
        p.relative_to(local) for p in pathlib.Path(local).rglob("*") if p.is_file()
    ]
    for name in sorted(names, key=lambda name: name.name == "saved_model.pb"):
        remote = files.join(target, name.as_posix())
        tf.io.gfile.makedirs(os.path.dirname(remote))
        tf.io.gfile.copy(os.path.join(local, name), remote)
