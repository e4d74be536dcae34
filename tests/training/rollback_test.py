"""A run that leaves out the batches at which it diverged."""

import json

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data.batches.pretraining import PretrainingData
from albert_tf.errors import DataError
from albert_tf.training.callbacks import DivergedError
from albert_tf.training.pretrain_batches import SkippedBatches
from albert_tf.training.settings import Phase
from tests.training.runs import run_pretraining


def diverged(step, loss=float("nan")):
    return DivergedError("the loss is nan", step, {"loss": loss, "grad_norm": 2.0})


@pytest.fixture
def make(tmp_path):
    """Opens the record of a run with two phases."""
    phases = [Phase(0, 10, None), Phase(10, 20, None)]
    return lambda writes=True: SkippedBatches(str(tmp_path), phases, writes)


def test_batches_are_counted_without_those_left_out(make):
    skipped = make()
    assert [skipped.batch_after(n) for n in range(3)] == [0, 1, 2]
    skipped.add(diverged(3), 2)  # the third update used batch 2
    assert [skipped.batch_after(n) for n in range(5)] == [0, 1, 3, 4, 5]
    entry = skipped.add(diverged(3), 2)  # and so did the next attempt use batch 3
    assert entry["batch"] == 3 and entry["loss"] is None and entry["grad_norm"] == 2.0
    skipped.add(diverged(1), 0)
    assert [skipped.batch_after(n) for n in range(4)] == [1, 4, 5, 6]
    again = make(writes=False)
    assert again.entries == skipped.entries
    for step, kept in ((1, [4, 5, 6, 7, 8]), (0, [1, 4, 5, 6, 7, 8])):
        natural = tf.data.Dataset.range(kept[0], 9).map(lambda n: {"n": n})
        assert [int(x["n"]) for x in again.leave_out(natural, step)] == kept
    # The batches of a later phase have numbers of their own.
    assert skipped.batch_after(11) == 1
    assert skipped.name(diverged(12)) == "batch 1 of the phase from step 10"
    assert skipped.add(diverged(12), 10)["batch"] == 1
    assert [skipped.batch_after(n) for n in (10, 11)] == [0, 2]
    assert [skipped.batch_after(n) for n in range(4)] == [1, 4, 5, 6]


def test_other_workers_keep_no_record(make, tmp_path):
    skipped = make(writes=False)
    skipped.add(diverged(3), 2)
    assert skipped.batch_after(2) == 3
    assert list(tmp_path.iterdir()) == []


def test_a_run_does_not_go_back_for_ever(make):
    skipped = make()
    for _ in range(5):
        skipped.add(diverged(9), 4)
    skipped.add(diverged(10), 8)  # another checkpoint
    with pytest.raises(DataError, match="diverged 6 times after step 4, each time at"):
        skipped.add(diverged(9), 4)


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Pretrains on batches that are changed, each by a function of its number."""
    batches = PretrainingData.batches
    lengths = {"num_train_steps": 9, "num_warmup_steps": 2, "log_steps": 2}
    lengths |= {"save_checkpoints_steps": 4, "learning_rate": 0.00176}

    def run(folder, change, left_out=(), **changes):
        def changed(self, size, *, start_step=0, **options):
            # The batches are counted here, without those that a run never saw.
            first = start_step + sum(n <= start_step for n in left_out)
            dataset = batches(self, size, start_step=first, **options)
            dataset = dataset.enumerate(first)
            for number in left_out:
                dataset = dataset.filter(lambda n, _, number=number: n != number)
            return dataset.map(change)

        monkeypatch.setattr(PretrainingData, "batches", changed)
        changes = {"on_divergence": "rollback", **lengths, **changes}
        run_pretraining(tmp_path, output_dir=tmp_path / folder, **changes)
        return tmp_path / folder

    return run


def poison(number, batch):
    """Makes the loss of batch 6 not a number."""
    bad = tf.where(number == 6, np.float32("nan"), np.float32(1))
    return {**batch, "mask_weights": batch["mask_weights"] * bad}


def test_a_poisoned_batch_is_left_out(train, capfd):
    message = "the loss is nan at step 7.*; --on_divergence=rollback leaves batch 6 out"
    with pytest.raises(DataError, match=message):
        train("poisoned", poison, on_divergence="stop")
    folder = train("poisoned", poison)
    assert (
        "diverged at step 7: batch 6 is left out, and training goes on from step 4"
        in (capfd.readouterr().err)
    )
    # The run is bitwise that of data without the batch.
    clean = train("clean", lambda number, batch: batch, left_out=[6])
    model = "model/model.safetensors"
    assert (folder / model).read_bytes() == (clean / model).read_bytes()
    lines = [json.loads(x) for x in (folder / "metrics.jsonl").open()]
    (line,) = [line for line in lines if line["split"] == "skipped"]
    assert (line["batch"], line["diverged_at"], line["step"]) == (6, 7, 4)
    assert "| 6 | 7 | 4 |" in (folder / "README.md").read_text()
    steps = [line["step"] for line in lines if line["split"] == "train"]
    assert steps == sorted(set(steps)) and steps[-1] == 9


def test_a_rate_far_too_high_is_not_cured_by_leaving_batches_out(train):
    changes = {"learning_rate": 1e30, "optimizer": "adamw", "clip_norm": 0.0}
    with pytest.raises(DataError, match="diverged 6 times after step 0"):
        train("run", lambda number, batch: batch, **changes)
