"""Checkpoints: whole or not at all, whatever happens to their files; averages."""

import errno
import functools
import io
import os

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.errors import DataError
from albert_tf.models.base import weight_names
from albert_tf.models.masked_lm import AlbertPretrainer
from albert_tf.optimizers.create import create_optimizer
from albert_tf.storage import calls, files
from albert_tf.training.checkpoints import (
    TrainingCheckpoints,
    WeightAverages,
    latest_step,
)

CONFIG = AlbertConfig(
    vocab_size=11,
    embedding_size=2,
    hidden_size=4,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=3,
    max_position_embeddings=5,
)


def make_run(name="lamb", config=CONFIG, seed=1, **options):
    """Returns the first arguments of `TrainingCheckpoints`."""
    model = AlbertPretrainer(config, seed=seed)
    optimizer = create_optimizer(name, learning_rate=0.1, num_train_steps=5, **options)
    optimizer.build(model.trainable_variables)
    return {"model": model, "optimizer": optimizer, "seed": 3}


@pytest.fixture(scope="module")
def made():
    return make_run()


@pytest.fixture
def run(made):
    """A run of step 0, whose weights are all 0."""
    train_to(made, 0)
    return made


@pytest.mark.parametrize("asynchronous", [False, True])
def test_only_the_chief_writes(run, tmp_path, asynchronous):
    TrainingCheckpoints(tmp_path, **run).save()
    (tmp_path / "step-9.data-00000-of-00001").touch()  # the chief is writing it
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    options = {"writes": False, "asynchronous": asynchronous}
    helper = TrainingCheckpoints(tmp_path, **run, **options)
    assert helper.restore(tmp_path) == 0  # the chief's checkpoint
    train_to(run, 1)
    helper.save(wait=True)
    helper.finish()
    after = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert after == before


def test_a_folder_of_any_name(run, tmp_path):
    for name in ("run1", "run[1]", "a?b*", "{x} ünï", "a\\b"):
        folder = tmp_path / name / "c"
        checkpoints = TrainingCheckpoints(folder, **run, keep=1)
        for step in (0, 1):
            train_to(run, step)
            checkpoints.save()
        assert latest_step(folder) == 1 and len(os.listdir(folder)) == 3
        assert checkpoints.restore(folder) == 1
    other = tmp_path / "run1" / "c"  # which a pattern in a name would find
    assert latest_step(other) == 1 and len(os.listdir(other)) == 3


def make(run, folder, **options):
    return TrainingCheckpoints(folder, **run, **options)


def train_to(run, step):
    """Gives the weights and the step values that a checkpoint is known by."""
    run["optimizer"].iterations.assign(step)
    for variable in run["model"].trainable_variables:
        variable.assign(np.full(variable.shape, float(step), "float32"))


def value_of(run):
    (value,) = {v.numpy().ravel()[0] for v in run["model"].trainable_variables}
    return value


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_checkpoint_holds_the_values_at_its_step(run, tmp_path, asynchronous):
    checkpoints = make(run, tmp_path, asynchronous=asynchronous, keep=2)
    for step in (1, 2, 3, 4):
        train_to(run, step)
        checkpoints.save()
        train_to(run, 99)  # training goes on
    checkpoints.finish()
    for step in (3, 4):
        reader = tf.train.load_checkpoint(os.fspath(tmp_path / f"step-{step}"))
        names = [n for n in reader.get_variable_to_shape_map() if "weights" in n]
        assert len(names) > 10
        assert {float(reader.get_tensor(n).ravel()[0]) for n in names} == {float(step)}
    assert checkpoints.restore(tmp_path) == 4
    assert value_of(run) == 4
    assert not list(tmp_path.glob("step-[12].*"))


def test_old_checkpoints_are_removed_after_a_restart_too(run, tmp_path):
    assert latest_step(tmp_path) is None
    for before, step in ((0, 3), (3, 4), (4, 12)):
        checkpoints = make(run, tmp_path, keep=2)
        train_to(run, step)
        checkpoints.save()
        names = {path.stem for path in tmp_path.glob("step-*.index")}
        assert names == {f"step-{n}" for n in (before, step) if n}
    assert latest_step(tmp_path) == 12
    assert tf.train.latest_checkpoint(tmp_path) == str(tmp_path / "step-12")
    # Nothing depends on the list that TensorFlow keeps.
    (tmp_path / "checkpoint").write_bytes(b"model_checkpoint_path: \xff")
    assert make(run, tmp_path).restore(tmp_path) == 12


