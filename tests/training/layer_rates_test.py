"""Learning rates of layers."""

import pytest

from albert_tf.errors import UsageError
from albert_tf.models.base import weight_names
from albert_tf.models.classifiers import AlbertTextClassifier
from albert_tf.optimizers.adamw import AdamW
from albert_tf.training.finetune_settings import DECAY_RULES, learning_rate_multipliers
from tests.training.runs import CONFIG

UNSHARED = CONFIG.replace(sharing="none", num_hidden_layers=2)


def test_rates_of_layers():
    # Of twelve applications, the names of some begin as those of others.
    config = UNSHARED.replace(num_hidden_layers=6, inner_group_num=2, depth_rank=1)
    model = AlbertTextClassifier(config, num_labels=2, name="ffn_0")
    optimizer = AdamW(
        1.0, learning_rate_multipliers=learning_rate_multipliers(0.5, config)
    )
    optimizer.build(model.trainable_variables)
    rates = {}
    for name, variable in weight_names(model).items():
        layer = name.removeprefix("backbone/").split("/")
        number = layer[1].rpartition("_")[2] if layer[0] == "encoder" else ""
        key = int(number) // 2 if number.isdigit() else layer[0]
        rates.setdefault(key, set()).add(
            optimizer._rates[optimizer._get_variable_index(variable)]
        )
    assert rates == {
        **{layer: {0.5 ** (5 - layer)} for layer in range(6)},
        "embeddings": {0.5**6},
        "encoder": {0.5**6},  # the projection of the embeddings
        "pooler": {1.0},
        "classifier": {1.0},
    }


def test_rules_of_the_top():
    # google-research/electra: decay ** (n_layers + 2 - depth), where the embeddings
    # have the depth 0 and the task's own layers n_layers + 2.
    tops = {"standard": 0, "corrected": 1, "original": 2}
    assert {*tops} == {*DECAY_RULES}
    one = learning_rate_multipliers(0.5, UNSHARED)
    for rule, top in tops.items():
        found = learning_rate_multipliers(0.5, UNSHARED, rule)
        assert found == {pattern: x * 0.5**top for pattern, x in one.items()}


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
