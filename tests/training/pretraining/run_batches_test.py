"""The batches of a run fit its settings."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import features
from albert_tf.data.corpus.corpus import Corpus
from albert_tf.data.prepare.config import RecordConfig
from albert_tf.data.prepare.create import create_pretraining_data
from albert_tf.data.prepare.pairs import PairConfig
from albert_tf.errors import DataError, UsageError
from albert_tf.objectives.pretraining import ALBERT
from albert_tf.text.sentencepiece import AlbertTokenizer
from albert_tf.training.pretrain_batches import RunBatches, _eval_masking
from albert_tf.training.pretrain_settings import PretrainSettings

GOLDEN = pathlib.Path(__file__).parents[2] / "golden"
MODEL = str(GOLDEN / "tokenization/spiece.model")


def make(replicas=1, **changes):
    settings = PretrainSettings(
        input_file=str(GOLDEN / "tf1_data/seq128_pred20.tfrecord"),
        output_dir="out",
        spm_model_file=MODEL,
        preset="albert_base_v2",
        max_seq_length=128,
        max_predictions_per_seq=20,
        **{"train_batch_size": 4, **changes},
    )
    return RunBatches(settings, ALBERT, AlbertTokenizer(MODEL), replicas)


@pytest.mark.parametrize(
    "changes", [{"masking": "bert"}, {"masked_lm_prob": 0.2}, {"ngram": 1}]
)
def test_records_with_masks_take_no_others(changes):
    assert make().keeps_masks
    (name,) = changes
    with pytest.raises(UsageError, match=f"^--{name}=.* leave --{name} out"):
        make(**changes)


def test_what_distinguishes_the_examples_of_an_evaluation(tmp_path):
    records = GOLDEN / "tf1_data/seq128_pred20.tfrecord"
    whole = make(eval_file=str(records), max_eval_steps=0).evaluated_on()
    limited = make(eval_file=str(records), max_eval_steps=2, eval_batch_size=3)
    assert limited.evaluated_on() == whole | {"rows": 6}
    # More steps than there are batches make no difference, nor does another path.
    (tmp_path / "copy.tfrecord").write_bytes(records.read_bytes())
    copy = make(eval_file=str(tmp_path / "copy.tfrecord"), max_eval_steps=10_000)
    assert copy.evaluated_on() == whole and whole["rows"] > 6
    other = tmp_path / "other.tfrecord"
    with tf.io.TFRecordWriter(str(other)) as f:
        for record in list(tf.data.TFRecordDataset(str(records)))[:-1]:
            f.write(record.numpy())
    fewer = make(eval_file=str(other), max_eval_steps=2, eval_batch_size=3)
    assert fewer.evaluated_on()["rows"] == 6
    assert fewer.evaluated_on() != limited.evaluated_on()


def test_records_must_fill_a_batch():
    records = str(GOLDEN / "tf1_data/seq128_pred20.tfrecord")
    rows = len(list(tf.data.TFRecordDataset(records)))
    make(train_batch_size=rows)
    with pytest.raises(DataError, match=f"{rows + 1} rows, received {rows}; make more"):
        make(train_batch_size=rows + 1)


def test_a_batch_of_an_evaluation_that_is_rounded_is_named(caplog):
    records = str(GOLDEN / "tf1_data/seq128_pred20.tfrecord")
    caplog.set_level("WARNING", logger="absl")
    make(2, eval_file=records, eval_batch_size=4)
    assert not caplog.records
    make(2, eval_file=records, eval_batch_size=5)
    assert "--eval_batch_size=5: evaluates batches of 4" in caplog.text


@pytest.mark.parametrize("changes", [{"eval_masked_lm_prob": 0.2}, {"eval_ngram": 1}])
def test_held_out_records_with_masks_take_no_others(changes):
    (name,) = changes
    records = str(GOLDEN / "tf1_data/seq128_pred20.tfrecord")
    make(eval_file=records)
    with pytest.raises(UsageError, match=f"^--{name}=.*--eval_file=.* leave --{name}"):
        make(eval_file=records, **changes)


def test_evaluations_may_mask_otherwise_than_training(tmp_path):
    create_pretraining_data(
        Corpus(str(GOLDEN / "tf1_data/input.txt")),
        str(tmp_path / "x"),
        AlbertTokenizer(MODEL),
        RecordConfig(pairs=PairConfig("clean", 64)),
        num_processes=1,
        progress=False,
    )

    evaluated_on = []

    def positions(**changes):
        """Returns the masked positions of a training and of a held-out batch."""
        settings = PretrainSettings(
            input_file=str(tmp_path / "x"),
            output_dir="out",
            spm_model_file=MODEL,
            preset="albert_base_v2",
            eval_file=str(tmp_path / "x"),
            max_seq_length=64,
            train_batch_size=8,
            eval_batch_size=8,
            max_predictions_per_seq=32,
            **changes,
        )
        data = RunBatches(settings, ALBERT, AlbertTokenizer(MODEL), replicas=1)
        evaluated_on.append(data.evaluated_on())
        return [
            next(iter(batches))[features.MASK_POSITIONS].numpy()
            for batches in (data.train(0), data.eval())
        ]

    train, held_out = positions()
    other = {"masked_lm_prob": 0.4, "ngram": 1}
    more, same = positions(**other, eval_masked_lm_prob=0.15, eval_ngram=3)
    assert evaluated_on[0] == evaluated_on[1]
    assert np.count_nonzero(more) > 2 * np.count_nonzero(train)
    np.testing.assert_array_equal(same, held_out)
    unchanged, single = positions(eval_ngram=1)
    np.testing.assert_array_equal(unchanged, train)
    assert np.any(single != held_out)
    assert evaluated_on[2] == evaluated_on[0] | {"max_ngram": 1}
    # Without settings of their own, evaluations follow the training.
    assert np.count_nonzero(positions(**other)[1]) > 2 * np.count_nonzero(held_out)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"masking": "bert", "eval_ngram": 1}, "^--eval_ngram requires --masking=alb"),
        ({"eval_ngram": 999}, "--eval_ngram=999: max_ngram must be at most 512, rec"),
        ({"eval_masked_lm_prob": 1.5}, r"^--eval_masked_lm_prob=1\.5.*received 1\.5"),
    ],
)
def test_masks_that_an_evaluation_cannot_have(changes, message):
    settings = PretrainSettings(
        input_file="in",
        output_dir="out",
        spm_model_file=MODEL,
        preset="albert_base_v2",
        **{"eval_file": "in", **changes},
    )
    with pytest.raises(UsageError, match=message):
        _eval_masking(settings)
