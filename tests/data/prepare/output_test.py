"""The settings that a build of records stores keep their format."""

import types

import pytest

from albert_tf.data.masking.config import MaskingConfig
from albert_tf.data.prepare.config import RecordConfig
from albert_tf.data.prepare.output import run_settings
from albert_tf.data.prepare.pairs import PairConfig


@pytest.mark.parametrize(
    ("rules", "stored"), [("albert_tf", "clean"), ("original", "original")]
)
def test_the_rules_keep_their_name_in_files(rules, stored):
    corpus = types.SimpleNamespace(sources=[("a.txt", "lines", 5, None)])
    tokenizer = types.SimpleNamespace(sha256="0", get_config=dict)
    mask = MaskingConfig.from_preset("albert", rules=rules)
    config = RecordConfig(PairConfig(max_seq_length=64), mask)
    values = run_settings(corpus, tokenizer, config, drop_duplicates=False)
    assert list(values["config"]["mask"])[-1] == "mode"
    assert values["config"]["mask"]["mode"] == stored
