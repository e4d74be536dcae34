"""Exported models compute what the Keras models do, and come with what they need."""

import importlib.util
import json
import pathlib

import numpy as np
import pytest

from albert_tf.errors import DataError, UsageError
from albert_tf.export import runtimes
from albert_tf.export.export_settings import PACKAGES, QUANTIZATIONS
from albert_tf.export.runtimes import Runtime, TokensGraph
from albert_tf.heads import all_rows
from albert_tf.storage import files
from tests.export.runtime_models import (
    FORMATS,
    classifier,
    export,
    installed,
    make,
)

QUICK = ("beam_question_answering",)
HEADS = [
    pytest.param(row.name, marks=() if row.name in QUICK else pytest.mark.broad)
    for row in all_rows()
]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("head", HEADS)
def test_every_head_is_written_and_compared(head, format, tmp_path):
    content = export(head, format, tmp_path / "m")
    assert content["max_difference"] < 1e-4
    found = files.digests_of(tmp_path / "m")
    del found["manifest.json"]
    assert {"example.py", "spiece.model", "tokenizer_config.json"} < found.keys()
    assert content["files"] == found


@pytest.mark.parametrize("format", FORMATS)
def test_any_number_and_length_of_rows(format):
    model = make("text_classifier")
    run = runtimes.find_runtime(format, "none").runner(classifier(format), "none")
    rng = np.random.default_rng(1)
    for rows, size in ((1, 24), (5, 3), (1, 1)):
        batch = TokensGraph(model).random_batch(rows, size, rng, full=True)
        expected = model(batch, training=False)
        np.testing.assert_allclose(run(batch)["logits"], expected, atol=1e-5)


@pytest.mark.parametrize("format", FORMATS)
def test_the_manifest_says_size_speed_and_versions(format):
    folder, runtime = classifier(format), runtimes.find_runtime(format, "none")
    content = json.loads((folder / "manifest.json").read_text())
    assert content["labels"] == ["no", "yes", "so"]
    assert content["check"] == {"drop": 0.5}
    sizes = [(folder / name).stat().st_size for name in runtime.model_files]
    assert content["size"] == sum(sizes)
    assert content["versions"].keys() >= set(PACKAGES[format])
    speed = content["speed"]
    assert speed["tokens"] == 24
    assert speed["milliseconds_per_row"].keys() == {"1", "8"}
    assert all(value > 0 for value in speed["milliseconds_per_row"].values())
    assert speed["cpu"]["model"] and speed["threads"] == 2


@pytest.mark.parametrize("format", FORMATS)
def test_a_shared_block_is_stored_once(format):
    model = make("text_classifier")
    content = json.loads((classifier(format) / "manifest.json").read_text())
    block = 4 * sum(np.prod(w.shape) for w in model.backbone.encoder.weights)
    whole = 4 * model.count_params()
    assert whole * 0.99 < content["size"] < whole + block / 2


@pytest.mark.parametrize(
    ("format", "times"),
    [
        installed("litert", {"float16": 1.8, "dynamic_int8": 3}),
        installed("onnx", {"dynamic_int8": 3}),
        installed("openvino", {"bfloat16": 1.5, "int8_weights": 2}),
    ],
)
def test_quantization_makes_it_smaller(format, times, tmp_path, caplog):
    caplog.set_level("INFO")
    assert times.keys() | {"none"} == set(QUANTIZATIONS[format])
    plain = json.loads((classifier(format) / "manifest.json").read_text())
    for name, at_least in times.items():
        folder = tmp_path / name
        content = export("text_classifier", format, folder, quantization=name)
        assert content["quantization"] == name
        assert plain["size"] > at_least * content["size"]
        assert 1e-6 < content["max_difference"] < 0.3
        # onnxruntime scales what is multiplied by the largest value of a batch.
        has_one_scale = (format, name) == ("onnx", "dynamic_int8")
        assert (content["max_difference_in_batch"] > 1e-4) == has_one_scale
    # Of the converters' own; ours are absl's.
    loggers = {record.name.partition(".")[0] for record in caplog.records}
    assert not loggers & {"root", "tf2onnx", "onnxruntime"}


class _Wrong(Runtime):
    """Adds a number to what Keras computes."""

    name, model_files, example_needs = "litert", ("model",), "nothing"

    def __init__(self, added=0.0, fails=False):
        self.added, self.fails = added, fails

    def write(self, graph, folder, quantization):
        self.graph = graph
        if self.fails:
            raise RuntimeError("no such operation\nand a long trace")
        pathlib.Path(folder, "model").touch()

    def open(self, folder, quantization):
        def run(batch):
            outputs = self.graph.outputs(batch)
            return {name: np.asarray(v) + self.added for name, v in outputs.items()}

        return self.graph.inputs, run


@pytest.mark.parametrize(
    ("runtime", "quantization", "message"),
    [
        (_Wrong(1.01e-4), "none", "litert model differs from the Keras .* 1e-04$"),
        (_Wrong(0.021), "float16", "differs from the Keras model by .* 2e-02$"),
        (_Wrong(np.nan), "dynamic_int8", "differs from the Keras model by nan"),
        (_Wrong(fails=True), "none", "as litert: no such operation$"),
        (_Wrong(), "none", "the accuracy falls"),
    ],
)
def test_nothing_is_written_if(runtime, quantization, message, tmp_path, monkeypatch):
    def check(run):
        raise DataError("the accuracy falls")

    monkeypatch.setitem(runtimes.RUNTIMES, "litert", runtime)
    options = {"quantization": quantization, "check": check}
    with pytest.raises(DataError, match=message):
        export("text_classifier", "litert", tmp_path / "m", **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("head", "changes", "message"),
    [
        ("text_classifier", {"quantization": "int4"}, "quantization: must be one of"),
        ("text_classifier", {"labels": ["a"]}, "labels: expected 3 names"),
        ("question_answering", {"labels": ["a"]}, "labels: .* has no use"),
        ("text_classifier", {"max_seq_length": 99}, "max_seq_length"),
    ],
)
def test_bad_arguments(head, changes, message, tmp_path):
    with pytest.raises(UsageError, match=message):
        export(head, "litert", tmp_path / "m", **changes)
    assert not list(tmp_path.iterdir())


def test_the_settings_list_every_runtime():
    assert runtimes.RUNTIMES.keys() == QUANTIZATIONS.keys()
    assert all(name == one.name for name, one in runtimes.RUNTIMES.items())


def test_a_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "tf2onnx" else True
    )
    with pytest.raises(UsageError, match=r"needs tf2onnx; pip .*'albert_tf\[onnx\]'"):
        runtimes.find_runtime("onnx", "none")
    assert runtimes.find_runtime("openvino", "bfloat16").name == "openvino"


def test_unknown_names():
    with pytest.raises(UsageError, match="one of litert, onnx, openvino, received"):
        runtimes.find_runtime("coreml", "none")
    with pytest.raises(UsageError, match="dynamic_int8 for onnx, received 'float16'"):
        runtimes.find_runtime("onnx", "float16")