def damage_data(folder, step):
    path = folder / f"step-{step}.data-00000-of-00001"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def damage_a_bit(folder, step):
    path = folder / f"step-{step}.data-00000-of-00001"
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)


def damage_index(folder, step, length=20):
    path = folder / f"step-{step}.index"
    path.write_bytes(path.read_bytes()[:length])


def remove_data(folder, step):
    (folder / f"step-{step}.data-00000-of-00001").unlink()


empty_index = functools.partial(damage_index, length=0)
DAMAGES = [damage_data, damage_a_bit, damage_index, empty_index, remove_data]


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_checkpoint_before_a_damaged_one_is_used(run, tmp_path, damage, caplog):
    checkpoints = make(run, tmp_path)
    for step in (2, 4):
        train_to(run, step)
        checkpoints.save()
    train_to(run, 99)
    damage(tmp_path, 4)
    again = make(run, tmp_path)
    assert again.restore(tmp_path) == 2
    assert value_of(run) == again.step == 2
    assert "step-4: is damaged and left out" in caplog.text
    # The run reaches the step again, and writes over the damaged files.
    train_to(run, 4)
    again.save()
    train_to(run, 99)
    assert make(run, tmp_path).restore(tmp_path) == 4
    for step in (2, 4):
        damage(tmp_path, step)
    with pytest.raises(DataError, match="every checkpoint is damaged"):
        make(run, tmp_path).restore(tmp_path)


def test_a_checkpoint_of_another_model_is_no_damaged_one(run, tmp_path):
    checkpoints = make(run, tmp_path)
    train_to(run, 2)
    checkpoints.save()
    other = make_run(config=CONFIG.replace(hidden_size=6))
    with pytest.raises(DataError, match="must be a checkpoint of this model"):
        make(other, tmp_path).restore(tmp_path)
    with pytest.raises(DataError, match="was trained with --seed=3, received --seed=4"):
        make(run | {"seed": 4}, tmp_path).restore(tmp_path)


