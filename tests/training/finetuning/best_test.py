"""The best weights are written whole, and come back."""

import numpy as np
import pytest

from albert_tf.errors import DataError
from albert_tf.models.base import weight_names
from albert_tf.models.classifiers import AlbertTextClassifier
from albert_tf.training.callbacks import KeepWeights, Selection
from tests.training.finetuning.runs import CONFIG


def test_weights_come_back(tmp_path):
    model = AlbertTextClassifier(CONFIG, num_labels=2, seed=1)
    selection = Selection("accuracy", 0, [{"step": 5, "accuracy": 1.0}])
    best = KeepWeights(str(tmp_path / "best"), model, selection, None, True)
    best.save(3)
    values = {n: np.array(v) for n, v in weight_names(model).items()}
    for variable in model.weights:
        if variable.dtype == "float32":
            variable.assign(variable + 1)
    best.save(5)
    best.restore(3)
    for name, variable in weight_names(model).items():
        np.testing.assert_array_equal(variable, values[name])
    best.on_save()
    assert [path.name for path in (tmp_path / "best").iterdir()] == [
        "step-5.safetensors"
    ]
    with pytest.raises(DataError, match="step-3.safetensors: .* are missing"):
        best.restore(3)
