"""Which variables are excluded from weight decay and layer adaptation."""

import pathlib
import types

import keras
import numpy as np
import pytest

from albert_tf.config import AlbertConfig
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.optimizers.base import canonical_path
from albert_tf.optimizers.create import create_optimizer
from albert_tf.optimizers.lamb import Lamb


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("bias_study/sop_head/kernel", "sop_head/kernel"),
        ("bias_study/mlm_head/dense/kernel", "mlm_head/dense/kernel"),
        ("my_backbone/embeddings/layer_norm/gamma", "embeddings/layer_norm/gamma"),
        ("backbone/pooler/kernel", "backbone/pooler/kernel"),
        ("layer_norm/gamma", "layer_norm/gamma"),
        ("kernel", "kernel"),
    ],
)
def test_names_leave_out_the_name_of_the_model(path, expected):
    assert canonical_path(types.SimpleNamespace(path=path)) == expected


@pytest.mark.parametrize("caller", ["apply", "_backend_update_step"])
def test_keras_must_call_what_is_overridden(caller, monkeypatch):
    monkeypatch.setattr(keras.optimizers.Optimizer, caller, lambda *args: None)
    with pytest.raises(RuntimeError, match=f"Optimizer.{caller} does not call _"):
        Lamb(0.1)


def test_a_model_may_be_called_bias():
    config = AlbertConfig.from_json(
        pathlib.Path(__file__).parents[1] / "golden/tf1_tiny/base/albert_config.json"
    )
    flags = []
    for name in ("plain", "layer_norm_bias"):
        model = AlbertPretrainer(config, name=name)
        optimizer = Lamb(0.1)
        optimizer.build(model.trainable_variables)
        flags.append(
            [optimizer.uses_weight_decay(v) for v in model.trainable_variables]
        )
    assert flags[0] == flags[1]
    assert True in flags[0] and False in flags[0]


def test_exclusions_are_arguments():
    variables = [keras.Variable(np.ones(3), name=n) for n in ("a_kernel", "b_kernel")]
    optimizer = create_optimizer(
        "lamb",
        learning_rate=0.1,
        num_train_steps=9,
        exclude_from_weight_decay=["^a_"],
        exclude_from_layer_adaptation="^b_",
    )
    optimizer.build(variables)
    assert [optimizer.uses_weight_decay(v) for v in variables] == [False, True]
    assert [optimizer.uses_layer_adaptation(v) for v in variables] == [True, False]
