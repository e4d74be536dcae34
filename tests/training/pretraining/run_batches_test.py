"""The batches of a run fit its settings."""

import pathlib

import pytest

from albert_tf.errors import UsageError
from albert_tf.objectives.albert import ALBERT
from albert_tf.text.sentencepiece import AlbertTokenizer
from albert_tf.training.pretraining.run_batches import RunBatches
from albert_tf.training.pretraining.settings import PretrainSettings

GOLDEN = pathlib.Path(__file__).parents[2] / "golden"
MODEL = str(GOLDEN / "tokenization/spiece.model")


def make(**changes):
    settings = PretrainSettings(
        str(GOLDEN / "tf1_data/seq128_pred20.tfrecord"),
        "out",
        MODEL,
        preset="albert_base_v2",
        max_seq_length=128,
        max_predictions_per_seq=20,
        **changes,
    )
    return RunBatches(settings, ALBERT, AlbertTokenizer(MODEL), replicas=1)


@pytest.mark.parametrize(
    "changes", [{"masking": "bert"}, {"masked_lm_prob": 0.2}, {"ngram": 1}]
)
def test_records_with_masks_take_no_others(changes):
    assert make().keeps_masks
    (name,) = changes
    with pytest.raises(UsageError, match=f"^--{name}=.* leave --{name} out"):
        make(**changes)
