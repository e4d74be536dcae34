"""Every change of what computes answers shows."""

import importlib.metadata
import json

import keras
import pytest

from albert_tf.inference.bulk.environment import environment
from albert_tf.reports.environment import ONEDNN

CHANGES = {
    "version of albert_tf": (importlib.metadata, "version"),
    "version of keras": (importlib.metadata, "version"),
    "version of tensorflow": (importlib.metadata, "version"),
    "keras_backend": (keras.backend, "backend"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_shows(monkeypatch, name):
    before = environment()
    assert json.loads(json.dumps(before)) == before
    owner, attribute = CHANGES[name]
    original = getattr(owner, attribute)

    def changed(*package):
        asked = not package or name.endswith(f" {package[0]}")
        return "changed" if asked else original(*package)

    monkeypatch.setattr(owner, attribute, changed)
    assert environment() == before | {name: "changed"}


def test_the_choice_of_kernels_shows(monkeypatch):
    monkeypatch.delenv(ONEDNN, raising=False)
    before = environment()
    monkeypatch.setenv(ONEDNN, "0")
    assert environment() == before | {ONEDNN: "0"}
