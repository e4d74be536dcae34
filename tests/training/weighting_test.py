"""Learning rates of layers."""

import json

import numpy as np
import pytest

from albert_tf.converters import load
from albert_tf.errors import UsageError
from albert_tf.models.base import weight_names
from albert_tf.models.classifiers import AlbertTextClassifier
from albert_tf.optimizers.adamw import AdamW
from albert_tf.training.start import learning_rate_multipliers
from tests.training.runs import CONFIG, run

UNSHARED = CONFIG.replace(sharing="none", num_hidden_layers=2)


@pytest.mark.parametrize("inner", [1, 2])
def test_rates_of_layers(inner):
    config = UNSHARED.replace(num_hidden_layers=11, inner_group_num=inner)
    model = AlbertTextClassifier(config, num_labels=2, name="ffn_0")
    optimizer = AdamW(
        1.0, learning_rate_multipliers=learning_rate_multipliers(0.5, config)
    )
    optimizer.build(model.trainable_variables)
    rates = {}
    for name, variable in weight_names(model).items():
        layer = name.removeprefix("backbone/").split("/")
        number = layer[1].rpartition("_")[2] if layer[0] == "encoder" else ""
        key = int(number) // inner if number.isdigit() else layer[0]
        rates.setdefault(key, set()).add(
            optimizer._rates[optimizer._get_variable_index(variable)]
        )
    assert rates == {
        **{layer: {0.5 ** (10 - layer)} for layer in range(11)},
        "embeddings": {0.5**11},
        "encoder": {0.5**11},  # the projection of the embeddings
        "pooler": {1.0},
        "classifier": {1.0},
    }


def test_a_group_for_each_layer_shares_nothing():
    config = UNSHARED.replace(sharing="all", num_hidden_groups=2)
    assert learning_rate_multipliers(0.5, config) == (
        learning_rate_multipliers(0.5, UNSHARED)
    )


@pytest.mark.parametrize("sharing", ["all", "attention", "ffn"])
def test_shared_layers_are_refused_by_name(sharing):
    config = CONFIG.replace(sharing=sharing, num_hidden_layers=2)
    with pytest.raises(UsageError, match=rf"share their weights .sharing={sharing}."):
        learning_rate_multipliers(0.9, config)
    assert learning_rate_multipliers(None, config) == {}


@pytest.mark.slow
def test_a_run_moves_the_lower_layers_less(tables, pretrained_as, tmp_path):
    out = tmp_path / "out"
    start = pretrained_as(sharing="none", num_hidden_layers=2)
    run(
        out,
        train_file=tables["train_file"],
        init_checkpoint=start,
        layerwise_decay=0.01,
        weight_decay_rate=0.0,
        num_train_steps=2,
        num_warmup_steps=0,
    )
    trained = weight_names(load.from_pretrained(out))
    before = weight_names(load.from_pretrained(start, head="pretraining"))

    def moved(name):
        difference = np.array(trained[name]) - np.array(before[name])
        return float(np.abs(difference).max())

    layers = [moved(f"backbone/encoder/ffn_{i}/output/kernel") for i in range(2)]
    steps = [moved("backbone/embeddings/position_embeddings"), *layers]
    for lower, upper in zip(steps, steps[1:], strict=False):
        assert 0 <= lower < 0.05 * upper
    assert json.loads((out / "run.json").read_text())["settings"]["layerwise_decay"]
