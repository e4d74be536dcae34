"""The batches of a run fit its settings; those at which it diverged are left out."""

import contextlib
import json
import types

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import features
from albert_tf.data.batches.pretraining import PretrainingData
from albert_tf.data.masking.config import MaskingConfig
from albert_tf.errors import DataError, UsageError
from albert_tf.objectives.pretraining import ALBERT, OBJECTIVES
from albert_tf.training.callbacks import DivergedError
from albert_tf.training.pretrain import Pretraining
from albert_tf.training.pretrain_batches import (
    RunBatches,
    SkippedBatches,
    _eval_masking,
)
from albert_tf.training.pretrain_settings import PretrainSettings
from albert_tf.training.settings import Phase
from tests.tiny import TEXT
from tests.training.runs import RECORDS, pretraining, run_pretraining

HELD_OUT = {"eval_file": RECORDS, "max_eval_steps": 2, "eval_batch_size": 3}


@pytest.fixture
def settings(tmp_path):
    return lambda **changes: PretrainSettings(**pretraining(tmp_path, **changes))


@pytest.fixture
def make(settings, tokenizer):
    def make(replicas=1, learned=ALBERT, type_vocab_size=2, **changes):
        given = settings(**{"objective": learned.name, **changes})
        return RunBatches(given, learned, tokenizer, replicas, type_vocab_size)

    return make


def training(data, step):
    return data.train(step, SkippedBatches("no-folder", data.phases, False))


@pytest.mark.parametrize(
    "changes",
    [
        {"masking": "bert"},
        {"masked_lm_prob": 0.2},
        {"ngram": 1},
        {"eval_masked_lm_prob": 0.2, "eval_file": RECORDS},
        {"eval_ngram": 1, "eval_file": RECORDS},
    ],
)
def test_records_with_masks_take_no_others(make, changes):
    assert make().keeps_masks
    name = next(iter(changes))
    with pytest.raises(UsageError, match=f"^--{name}=.* leave --{name} out"):
        make(**changes)


def test_spans_are_not_learned_from_the_masks_of_records(make):
    learned = OBJECTIVES["spanbert"]
    message = (
        "^--objective=spanbert masks by --masking=spanbert, but --input_file=.* al"
    )
    with pytest.raises(UsageError, match=message):
        make(learned=learned)
    assert make(learned=OBJECTIVES["bert"]).keeps_masks


def test_what_distinguishes_the_examples_of_an_evaluation(make, tmp_path):
    whole = make(eval_file=RECORDS, max_eval_steps=0).evaluated_on()
    limited = make(**HELD_OUT).evaluated_on()
    assert limited == whole | {"rows": 6}
    # More steps than there are batches make no difference, nor does another path.
    (tmp_path / "copy.tfrecord").write_bytes(RECORDS.read_bytes())
    copy = make(eval_file=tmp_path / "copy.tfrecord", max_eval_steps=10_000)
    assert copy.evaluated_on() == whole and whole["rows"] > 6
    other = tmp_path / "other.tfrecord"
    with tf.io.TFRecordWriter(str(other)) as f:
        for record in list(tf.data.TFRecordDataset(str(RECORDS)))[:-1]:
            f.write(record.numpy())
    fewer = make(**{**HELD_OUT, "eval_file": other}).evaluated_on()
    assert fewer["rows"] == 6 and fewer != limited


def test_records_must_fill_a_batch(make):
    rows = len(list(tf.data.TFRecordDataset(str(RECORDS))))
    make(train_batch_size=rows)
    with pytest.raises(
        DataError, match=f"a batch of {rows + 1} rows; make.*, received {rows}$"
    ):
        make(train_batch_size=rows + 1)


def test_a_batch_of_an_evaluation_that_is_rounded_is_named(make, caplog):
    caplog.set_level("WARNING", logger="absl")
    make(2, eval_file=RECORDS, eval_batch_size=4)
    assert not caplog.records
    make(2, eval_file=RECORDS, eval_batch_size=5)
    assert "--eval_batch_size=5: evaluates batches of 4" in caplog.text


def test_masks_that_have_no_room_are_named(make, records, caplog):
    caplog.set_level("WARNING", logger="absl")
    data = records(max_seq_length=64)
    given = {"input_file": data, "eval_file": data, "max_seq_length": 64}
    make(**given, max_predictions_per_seq=10, eval_masked_lm_prob=0.1)
    make(**given, max_predictions_per_seq=None, eval_masked_lm_prob=0.4)
    make(max_predictions_per_seq=20)  # masks of the records
    assert not caplog.records
    make(**given, max_predictions_per_seq=10, eval_masked_lm_prob=0.3)
    (found,) = caplog.records
    assert found.getMessage() == (
        f"--eval_file={data}: max_predictions_per_seq=10 masks 0.156 of 64 tokens, "
        "less than masked_lm_prob=0.3"
    )
    make(**given, max_predictions_per_seq=3)
    assert f"--input_file={data}: max_predictions_per_seq=3 masks 0.0469" in caplog.text


