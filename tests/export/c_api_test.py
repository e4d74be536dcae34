"""The exported model in TensorFlow's own C++ loader, without Python's TensorFlow."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from albert_tf.config import AlbertConfig
from albert_tf.export import manifest
from albert_tf.export.saved_model import export_saved_model
from albert_tf.inference.classifier import Classifier
from albert_tf.models.classifiers import AlbertTextClassifier
from albert_tf.text.sentencepiece import AlbertTokenizer

HERE = pathlib.Path(__file__).parent
CONFIG = AlbertConfig(
    embedding_size=6,
    hidden_size=12,
    num_hidden_layers=1,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=20,
    initializer_range=0.5,
)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="names of Linux's libraries")
def test_equal_to_the_keras_model(tmp_path):
    path = HERE.parent / "golden" / "tokenization" / "spiece.model"
    model = AlbertTextClassifier(CONFIG, num_labels=3, seed=5)
    classify = Classifier(model, AlbertTokenizer(path), ["no", "maybe", "ja ✓"])
    folder = tmp_path / "model"
    export_saved_model(
        model,
        folder,
        tokenizer=classify.tokenizer,
        labels=classify.labels,
        warmup_batch_sizes=(),
    )
    signatures = manifest.read_saved_model(folder).meta_graphs[0].signature_def
    assert signatures["classify"].method_name == "tensorflow/serving/classify"
    signature = signatures["serving_default"]
    tensors = {**signature.inputs, **signature.outputs}
    names = {name: tensor.name for name, tensor in tensors.items()}
    (folder / "names.json").write_text(json.dumps(names))
    texts = ["I loved it!", "", "a\0b", "The 1990, café's " * 30]
    result = subprocess.run(
        [sys.executable, HERE / "c_api.py", folder, json.dumps(texts)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    got = json.loads(result.stdout)
    assert not got["tensorflow"]
    np.testing.assert_allclose(got["logits"], classify.logits(texts), atol=1e-5)
    assert got["labels"] == [row["label"] for row in classify(texts)]
