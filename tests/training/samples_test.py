"""`samples.jsonl`: what the model of a run answers at each evaluation."""

import json
import types
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.inference.fill_mask import FillMask
from albert_tf.models.masked_lm import AlbertPretrainer
from albert_tf.optimizers.create import create_optimizer
from albert_tf.training import samples
from albert_tf.training.tensorflow.checkpoints import WeightAverages
from tests import tiny

TEXTS = ("the [MASK] .", "[MASK] and [MASK]", "one [MASK] two")


class Step:
    """A step of two devices that answers without them."""

    num_shares = 2

    def __init__(self, strategy=None):
        self.model = AlbertPretrainer(tiny.CONFIG, seed=1)
        self.strategy = strategy or tf.distribute.OneDeviceStrategy("/cpu:0")

    def predict(self, batch):
        assert {len(rows) for rows in batch.values()} == {4}
        outputs = self.model(batch, training=False)
        return {name: value.numpy() for name, value in outputs.items()}


class Tpu(tf.distribute.TPUStrategy):
    """That of a TPU which nobody has asked for."""

    cluster_resolver = None


@pytest.fixture
def make(tmp_path, tokenizer):
    def make(step, first=0, ema_decay=0.0, texts=TEXTS, eval_file="x"):
        optimizer = create_optimizer(
            "adamw", learning_rate=0.1, num_train_steps=5, ema_decay=ema_decay
        )
        optimizer.build(step.model.trainable_variables)
        averages = WeightAverages(step.model, optimizer)
        for average in averages.averages.values():
            average.assign(tf.ones_like(average) * 0.25)
        settings = types.SimpleNamespace(
            sample_texts=texts, max_seq_length=16, eval_file=eval_file
        )
        return samples.Samples(
            str(tmp_path), first, settings, step, averages, tokenizer
        )

    return make


def read(tmp_path):
    lines = (tmp_path / "samples.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_the_answers_are_those_of_the_weights(make, tmp_path, tokenizer):
    step = Step()
    made = make(step, ema_decay=0.9)
    before = step.model.get_weights()
    made.on_evaluate(4, {"loss": 1.0})
    for one, other in zip(before, step.model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    last, average = read(tmp_path)
    assert (last["step"], last["weights"]) == (4, "last")
    assert (average["step"], average["weights"]) == (4, "average")
    for line in (last, average):
        if line is average:
            step.model.set_weights([np.full_like(w, 0.25) for w in before])
        assert [one["text"] for one in line["answers"]] == list(TEXTS)
        fill_mask = FillMask(step.model, tokenizer)
        for one in line["answers"]:
            expected = fill_mask(one["text"])
            expected = [expected] if len(one["masks"]) == 1 else expected
            for mask, wanted in zip(one["masks"], expected, strict=True):
                assert [token for token, _ in mask] == [w["token_str"] for w in wanted]
                scores = [w["score"] for w in wanted]
                assert [s for _, s in mask] == pytest.approx(scores, rel=1e-3)


def test_a_resumed_run_writes_the_same_file(make, tmp_path):
    step = Step()
    whole = make(step)
    contents = []
    for number in (2, 4, 6):
        whole.on_evaluate(number, {})
        contents.append((tmp_path / "samples.jsonl").read_bytes())
    # Killed while it wrote: the last line is torn.
    (tmp_path / "samples.jsonl").write_bytes(contents[2][:-9])
    again = make(step, first=4)
    assert (tmp_path / "samples.jsonl").read_bytes() == contents[1]
    # Killed before the evaluation of step 4 was on record: it is repeated.
    again.on_evaluate(4, {})
    assert (tmp_path / "samples.jsonl").read_bytes() == contents[1]
    again.on_evaluate(6, {})
    assert (tmp_path / "samples.jsonl").read_bytes() == contents[2]
    # Without texts from now on, what is not repeated goes nevertheless.
    make(step, first=2, texts=("",)).on_evaluate(4, {})
    assert (tmp_path / "samples.jsonl").read_bytes() == contents[0]


def test_lines_that_cannot_be_written_are_written_at_the_end(
    make, tmp_path, monkeypatch
):
    made = make(Step())
    with monkeypatch.context() as patch:
        full = mock.Mock(side_effect=OSError("disk full"))
        patch.setattr("builtins.open", full)
        made.on_evaluate(2, {})
        assert not (tmp_path / "samples.jsonl").stat().st_size
    made.on_end()
    assert [line["step"] for line in read(tmp_path)] == [2]


def test_nothing_is_written_without_texts_by_helpers_and_on_a_tpu(
    make, tmp_path, monkeypatch
):
    for changes in ({"texts": ("",)}, {"texts": ()}, {"eval_file": ""}):
        make(Step(), **changes).on_evaluate(2, {})
    make(Step(strategy=object.__new__(Tpu))).on_evaluate(2, {})
    monkeypatch.setattr(samples, "helper_name", lambda strategy: "worker-1")
    make(Step()).on_evaluate(2, {})
    assert not (tmp_path / "samples.jsonl").exists()


def test_a_text_that_is_too_long_is_left_out(make, tmp_path, caplog):
    long = "the [MASK]" + " the" * 14
    make(Step(), texts=(long, *TEXTS)).on_evaluate(2, {})
    assert "--sample_texts: one is left out: text: expected at most 16" in caplog.text
    assert "(--max_seq_length), received 18" in caplog.text
    assert [one["text"] for one in read(tmp_path)[0]["answers"]] == list(TEXTS)