def test_what_a_killed_process_left_is_removed(run, tmp_path):
    (tmp_path / "step-7_temp").mkdir()
    (tmp_path / "step-7_temp/part-00000-of-00001.data-00000-of-00001").touch()
    (tmp_path / "step-8.data-00000-of-00001").touch()
    (tmp_path / "step-8.index.tempstate123").touch()
    make(run, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("asynchronous", [False, True])
def test_old_checkpoints_make_room_on_a_full_disk(
    run, tmp_path, asynchronous, monkeypatch, caplog
):
    checkpoints = make(run, tmp_path, keep=9, asynchronous=asynchronous)
    for step in (1, 2, 3, 4):
        train_to(run, step)
        checkpoints.save(wait=True)
    room, write = 2, tf.train.Checkpoint.write

    def write_if_there_is_room(self, prefix):
        if len(list(tmp_path.glob("*.index"))) < room:
            return write(self, prefix)
        # TensorFlow leaves the data if there is no room for the index.
        (tmp_path / f"{os.path.basename(prefix)}.data-00000-of-00001").touch()
        raise tf.errors.ResourceExhaustedError(None, None, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tf.train.Checkpoint, "write", write_if_there_is_room)
    # A later one, damaged, is not what the run could continue from.
    damage_data(tmp_path, 4)
    checkpoints = make(run, tmp_path, keep=9, asynchronous=asynchronous)
    assert checkpoints.restore(tmp_path) == 3
    caplog.clear()
    train_to(run, 5)
    room = 3
    checkpoints.save(wait=True)
    left = sorted(path.stem for path in tmp_path.glob("*.index"))
    assert left == ["step-2", "step-3", "step-5"]
    assert caplog.text.count("the disk is full") == 1
    assert "step 5, older ones were removed: step 4, step 1" in caplog.text
    # The last one stays, whatever happens.
    room = 0
    with pytest.raises(DataError, match=r"step 6 cannot be written: No space"):
        train_to(run, 6)
        checkpoints.save(wait=True)
    left = {"checkpoint", "step-5.data-00000-of-00001", "step-5.index"}
    assert {path.name for path in tmp_path.iterdir()} == left
    assert make(run, tmp_path).restore(tmp_path) == 5


@pytest.mark.parametrize("kind", ["index", "data-00000-of-00001"])
def test_a_read_that_fails_is_no_damage(run, tmp_path, monkeypatch, kind, caplog):
    checkpoints = make(run, tmp_path)
    for step in (2, 4):
        train_to(run, step)
        checkpoints.save()
    failing = [True]

    class Flaky(io.FileIO):
        def read(self, *args):
            if self.name.endswith(f"step-4.{kind}") and failing:
                if once:
                    failing.pop()
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return super().read(*args)

    monkeypatch.setattr(calls, "WAITS", (0, 0))
    monkeypatch.setattr(files, "open", Flaky, raising=False)
    once = True
    assert make(run, tmp_path).restore(tmp_path) == 4 and not failing
    assert "damaged" not in caplog.text
    once, failing = False, [True]
    with pytest.raises(DataError, match=r"step-4: cannot be read: Input/output error"):
        make(run, tmp_path).restore(tmp_path)


def in_the_way(folder, step):
    """Puts a file in the place of the folder of half-written files."""
    (folder / f"step-{step}_temp").write_text("")


def test_a_failure_in_the_background_is_said_once(run, tmp_path):
    checkpoints = make(run, tmp_path / "c", asynchronous=True)
    train_to(run, 1)
    checkpoints.save()
    checkpoints.settle()
    checkpoints.check()
    in_the_way(tmp_path / "c", 2)
    train_to(run, 2)
    checkpoints.save()
    checkpoints._begun.exception()  # waits for it
    with pytest.raises(DataError, match="step 2 cannot be written"):
        checkpoints.check()
    checkpoints.check()
    # An earlier failure is no reason to refuse the one that is waited for.
    in_the_way(tmp_path / "c", 3)
    train_to(run, 3)
    checkpoints.save()
    train_to(run, 4)
    checkpoints.save(wait=True)
    assert latest_step(tmp_path / "c") == 4


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_checkpoint_that_cannot_be_written(run, tmp_path, asynchronous):
    """A bucket that does not answer: training may go on and try again."""
    checkpoints = make(run, tmp_path, asynchronous=asynchronous)
    train_to(run, 1)
    checkpoints.save(wait=True)
    in_the_way(tmp_path, 2)
    train_to(run, 2)
    with pytest.raises(DataError, match="checkpoint of step 2 cannot be written"):
        checkpoints.save(wait=True)
    # The attempt cleans up after itself, which lets the next one succeed here.
    checkpoints.save(wait=True)
    assert latest_step(tmp_path) == 2


def averaged_run(ema_decay, seed=1):
    run = make_run("adamw", seed=seed, ema_decay=ema_decay)
    gradients = [tf.ones(v.shape) for v in run["model"].trainable_variables]
    for _ in range(3):
        run["optimizer"].apply(gradients)
    return run


def test_a_checkpoint_holds_them_only_if_there_are_any(tmp_path):
    plain, averaged = averaged_run(0.0), averaged_run(0.9)
    before = plain["model"].get_weights()
    with (averages := WeightAverages(plain["model"], plain["optimizer"])).in_place():
        averages.replace_weights()
    assert not averages
    np.testing.assert_array_equal(before[0], plain["model"].get_weights()[0])
    TrainingCheckpoints(tmp_path / "plain", **plain).save()
    TrainingCheckpoints(tmp_path / "averaged", **averaged).save()

    def groups(name):
        keys = tf.train.load_checkpoint(
            str(tmp_path / name)
        ).get_variable_to_shape_map()
        return {key.partition("/")[0] for key in keys}

    assert groups("averaged") - groups("plain") == {"averages"}
    assert groups("plain") >= {"weights", "slots", "step", "seed"}


def test_restored_averages_are_the_same_bits(tmp_path):
    run = averaged_run(0.9)
    TrainingCheckpoints(tmp_path, **run).save()
    other = averaged_run(0.9, seed=2)
    checkpoints = TrainingCheckpoints(tmp_path, **other)
    assert "averages" in checkpoints.facts()
    checkpoints.restore(tmp_path)
    expected = WeightAverages(run["model"], run["optimizer"]).averages
    averages = WeightAverages(other["model"], other["optimizer"])
    for name, value in expected.items():
        np.testing.assert_array_equal(value, averages.averages[name])
    averages.replace_weights()
    for name, value in weight_names(other["model"]).items():
        np.testing.assert_array_equal(value, expected[name])
