"""A small model of every head, and the runtimes that are installed here."""

import functools
import importlib.util
import json
import pathlib
import tempfile

import pytest

from albert_tf.export import runtimes
from albert_tf.export.export_settings import PACKAGES
from albert_tf.export.runtime_folder import export_for_runtime
from albert_tf.text.sentencepiece import AlbertTokenizer
from tests.tiny import SPIECE, shared_model

SIZES = {
    "hidden_size": 96,
    "num_attention_heads": 2,
    "intermediate_size": 512,
    "initializer_range": 0.1,
}


def installed(name: str, *values):
    """Returns a parameter of a test in `make test-peers`."""
    needs = PACKAGES[name]
    missing = [one for one in needs if importlib.util.find_spec(one) is None]
    skip = pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(missing)}")
    return pytest.param(name, *values, marks=[skip, pytest.mark.runtimes])


FORMATS = [installed(name) for name in runtimes.RUNTIMES]


def make(head: str | None):
    """Returns a model of a head; one of them has layers that share a block."""
    layers = 2 if head == "text_classifier" else 1
    return shared_model(head, seed=3, num_hidden_layers=layers, **SIZES)


def export(head: str | None, format: str, folder, **options) -> dict:
    """Exports a model of a head and returns its manifest."""
    tokenizer = AlbertTokenizer(SPIECE)
    export_for_runtime(
        make(head), folder, format=format, tokenizer=tokenizer, **options
    )
    return json.loads(pathlib.Path(folder, "manifest.json").read_text())


@functools.cache
def classifier(format: str) -> pathlib.Path:
    """Returns the folder of a text classifier with the labels no, yes and so."""
    folder = pathlib.Path(tempfile.mkdtemp(), format)
    found = {"drop": 0.5}
    labels = ["no", "yes", "so"]
    export("text_classifier", format, folder, labels=labels, check=lambda run: found)
    return folder