def test_segments_that_the_model_has_not_are_refused(make):
    with pytest.raises(DataError, match=r"pred20.*: segment_ids must be in \[0, 1\),"):
        make(type_vocab_size=1)


@pytest.mark.slow
def test_evaluations_may_mask_otherwise_than_training(make, records):
    data = records(max_seq_length=64)
    sizes = {"max_seq_length": 64, "max_predictions_per_seq": 32}
    sizes |= {"train_batch_size": 8, "max_eval_steps": 100}

    def masked(**changes):
        """Returns batches, and the masked positions of a held-out one."""
        batches = make(input_file=data, eval_file=data, **sizes, **changes)
        return batches, positions(batches.eval("", 1, 0))

    def positions(dataset):
        return next(iter(dataset))[features.MASK_POSITIONS].numpy()

    plain, held_out = masked()
    other = {"masked_lm_prob": 0.4, "ngram": 1}
    more, same = masked(**other, eval_masked_lm_prob=0.15, eval_ngram=3)
    assert more.evaluated_on() == plain.evaluated_on()
    trained = [positions(training(batches, 0)) for batches in (plain, more)]
    assert np.count_nonzero(trained[1]) > 2 * np.count_nonzero(trained[0])
    np.testing.assert_array_equal(same, held_out)
    unchanged, single = masked(eval_ngram=1)
    np.testing.assert_array_equal(positions(training(unchanged, 0)), trained[0])
    assert np.any(single != held_out)
    assert unchanged.evaluated_on() == plain.evaluated_on() | {"max_ngram": 1}
    # Without settings of their own, evaluations follow the training.
    assert np.count_nonzero(masked(**other)[1]) > 2 * np.count_nonzero(held_out)


def test_masks_that_an_evaluation_cannot_have(settings):
    for changes, message in (
        ({"masking": "bert", "eval_ngram": 1}, "^--eval_ngram=1 requires --masking=al"),
        ({"eval_ngram": 999}, "--eval_ngram=999: max_ngram must be at most 512, rec"),
        ({"eval_masked_lm_prob": 1.5}, r"^--eval_masked_lm_prob=1\.5.*received 1\.5"),
    ):
        with pytest.raises(UsageError, match=message):
            _eval_masking(settings(**{"masking": "albert", **changes}))


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_labels_must_mean_what_is_learned(make, records, objective):
    wrong = {"albert": ["nsp"], "bert": ["clean"]}.get(objective, ["clean", "nsp"])
    given = {"learned": OBJECTIVES[objective], "max_predictions_per_seq": None}
    for policy in ("clean", "nsp", "none", "segments"):
        data = records(pair_policy=policy, max_seq_length=64)
        message = f"={objective} requires .*--input_file=.*--pair_policy={policy}"
        refused = pytest.raises(UsageError, match=message)
        with refused if policy in wrong else contextlib.nullcontext():
            make(input_file=data, max_seq_length=64, **given)


@pytest.mark.slow
def test_held_out_files_of_sources_are_evaluated_one_by_one(make, records):
    inputs = f"prose={TEXT}:0.5,code=docstrings:max_bytes=40000:0.5"
    given = {"max_seq_length": 64, "max_predictions_per_seq": None}
    data = records(input_file=inputs, eval_fraction=0.3, max_seq_length=64)
    given |= {"input_file": data, "eval_file": f"{data}/x-eval", "eval_batch_size": 4}
    batches = make(**given, max_eval_steps=0)
    with open(f"{data}/dataset.json") as file:
        sources = json.load(file)["sources"]
    rows = {
        name: sum(
            int(batch[features.PADDING_MASK].any(axis=1).sum())
            for batch in batches.eval(name, 1, 0).as_numpy_iterator()
        )
        for name in sources
    }
    assert rows == {k: source["held_out_examples"] for k, source in sources.items()}
    assert batches.evaluated_on()["rows"] == sum(rows.values())
    assert make(**given, max_eval_steps=1).evaluated_on()["rows"] == 8


def test_a_pair_loss_of_weight_0_is_not_read():
    objective = ALBERT.with_pair_weight(0.0)
    sums = {name: tf.constant(1.0) for name in objective.sum_names}
    with tf.GradientTape() as tape:
        tape.watch(sums)
        loss = objective.loss(sums, tf.ones(2))
    gradients = tape.gradient(loss, sums)
    assert gradients["mlm_loss_sum"] and gradients["sop_loss_sum"] is None


@pytest.mark.slow
def test_batches_of_a_phase_are_those_of_a_run_of_its_length(
    make, records, tmp_path, tokenizer
):
    for length in (32, 64):
        folder = records(pair_policy="none", max_seq_length=length)
        (tmp_path / f"of_{length}").symlink_to(folder)
    data = make(
        input_file=tmp_path / "of_{length}",
        max_seq_length=64,
        max_predictions_per_seq=10,
        num_train_steps=7,
        sequence_length_schedule="32:4:6,64:3:2",
    )
    # A phase begins with the first batch of its records.
    for step, first, rows, length, predictions in ((3, 0, 6, 32, 5), (6, 4, 2, 64, 10)):
        batches = training(data, step)
        # Static shapes in each phase, as a TPU needs them.
        assert batches.element_spec["token_ids"].shape == (rows, length)
        batch = next(batches.as_numpy_iterator())
        assert batch["token_ids"].shape == (rows, length)
        assert batch["mask_ids"].shape == (rows, predictions)
        alone = PretrainingData(
            str(tmp_path / f"of_{length}"),
            tokenizer=tokenizer,
            max_seq_length=length,
            max_predictions_per_seq=predictions,
            masking=MaskingConfig.from_preset("albert"),
            seed=7,
        )
        expected = alone.batches(rows, start_step=step - first).as_numpy_iterator()
        for name, value in next(expected).items():
            np.testing.assert_array_equal(batch[name], value, name)
    assert list(data.records) == [32, 64]
    assert data.summary.startswith("32 tokens until step 4: ")
    assert "; 64 tokens until step 7: " in data.summary


def diverged(step, loss=float("nan")):
    return DivergedError("the loss is nan", step, {"loss": loss, "grad_norm": 2.0})


@pytest.fixture
def skipping(tmp_path):
    """Opens the record of a run with two phases."""
    phases = [Phase(0, 10, None), Phase(10, 20, None)]
    return lambda writes=True: SkippedBatches(str(tmp_path), phases, writes)


def test_batches_are_counted_without_those_left_out(skipping):
    skipped = skipping()
    assert [skipped.batch_after(n) for n in range(3)] == [0, 1, 2]
    skipped.add(diverged(3), 2)  # the third update used batch 2
    assert [skipped.batch_after(n) for n in range(5)] == [0, 1, 3, 4, 5]
    entry = skipped.add(diverged(3), 2)  # and so did the next attempt use batch 3
    assert entry["batch"] == 3 and entry["loss"] is None and entry["grad_norm"] == 2.0
    skipped.add(diverged(1), 0)
    assert [skipped.batch_after(n) for n in range(4)] == [1, 4, 5, 6]
    again = skipping(writes=False)
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


def test_a_run_that_ends_says_what_it_could_leave_out(skipping):
    stop = types.SimpleNamespace(on_divergence="stop")
    run = types.SimpleNamespace(settings=stop, skipped=skipping())
    message = "the loss is nan; --on_divergence=rollback leaves batch 6 out"
    with pytest.raises(DataError, match=message):
        Pretraining.diverged(run, diverged(7))


def test_other_workers_keep_no_record(skipping, tmp_path):
    skipped = skipping(writes=False)
    skipped.add(diverged(3), 2)
    assert skipped.batch_after(2) == 3
    assert list(tmp_path.iterdir()) == []


def test_a_run_does_not_go_back_for_ever(skipping):
    skipped = skipping()
    for _ in range(5):
        skipped.add(diverged(9), 4)
    skipped.add(diverged(10), 8)  # another checkpoint
    with pytest.raises(DataError, match="diverged 6 times after step 4, each time at"):
        skipped.add(diverged(9), 4)


@pytest.fixture
def changed_run(tmp_path, monkeypatch, eager):
    """Pretrains on batches that are changed, each by a function of its number."""
    batches = PretrainingData.batches
    lengths = {"num_train_steps": 5, "log_steps": 1, "learning_rate": 0.00176}
    lengths |= {"save_checkpoints_steps": 2}

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
    """Makes the loss of batch 3 not a number."""
    bad = tf.where(number == 3, np.float32("nan"), np.float32(1))
    return {**batch, "mask_weights": batch["mask_weights"] * bad}


@pytest.mark.slow
def test_a_poisoned_batch_is_left_out(changed_run, capfd):
    folder = changed_run("poisoned", poison)
    assert (
        "diverged at step 4: batch 3 is left out, and training goes on from step 2"
        in (capfd.readouterr().err)
    )
    # The run is bitwise that of data without the batch.
    clean = changed_run("clean", lambda number, batch: batch, left_out=[3])
    model = "model/model.safetensors"
    assert (folder / model).read_bytes() == (clean / model).read_bytes()
    lines = [json.loads(x) for x in (folder / "metrics.jsonl").open()]
    (line,) = [line for line in lines if line["split"] == "skipped"]
    assert (line["batch"], line["diverged_at"], line["step"]) == (3, 4, 2)
    assert "| 3 | 4 | 2 |" in (folder / "README.md").read_text()
    steps = [line["step"] for line in lines if line["split"] == "train"]
    assert steps == sorted(set(steps)) and steps[-1] == 5


@pytest.mark.broad
def test_a_rate_far_too_high_is_not_cured_by_leaving_batches_out(changed_run):
    changes = {"learning_rate": 1e30, "optimizer": "adamw", "clip_norm": 0.0}
    with pytest.raises(DataError, match="diverged 6 times after step 0"):
        changed_run("run", lambda number, batch: batch, **changes)
